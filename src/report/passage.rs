//! A connector's notes and actions, told as passages: what belongs together is one of them.

use std::collections::{BTreeMap, HashSet};

use super::index::Chapter;
use super::style::{Style, clock, count, duration};
use crate::core::action::{Hop, Noted, Stall, Verb};
use crate::core::event::Outcome;
use crate::core::ids::{ClusterName, ObjectKey};
use crate::core::settings::Settings;
use crate::core::time::UnixMillis;
use crate::core::trigger::Trigger;
use crate::replay::Done;

/// Touches of different gateways this close to each other, and for the same reason, are one
/// bundle to a reader: an edge writes one bundle a window, and somebody who goes through the
/// gateways one by one makes many.
const BUNDLE_MS: u64 = 1_500;

/// A write that took longer is said to have.
const SLOW_MS: u64 = 1_000;

/// One thing that happened to a connector.
pub(super) struct Passage<'a> {
    pub(super) at: UnixMillis,
    what: What<'a>,
}

enum What<'a> {
    /// `was`: what upstream said before, where known.
    Upstream {
        online: bool,
        was: Option<bool>,
    },
    /// Hops passed at one moment; `lag_ms` after upstream said so, where that was seen.
    Passed {
        hops: Vec<(Hop, &'a ClusterName)>,
        online: bool,
        lag_ms: Option<u64>,
    },
    /// The same write to one object or many.
    Written {
        dones: Vec<&'a Done>,
        objects: HashSet<&'a ObjectKey>,
        confirms: bool,
    },
    Stalled(&'a Stall),
    StallEnded(&'a Stall),
}

/// Puts a chapter's notes and actions into one order, and together what belongs together.
pub(super) fn passages<'a>(chapter: &Chapter<'a>, settings: &Settings) -> Vec<Passage<'a>> {
    let mut all = Vec::with_capacity(chapter.notes.len() + chapter.actions.len());
    let mut upstream = chapter.before;
    for note in &chapter.notes {
        let what = match &note.what {
            Noted::HopPassed { hop: Hop::Upstream, online, .. } => {
                let was = upstream.replace((note.at, *online)).map(|(_, was)| was);
                What::Upstream { online: *online, was }
            }
            Noted::HopPassed { cluster, hop, online, .. } => What::Passed {
                hops: vec![(*hop, cluster)],
                online: *online,
                lag_ms: upstream
                    .filter(|(_, said)| said == online)
                    .map(|(at, _)| note.at.since(at)),
            },
            Noted::Stalled(stall) => What::Stalled(stall),
            Noted::StallEnded(stall) => What::StallEnded(stall),
            Noted::Anomaly(_) | Noted::Orphan { .. } | Noted::DeletesHeld { .. } => continue,
        };
        all.push(Passage { at: note.at, what });
    }
    for done in &chapter.actions {
        let objects = HashSet::from([&done.decision.action.object]);
        let confirms = confirms(done, settings);
        let what = What::Written { dones: vec![done], objects, confirms };
        all.push(Passage { at: done.decision.at, what });
    }
    all.sort_by_key(|passage| (passage.at, passage.what.rank()));
    let mut told: Vec<Passage<'a>> = Vec::with_capacity(all.len());
    for passage in all {
        let rest = match told.last_mut() {
            Some(last) => last.absorb(passage),
            None => Some(passage),
        };
        told.extend(rest);
    }
    told
}

/// Whether a touch announces again what was announced.
pub(super) fn confirms(done: &Done, settings: &Settings) -> bool {
    done.decision.action.annotations.iter().any(|(key, value)| {
        *key == settings.touch.key
            && value.as_deref().and_then(Trigger::parse).is_some_and(|trigger| trigger.c > 0)
    })
}

/// What the API server said about an action that did not land.
pub(super) fn error_of(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Refused { error }
        | Outcome::Failed { error, .. }
        | Outcome::Unanswered { error, .. }
        | Outcome::Conflict { error } => Some(error.as_str()).filter(|error| !error.is_empty()),
        _ => None,
    }
}

