//! throughline: carries tunnel-connector liveness from project control planes to the edge.
//!
//! The code map, in the order data flows:
//!
//! - [`event_log`]: events from, and to, a file: the versioned JSON-lines format
//! - [`core`]: the pure machine: events in, actions out; no clock, no I/O
//! - [`world`]: clusters in memory that behave as API servers do where it matters
//! - [`replay`]: a recorded log, driven through the machine: verify or what-if
//! - [`outage`]: what users saw: when an edge answered 503 for a connector that was up
//! - [`report`]: text and JSON pictures of a replay

pub mod core;
pub mod event_log;
pub mod outage;
pub mod replay;
pub mod report;
pub mod world;
