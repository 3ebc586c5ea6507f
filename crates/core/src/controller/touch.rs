//! Touches: which targets a change at an edge concerns, what an outcome means for the Gateways of a
//! class, and what is reported.
//!
//! A connector is announced at an edge once every target that references it has announced its
//! latest change.

use std::collections::BTreeSet;

use super::notes::Finder;
use super::state::Machine;
use crate::contract::cause::{About, Cause, Hop, Problem};
use crate::contract::event::Outcome;
use crate::data::ids::{ActionId, Kind, NamespacedName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::plan::Next;
use crate::rules::touch::{self, Event, Finished, ProofTarget, Stamp, TouchReason, Written};
use crate::scheduler::Timer;
use crate::subject::{Subject, Target};
use crate::world::World;
use crate::world::change::{Change, EdgeChange};
use crate::world::cluster::Cluster;
use crate::write_queue::QueueKey;
use crate::write_state::written_version;

/// `None` if the Gateway no longer exists. A class keeps its memory for when a Gateway joins it
/// again.
pub(super) fn plan(
    m: &mut Machine,
    target: &Target,
    admitted_by: Option<QueueKey>,
) -> Option<Next> {
    let Machine { world, memory, notes, now, .. } = m;
    let Some(view) = touch::view(world, target, *now) else {
        notes.found(&Finder::Subject(Subject::Target(target.clone())), None);
        return matches!(target, Target::Class(..)).then_some(Next::AWAIT_CHANGE);
    };
    let edge = memory.edges.entry(target.cluster()).or_default();
    let memory = memory.targets.entry(target.clone()).or_default();
    touch::on(memory, Event::Look, &view);
    let next = touch::plan(&view, memory, admitted_by);

    let due_at = next.turn.as_ref().map(|turn| turn.due.at);
    let is_due = due_at.is_some_and(|at| at <= *now);
    edge.report.is_due |= is_due;
    let is_ready = view.cluster.edge.ready_since.is_some();
    // Announcements around an outage are confirmed once more, so their times must still be known.
    let may_rest = due_at.is_none() && is_ready && !view.is_paused() && edge.outages.is_empty();
    memory.on_planned(may_rest && view.class.is_none(), *now);

    let subject = Subject::Target(target.clone());
    let is_queued = is_due && edge.report.is_reported();
    let found = touch::find(&view, memory, is_queued);
    let next_at = found.next_at;
    notes.found_by_rule(&subject, found);
    Some(next.or_at(next_at))
}

pub(super) fn on_change(m: &mut Machine, change: &Change) {
    match change {
        Change::Changed(Subject::Target(target)) => update_pause(m, target),
        Change::Gone(Subject::Target(target)) => {
            let memory = m.memory.targets.get_mut(target);
            let waiting = memory.map(|memory| memory.take_waiting(|_| true));
            announced(m, target.cluster(), waiting.unwrap_or_default());
        }
        Change::Edge(change) => on_edge_change(m, change),
        _ => {}
    }
}

fn on_edge_change(m: &mut Machine, change: &EdgeChange) {
    match change {
        EdgeChange::Liveness { connector, is_unseen, is_ordered } => {
            on_liveness(m, connector, *is_unseen, *is_ordered);
        }
        EdgeChange::References { gateway } => {
            if has_connectors(&m.world, gateway) {
                apply_to(m, gateway, changed(TouchReason::ReferencesChanged, true));
            }
        }
        EdgeChange::GatewayAppeared { gateway, is_later } => on_appeared(m, gateway, *is_later),
        EdgeChange::TriggerChanged { gateway } => {
            apply_to(m, gateway, Event::TriggerSeen { gateway: &gateway.name });
        }
        EdgeChange::Stamped { gateway, connector, is_present, is_first } => {
            let stamp = Stamp { connector, is_present: *is_present, is_own: true };
            on_stamped(m, gateway, stamp, *is_first);
        }
        EdgeChange::CarrierLost { class } => {
            apply(m, class, changed(TouchReason::NotAnnounced, false));
        }
        EdgeChange::Unreferenced { target } => on_unreferenced(m, target, None),
        EdgeChange::StampChanged { .. } | EdgeChange::Served { .. } => {}
        EdgeChange::OutageOver { edge, since } => on_outage(m, *edge, *since),
    }
}

/// Every target that references the connector must announce its change.
fn on_liveness(m: &mut Machine, connector: &ObjectRef, is_unseen: bool, is_ordered: bool) {
    let reason = match is_unseen {
        true => TouchReason::WrittenWhileWatchLost,
        false => TouchReason::LivenessChanged,
    };
    for target in targets_of(&m.world.clusters[&connector.cluster], &connector.name) {
        let proof = ProofTarget::Connector(connector.name.clone());
        apply(m, &target, Event::Changed { reason, proof, is_ordered });
    }
}

fn on_appeared(m: &mut Machine, gateway: &ObjectRef, is_later: bool) {
    let Some(target) = target_of(&m.world, gateway) else { return };

    // Another Gateway may have had this name. No connector waits for that one any longer, and until
    // now the other Gateways decided whether its class is paused.
    on_unreferenced(m, &target, Some(&gateway.name));
    update_pause_without(m, &target, gateway);

    let has_connectors = has_connectors(&m.world, gateway);
    apply(m, &target, Event::Appeared { is_later, has_connectors });
}

/// The first proof concerns every Gateway that references the connector. The stamps on the other
/// Gateways follow and prove nothing new.
fn on_stamped(m: &mut Machine, gateway: &ObjectRef, stamp: Stamp<'_>, is_first: bool) {
    // The first look must come before the stamp counts.
    apply_to(m, gateway, Event::Look);
    apply_to(m, gateway, Event::Stamped(stamp));
    if !stamp.is_present || !is_first {
        return;
    }

    let stamp = Stamp { is_own: false, ..stamp };
    let edge = &m.world.clusters[&gateway.cluster].edge;
    for name in edge.gateways_of(stamp.connector).to_vec() {
        if name != gateway.name {
            apply_to(m, &ObjectRef { name, ..*gateway }, Event::Stamped(stamp));
        }
    }
}

/// A target has nothing to announce for connectors that none of its Gateways references any longer.
/// `except`: a Gateway that is new.
fn on_unreferenced(m: &mut Machine, target: &Target, except: Option<&NamespacedName>) {
    let Some(memory) = m.memory.targets.get_mut(target) else { return };
    let cluster = &m.world.clusters[&target.cluster()];
    let is_of_target = |gateway: &NamespacedName| {
        Some(gateway) != except && cluster.target_of(gateway).as_ref() == Some(target)
    };
    let unreferenced =
        memory.take_waiting(|name| !cluster.edge.gateways_of(name).iter().any(is_of_target));
    announced(m, target.cluster(), unreferenced);
}

/// Applies an event to a target. Does nothing if no Gateway of a class has a connector.
fn apply(m: &mut Machine, target: &Target, event: Event<'_>) {
    update_pause(m, target);
    m.dirty.insert(Subject::Target(target.clone()));

    let Machine { world, memory, now, .. } = m;
    let Some(view) = touch::view(world, target, *now) else { return };
    let memory = memory.targets.entry(target.clone()).or_default();
    let connectors = touch::on(memory, event, &view);
    announced(m, target.cluster(), connectors);
}

fn apply_to(m: &mut Machine, gateway: &ObjectRef, event: Event<'_>) {
    if let Some(target) = target_of(&m.world, gateway) {
        apply(m, &target, event);
    }
}

fn changed(reason: TouchReason, is_ordered: bool) -> Event<'static> {
    Event::Changed { reason, proof: ProofTarget::Target, is_ordered }
}

