//! Orphaned HTTPRoutes at the hub.

pub(crate) mod budget;
pub(crate) mod judge;
pub(crate) mod route;
mod route_case;
