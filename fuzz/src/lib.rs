//! The targets, which `make test` calls too.

#[path = "../../tests/fuzz/targets.rs"]
mod targets;

/// Calls the target of this name.
pub fn run(name: &str, data: &[u8]) {
    targets::run(name, data);
}
