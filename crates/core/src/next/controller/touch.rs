//! What the controller does around touches: which targets a change at an edge concerns, what an
//! outcome means for the Gateways of a class, and what is reported.
//!
//! A connector is announced at an edge once every target that references it has announced its latest
//! change. Until then it waits, and is late when that takes too long.

mod late;

pub(super) use late::plan_edge_connector;

use super::{Controller, Dirty};
use crate::contract::action::Verb;
use crate::contract::event::Outcome;
use crate::contract::note::{Hop, NoteKind};
use crate::contract::settings::RetrySettings;
use crate::data::ids::{ActionId, Kind};
use crate::data::name::NamespacedName;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::next::plan::{Agenda, Next, TouchReason};
use crate::next::rules::touch::{self, Effect, Event, Finished, ProofTarget, Stamp};
use crate::next::scheduler::Timer;
use crate::next::subject::{Subject, Target};
use crate::next::world::change::{Change, EdgeChange};
use crate::next::world::cluster::Cluster;
use crate::next::world::edge::EdgeTables;
use crate::next::write_queue::QueueKey;
use crate::next::write_state::{Completion, written_version};

/// `None` where the Gateway no longer exists. What a class announced is still known when a Gateway
/// is its member again.
pub(super) fn plan(
    c: &mut Controller,
    target: &Target,
    admitted_by: Option<QueueKey>,
    now: UnixMillis,
) -> Option<Agenda> {
    let Controller { world, memory, settings, .. } = c;
    let Some(view) = touch::view(world, target, &settings.touch) else {
        if let Some(edge) = memory.edges.get_mut(&target.cluster()) {
            edge.report.on_planned(false);
        }
        return matches!(target, Target::Class(..)).then(Agenda::default);
    };
    let edge = memory.edges.entry(target.cluster()).or_default();
    let memory = memory.targets.entry(target.clone()).or_default();
    touch::on(memory, Event::Look, &view, settings, now);
    let next = touch::plan(&view, memory, admitted_by, &settings.touch, now);

    let due_at = match &next {
        Next::Write(turn) => Some(turn.due().at),
        Next::AwaitChange | Next::RequeueAt(_) => None,
    };
    edge.report.on_planned(due_at.is_some_and(|at| at <= now));
    let is_ready = view.cluster.edge.ready_since.is_some();
    // After an outage, what was announced around it is confirmed once more: when that was must still
    // be known.
    let may_rest = due_at.is_none() && is_ready && !edge.outages.is_unconfirmed();
    memory.on_planned(may_rest && view.class.is_none(), now);
    Some(Agenda::of([next]))
}

pub(super) fn on_change(c: &mut Controller, change: &Change, dirty: &mut Dirty, now: UnixMillis) {
    let mut moment = Moment { c, dirty, now };
    match change {
        Change::Changed(Subject::Target(target)) => moment.update_pause(target),
        Change::Gone { subject: Subject::Target(target), .. } => moment.announced_all(target),
        Change::Gone { subject: Subject::EdgeConnector(at), .. } => moment.on_connector_gone(at),
        Change::Edge(change) => moment.on_edge_change(change),
        _ => {}
    }
}

pub(super) fn on_finished(
    c: &mut Controller,
    target: &Target,
    id: ActionId,
    outcome: &Outcome,
    dirty: &mut Dirty,
    now: UnixMillis,
) {
    let mut moment = Moment { c, dirty, now };
    // The Gateway may be gone, or another one may have its name.
    let Some(finished) = moment.take_over(target, id, outcome) else { return };

    match finished.completion {
        Completion::Written { .. } if finished.is_latest => moment.announced_all(target),
        Completion::Written { .. } => {}
        Completion::NotWritten | Completion::Refused { .. } => {
            moment.on_not_written(target, &finished, outcome);
        }
    }
    moment.update_pause(target);
}

