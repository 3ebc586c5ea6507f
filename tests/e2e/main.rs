//! Live tests on real API servers. `make e2e` runs them; each starts its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod changes;
#[path = "../support/cluster/mod.rs"]
mod cluster;
mod harness;
mod orphans;
mod outages;
mod refusals;
mod stopping;
mod writers;
