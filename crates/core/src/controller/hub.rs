//! Plans a hub Connector with three rules in turn: the mirror determines the state of the
//! annotation, the nudge whether an edge lacks the value, and the hop what is late. The controller
//! reports what changed since the last plan: the rules cannot know.

use super::hub_memory::HubMemory;
use super::limits::limit_of;
use super::state::Machine;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::plan::Next;
use crate::rules::hop::{self, Passed};
use crate::rules::mirror::{self, Place, Verdict};
use crate::rules::nudge::{self, Carrier, SILENT_EVERY_MS};
use crate::subject::Subject;
use crate::write_queue::QueueKey;

/// `None` if there is no such hub Connector.
pub(super) fn plan(m: &mut Machine, at: &ObjectRef, admitted_by: Option<QueueKey>) -> Option<Next> {
    let subject = Subject::HubConnector(at.clone());
    let mut memory = m.memory.hub.remove(at).unwrap_or_default();
    let HubMemory { mirror, nudge, hop } = &mut *memory;
    let place = Place::find(&m.world, at)?;
    let queue = m.scheduler.queue_of(&subject);
    if let Some(QueueKey::Repeats(_)) = admitted_by.or(queue) {
        mirror.on_waits_in_repeats(m.now);
    }

    let breaker = m.breakers.removals_of(place.named());
    let removals = m.breakers.removals();
    let view = mirror::View::new(place, mirror, breaker, removals, m.is_leader, m.now);
    let plan = mirror::plan(&mirror::View { admitted_by, ..view });
    if let Some(upstream) = place.named() {
        m.breakers.on_verdict(at, upstream, plan.verdict, m.now);
    }
    // All removals of a step are queued before the first is admitted. Until then it is open whether
    // their limit holds this one.
    let is_queued = queue == Some(QueueKey::Removals) && !m.awaiting_turn.contains(&subject);
    if matches!(plan.verdict, Verdict::RemovalQueued(_)) && !is_queued {
        m.awaiting_turn.insert(subject);
        m.memory.hub.insert(at.clone(), memory);
        return Some(plan.next);
    }

    let before = mirror.on_verdict(plan.verdict, m.now);
    let view = mirror::View::new(place, mirror, breaker, removals, m.is_leader, m.now);
    let view = hop::View {
        mirror: mirror::View { admitted_by, ..view },
        plan: &plan,
        is_repeat: matches!(queue, Some(QueueKey::Repeats(_))),
        lease_wait_until: m.lease_wait_until,
    };
    let passed = hop.on_planned(&view, before);
    if before.is_mirrored(plan.verdict) {
        nudge.on_mirrored();
    }
    let nudge = nudge::plan(&view, nudge, hop);
    let found = hop::find(&view, hop);
    let next_at = found.as_ref().and_then(|found| found.next_at);

    on_passed(m, at, passed, plan.change.is_some_and(|change| change.is_online));
    if let Some(found) = found {
        m.notes.found_by_rule(&subject, found);
    }
    memory.forget_what_is_over(plan.verdict, &m.world.settings.mirror, m.now);
    if !memory.is_at_rest(plan.verdict, &m.world.settings.mirror, m.now) {
        m.memory.hub.insert(at.clone(), memory);
    }
    Some(plan.next.and(nudge).or_at(next_at))
}

/// Reports the hops that the status has completed.
fn on_passed(m: &mut Machine, at: &ObjectRef, passed: Vec<Passed>, is_online: bool) {
    let hub = at.cluster;
    for Passed { hop, cluster, after_ms } in passed {
        // A value was carried to an edge, so the carrier answers.
        let is_carried = cluster != m.world.name_of(hub);
        if is_carried && m.memory.carriers.get_mut(&hub).is_some_and(Carrier::on_carried) {
            restart_nudges(m, hub, m.now);
        }
        m.notes.hop_passed(&cluster, &at.name, hop, is_online, after_ms);
    }
}

/// A nudge was written, or its answer did not come. The carrier may become silent with it: only
/// such a nudge can be unanswered.
pub(super) fn on_nudged(m: &mut Machine, hub: ClusterId) {
    if m.memory.carriers.entry(hub).or_default().on_nudged() {
        restart_nudges(m, hub, m.now.plus(SILENT_EVERY_MS));
    }
}

/// The carrier became silent, or answers again: earlier nudges do not count.
fn restart_nudges(m: &mut Machine, hub: ClusterId, at: UnixMillis) {
    let queue = QueueKey::Nudges(hub);
    let limit = limit_of(m, queue);
    m.scheduler.restart_queue(queue, limit, at);
}
