//! The pure heart: what is seen in three tiers of clusters, what should be, what to do.
//!
//! No async, no I/O, no clock, no randomness, no logging. [`machine`] is the way in and out; one
//! file holds each rule: `mirror`, `touch`, `orphan` (and `budget`, how many orphans may go).

pub mod action;
mod announcement;
mod budget;
mod cluster;
mod connector;
mod desk;
mod edge;
mod edge_events;
pub mod event;
mod few;
mod flight;
pub mod ids;
pub mod keep;
pub mod liveness;
pub mod machine;
mod mirror;
mod mirrored;
pub mod objects;
mod orphan;
mod packed;
pub mod phase;
mod replica;
pub mod route;
mod seen;
pub mod settings;
mod source;
pub mod spelling;
mod string_map;
pub mod subject;
pub mod time;
mod timers;
mod touch;
mod touched;
pub mod trigger;
pub mod view;
