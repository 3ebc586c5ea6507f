//! One function for each reader of bytes from outside. It panics where the reader does, and where an
//! answer contradicts what the reader promises.
//!
//! `make test` calls them with mutations of [`corpora`](super::corpora), and `make fuzz` with what
//! libFuzzer makes of the same inputs.

mod inputs;
mod json;
mod log;
mod redaction;
mod tree;
mod wire;

use throughline::outside_text::is_deceptive;

/// The longest message that a reader may make of an input.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// A target's name, and the function.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets. Each has a file of its name in `fuzz/fuzz_targets`.
pub(crate) const TARGETS: &[Target] = &[
    ("event_log", log::event_log),
    ("compressed_log", log::compressed_log),
    ("log_fleet", log::log_fleet),
    ("redaction", redaction::redaction),
    ("watch_stream", wire::watch_stream),
    ("list_page", wire::list_page),
    ("object", wire::object),
    ("canonical_json", json::canonical_json),
    ("liveness", json::liveness),
    ("labels", json::labels),
    ("lease", inputs::lease),
    ("kubeconfig", inputs::kubeconfig),
    ("config", inputs::config),
    ("state", inputs::state),
];

/// Calls the target of this name.
pub(crate) fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    target.unwrap_or_else(|| panic!("no target is called {name}")).1(data);
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

/// The first byte as a number from 1 on, by which the rest is cut into pieces.
fn pieces(data: &[u8]) -> (usize, &[u8]) {
    data.split_first().map_or((1, data), |(first, rest)| (usize::from(*first) + 1, rest))
}