/// Takes over whether an operator has paused the target. What waits for it is not late during the
/// pause; lateness counts from its end.
fn update_pause(m: &mut Machine, target: &Target) {
    let Machine { world, memory, now, .. } = m;
    let Some(view) = touch::view(world, target, *now) else { return };
    let Some(touch) = memory.targets.get_mut(target) else { return };
    if touch.on_paused(view.is_paused(), *now) && !view.is_paused() {
        let edge = memory.edges.entry(target.cluster()).or_default();
        edge.have_paused.extend(touch.waiting.iter().cloned());
    }
}

/// Takes over whether an operator has paused all other Gateways of a class.
fn update_pause_without(m: &mut Machine, target: &Target, gateway: &ObjectRef) -> Option<()> {
    let Target::Class(edge, class) = target else { return None };
    let edge = &m.world.clusters.get(edge)?.edge;
    let mut others = edge.classes.get(class)?.gateways().filter(|name| **name != gateway.name);
    let is_paused = edge.gateways.get(others.next()?)?.seen.is_paused;
    m.memory.targets.get_mut(target)?.on_paused(is_paused, m.now);
    Some(())
}

/// A target has announced the latest change of these connectors, or no longer references them.
fn announced(m: &mut Machine, edge: ClusterId, connectors: Vec<NamespacedName>) {
    // The edge may have left.
    let Some(cluster) = m.world.clusters.get(&edge) else { return };
    for name in connectors {
        let is_awaited = |target: &Target| {
            let memory = m.memory.targets.get(target);
            memory.is_some_and(|memory| memory.waiting.contains(&name))
        };
        if targets_of(cluster, &name).iter().any(is_awaited) {
            continue;
        }

        let memory = m.memory.edges.entry(edge).or_default();
        let has_paused = memory.have_paused.remove(&name);
        let Some(row) = cluster.edge.connectors.get(&name) else { continue };

        // A change that came with a list happened at an unknown time.
        let listed_since = cluster.listed_since(Kind::Connector);
        let is_timed = row.seen.changed_at > listed_since && !has_paused;
        let changed_at = row.seen.changed_at.filter(|_| is_timed);
        let after_ms = changed_at.map(|at| m.now.since(at));
        let is_online = row.seen.stamp.is_online();
        m.notes.hop_passed(&cluster.name, &name, Hop::Announced, is_online, after_ms);
    }
}

