//! What is still wrong at the end, beside a good verdict: a log can verify although it ends in the
//! middle of an outage.

use std::collections::BTreeSet;

use serde::Serialize;

use super::index::{ConnectorHistory, ConnectorIndex};
use super::style::count;
use super::user_impact::Symptom;
use crate::replay::ReplayMode;

/// What is still wrong with some connectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Wrong {
    /// Up upstream, and users get 503.
    Down,
    /// Down upstream, and users reach a dead tunnel.
    DeadTunnel,
    /// A hop is late, without an outage that the log shows.
    Stuck,
}

/// How many connectors are still wrong in one way.
#[derive(Serialize)]
pub(super) struct StillWrong {
    what: Wrong,
    connectors: usize,
    text: String,
}

impl StillWrong {
    fn new(what: Wrong, connectors: usize) -> Option<Self> {
        let (before, how) = match what {
            Wrong::Down => ("", "down at the end"),
            Wrong::DeadTunnel => ("users of ", "sent to a dead tunnel at the end"),
            Wrong::Stuck => ("", "stuck before a hop at the end"),
        };
        // "users of 1 connector were", but "1 connector was".
        let is_one = connectors == 1 && what != Wrong::DeadTunnel;
        let verb = if is_one { "was" } else { "were" };
        let text = format!("{before}{} {verb} still {how}", count(connectors, "connector"));
        let text = text.replace('\u{a0}', " ");
        (connectors > 0).then_some(Self { what, connectors, text })
    }
}

/// What is still wrong at the end of the timeline that the verdict is about: in a verify the recorded
/// one, otherwise that with throughline.
pub(super) fn still_wrong(index: &ConnectorIndex<'_>) -> Vec<StillWrong> {
    let replay = index.replay;
    let is_verify = replay.mode == ReplayMode::Verify;
    let outages = if is_verify { &replay.recorded } else { &replay.replayed };
    let mut wrong = [BTreeSet::new(), BTreeSet::new()];
    for outage in outages.iter().filter(|o| o.until.is_none() && index.includes(&o.connector)) {
        let [down, dead_tunnel] = &mut wrong;
        match Symptom::of(outage.kind) {
            Symptom::Error503 => down.insert(&outage.connector),
            Symptom::DeadTunnel => dead_tunnel.insert(&outage.connector),
        };
    }
    let [down, dead_tunnel] = wrong;
    let is_stuck = |history: &&ConnectorHistory<'_>| {
        let is_counted = |hub| down.contains(hub) || dead_tunnel.contains(hub);
        !history.hub.is_some_and(is_counted)
            && index.spans_of(history).iter().any(|span| span.is_stuck())
    };
    // A what-if and a demo count them among the problems of their verdict.
    let stuck = if is_verify { index.histories.iter().filter(is_stuck).count() } else { 0 };
    let found = [
        StillWrong::new(Wrong::Down, down.len()),
        StillWrong::new(Wrong::DeadTunnel, dead_tunnel.len()),
        StillWrong::new(Wrong::Stuck, stuck),
    ];
    found.into_iter().flatten().collect()
}

/// As half a sentence; empty when nothing is wrong.
pub(super) fn text(found: &[StillWrong]) -> String {
    found.iter().map(|found| found.text.as_str()).collect::<Vec<_>>().join("; ")
}
