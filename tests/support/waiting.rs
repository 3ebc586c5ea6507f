//! Waits until something holds.

#![allow(dead_code, reason = "each program uses a part of it")]

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

/// `Ok` if the condition holds; for `eventually`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
