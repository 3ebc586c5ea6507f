//! Whether a replay was good, and the problems that remain even so: a log can verify although it ends
//! in the middle of an outage.

use std::collections::BTreeSet;

use serde::Serialize;

use super::style::count;
use crate::core::contract::symptom::Symptom;
use crate::core::data::ids::NamespacedName;
use crate::replay::{Outage, Replay, ReplayMode};

#[derive(Default, Serialize)]
pub(super) struct Verdict<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    converged: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    problems: &'a [String],
    pub(super) still_wrong: Vec<StillWrong>,
}

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

impl<'a> Verdict<'a> {
    /// `outages`: those of the verdict's timeline. `stuck`: the connectors with a stuck problem, by
    /// their names at the hub.
    pub(super) fn new(
        replay: &'a Replay,
        outages: &[&Outage],
        stuck: impl Iterator<Item = Option<&'a NamespacedName>>,
    ) -> Self {
        let is_verify = replay.mode == ReplayMode::Verify;
        let with = |symptom: Symptom| -> BTreeSet<&NamespacedName> {
            let open = outages.iter().filter(|outage| outage.until.is_none());
            open.filter(|o| o.symptom.users_get() == symptom.users_get())
                .map(|o| &o.connector)
                .collect()
        };
        let down = with(Symptom::Offline);
        let dead_tunnel = with(Symptom::StaleOnline);
        let is_down = |hub: &NamespacedName| down.contains(hub) || dead_tunnel.contains(hub);
        // A what-if and a demo count them among the problems of their verdict.
        let stuck =
            if is_verify { stuck.filter(|hub| !hub.is_some_and(is_down)).count() } else { 0 };
        let held = usize::try_from(replay.held).unwrap_or(usize::MAX);
        let found = [
            StillWrong::new("down", down.len(), "", "down"),
            StillWrong::new("dead_tunnel", dead_tunnel.len(), "users of ", "sent to a dead tunnel"),
            StillWrong::new("stuck", stuck, "", "stuck before a hop"),
            StillWrong::new("held", held, "", "held"),
        ];
        Self {
            converged: (!is_verify).then_some(replay.is_good()),
            verified: is_verify.then_some(replay.is_good()),
            problems: &replay.problems,
            still_wrong: found.into_iter().flatten().collect(),
        }
    }
}

/// The problems as half a sentence; empty if there are none.
pub(super) fn text(found: &[StillWrong]) -> String {
    found.iter().map(|found| found.text.as_str()).collect::<Vec<_>>().join("; ")
}
