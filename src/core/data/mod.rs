//! Names, ids, time, slim objects and small collections that every tier uses.

pub(crate) mod closed_list;
pub(crate) mod cluster;
pub mod ids;
pub(crate) mod interner;
pub mod liveness_fields;
pub(crate) mod map;
pub mod objects;
pub(crate) mod one_or_many;
pub(crate) mod optional_millis;
pub(crate) mod packed;
pub(crate) mod per_kind;
pub(crate) mod string_map;
pub mod time;
pub(crate) mod turns;
pub(crate) mod used_names;
pub(crate) mod wire_object;
