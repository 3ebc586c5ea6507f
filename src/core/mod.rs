//! The pure heart: what is seen in three tiers of clusters, what should be, what to do.
//!
//! No async, no I/O, no clock, no randomness, no logging. [`machine`] is the way in and out; one
//! file holds each rule: `mirror`, `touch`, `orphan`.

pub mod action;
mod cluster;
mod connector;
mod edge;
pub mod event;
mod few;
mod flight;
pub mod ids;
pub mod liveness;
pub mod machine;
pub(crate) mod mirror;
pub mod objects;
pub(crate) mod orphan;
mod packed;
pub mod settings;
pub mod spelling;
pub mod time;
mod timers;
pub(crate) mod touch;
pub mod trigger;
