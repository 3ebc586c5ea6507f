//! The simulated API server: what a client gets from it, and that a real kube-apiserver answers alike.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../support/certificate.rs"]
mod certificate;
mod conformance;
mod controller;
mod faults;
mod milo;
mod real_server;
mod requests;
#[path = "../support/sim_apiserver/mod.rs"]
mod sim_apiserver;
