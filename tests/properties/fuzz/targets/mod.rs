//! One function for each reader of bytes from outside. It panics where the reader does, and where an
//! answer contradicts what the reader promises.
//!
//! `make test` calls them with mutations of [`corpora`](super::corpora), and `make fuzz` with what
//! libFuzzer makes of the same inputs.

mod inputs;
mod json;
mod log;
mod redaction;
mod wire;

use throughline::outside_text::is_deceptive;

#[cfg(test)]
pub(crate) use wire::list_page_in;

/// The longest message that a reader may make of an input.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// A name, how many mutations it gets in `make test`, and the function.
type Target = (&'static str, u32, fn(&[u8]));

/// All targets. Each has a file of its name in `fuzz/fuzz_targets`. A log through a machine and a report
/// take longer than the others.
pub(crate) const TARGETS: [Target; 14] = [
    ("event_log", 2_000, log::event_log),
    ("compressed_log", 500, log::compressed_log),
    ("log_fleet", 300, log::log_fleet),
    ("redaction", 2_000, redaction::redaction),
    ("watch_stream", 2_000, wire::watch_stream),
    ("list_page", 2_000, wire::list_page),
    ("object", 2_000, wire::object),
    ("canonical_json", 2_000, json::canonical_json),
    ("liveness", 2_000, json::liveness),
    ("labels", 2_000, json::labels),
    ("lease", 2_000, inputs::lease),
    ("kubeconfig", 2_000, inputs::kubeconfig),
    ("config", 300, inputs::config),
    ("state", 300, inputs::state),
];

/// Calls the target of this name.
pub(crate) fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(target, ..)| *target == name);
    target.unwrap_or_else(|| panic!("no target is called {name}")).2(data);
}

/// A message for people is short, and no character of it changes what a terminal shows.
#[track_caller]
fn check_message(message: &str) {
    check_length(message);
    let start: String = message.chars().take(300).collect();
    let deceptive = message.chars().find(|c| is_deceptive(*c));
    assert!(deceptive.is_none(), "{deceptive:?} in {start:?}");
}

#[track_caller]
fn check_length(message: &str) {
    let start: String = message.chars().take(300).collect();
    assert!(message.len() <= MESSAGE_BYTES_MAX, "{} bytes: {start}", message.len());
}

/// The sizes of pieces in which bytes may arrive.
fn piece_sizes(data: &[u8]) -> [usize; 3] {
    [1, 17, data.len() / 2 + 1]
}