impl<'a> What<'a> {
    /// The order of what happens within one millisecond: cause before effect.
    fn rank(&self) -> (u8, &'a str, &'a str) {
        match self {
            What::Upstream { .. } => (0, "", ""),
            What::Written { dones, .. } => match dones.first().map(|done| &done.decision) {
                Some(first) if first.action.verb == Verb::Touch => {
                    (3, first.action.cluster.as_str(), &first.because)
                }
                _ => (1, "", ""),
            },
            What::Passed { hops, .. } if hops.iter().any(|(hop, _)| *hop == Hop::Touched) => {
                (4, "", "")
            }
            What::Passed { .. } => (2, "", ""),
            What::StallEnded(_) => (5, "", ""),
            What::Stalled(_) => (6, "", ""),
        }
    }
}

impl<'a> Passage<'a> {
    /// Takes the next passage into this one, or gives it back.
    fn absorb(&mut self, next: Self) -> Option<Self> {
        match (&mut self.what, next.what) {
            (
                What::Written { dones, objects, confirms },
                What::Written { dones: more, objects: others, confirms: the_same },
            ) if *confirms == the_same
                && is_one_bundle(dones, &more)
                && others.is_disjoint(objects) =>
            {
                dones.extend(more);
                objects.extend(others);
                None
            }
            (What::Passed { hops, online, .. }, What::Passed { hops: more, online: now, .. })
                if self.at == next.at
                    && *online == now
                    && hops.iter().chain(&more).all(|(hop, _)| *hop != Hop::Touched) =>
            {
                hops.extend(more);
                None
            }
            (_, what) => Some(Passage { at: next.at, what }),
        }
    }

    /// What it is, in a word.
    pub(super) fn kind(&self) -> &'static str {
        match &self.what {
            What::Upstream { .. } => "upstream",
            What::Passed { hops, .. } => hops.first().map_or("", |(hop, _)| hop.as_str()),
            What::Written { confirms: true, .. } => "confirm",
            What::Written { dones, .. } => {
                dones.first().map_or("", |done| done.decision.action.verb.as_str())
            }
            What::Stalled(_) => "stalled",
            What::StallEnded(_) => "stall_ended",
        }
    }

    /// What upstream or a hop came to say.
    pub(super) fn online(&self) -> Option<bool> {
        match &self.what {
            What::Upstream { online, .. } | What::Passed { online, .. } => Some(*online),
            _ => None,
        }
    }

    /// The actions it tells of.
    pub(super) fn actions(&self) -> &[&'a Done] {
        match &self.what {
            What::Written { dones, .. } => dones,
            _ => &[],
        }
    }

    /// The passage in words.
    pub(super) fn words(&self) -> Vec<(Style, String)> {
        match &self.what {
            What::Upstream { online, was } => vec![upstream(*online, *was)],
            What::Passed { hops, online, lag_ms } => passed(hops, *online, *lag_ms),
            What::Written { dones, confirms, .. } => written(dones, *confirms),
            What::Stalled(stall) => vec![
                (Style::Red, format!("STALLED {}", missing(stall))),
                (
                    Style::Plain,
                    format!(", waited for since {}: {}", clock(stall.since), stall.reason),
                ),
            ],
            What::StallEnded(stall) => {
                let waited = duration(self.at.since(stall.since));
                vec![(Style::Green, format!("stall over after {waited} ({})", missing(stall)))]
            }
        }
    }
}

fn is_one_bundle(dones: &[&Done], more: &[&Done]) -> bool {
    let (Some(last), Some(next)) = (dones.last(), more.first()) else { return false };
    let (last, next) = (&last.decision, &next.decision);
    last.action.verb == Verb::Touch
        && next.action.verb == Verb::Touch
        && next.at.since(last.at) <= BUNDLE_MS
        && last.action.cluster == next.action.cluster
        && last.because == next.because
}

fn say(online: bool) -> &'static str {
    if online { "online" } else { "offline" }
}

fn upstream(online: bool, was: Option<bool>) -> (Style, String) {
    let said = say(online);
    match was {
        Some(was) if was == online => (Style::Bold, format!("changes upstream, still {said}")),
        Some(_) => (Style::Bold, format!("goes {said} upstream")),
        None => (Style::Bold, format!("is {said} upstream")),
    }
}

