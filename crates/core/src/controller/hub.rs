//! Plans a hub Connector with three rules in turn: the mirror determines the state of the
//! annotation, the nudge whether an edge lacks the value, and the hop what is late. The controller
//! reports what changed since the last plan: the rules cannot know.

use super::hub_memory::HubMemory;
use super::leadership::Leadership;
use super::notes::Notes;
use super::state::{Controller, Dirty};
use crate::circuit_breaker::BreakerState;
use crate::contract::settings::Settings;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::plan::Next;
use crate::rules::findings::Findings;
use crate::rules::hop::{self, Passed};
use crate::rules::mirror::{self, Before, MirrorMemory, Place, Plan, Verdict};
use crate::rules::nudge::{self, Carrier};
use crate::subject::Subject;
use crate::world::World;
use crate::write_queue::QueueKey;

struct Facts<'w> {
    place: Place<'w>,
    world: &'w World,
    settings: &'w Settings,
    leadership: Leadership,
    /// The queue that it waits in.
    queue: Option<QueueKey>,
    /// The queue that admits it now.
    admitted_by: Option<QueueKey>,
    now: UnixMillis,
}

/// `None` if there is no such hub Connector.
pub(super) fn plan(
    c: &mut Controller,
    at: &ObjectRef,
    admitted_by: Option<QueueKey>,
) -> Option<Next> {
    let subject = Subject::HubConnector(at.clone());
    let mut memory = c.memory.hub.remove(at).unwrap_or_default();
    let facts = Facts {
        place: Place::find(&c.world, at)?,
        world: &c.world,
        settings: &c.settings,
        leadership: c.leadership,
        queue: c.scheduler.queue_of(&subject),
        admitted_by,
        now: c.now,
    };
    let upstream = facts.place.named();

    let breaker = upstream.map(|upstream| c.breakers.removals_of(upstream)).unwrap_or_default();
    let plan = facts.plan_mirror(&mut memory.mirror, breaker);
    if let Some(upstream) = upstream {
        c.breakers.on_verdict(at, upstream, plan.verdict, c.now);
    }
    if facts.awaits_turn(&subject, plan.verdict, &c.awaiting_turn) {
        c.awaiting_turn.insert(subject);
        c.memory.hub.insert(at.clone(), memory);
        return Some(plan.next);
    }

    let before = memory.mirror.before();
    memory.mirror.on_verdict(plan.verdict, c.now);
    let is_carried = facts.pass_hops(&mut memory, &plan, before, &mut c.notes);
    let nudge = facts.plan_nudge(&memory, plan.verdict);
    memory.hop.on_verdict(plan.verdict);
    let found = facts.find_problems(&memory, &plan);
    let next_at = found.as_ref().and_then(|found| found.next_at);
    if let Some(found) = found {
        c.notes.found_by_rule(&subject, found);
    }

    if is_carried {
        on_carried(c, at.cluster);
    }
    memory.forget_what_is_over(plan.verdict, &c.settings.mirror, c.now);
    if !memory.is_at_rest(plan.verdict, &c.settings.mirror, c.now) {
        c.memory.hub.insert(at.clone(), memory);
    }
    Some(plan.next.and(nudge).or_at(next_at))
}

impl Facts<'_> {
    fn view<'v>(&'v self, memory: &'v MirrorMemory) -> mirror::View<'v> {
        let Self { place, settings, leadership, admitted_by, now, .. } = *self;
        let view = mirror::View::new(place, memory, settings, leadership.is_leader, now);
        mirror::View { admitted_by, ..view }
    }

    fn plan_mirror(&self, memory: &mut MirrorMemory, breaker: BreakerState) -> Plan {
        if let Some(QueueKey::Repeats(_)) = self.admitted_by.or(self.queue) {
            memory.on_waits_in_repeats(self.now);
        }
        let view = mirror::View { breaker, ..self.view(memory) };
        mirror::plan(&view)
    }

    /// Whether it is still open if the limit of removals holds this one: all removals of a step are
    /// queued before the first is admitted.
    fn awaits_turn(&self, subject: &Subject, verdict: Verdict, awaiting_turn: &Dirty) -> bool {
        let is_queued = self.queue == Some(QueueKey::Removals);
        matches!(verdict, Verdict::RemovalQueued(_))
            && (!is_queued || awaiting_turn.contains(subject))
    }

    /// Reports the hops that the status has completed. Returns whether it was carried to an edge.
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

        let view = self.view(mirror);
        let passed = hop.on_planned(&view, self.world, plan.verdict, change, before);
        if before.is_mirrored(plan.verdict) {
            nudge.on_mirrored();
        }

        let is_carried = passed.iter().any(|passed| passed.cluster != hub.name);
        for Passed { hop, cluster, after_ms } in passed {
            notes.hop_passed(&cluster, &at.name, hop, change.is_online, after_ms);
        }
        is_carried
    }

    fn plan_nudge(&self, memory: &HubMemory, verdict: Verdict) -> Next {
        let HubMemory { mirror, nudge, hop, .. } = memory;
        let in_sync_since = mirror.sync.in_sync_since().unwrap_or_default();
        let out_of_sync_since =
            hop.seen_out_of_sync_since(self.world).filter(|_| verdict.routes_as_desired());
        out_of_sync_since.map_or(Next::AWAIT_CHANGE, |since| {
            let since = since.max(in_sync_since);
            nudge::plan(&self.view(mirror), nudge, since)
        })
    }

    /// `None`: unknown.
    fn find_problems(&self, memory: &HubMemory, plan: &Plan) -> Option<Findings> {
        let HubMemory { mirror, hop, .. } = memory;
        let view = hop::View {
            mirror: self.view(mirror),
            verdict: plan.verdict,
            world: self.world,
            is_repeat: matches!(self.queue, Some(QueueKey::Repeats(_))),
            oversize: plan.oversize,
            lease_wait_until: self.leadership.wait_until,
        };
        hop::find(&view, hop)
    }
}

/// A value was carried to an edge, so the carrier answers.
fn on_carried(c: &mut Controller, hub: ClusterId) {
    if c.memory.carriers.get_mut(&hub).is_some_and(Carrier::on_carried) {
        restart_nudges(c, hub, c.now);
    }
}

/// The carrier became silent, or answers again: earlier nudges do not count.
pub(super) fn restart_nudges(c: &mut Controller, hub: ClusterId, at: UnixMillis) {
    let queue = QueueKey::Nudges(hub);
    let limit = c.limit_of(queue);
    c.scheduler.restart_queue(queue, limit, at);
}