/// The time of a confirmation after an outage has come.
pub(super) fn on_outage_over(
    c: &mut Controller,
    edge: ClusterId,
    dirty: &mut Dirty,
    now: UnixMillis,
) {
    let Some(memory) = c.memory.edges.get_mut(&edge) else { return };
    let since = memory.outages.on_confirmed();
    let next_since = memory.outages.take_next();

    let targets = c.memory.targets.iter_mut().filter(|(target, _)| target.cluster() == edge);
    for (target, memory) in targets {
        if since.is_some_and(|since| memory.on_outage_over(since, &c.settings.touch)) {
            dirty.insert(Subject::Target(target.clone()));
        }
    }
    if let Some(since) = next_since {
        on_outage(c, edge, since, now);
    }
}

/// What was announced around the outage is confirmed once more, later: the extension server's cache
/// may be back later than everybody else's.
fn on_outage(c: &mut Controller, edge: ClusterId, since: UnixMillis, now: UnixMillis) {
    if c.memory.edges.entry(edge).or_default().outages.on_over(since) {
        let at = now.plus(c.settings.touch.confirm_after_outage_ms);
        c.scheduler.set_timer(Timer::Outage(edge), Some(at));
    }
}

/// The edge leaves: nothing waits for its connectors any more.
pub(super) fn on_edge_left(c: &mut Controller, edge: ClusterId) {
    c.scheduler.set_timer(Timer::Outage(edge), None);
    let waiting = c.memory.edges.remove(&edge).map(|edge| edge.waiting).unwrap_or_default();
    for stall in waiting.into_values().filter_map(|waiting| waiting.stall) {
        c.notes.push(NoteKind::StallEnded(*stall));
    }
}

/// Reports the touches that wait because an edge takes no more. Comes at the end of a moment.
pub(super) fn report_waiting(c: &mut Controller, now: UnixMillis) {
    let Controller { world, memory, scheduler, settings, notes, .. } = c;
    for (id, edge) in &mut memory.edges {
        let queue = scheduler.queue(QueueKey::Touches(*id));
        if let Some(waiting) = edge.report.news(queue, settings.touch.max_per_second, now) {
            notes.push(NoteKind::TouchesWaiting { cluster: world.name_of(*id), waiting });
        }
    }
}

/// One event at an edge, and the subjects that are planned again because of it.
struct Moment<'m> {
    c: &'m mut Controller,
    dirty: &'m mut Dirty,
    now: UnixMillis,
}

