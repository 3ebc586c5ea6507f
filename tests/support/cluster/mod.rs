//! Real clusters for tests, benches and the demo: API servers, what stands in front of them, what is
//! in them, what carries between them, and throughline itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each user takes a part of it")]

pub(crate) mod apiserver;
pub(crate) mod carrier;
pub(crate) mod faults;
pub(crate) mod fleet;
pub(crate) mod follow;
pub(crate) mod objects;
pub(crate) mod oracle;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod rest;
pub(crate) mod rights;
pub(crate) mod throughline;
pub(crate) mod world;

use std::time::{Duration, Instant};

/// Long enough for anything that comes at all, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits until `check` is satisfied.
///
/// # Panics
/// It is not, in all that time; says what it said last.
pub(crate) async fn eventually<F, Fut>(what: &str, timeout: Duration, mut check: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), String>>,
{
    let until = Instant::now() + timeout;
    loop {
        let Err(error) = check().await else { return };
        assert!(Instant::now() < until, "not in {timeout:?}: {what}: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until no write has come to the proxies for a while: longer than anything that throughline
/// puts off by its settings as `Setup::of` makes them.
pub(crate) async fn quiet(world: &world::World) {
    const STILL: Duration = Duration::from_millis(2_500);
    loop {
        let before = world.writes().len();
        tokio::time::sleep(STILL).await;
        if world.writes().len() == before {
            return;
        }
    }
}

/// `Ok` when it holds; for `eventually`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
