//! What is in `deploy/`, held to real tools and real API servers. `make deploy-test` runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod accepted;
mod alerts;
mod chart;
#[path = "../support/cluster/mod.rs"]
mod cluster;
mod dashboard;
mod docs;
mod forms;
mod karmada;
mod promql;
mod render;
mod tools;