impl Moment<'_> {
    fn on_edge_change(&mut self, change: &EdgeChange) {
        match change {
            EdgeChange::Liveness { connector, is_unseen, is_ordered } => {
                self.on_liveness(connector, *is_unseen, *is_ordered);
            }
            EdgeChange::Arrived { connector, is_online } => {
                let cluster = self.c.world.name_of(connector.cluster);
                let notes = &mut self.c.notes;
                notes.hop_passed(&cluster, &connector.name, Hop::Arrived, *is_online, None);
            }
            EdgeChange::References { gateway } if has_connectors(self.c, gateway) => {
                self.apply_to(gateway, changed(TouchReason::ReferencesChanged, true));
            }
            EdgeChange::References { .. } => {}
            EdgeChange::GatewayAppeared { gateway, is_later } => {
                self.on_appeared(gateway, *is_later);
            }
            EdgeChange::TriggerChanged { gateway } => {
                self.apply_to(gateway, Event::TriggerSeen { gateway: &gateway.name });
            }
            EdgeChange::Stamped { gateway, connector, is_present, is_first } => {
                let stamp = Stamp { connector, is_present: *is_present, is_own: true };
                self.on_stamped(gateway, stamp, *is_first);
            }
            EdgeChange::CarrierLost { class } => {
                self.apply(class, changed(TouchReason::NotAnnounced, false));
            }
            EdgeChange::Unreferenced { target } => self.on_unreferenced(target, None),
            EdgeChange::OutageOver { edge, since } => on_outage(self.c, *edge, *since, self.now),
        }
    }

    /// Every target that references the connector has to announce its change.
    fn on_liveness(&mut self, connector: &ObjectRef, is_unseen: bool, is_ordered: bool) {
        let reason = match is_unseen {
            true => TouchReason::WrittenWhileWatchLost,
            false => TouchReason::LivenessChanged,
        };
        for target in targets_of(self.c, connector) {
            let proof = ProofTarget::Connector(connector.name.clone());
            self.apply(&target, Event::Changed { reason, proof, is_ordered });
            self.wait_for(&target, connector);
        }
    }

    fn wait_for(&mut self, target: &Target, connector: &ObjectRef) {
        let Controller { world, memory, .. } = &mut *self.c;
        let name = &connector.name;
        let touch = memory.targets.get_mut(target);
        let is_new = touch.is_some_and(|touch| touch.add_waiting(name));

        // A deleted connector counts as offline; nobody waits for its announcement.
        let cluster = world.clusters.get(&connector.cluster);
        let exists = cluster.is_some_and(|cluster| cluster.edge.connectors.get(name).is_some());
        if is_new && exists {
            memory.edges.entry(connector.cluster).or_default().on_waits(name, self.now);
            self.dirty.insert(Subject::EdgeConnector(connector.clone()));
        }
    }

    fn on_appeared(&mut self, gateway: &ObjectRef, is_later: bool) {
        let Some(target) = target_of(self.c, gateway) else { return };

        // Another one may have had its name, which is gone: nobody waits for that one any more, and
        // its class was left to the others.
        self.on_unreferenced(&target, Some(gateway));
        update_pause_without(self.c, &target, gateway);

        let has_connectors = has_connectors(self.c, gateway);
        self.apply(&target, Event::Appeared { is_later, has_connectors });
    }

    /// The first proof concerns every Gateway that references the connector; the stamps on the
    /// others follow and show nothing new.
    fn on_stamped(&mut self, gateway: &ObjectRef, stamp: Stamp<'_>, is_first: bool) {
        // What is found at the first look is compared before the stamp counts.
        self.apply_to(gateway, Event::Look);
        self.apply_to(gateway, Event::Stamped(stamp));
        if !stamp.is_present || !is_first {
            return;
        }

        let stamp = Stamp { is_own: false, ..stamp };
        let name = stamp.connector.clone();
        let connector = ObjectRef { cluster: gateway.cluster, kind: Kind::Connector, name };
        let others = gateways_of(self.c, &connector).filter(|other| other != gateway);
        for other in others.collect::<Vec<_>>() {
            self.apply_to(&other, Event::Stamped(stamp));
        }
    }

    /// A target has nothing to announce for connectors that none of its Gateways references any
    /// longer, `except` for one that is new.
    fn on_unreferenced(&mut self, target: &Target, except: Option<&ObjectRef>) {
        let edge = target.cluster();
        let waiting = self.take_waiting(target);
        let is_referenced = |name: &NamespacedName| {
            let at = ObjectRef { cluster: edge, kind: Kind::Connector, name: name.clone() };
            gateways_of(self.c, &at).any(|gateway| {
                Some(&gateway) != except && target_of(self.c, &gateway).as_ref() == Some(target)
            })
        };
        let (referenced, unreferenced): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(is_referenced);

        if let Some(memory) = self.c.memory.targets.get_mut(target) {
            memory.waiting = referenced;
        }
        self.announced(edge, unreferenced);
    }

    fn on_connector_gone(&mut self, at: &ObjectRef) {
        let edge = self.c.memory.edges.get_mut(&at.cluster);
        let waiting = edge.and_then(|edge| edge.waiting.remove(&at.name));
        if let Some(stall) = waiting.and_then(|waiting| waiting.stall) {
            self.c.notes.push(NoteKind::StallEnded(*stall));
        }
    }

    fn take_over(&mut self, target: &Target, id: ActionId, outcome: &Outcome) -> Option<Finished> {
        let Controller { world, memory, settings, .. } = &mut *self.c;
        let edge = &mut world.clusters.get_mut(&target.cluster())?.edge;
        let memory = memory.targets.get_mut(target)?;
        let finished = memory.on_finished(id, outcome, edge, settings, self.now)?;

        if let Completion::Written { .. } = finished.completion {
            let Finished { gateway, trigger, is_trigger_seen, .. } = &finished;
            edge.on_touched(gateway, written_version(outcome), *is_trigger_seen, *trigger);
        }
        Some(finished)
    }

    /// Where one Gateway of a class cannot be written, another one carries the trigger.
    fn on_not_written(&mut self, target: &Target, finished: &Finished, outcome: &Outcome) {
        let Controller { world, memory, settings, notes, .. } = &mut *self.c;
        let Some(cluster) = world.clusters.get_mut(&target.cluster()) else { return };
        let Some(memory) = memory.targets.get_mut(target) else { return };

        let is_about_object = matches!(outcome, Outcome::Refused { .. } | Outcome::NotFound);
        let mut is_replaced = false;
        if is_about_object && let Target::Class(_, class) = target {
            let has_another = has_another_carrier(&mut cluster.edge, class, &finished.gateway);
            is_replaced = memory.on_member_refused(has_another);
        }

        if let Completion::Refused { is_news: true } = finished.completion
            && let Some(error) = outcome.error()
        {
            let next = next_attempt(is_replaced, &settings.retry);
            notes.refused(&cluster.name, &finished.gateway, Verb::Touch, error, &next);
        }
    }

    /// Something happened to a target. Does nothing where no Gateway of a class has a connector.
    fn apply(&mut self, target: &Target, event: Event<'_>) {
        self.update_pause(target);
        self.dirty.insert(Subject::Target(target.clone()));

        let Controller { world, memory, settings, notes, .. } = &mut *self.c;
        let Some(view) = touch::view(world, target, &settings.touch) else { return };
        let memory = memory.targets.entry(target.clone()).or_default();
        match touch::on(memory, event, &view, settings, self.now) {
            Effect::None => {}
            Effect::Announced => self.announced_all(target),
            Effect::Overwritten { pause_ms } => {
                let Some(contention) = memory.write.contention() else { return };
                let key = &settings.touch.key;
                let cluster = &view.cluster.name;
                let limits = &settings.mirror;
                notes.contention(cluster, view.gateway, key, contention, pause_ms, limits);
            }
        }
    }

    fn apply_to(&mut self, gateway: &ObjectRef, event: Event<'_>) {
        if let Some(target) = target_of(self.c, gateway) {
            self.apply(&target, event);
        }
    }

    /// Takes over whether a person has paused the target. What waits for it is not late meanwhile,
    /// and late by itself from the end of the pause.
    fn update_pause(&mut self, target: &Target) {
        let Controller { world, memory, settings, .. } = &mut *self.c;
        let Some(view) = touch::view(world, target, &settings.touch) else { return };
        let Some(touch) = memory.targets.get_mut(target) else { return };
        if !touch.on_paused(view.is_paused()) {
            return;
        }

        let edge = memory.edges.entry(target.cluster()).or_default();
        for name in &touch.waiting {
            let at = view.cluster.object(Kind::Connector, name);
            self.dirty.insert(Subject::EdgeConnector(at));
            if !view.is_paused()
                && let Some(waiting) = edge.waiting.get_mut(name)
            {
                waiting.has_paused = true;
                waiting.since = self.now;
            }
        }
    }

    fn take_waiting(&mut self, target: &Target) -> Vec<NamespacedName> {
        let memory = self.c.memory.targets.get_mut(target);
        memory.map(|memory| std::mem::take(&mut memory.waiting)).unwrap_or_default()
    }

    /// A target has announced everything, or is gone.
    fn announced_all(&mut self, target: &Target) {
        let waiting = self.take_waiting(target);
        self.announced(target.cluster(), waiting);
    }

    /// A target has announced the latest change of these connectors, or has nothing to announce for
    /// them any longer.
    fn announced(&mut self, edge: ClusterId, connectors: Vec<NamespacedName>) {
        let Controller { world, memory, notes, .. } = &mut *self.c;
        let Some(cluster) = world.clusters.get(&edge) else { return };
        let memory = memory.edges.entry(edge).or_default();
        let listed_since = cluster.listed_since(Kind::Connector);

        for name in connectors {
            self.dirty.insert(Subject::EdgeConnector(cluster.object(Kind::Connector, &name)));
            let Some(waiting) = memory.on_announced(&name) else { continue };
            let Some(row) = cluster.edge.connectors.get(&name) else { continue };
            if let Some(stall) = waiting.stall {
                notes.push(NoteKind::StallEnded(*stall));
            }

            // What a list showed changed at an unknown time.
            let is_timed = row.seen.changed_at > listed_since && !waiting.has_paused;
            let changed_at = row.seen.changed_at.filter(|_| is_timed);
            let after_ms = changed_at.map(|at| self.now.since(at));
            notes.hop_passed(&cluster.name, &name, Hop::Touched, row.seen.is_online, after_ms);
        }
    }
}

