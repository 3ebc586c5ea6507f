//! What the controller does around the plan of a hub Connector: breakers, notes, outcomes.
//!
//! [`plan`] asks three rules in turn. The mirror says what is true of the annotation, the nudge
//! whether an edge lacks it, and the hop what is late. Whatever changed since the plan before is
//! reported here: the rules know nothing of it.

mod holds;
mod outcomes;
mod reports;

pub(super) use holds::{Holds, report_holds};
pub(super) use outcomes::{on_decided, on_finished};

use self::holds::move_hold;
use self::reports::{report_deferral, report_oversize};
use super::{Breakers, Controller, Dirty, Leadership, Notes, limits};
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::NoteKind;
use crate::contract::settings::{MirrorSettings, Settings};
use crate::data::ids::{ActionId, ClusterName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::UPSTREAM_STATUS;
use crate::data::time::UnixMillis;
use crate::next::plan::{Agenda, Next};
use crate::next::rules::hop::{self, Circumstances, Passed};
use crate::next::rules::mirror::{self, Before, Place, Plan, SyncState, Verdict};
use crate::next::rules::nudge::{self, Carrier};
use crate::next::subject::Subject;
use crate::next::world::change::{HubChange, HubConnectorSeen};
use crate::next::world::{Change, World};
use crate::next::write_queue::QueueKey;

/// What is remembered of a hub Connector. Each rule has its own.
#[derive(Debug, Default)]
pub(crate) struct HubMemory {
    pub(crate) mirror: mirror::MirrorMemory,
    pub(crate) nudge: nudge::NudgeMemory,
    pub(crate) hop: hop::HopMemory,
    /// That the status does not fit was reported.
    is_oversize_reported: bool,
}

/// What the rules read of one hub Connector, looked up once.
struct Facts<'w> {
    place: Place<'w>,
    world: &'w World,
    settings: &'w Settings,
    leadership: Leadership,
    /// The queue that it waits in.
    queue: Option<QueueKey>,
    /// The queue that has room for it in this moment.
    admitted_by: Option<QueueKey>,
    now: UnixMillis,
}

/// Plans a hub Connector; `None` where there is none.
pub(super) fn plan(
    c: &mut Controller,
    at: &ObjectRef,
    admitted_by: Option<QueueKey>,
    now: UnixMillis,
) -> Option<Agenda> {
    let mut memory = c.memory.hub.remove(at).unwrap_or_default();
    let queue = queue_of(c, at);
    let settings = &c.settings;
    let place = Place::find(&c.world, at)?;
    let leadership = c.leadership;
    let facts = Facts { place, world: &c.world, settings, leadership, queue, admitted_by, now };

    let plan = facts.plan_mirror(&mut memory.mirror, &c.breakers);
    count_removal(&mut c.breakers, place, plan.verdict, now);
    if facts.awaits_turn(&mut c.awaiting_turn, plan.verdict) {
        c.memory.hub.insert(at.clone(), memory);
        return Some(Agenda::of([plan.next]));
    }
    let before = memory.mirror.before();
    memory.mirror.on_verdict(plan.verdict, now);

    report_deferral(&mut c.notes, place, &mut memory, before);
    report_oversize(&mut c.notes, place, &mut memory, &plan, &settings.mirror);
    let has_arrived = facts.pass_hops(&mut memory, &plan, before, &mut c.notes);
    let nudge = facts.plan_nudge(&memory, plan.verdict);
    let late_at = facts.update_stall(&mut memory, plan.verdict, &mut c.notes);

    memory.forget_what_is_over(plan.verdict, &settings.mirror, now);
    let is_at_rest = memory.is_at_rest(plan.verdict, &settings.mirror, now);
    if let Some(upstream) = place.named().cloned() {
        move_hold(c, &upstream, before.held, memory.mirror.held, now);
    }
    if has_arrived {
        on_arrived(c, at.cluster, now);
    }
    if !is_at_rest {
        c.memory.hub.insert(at.clone(), memory);
    }
    Some(Agenda::of([plan.next, nudge]).requeue_at(late_at))
}

/// Counts whether the annotation would go.
fn count_removal(breakers: &mut Breakers, place: Place<'_>, verdict: Verdict, now: UnixMillis) {
    if let Some((upstream, removal)) = place.named().zip(verdict.removal()) {
        breakers.on_removal(place.at, upstream, removal, now);
    }
}

