//! Waits until something holds.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::time::Duration;

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
    let mut last = "the first check did not end".to_owned();
    let succeeds = async {
        while let Err(error) = check().await {
            last = error;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let succeeded = tokio::time::timeout(timeout, succeeds).await.is_ok();
    assert!(succeeded, "still not after {timeout:?}: {what}: {last}");
}

/// Waits until `holds` says so.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    eventually(what, SOON, async || ensure(holds().await, || "not yet".to_owned())).await;
}

/// `Ok` if the condition holds; for `eventually`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
