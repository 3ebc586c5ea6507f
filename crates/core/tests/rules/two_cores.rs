//! With `TWO_CORES=actions` in the environment, the new core follows today's through every test of a
//! rule, and must decide the same.

#[path = "../support/twin.rs"]
mod twin;

use twin::History;
pub(crate) use twin::Twin;

/// The last events: a test of a rule has few, and is repeated by its name.
fn keep(history: &History) -> String {
    let from = history.events.len().saturating_sub(20);
    let lines = history.events[from..].iter();
    lines.map(|event| format!("  {} {:?}\n", event.at.0, event.kind)).collect()
}
