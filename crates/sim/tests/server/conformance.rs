//! The simulated API server answers the script of requests; `tests/e2e/conformance.rs` of the workspace compares
//! it with a real one.

use crate::requests::simulated_answers;

#[tokio::test]
async fn the_simulated_server_answers_with_the_codes_and_reasons_of_the_script() {
    // Panics where a code or a reason differs.
    simulated_answers().await;
}
