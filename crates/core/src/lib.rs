//! The pure core: the state of three tiers of clusters, the rules, and the actions that they decide.
//!
//! No async, no I/O, no clock, no randomness, no logging: the same events always give the same
//! actions (`tests/rules/purity.rs` searches for what would break that). [`machine`] is the way in and out;
//! `dispatch` hands each object to its tier; `fleet` decides which clusters
//! join and leave; a rule stands beside the data it reads: `hub` has
//! mirror and nudge, `edge` has touch, `orphans` has delete.

pub mod cause;
mod circuit_breaker;
mod clusters;
mod contention;
mod context;
pub mod contract;
pub mod data;
mod dispatch;
mod edge;
mod fleet;
mod flight;
mod hub;
mod leadership;
pub mod leaving;
pub mod machine;
mod moment;
mod naming;
pub mod next;
mod orphans;
#[allow(dead_code, reason = "removals and deletes are to use the rest of it")]
mod rate_limit;
pub mod status;
mod subject;
mod timers;
mod upstream;
pub mod view;
mod waiting;
mod write_queue;
mod write_queues;
