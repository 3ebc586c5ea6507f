//! The core of throughline: a state machine without I/O, clock or randomness.
//!
//! throughline copies the status of upstream Connectors to the hub, checks that it is carried to
//! the edges, and touches Gateways there, so that Envoy Gateway translates them again. At the hub
//! it deletes orphaned routes. Each of these is a *rule*.
//!
//! Each event is handled in three steps:
//!
//! 1. The `World` takes the event. It holds the objects as the watches show them, and nothing else.
//! 2. Each *subject* that the change concerns (a hub Connector, a route, a Gateway or a class of
//!    Gateways) is planned again: its rule gets a view of the world and of its own memory, and
//!    returns a plan.
//! 3. The `controller` carries out the plan. It starts a write, queues the subject, or sets a timer
//!    for the next plan.
//!
//! A rule has no effects. A subject that waits (for a rate limit, a pause, a grace period) keeps no
//! decision meanwhile: when its time comes, it is planned again from the state at that time. So a
//! lost event, a restart or a second writer cannot leave a stale decision behind.
//!
//! A write *because something is missing* needs an `AbsenceProof`, and a `CircuitBreaker` limits
//! how many objects one mistake can reach.
//!
//! Modules are listed from the bottom up. Each imports only those above it.

pub mod data;
pub mod status;

pub mod contract;

mod circuit_breaker;
pub mod rate_limit;
mod subject;
mod timers;
mod write_queue;
mod write_state;

mod scheduler;
mod world;

pub mod symptoms;

mod plan;
mod rules;

mod roster;

mod controller;

pub mod machine;
pub mod view;
