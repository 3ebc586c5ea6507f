//! The core of throughline: a state machine without I/O, clock or randomness.
//!
//! throughline copies the status of upstream Connectors to the hub, follows it to the edges, and
//! touches Gateways there, so that Envoy Gateway translates them again. At the hub it deletes routes
//! that are left over. Each of these is a *rule*.
//!
//! Every event takes the same way:
//!
//! 1. `World` takes it over. The world is what the watches show, and nothing else.
//! 2. Each *subject* that the change concerns (a hub Connector, a route, a Gateway or a class of
//!    them, an edge Connector) is planned again: its rule gets a view of the world and of its own
//!    memory, and returns a plan.
//! 3. The `Controller` carries the plan out. It starts a write, queues the subject, or sets a timer,
//!    after which the subject is planned again.
//!
//! A rule has no effect. Whatever waits (for a rate limit, a pause, a grace period) keeps no
//! decision while it waits: it is planned again when its time has come, on what is known by then.
//! So a lost event, a restart or a second writer cannot leave a stale decision behind.
//!
//! What would be done *because something is missing* needs an `AbsenceProof`, and a `CircuitBreaker`
//! bounds how much of it one mistake can reach.
//!
//! Modules are listed from the bottom up; each imports only those above it.

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
