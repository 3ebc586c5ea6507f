//! Slim Kubernetes objects: only the fields that throughline reads.
//!
//! One type reads every kind ([`Object`], through [`WireObject`]), whatever the order of the members,
//! and writes it back as a Kubernetes object.

mod keys;
mod liveness_fields;
mod object;
mod optional;
mod wire;

pub use crate::data::string_map::StringMap;
pub use keys::*;
pub use liveness_fields::LivenessFields;
pub use object::{Body, ManagedFields, Meta, Object, ParentRef};
pub use optional::null_as_empty;
pub use wire::{ObjectError, WireObject};