pub(super) fn on_finished(m: &mut Machine, target: &Target, id: ActionId, outcome: &Outcome) {
    // The Gateway may be gone, or another one may have its name.
    let Some(memory) = m.memory.targets.get_mut(target) else { return };
    let Some(cluster) = m.world.clusters.get_mut(&target.cluster()) else {
        return debug_assert!(false, "the memory of a Gateway outlives its cluster");
    };
    let finished = memory.on_finished(id, outcome, &cluster.edge, &m.world.settings, m.now);
    let Some(Finished { gateway, written }) = finished else { return };

    let is_about_object = matches!(outcome, Outcome::Refused { .. } | Outcome::NotFound);
    if let Some(Written { trigger, is_trigger_seen, announced: connectors }) = written {
        let version = written_version(outcome);
        if cluster.edge.on_touched(&gateway, version, is_trigger_seen, trigger) {
            m.symptoms.on_written(cluster.object(Kind::Gateway, &gateway));
        }
        announced(m, target.cluster(), connectors);
    } else if let Target::Class(_, class) = target
        && is_about_object
    {
        // If one Gateway of a class cannot be written, another one carries the trigger.
        let has_another = cluster.edge.on_refused(class, &gateway);
        memory.on_member_refused(has_another);
    }
    update_pause(m, target);
}

/// The confirmation after an outage is due.
pub(super) fn on_outage_over(m: &mut Machine, edge: ClusterId) {
    let memory = m.memory.edges.get_mut(&edge);
    let outages = memory.map(|memory| std::mem::take(&mut memory.outages)).unwrap_or_default();
    let [since, later @ ..] = &*outages else {
        return debug_assert!(false, "a confirmation is due after no outage");
    };

    let targets = m.memory.targets.iter_mut().filter(|(target, _)| target.cluster() == edge);
    for (target, memory) in targets {
        if memory.on_outage_over(*since, &m.world.settings.touch) {
            m.dirty.insert(Subject::Target(target.clone()));
        }
    }
    for since in later {
        on_outage(m, edge, *since);
    }
}

/// Schedules one more confirmation of what was announced around the outage: the extension server's
/// cache may recover later than the other watches.
fn on_outage(m: &mut Machine, edge: ClusterId, since: UnixMillis) {
    if m.memory.edges.entry(edge).or_default().on_outage(since) {
        let at = m.now.plus(m.world.settings.touch.confirm_after_outage_ms);
        m.scheduler.timers.set(Timer::Outage(edge), Some(at));
    }
}

/// Reports the touches that wait for an edge's rate limit. Called at the end of a step.
pub(super) fn report_waiting(m: &mut Machine) {
    let Machine { world, memory, scheduler, notes, now, .. } = m;
    for (id, edge) in &mut memory.edges {
        let queue = scheduler.queue(QueueKey::Touches(*id));
        let per_second = world.settings.shard.part_of(world.settings.touch.max_per_second);
        if let Some(touches) = edge.report.news(queue, per_second, *now) {
            let name = world.name_of(*id);
            let finder = Finder::Whole(name.clone(), Cause::TouchesQueued);
            let mut problem = Problem::new(Cause::TouchesQueued, About::cluster(&name), *now);
            problem.facts.edge = Some(name);
            problem.facts.part = usize::try_from(touches).unwrap_or(usize::MAX);
            problem.facts.limit_ms = Some(touches.div_ceil(u64::from(per_second).max(1)) * 1_000);
            notes.found(&finder, Some(problem).filter(|_| touches > 0));
        }
    }
}

/// The target that announces the connectors of a Gateway; `None` if the Gateway does not exist.
fn target_of(world: &World, gateway: &ObjectRef) -> Option<Target> {
    world.clusters[&gateway.cluster].target_of(&gateway.name)
}

/// The targets that announce a connector.
fn targets_of(edge: &Cluster, connector: &NamespacedName) -> BTreeSet<Target> {
    let gateways = edge.edge.gateways_of(connector).iter();
    gateways.filter_map(|gateway| edge.target_of(gateway)).collect()
}

fn has_connectors(world: &World, gateway: &ObjectRef) -> bool {
    !world.clusters[&gateway.cluster].edge.connectors_of(&gateway.name).is_empty()
}
