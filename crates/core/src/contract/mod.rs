//! The machine's inputs and outputs: events, actions, notes, settings, causes of problems and of
//! failed requests, and the clusters that join and leave.

pub mod action;
pub mod cause;
pub mod error_cause;
pub mod event;
pub mod membership;
pub mod note;
pub mod route_origin;
pub mod settings;
pub mod symptom;
