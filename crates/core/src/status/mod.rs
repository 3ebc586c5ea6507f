//! A Connector's status: Go's JSON, the digest, the liveness, and the trigger that announces it.

pub mod digest;
pub mod go_json;
pub mod liveness;
pub mod trigger;
