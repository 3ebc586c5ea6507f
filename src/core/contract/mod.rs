//! What goes into the machine and comes out of it: events, actions, notes, settings, and why requests
//! fail.

pub mod action;
pub mod error_cause;
pub mod event;
pub mod note;
pub mod settings;
