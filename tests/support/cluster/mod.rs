//! Real clusters for tests, benches and examples: API servers, fault proxies in front of them, a fleet
//! of connectors in them, a carrier between them, and throughline itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test crate uses a part of it")]

pub(crate) mod apiserver;
pub(crate) mod carrier;
#[path = "../../../crates/sim/tests/support/certificate.rs"]
mod certificate;
#[path = "../constants.rs"]
pub(crate) mod constants;
pub(crate) mod faults;
pub(crate) mod fleet;
pub(crate) mod follow;
pub(crate) mod milo;
pub(crate) mod objects;
pub(crate) mod oracle;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod rest;
pub(crate) mod rights;
pub(crate) mod testbed;
pub(crate) mod throughline;

use std::time::{Duration, Instant};

/// Long enough for anything that is going to happen, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits until `check` succeeds.
///
/// # Panics
/// It does not succeed in time; prints its last error.
pub(crate) async fn eventually(
    what: &str,
    timeout: Duration,
    mut check: impl AsyncFnMut() -> Result<(), String>,
) {
    let until = Instant::now() + timeout;
    loop {
        let Err(error) = check().await else { return };
        assert!(Instant::now() < until, "still not after {timeout:?}: {what}: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until `holds` says so.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    eventually(what, SOON, async || ensure(holds().await, || "not yet".to_owned())).await;
}

/// Waits until no write has passed the proxies for longer than any delay of throughline with the
/// settings of `Setup::of`.
pub(crate) async fn wait_until_idle(testbed: &testbed::Testbed) {
    const STILL: Duration = Duration::from_millis(2_500);
    loop {
        let before = testbed.writes().len();
        tokio::time::sleep(STILL).await;
        if testbed.writes().len() == before {
            return;
        }
    }
}

/// `Ok` if the condition holds; for `eventually`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