impl Facts<'_> {
    fn view<'v>(&'v self, memory: &'v mirror::MirrorMemory) -> mirror::View<'v> {
        let view = self.place.view(memory, self.leadership.is_leader);
        mirror::View { admitted_by: self.admitted_by, ..view }
    }

    fn plan_mirror(&self, memory: &mut mirror::MirrorMemory, breakers: &Breakers) -> Plan {
        if let Some(QueueKey::Repeats(_)) = self.admitted_by.or(self.queue) {
            memory.on_waits_in_repeats(self.now);
        }

        let breaker = self.place.named().map(|upstream| breakers.removals_of(upstream));
        let breaker = breaker.unwrap_or_default();
        let view = mirror::View { breaker, ..self.view(memory) };
        mirror::plan(&view, self.settings, self.now)
    }

    /// Whether it is not known yet whether the limit of removals holds this one: all of this moment
    /// come to wait for it before the first is admitted.
    fn awaits_turn(&self, awaiting_turn: &mut Dirty, verdict: Verdict) -> bool {
        let Verdict::RemovalHeld(HoldReason::Budget, _) = verdict else { return false };

        let subject = Subject::HubConnector(self.place.at.clone());
        let waited_before =
            self.queue == Some(QueueKey::Removals) && !awaiting_turn.contains(&subject);
        if !waited_before {
            awaiting_turn.insert(subject);
        }
        !waited_before
    }

    /// Notes the hops that the status has passed. Returns whether it has arrived at an edge.
    fn pass_hops(
        &self,
        memory: &mut HubMemory,
        plan: &Plan,
        before: Before,
        notes: &mut Notes,
    ) -> bool {
        let HubMemory { mirror, nudge, hop, .. } = memory;
        let Some(change) = plan.change else { return false };
        let Place { at, hub, .. } = self.place;

        let edges = hop::edges(self.world, at);
        let view = self.view(mirror);
        let passed = hop.on_planned(&view, plan.verdict, change, before, &edges, self.now);
        if before.is_mirrored(plan.verdict) {
            nudge.on_mirrored();
        }

        let has_arrived = passed.iter().any(|passed| passed.cluster != hub.name);
        for Passed { hop, cluster, after_ms } in passed {
            notes.hop_passed(&cluster, &at.name, hop, change.is_online, after_ms);
        }
        has_arrived
    }

    fn plan_nudge(&self, memory: &HubMemory, verdict: Verdict) -> Next {
        let HubMemory { mirror, nudge, hop, .. } = memory;
        let right_since = mirror.sync.right_since().unwrap_or_default();
        let behind_since = hop.seen_behind_since(self.world).filter(|_| verdict.is_right());
        behind_since.map_or(Next::AwaitChange, |since| {
            let since = since.max(right_since);
            nudge::plan(&self.view(mirror), nudge, since, &self.settings.mirror, self.now)
        })
    }

    /// Reports what is late, and what is no longer. Returns when it becomes late.
    fn update_stall(
        &self,
        memory: &mut HubMemory,
        verdict: Verdict,
        notes: &mut Notes,
    ) -> Option<UnixMillis> {
        let HubMemory { mirror, nudge, hop, .. } = memory;
        let Self { world, settings, now, .. } = *self;
        let view = self.view(mirror);
        let circumstances = Circumstances {
            nudges: nudge.nudges(&settings.mirror, now),
            repeats_per_second: self.repeats_per_second(),
            lease_wait_until: self.leadership.wait.until,
        };

        let expected = hop::expected(&view, verdict, hop, world, &settings.stall, now);
        let update = hop::plan(expected, &view, hop, circumstances, now);
        let late_at = update.late_at();
        notes.extend(hop.on_update(update));
        late_at
    }

    /// The limit of the queue in which it waits, because it changes again and again.
    fn repeats_per_second(&self) -> Option<u32> {
        match self.queue? {
            QueueKey::Repeats(upstream) => Some(limits::repeats_per_second(upstream, self.world)),
            _ => None,
        }
    }
}

/// A value arrived at an edge, so the carrier answers.
fn on_arrived(c: &mut Controller, hub: ClusterId, now: UnixMillis) {
    if c.memory.carriers.get_mut(&hub).is_some_and(Carrier::on_arrived) {
        restart_nudges(c, hub, now);
    }
}

/// The carrier fell silent, or answers again: what was nudged before does not count.
fn restart_nudges(c: &mut Controller, hub: ClusterId, at: UnixMillis) {
    let queue = QueueKey::Nudges(hub);
    let limit = c.limit_of(queue);
    c.scheduler.restart_queue(queue, limit, at);
}

pub(super) fn on_change(c: &mut Controller, change: &Change, dirty: &mut Dirty, now: UnixMillis) {
    match change {
        Change::Hub(HubChange::Seen(seen)) => on_seen(c, seen, now),
        Change::Hub(HubChange::UpstreamChanged { at }) => {
            if let Some(memory) = c.memory.hub.get_mut(at) {
                memory.mirror.write.on_desired_changed();
            }
        }
        Change::Hub(HubChange::UpstreamLeft { at }) => {
            if let Some(memory) = c.memory.hub.get_mut(at) {
                memory.on_upstream_left();
            }
        }
        Change::Gone { subject: Subject::HubConnector(at), named } => {
            on_gone(c, at, named.as_ref(), now);
        }
        Change::Relinked { subject: Subject::HubConnector(at), from } => {
            let memory = c.memory.hub.get_mut(at);
            let held = memory.and_then(|memory| memory.mirror.held.take());
            move_hold(c, from, held, None, now);
        }
        Change::EvidenceLost { upstream } => {
            dirty.extend(c.breakers.would_go(upstream).into_iter().map(Subject::HubConnector));
        }
        _ => {}
    }
}