fn changed(reason: TouchReason, is_ordered: bool) -> Event<'static> {
    Event::Changed { reason, proof: ProofTarget::Target, is_ordered }
}

/// What follows a refusal, in words.
fn next_attempt(is_replaced: bool, retry: &RetrySettings) -> String {
    if is_replaced {
        return "another Gateway of its class is written instead".to_owned();
    }
    let seconds = retry.max_ms.div_ceil(1_000);
    format!("next attempt in {seconds} s, or when a connector changes")
}

/// Takes over whether a person has paused all Gateways of a class but this one.
fn update_pause_without(c: &mut Controller, target: &Target, gateway: &ObjectRef) -> Option<()> {
    let Target::Class(edge, class) = target else { return None };
    let edge = &c.world.clusters.get(edge)?.edge;
    let mut others = edge.classes.get(class)?.gateways().filter(|name| **name != gateway.name);
    let is_paused = edge.gateways.get(others.next()?)?.seen.is_paused;
    c.memory.targets.get_mut(target)?.on_paused(is_paused);
    Some(())
}

/// Counts the refusal. Returns whether another Gateway carries the trigger of the class now.
fn has_another_carrier(edge: &mut EdgeTables, class: &str, refused: &NamespacedName) -> bool {
    if edge.carrier(class) == Some(refused) {
        edge.on_refused(refused);
    }
    edge.carrier(class).is_some_and(|carrier| carrier != refused)
}

