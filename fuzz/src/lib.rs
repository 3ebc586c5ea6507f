//! The targets, which `make test` calls too.

#[path = "../../tests/support/read_log.rs"]
mod read_log;
#[path = "../../tests/properties/fuzz/targets/mod.rs"]
mod targets;

/// Calls the target of this name.
pub fn run(name: &str, data: &[u8]) {
    targets::run(name, data);
}
