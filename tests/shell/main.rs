//! What lies between the machine and the API servers: watches, writes, the election, and what a running
//! process reports.

#![allow(unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod admin;
#[path = "../../crates/sim/tests/support/certificate.rs"]
mod certificate;
mod cluster;
#[path = "../support/every_metric.rs"]
mod every_metric;
#[path = "../support/http.rs"]
mod http;
mod leader;
mod leader_lease;
mod live;
#[path = "../support/live_fleet.rs"]
mod live_fleet;
mod log;
mod orphan_rails;
#[path = "../../crates/sim/tests/support/sim_apiserver.rs"]
mod sim_apiserver;
#[path = "../../crates/core/tests/support/stage.rs"]
mod stage;
#[path = "../support/temp_folder.rs"]
mod temp_folder;
mod user_impact;
#[path = "../support/waiting.rs"]
mod waiting;
