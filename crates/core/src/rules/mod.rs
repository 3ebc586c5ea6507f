//! One rule a file: its view, its memory, its plan, its tests.
//!
//! `plan` takes a view and returns data. A function that takes `&mut` takes the memory of its own
//! rule. The controller calls it when something happened: `on_seen`, `on_started`, `on_finished`.

pub(crate) mod findings;
pub(crate) mod hop;
pub(crate) mod mirror;
pub(crate) mod naming;
pub(crate) mod nudge;
pub(crate) mod orphan;
pub(crate) mod touch;
