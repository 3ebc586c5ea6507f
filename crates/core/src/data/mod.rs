//! Names, ids, time, slim objects and small collections that every tier uses.

pub mod closed_list;
pub mod ids;
pub mod map;
pub(crate) mod object_ref;
pub mod objects;
pub(crate) mod packed;
pub mod per_kind;
pub mod shard;
pub(crate) mod string_map;
pub mod time;
