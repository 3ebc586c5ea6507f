//! The rules, to the millisecond: one module for each promise. They need the core alone, so a change of a
//! rule builds and runs this program in seconds. What a rule does to a whole fleet under faults is in
//! `tests/properties` of the program.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod absence;
mod causes;
mod consistency;
mod corners;
mod fleet;
mod nudging;
mod orphans;
mod purity;
#[path = "../support/random.rs"]
mod random;
mod roster;
mod scenes;
#[path = "../support/stage.rs"]
mod stage;
mod tenants;
mod touch_pace;
mod touching;
mod vectors;
mod view;
mod waiting;
