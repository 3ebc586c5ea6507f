//! The problems at the end of a replay with a good verdict: a log can verify although it ends in the
//! middle of an outage.

use std::collections::BTreeSet;

use serde::Serialize;

use super::model::{Outages, Report, Story};
use super::style::count;
use crate::core::contract::symptom::Symptom;
use crate::core::data::ids::ObjectKey;
use crate::replay::{ReplayMode, Span};

/// The number of connectors with one problem at the end.
#[derive(Serialize)]
pub(super) struct StillWrong {
    /// `down`: up upstream, and users get 503; `dead_tunnel`: down upstream, and users reach it;
    /// `stuck`: without an outage in the log; `held`: until an operator or another controller acts.
    what: &'static str,
    connectors: usize,
    text: String,
}

impl StillWrong {
    /// `before` and `how` form the sentence; the connectors are its subject if `before` is empty.
    fn new(what: &'static str, connectors: usize, before: &str, how: &str) -> Option<Self> {
        let verb = if connectors == 1 && before.is_empty() { "was" } else { "were" };
        let nouns = count(connectors, "connector").replace('\u{a0}', " ");
        let text = format!("{before}{nouns} {verb} still {how} at the end");
        (connectors > 0).then_some(Self { what, connectors, text })
    }
}

/// The problems at the end of the verdict's timeline: in a verify the recorded one, otherwise the one
/// with throughline.
pub(super) fn still_wrong(report: &Report<'_>) -> Vec<StillWrong> {
    let replay = report.replay;
    let is_verify = replay.mode == ReplayMode::Verify;
    let Outages { recorded, replayed } = &report.outages;
    let outages = if is_verify { recorded } else { replayed };
    let with = |symptom: Symptom| -> BTreeSet<&ObjectKey> {
        let open = outages.iter().filter(|outage| outage.until.is_none());
        open.filter(|o| o.symptom.users_get() == symptom.users_get())
            .map(|o| &o.connector)
            .collect()
    };
    let down = with(Symptom::Offline);
    let dead_tunnel = with(Symptom::StaleOnline);
    let is_stuck = |story: &&Story<'_>| {
        let is_counted = |hub| down.contains(hub) || dead_tunnel.contains(hub);
        !story.hub.is_some_and(is_counted)
            && report.problems_of(story).into_iter().any(Span::is_stuck)
    };
    // A what-if and a demo count them among the problems of their verdict.
    let stuck = if is_verify { report.connectors.iter().filter(is_stuck).count() } else { 0 };
    let held = usize::try_from(replay.held).unwrap_or(usize::MAX);
    let found = [
        StillWrong::new("down", down.len(), "", "down"),
        StillWrong::new("dead_tunnel", dead_tunnel.len(), "users of ", "sent to a dead tunnel"),
        StillWrong::new("stuck", stuck, "", "stuck before a hop"),
        StillWrong::new("held", held, "", "held"),
    ];
    found.into_iter().flatten().collect()
}

/// The problems as half a sentence; empty if there are none.
pub(super) fn text(found: &[StillWrong]) -> String {
    found.iter().map(|found| found.text.as_str()).collect::<Vec<_>>().join("; ")
}