/// What announces the connectors of a Gateway; `None` where the Gateway does not exist.
fn target_of(c: &Controller, gateway: &ObjectRef) -> Option<Target> {
    c.world.clusters.get(&gateway.cluster)?.edge.target_of(gateway)
}

/// What announces a connector, in order.
fn targets_of(c: &Controller, connector: &ObjectRef) -> Vec<Target> {
    let gateways = gateways_of(c, connector);
    let mut targets: Vec<_> = gateways.filter_map(|gateway| target_of(c, &gateway)).collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// The Gateways that reference a connector, whether or not they exist.
fn gateways_of<'c>(
    c: &'c Controller,
    connector: &'c ObjectRef,
) -> impl Iterator<Item = ObjectRef> + 'c {
    let cluster = c.world.clusters.get(&connector.cluster);
    let names = |cluster: &'c Cluster| cluster.edge.gateways_of(&connector.name);
    let at = |name| ObjectRef { cluster: connector.cluster, kind: Kind::Gateway, name };
    cluster.into_iter().flat_map(names).cloned().map(at)
}

fn has_connectors(c: &Controller, gateway: &ObjectRef) -> bool {
    let edge = c.world.clusters.get(&gateway.cluster).map(|cluster| &cluster.edge);
    edge.is_some_and(|edge| !edge.connectors_of(&gateway.name).is_empty())
}
