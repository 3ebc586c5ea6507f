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
#[path = "../waiting.rs"]
mod waiting;

use std::time::Duration;

pub(crate) use waiting::{SOON, ensure, eventually, until};

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
