//! Orphaned HTTPRoutes at the hub.

pub(crate) mod budget;
pub(crate) mod judge;
pub mod keep_reason;
pub mod route;
mod route_case;
