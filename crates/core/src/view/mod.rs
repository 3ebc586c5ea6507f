//! The machine's state at one time, for `status`, `trace`, `/state` and the live page. No rule
//! reads it.
//!
//! `build` makes a [`Fleet`](fleet::Fleet) from the world, the memory, the verdicts of the rules
//! and the open problems. Nothing is cached: each call costs O(everything).

pub mod fleet;
pub mod group;
pub mod involved_object;
pub mod orphans;

mod build;
mod connector;
mod edges;
mod hubs;
mod judged;
mod unpaired;
mod upstream;

pub use crate::world::cluster::WatchState;
