//! Routes: what the controller adds to a plan of the orphan rule. It updates the breakers and
//! reports verdicts that changed.

use super::state::Machine;
use crate::circuit_breaker::BreakerKey;
use crate::contract::cause::Cause;
use crate::contract::event::Outcome;
use crate::data::ids::ActionId;
use crate::data::object_ref::ObjectRef;
use crate::plan::Next;
use crate::rules::orphan::{self, OrphanMemory, Plan, Verdict, View};
use crate::subject::Subject;
use crate::world::Change;
use crate::write_queue::QueueKey;
use crate::write_state::Completion;

/// How long the watch may take to show that a deleted route is gone.
const DELETED_MS: u64 = 60_000;

/// The rule's view of a route, and its plan for now.
pub(crate) fn judge_route<'w>(
    m: &'w Machine,
    at: &'w ObjectRef,
    memory: &'w OrphanMemory,
) -> Option<(View<'w>, Plan)> {
    let view = view(m, at, memory, None)?;
    let plan = orphan::plan(&view);
    Some((view, plan))
}

/// The verdict as reported: an orphan that waits in the queue is still kept, by the limit of
/// deletes. If its deletes fail, that counts more.
pub(crate) fn shown_verdict(m: &Machine, at: &ObjectRef, verdict: Verdict) -> Verdict {
    let queue = || m.scheduler.queue_of(&Subject::Route(at.clone()));
    let failure = || m.memory.routes.get(at)?.write.failure();
    let is_failing = || failure().is_some_and(|last| last.is_repeated);
    match verdict {
        Verdict::Orphan if queue() == Some(QueueKey::Deletes) && !is_failing() => {
            Verdict::Absent(Cause::RouteSettling)
        }
        verdict => verdict,
    }
}

/// `None` if there is no such route.
fn view<'w>(
    m: &'w Machine,
    at: &'w ObjectRef,
    memory: &'w OrphanMemory,
    admitted_by: Option<QueueKey>,
) -> Option<View<'w>> {
    let hub = m.world.clusters.get(&at.cluster)?;
    let row = hub.routes.get(&at.name)?;
    let named = row.seen.upstream();
    let upstream = named.and_then(|named| m.world.upstream_named(named));
    Some(View {
        at,
        hub,
        row,
        upstream,
        deleted_project: named.and_then(|named| m.roster.deleted_project(named)),
        memory,
        settings: &m.world.settings.orphans,
        now: m.now,
        breaker: m.breakers.orphans_of(upstream.map(|upstream| &upstream.name)),
        is_leader: m.is_leader,
        admitted_by,
    })
}

pub(super) fn plan(m: &mut Machine, at: &ObjectRef, admitted_by: Option<QueueKey>) -> Option<Next> {
    let at_rest = OrphanMemory::default();
    let view = view(m, at, m.memory.routes.get(at).unwrap_or(&at_rest), admitted_by)?;
    let plan = orphan::plan(&view);
    let key = view.named().cloned().map(BreakerKey::Orphans);
    let is_followed = view.upstream.is_some();

    let is_absent = plan.verdict.is_absent();
    if let Some(key) = key {
        m.breakers.on_orphan(at, key, is_absent && is_followed);
    }
    m.breakers.on_orphan(at, BreakerKey::DeletedProjects, is_absent && !is_followed);
    m.route_verdicts.insert(at.clone(), plan.verdict);
    Some(plan.next)
}

/// Called at the end of a step: only then is it known which orphans wait in the queue.
pub(super) fn report_verdicts(m: &mut Machine) {
    for (at, verdict) in std::mem::take(&mut m.route_verdicts) {
        let verdict = shown_verdict(m, &at, verdict);
        let mut memory = m.memory.routes.remove(&at).unwrap_or_default();
        memory.on_verdict(verdict, m.now);
        let found = view(m, &at, &memory, None).map(|view| orphan::find(&view, verdict));
        m.notes.found_by_rule(&Subject::Route(at.clone()), found.unwrap_or_default());
        if !memory.is_at_rest() {
            m.memory.routes.insert(at, memory);
        }
    }
}

pub(super) fn on_change(m: &mut Machine, change: &Change) {
    if let Change::RouteSeen { at, has_other_parents } = change
        && let Some(memory) = m.memory.routes.get_mut(at)
    {
        memory.write.on_object_changed();
        if *has_other_parents {
            // The new parents may be about to be created.
            memory.absent_since = None;
        }
    }
}

pub(super) fn on_finished(m: &mut Machine, at: &ObjectRef, id: ActionId, outcome: &Outcome) {
    let Some(memory) = m.memory.routes.get_mut(at) else { return };
    let retry = &m.world.settings.retry;
    let completion = memory.write.on_finished(id, outcome, retry, m.now);
    if let Some(Completion::Written { .. }) = completion {
        // The watch will show that the route is gone. Until then it is not deleted again.
        memory.write.pause(m.now.plus(DELETED_MS));
    }
}
