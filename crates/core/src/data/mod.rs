//! Names, ids, time, slim objects and small collections that every tier uses.

pub mod closed_list;
pub(crate) mod cluster;
pub mod ids;
pub mod interner;
pub mod liveness_fields;
pub mod map;
pub mod name;
pub(crate) mod object_ref;
pub mod objects;
pub(crate) mod one_or_many;
pub(crate) mod optional_millis;
pub(crate) mod packed;
pub mod per_kind;
pub mod route_origin;
pub(crate) mod string_map;
pub mod time;
pub mod used_names;
pub mod wire_object;
