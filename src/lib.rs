//! throughline: carries tunnel-connector liveness from project control planes to the edge.
//!
//! The code map, in the order data flows:
//!
//! - [`config`]: what a live run is told: clusters, roles, timings
//! - [`live_log`]: the event log of a live run, written beside the loop
//! - [`metrics`]: what is counted, for Prometheus and the probes
//! - [`admin`]: probes, metrics and state over HTTP
//! - [`event_log`]: events from, and to, a file: the versioned JSON-lines format
//! - [`core`]: the pure machine: events in, actions out; no clock, no I/O
//! - [`world`]: clusters in memory that behave as API servers do where it matters
//! - [`front`]: the world's clusters over HTTP, by the API server's protocol
//! - [`replay`]: a recorded log, driven through the machine: verify or what-if
//! - [`outage`]: what users saw: when an edge answered 503 for a connector that was up
//! - [`report`]: text and JSON pictures of a replay

pub mod admin;
pub mod config;
pub mod core;
pub mod event_log;
pub mod front;
pub mod live_log;
pub mod metrics;
pub mod outage;
pub mod replay;
pub mod report;
pub mod world;
