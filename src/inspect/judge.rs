//! Finds late hops by the times of the last writes, because a command that reads the clusters once has
//! observed no change.

use super::writers::Writers;
use crate::core::contract::cause::{About, Cause, Facts, Hop, Kubectl, Problem, State};
use crate::core::contract::settings::LateSettings;
use crate::core::data::objects::karmada_binding;
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::{Connector, Fleet, HopView, count_states};
use crate::problems::Problems;

/// `managedFields` hold the time of a write in whole seconds.
const RESOLUTION_MS: u64 = 1_000;

/// Adds to the machine's state the last writers, and the late hops according to them. `problems` are
/// the machine's.
pub fn complete(
    fleet: &mut Fleet,
    writers: &Writers,
    limits: &LateSettings,
    problems: &Problems,
    kubectl: Kubectl<'_>,
) {
    writers.add_to(fleet);
    let late = judge_by_writers(fleet, writers, limits, kubectl);
    let mut problems = problems.clone();
    for problem in late {
        problems.begin(fleet.at_ms, problem, None);
    }
    fleet.problems = problems.open(kubectl);
    if fleet.leader.waits_until_ms.is_some() {
        fleet.problems.retain(|group| group.cause != Cause::NotMirrored);
    }
}

/// Sets the time since when each hop is in its state, and marks as stuck those open for longer than
/// their limits. Returns their problems.
fn judge_by_writers(
    fleet: &mut Fleet,
    writers: &Writers,
    limits: &LateSettings,
    kubectl: Kubectl<'_>,
) -> Vec<Problem> {
    let now = fleet.at_ms;
    let leader = fleet.leader.clone();
    let mut found = Vec::new();
    for connector in &mut fleet.connectors {
        let whole = connector.clone();
        for hop in &mut connector.hops {
            let Some((cause, limit_ms)) = lateness(hop, limits) else {
                set_since(hop, writers);
                continue;
            };
            if leader.waits_until_ms.is_some() && hop.hop == Hop::Mirrored {
                hop.state = State::Pending;
                hop.cause = None;
                hop.message = None;
                hop.remedy = None;
                continue;
            }
            let Some(began) = began(&whole, hop, writers) else { continue };
            hop.since_ms = hop.since_ms.into_iter().chain([began]).min();
            hop.at_least = false;
            // The machine itself finds problems of the carrier more precisely.
            let is_told = hop.state == State::Stuck && hop.hop == Hop::Carried;
            if is_told || now <= began.plus(limit_ms + RESOLUTION_MS) {
                continue;
            }
            let facts = facts(&whole, hop, writers, leader.holder.as_deref());
            let object = hop.object.clone();
            let about = About { kind: Some(hop.kind), object, ..About::cluster(&hop.cluster) };
            let problem = Problem { facts, ..Problem::new(cause, about, began) };
            hop.state = State::Stuck;
            hop.cause = Some(cause);
            hop.message = Some(problem.sentence());
            hop.remedy = cause.remedy(&problem.about, &problem.facts, kubectl);
            found.push(problem);
        }
        connector.update_state();
    }
    fleet.counts = count_states(fleet.connectors.iter().map(|connector| connector.state));
    found
}

/// The facts of a late hop. `holder`: the leader.
fn facts(of: &Connector, hop: &HopView, writers: &Writers, holder: Option<&str>) -> Facts {
    let mirrored = of.hops_of(Hop::Mirrored).next();
    let what = if hop.hop == Hop::Carried {
        let is_karmadas = mirrored.is_some_and(|mirrored| writers.is_karmadas(mirrored));
        let object = hop.object.as_ref().filter(|_| is_karmadas);
        object.map(karmada_binding)
    } else {
        Some(holder.map_or("unknown from here".to_owned(), |holder| format!("see {holder}")))
    };
    Facts {
        upstream: of.upstream.as_ref().map(|name| name.cluster.clone()),
        hub: mirrored.map(|mirrored| mirrored.cluster.clone()),
        edge: (hop.hop != Hop::Mirrored).then(|| hop.cluster.clone()),
        holder: holder.map(Into::into),
        what: what.map(Into::into),
        ..Facts::default()
    }
}

/// The cause of a hop that is open, once it is late, and its limit.
fn lateness(hop: &HopView, limits: &LateSettings) -> Option<(Cause, u64)> {
    let late = match hop.hop {
        Hop::Upstream => return None,
        Hop::Mirrored => (Cause::NotMirrored, limits.mirrored_ms),
        Hop::Carried => (Cause::NotCarried, limits.carried_ms),
        Hop::Announced => (Cause::NotAnnounced, limits.announced_ms),
    };
    let is_open = hop.state == State::Pending || hop.cause == Some(late.0);
    is_open.then_some(late)
}

/// When the previous hop got its value.
fn began(of: &Connector, hop: &HopView, writers: &Writers) -> Option<UnixMillis> {
    let written = |hop: Option<&HopView>| Some(hop?.writer.as_ref()?.at_ms);
    let upstream = || written(of.hops_of(Hop::Upstream).next());
    match hop.hop {
        Hop::Upstream => None,
        Hop::Mirrored => upstream(),
        Hop::Carried => {
            let mirrored = of.hops_of(Hop::Mirrored).next();
            // The last write of a nudged Connector is the nudge, which is later than the value's.
            match mirrored.is_some_and(|mirrored| writers.is_nudged(mirrored)) {
                true => upstream(),
                false => written(mirrored),
            }
        }
        Hop::Announced => {
            written(of.hops_of(Hop::Carried).find(|carried| carried.cluster == hop.cluster))
        }
    }
}

/// Sets the time since when a hop is in its state: the last write of its object, if that was before it
/// was observed to change; at least since then if that write was a nudge. For held or unknown hops the
/// time can't be determined.
fn set_since(hop: &mut HopView, writers: &Writers) {
    if matches!(hop.state, State::Held | State::Unknown) {
        hop.since_ms = None;
        hop.at_least = false;
        return;
    }
    let written = hop.writer.as_ref().map(|writer| writer.at_ms);
    let is_earlier =
        |written: &UnixMillis| hop.since_ms.is_none_or(|since| written.plus(RESOLUTION_MS) < since);
    if let Some(written) = written.filter(is_earlier).filter(|_| hop.state == State::Ok) {
        hop.since_ms = Some(written);
        hop.at_least = hop.hop == Hop::Mirrored && writers.is_nudged(hop);
    }
}