fn passed(hops: &[(Hop, &ClusterName)], online: bool, lag_ms: Option<u64>) -> Vec<(Style, String)> {
    let lag = match lag_ms {
        Some(0) => ", at once".to_owned(),
        Some(ms) => format!(", {} after upstream", duration(ms)),
        None => String::new(),
    };
    let said = say(online);
    if let [(Hop::Touched, edge)] = hops {
        let style = if online { Style::Green } else { Style::Plain };
        return vec![
            (style, format!("every gateway at {edge} announces {said}")),
            (Style::Dim, lag),
        ];
    }
    let places = match hops {
        [(_, hub), (_, edge)] if hub == edge => format!("at hub and edge ({hub})"),
        _ => hops.iter().map(|hop| place(*hop)).collect::<Vec<_>>().join(", "),
    };
    vec![(Style::Plain, format!("{said} {places}")), (Style::Dim, lag)]
}

fn place((hop, cluster): (Hop, &ClusterName)) -> String {
    match hop {
        Hop::Mirrored => format!("at the hub ({cluster})"),
        _ => format!("at the edge ({cluster})"),
    }
}

/// What a stall waits for.
pub(super) fn missing(stall: &Stall) -> String {
    let cluster = &stall.cluster;
    match stall.hop {
        Hop::Upstream => format!("not seen upstream ({cluster})"),
        Hop::Mirrored => format!("not mirrored at the hub ({cluster})"),
        Hop::Arrived => format!("not arrived at the edge ({cluster})"),
        Hop::Touched => format!("not announced by every gateway at {cluster}"),
    }
}

fn written(dones: &[&Done], confirms: bool) -> Vec<(Style, String)> {
    let Some(first) = dones.first() else { return Vec::new() };
    let (action, because) = (&first.decision.action, &first.decision.because);
    let (cluster, object) = (&action.cluster, &action.object);
    let removes = action.annotations.iter().all(|(_, value)| value.is_none());
    let what = match action.verb {
        Verb::Mirror if removes => format!("hub annotation removed ({cluster})"),
        Verb::Mirror => format!("hub annotation written ({cluster})"),
        Verb::Nudge => format!("nudged at the hub ({cluster})"),
        Verb::Delete => format!("route {object} deleted at the hub ({cluster})"),
        Verb::Touch => {
            let touched = if confirms { "touched again" } else { "touched" };
            let mut names: Vec<_> =
                dones.iter().map(|done| done.decision.action.object.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let gateways = count(names.len(), "gateway");
            match names.as_slice() {
                [name] => format!("gateway {name} {touched} at {cluster}"),
                [_, _] | [_, _, _] => {
                    format!("{gateways} {touched} at {cluster} ({})", names.join(", "))
                }
                [first, .., last] => {
                    format!("{gateways} {touched} at {cluster} ({first} … {last})")
                }
                [] => String::new(),
            }
        }
    };
    let style = if confirms { Style::Plain } else { Style::Bold };
    let took_ms = dones.last().map_or(0, |last| last.decision.at.since(first.decision.at));
    let within = match took_ms {
        0 => String::new(),
        ms => format!(" within {}", duration(ms)),
    };
    let mut words = vec![(style, what + &within), (Style::Dim, format!(": {because}"))];
    words.extend(fates(dones).map(|fates| (Style::Yellow, fates)));
    let slowest = dones
        .iter()
        .filter_map(|done| done.finished.as_ref().map(|(at, _)| at.since(done.decision.at)));
    if let Some(ms) = slowest.max().filter(|ms| *ms > SLOW_MS) {
        words.push((Style::Yellow, format!("; done {} later", duration(ms))));
    }
    words
}

/// What became of actions, when not all of them were applied.
fn fates(dones: &[&Done]) -> Option<String> {
    let name = |done: &Done| done.finished.as_ref().map_or("unfinished", |(_, o)| o.name());
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for done in dones {
        *by_name.entry(name(done)).or_default() += 1;
    }
    let odd = dones.iter().find(|done| name(done) != "applied")?;
    let error = odd.finished.as_ref().and_then(|(_, outcome)| error_of(outcome));
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    Some(match by_name.len() {
        1 => format!(" → {}{error}", name(odd)),
        _ => {
            let counts: Vec<_> = by_name.iter().map(|(name, n)| format!("{n} {name}")).collect();
            format!(" → {} (first: {}{error})", counts.join(", "), odd.decision.action.object.name)
        }
    })
}

/// A page's parts, borrowed.
pub(super) fn parts(words: &[(Style, String)]) -> Vec<(Style, &str)> {
    words.iter().map(|(style, text)| (*style, text.as_str())).collect()
}
