//! The simulated API server answers the script of requests; `tests/e2e/conformance.rs` of the workspace compares
//! it with a real one.

use crate::requests::{script, simulated_answers};

#[tokio::test]
async fn the_simulated_server_answers_with_the_codes_and_reasons_of_the_script() {
    assert_eq!(simulated_answers().await.len(), script().len());
}
