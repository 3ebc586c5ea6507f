//! What goes into the machine and comes out of it: events, actions, notes, settings, why requests
//! fail, and why what upstream seems to say is not acted on.

pub mod action;
pub mod error_cause;
pub mod event;
pub mod hold_reason;
pub mod note;
pub mod settings;
