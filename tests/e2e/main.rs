//! Tests of the real program on real API servers. `make e2e` runs them; each test starts its own servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod absence;
mod changes;
mod checking;
#[path = "../support/cluster/mod.rs"]
mod cluster;
mod conformance;
mod discovery;
mod discovery_milo;
mod events;
mod hung;
mod incident_page;
mod leading;
mod leading_interop;
mod leading_losses;
mod orphans;
mod outages;
mod prelude;
mod recording;
mod reload;
#[path = "../../crates/sim/tests/server/requests/mod.rs"]
mod requests;
mod rights;
mod shards;
#[path = "../../crates/sim/tests/support/sim_apiserver.rs"]
mod sim_apiserver;
mod stopping;
mod tenants;
#[path = "../deploy/tools.rs"]
#[allow(dead_code, reason = "the tests of deploy/ use the rest")]
mod tools;
mod tracing;
#[path = "../deploy/transcript.rs"]
#[allow(dead_code, reason = "the tests of deploy/ use the rest")]
mod transcript;
mod writers;