/// The watch showed the object, in a version that is not older.
fn on_seen(c: &mut Controller, seen: &HubConnectorSeen, now: UnixMillis) {
    let at = &seen.at;
    if let Some(memory) = c.memory.hub.get_mut(at) {
        memory.mirror.on_seen(seen.annotation());
    }

    if is_overwritten(c, seen) {
        on_overwritten(c, at, seen.manager(), now);
    }
    if seen.is_resumed {
        c.memory.hub.entry(at.clone()).or_default().mirror.on_resumed(now);
    }
    if seen.before.is_some() != seen.annotation().is_some() {
        on_population_changed(c, at);
    }
}

/// An annotation came or went.
fn on_population_changed(c: &mut Controller, at: &ObjectRef) {
    if let Some(upstream) = upstream_of(&c.world, at) {
        c.breakers.on_population_changed(upstream);
    }
}

fn is_overwritten(c: &Controller, seen: &HubConnectorSeen) -> bool {
    if !seen.is_same_object || seen.is_resumed {
        return false;
    }
    let place = Place::find(&c.world, &seen.at).filter(|place| !place.row.seen.is_paused);
    let Some(place) = place else { return false };

    let at_rest = mirror::MirrorMemory::default();
    let memory = c.memory.hub.get(&seen.at).map_or(&at_rest, |memory| &memory.mirror);
    mirror::is_overwritten(&place.view(memory, c.leadership.is_leader), seen.before)
}

/// Another writer changed an annotation that was right.
fn on_overwritten(c: &mut Controller, at: &ObjectRef, manager: Option<&str>, now: UnixMillis) {
    let settings = &c.settings.mirror;
    let memory = &mut c.memory.hub.entry(at.clone()).or_default().mirror;
    let Some(pause_ms) = memory.on_overwritten(manager, settings, now) else { return };
    let Some(contention) = memory.write.contention() else { return };

    let hub = c.world.name_of(at.cluster);
    c.notes.contention(&hub, &at.name, UPSTREAM_STATUS, contention, pause_ms, settings);
}

/// The object is gone, or another one has its name: what was said of it is over.
fn on_gone(c: &mut Controller, at: &ObjectRef, named: Option<&ClusterName>, now: UnixMillis) {
    let Some(mut memory) = c.memory.hub.remove(at) else { return };
    if memory.mirror.deferred_since.is_some() {
        let (cluster, connector) = (c.world.name_of(at.cluster), at.name.key());
        c.notes.push(NoteKind::Deferred { cluster, connector, deferred: false });
    }
    c.notes.extend(memory.hop.end(|_| true).map(NoteKind::StallEnded));

    let named = named.or_else(|| upstream_of(&c.world, at)).cloned();
    if let Some(named) = named {
        move_hold(c, &named, memory.mirror.held, None, now);
    }
}

impl HubMemory {
    pub(super) fn on_started(&mut self, id: ActionId) {
        self.mirror.write.on_started(id);
    }

    /// It is known to be behind, here or at an edge. Who is not, but failed before, waits for more than
    /// an API server that answers.
    pub(super) fn is_unsettled(&self) -> bool {
        self.mirror.sync == SyncState::Behind
            || self.mirror.deferred_since.is_some()
            || self.hop.is_any_edge_behind()
    }

    fn on_upstream_left(&mut self) {
        self.mirror.on_upstream_left();
        self.hop.on_upstream_left();
    }

    fn forget_what_is_over(
        &mut self,
        verdict: Verdict,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) {
        let is_nudged = self.nudge.nudges(settings, now) > 0;
        match verdict {
            Verdict::Paused | Verdict::Disabled => {
                self.hop.forget_edges();
                self.nudge.on_mirrored();
            }
            Verdict::InSync | Verdict::BothAbsent
                if !self.hop.is_any_edge_behind() && !is_nudged =>
            {
                self.mirror.on_settled(settings, now);
            }
            _ => {}
        }
    }

    /// Without this memory the same would be planned and reported.
    fn is_at_rest(&self, verdict: Verdict, settings: &MirrorSettings, now: UnixMillis) -> bool {
        self.mirror.is_at_rest(now)
            && self.nudge.nudges(settings, now) == 0
            && self.hop.is_at_rest()
            && !self.is_oversize_reported
            && !matches!(verdict, Verdict::AbsenceGrace(_))
    }
}

fn upstream_of<'w>(world: &'w World, at: &ObjectRef) -> Option<&'w ClusterName> {
    let row = world.clusters.get(&at.cluster)?.hub_connectors.get(&at.name)?;
    row.seen.upstream.as_ref().map(|named| &named.cluster)
}

fn is_paused(c: &Controller, at: &ObjectRef) -> bool {
    let hub = c.world.clusters.get(&at.cluster);
    let row = hub.and_then(|hub| hub.hub_connectors.get(&at.name));
    row.is_some_and(|row| row.seen.is_paused)
}

fn queue_of(c: &Controller, at: &ObjectRef) -> Option<QueueKey> {
    c.scheduler.queue_of(&Subject::HubConnector(at.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_small() {
        assert!(size_of::<HubMemory>() <= 320, "{}", size_of::<HubMemory>());
    }
}
