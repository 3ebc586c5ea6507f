//! The simulated API server: what a client gets from it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod conformance;
mod controller;
mod faults;
mod milo;
mod requests;
#[path = "../support/sim_apiserver.rs"]
mod sim_apiserver;
