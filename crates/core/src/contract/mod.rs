//! What goes into the machine and comes out of it: events, actions, notes, settings, why requests
//! fail, why what upstream seems to say is not acted on, why a route is kept, and who joins and leaves.

pub mod action;
pub mod cause;
pub mod error_cause;
pub mod event;
pub mod membership;
pub mod note;
pub mod route_origin;
pub mod settings;
pub mod symptom;
