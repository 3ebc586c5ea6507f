//! Events are counted, combined and dropped as client-go's correlator does: vectors written by a Go program.

use serde::Deserialize;
use throughline::core::data::time::UnixMillis;
use throughline::events::correlate::Correlator;
use throughline::events::{EventReport, EventWrite, ObjectReference, Severity};

use crate::go_vectors::check;

/// An Event, and what client-go's correlator made of it.
#[derive(Deserialize)]
struct EventVector {
    at_ms: u64,
    object: String,
    r#type: String,
    reason: String,
    message: String,
    #[serde(default)]
    skip: bool,
    #[serde(default)]
    count: u32,
    #[serde(default)]
    first_ms: u64,
    #[serde(default)]
    says: String,
    /// The line that created the Event of that name.
    made: i64,
}

#[test]
fn events_are_counted_combined_and_dropped_as_in_client_go() {
    let state = std::cell::RefCell::new((Correlator::default(), Vec::<String>::new()));
    check(include_str!("../vectors/events.jsonl"), 100, |v: EventVector| {
        let (correlator, names) = &mut *state.borrow_mut();
        let line = names.len();
        let report = EventReport {
            at: UnixMillis(v.at_ms),
            object: ObjectReference {
                name: v.object,
                // Not part of the object's identity, so it must not matter.
                resource_version: line.to_string(),
                ..ObjectReference::default()
            },
            severity: if v.r#type == "Normal" { Severity::Normal } else { Severity::Warning },
            reason: v.reason.leak(),
            message: v.message,
        };
        let sent = correlator.correlate(report, line as u64 + 1);
        names.push(sent.as_ref().map(|s| s.name.clone()).unwrap_or_default());
        let made = |s: &EventWrite| names.iter().position(|name| *name == s.name).unwrap() as i64;
        let got = sent.map(|s| (made(&s), s.count, s.first_at.0, s.report.message));
        let want = (!v.skip).then_some((v.made, v.count, v.first_ms, v.says));
        (got == want).then_some(()).ok_or(format!("got {got:?}, want {want:?}"))
    });
}
