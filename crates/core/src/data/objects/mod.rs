//! Kubernetes objects, reduced to the fields that throughline reads.
//!
//! One type reads every kind ([`Object`], through [`WireObject`]), with members in any order, and
//! writes it as a Kubernetes object.

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
