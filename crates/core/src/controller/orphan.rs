//! Routes: what the controller adds to a plan of the orphan rule. It updates the breakers and
//! reports verdicts that changed.

use super::state::Controller;
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

impl Controller {
    /// The rule's view of a route, and its plan for now.
    pub(crate) fn judge_route<'w>(
        &'w self,
        at: &'w ObjectRef,
        memory: &'w OrphanMemory,
    ) -> Option<(View<'w>, Plan)> {
        let view = view(self, at, memory, None)?;
        let plan = orphan::plan(&view);
        Some((view, plan))
    }

    /// The verdict as reported: an orphan that waits in the queue is still kept, by the limit of
    /// deletes.
    pub(crate) fn shown_verdict(&self, at: &ObjectRef, verdict: Verdict) -> Verdict {
        let queue = || self.scheduler.queue_of(&Subject::Route(at.clone()));
        match verdict {
            Verdict::Orphan if queue() == Some(QueueKey::Deletes) => {
                Verdict::Absent(Cause::RouteSettling)
            }
            verdict => verdict,
        }
    }
}

/// `None` if there is no such route.
fn view<'w>(
    c: &'w Controller,
    at: &'w ObjectRef,
    memory: &'w OrphanMemory,
    admitted_by: Option<QueueKey>,
) -> Option<View<'w>> {
    let hub = c.world.clusters.get(&at.cluster)?;
    let row = hub.routes.get(&at.name)?;
    let named = row.seen.upstream();
    let upstream = named.and_then(|named| c.world.upstream_named(named));
    Some(View {
        at,
        hub,
        row,
        upstream,
        deleted_project: named.and_then(|named| c.roster.deleted_project(named)),
        memory,
        settings: &c.settings.orphans,
        now: c.now,
        breaker: c.breakers.orphans_of(upstream.map(|upstream| &upstream.name)),
        is_leader: c.leadership.is_leader,
        admitted_by,
    })
}

pub(super) fn plan(
    c: &mut Controller,
    at: &ObjectRef,
    admitted_by: Option<QueueKey>,
) -> Option<Next> {
    let at_rest = OrphanMemory::default();
    let view = view(c, at, c.memory.routes.get(at).unwrap_or(&at_rest), admitted_by)?;
    let plan = orphan::plan(&view);
    let key = view.named().cloned().map(BreakerKey::Orphans);
    let is_followed = view.upstream.is_some();

    let is_absent = plan.verdict.is_absent();
    if let Some(key) = key {
        c.breakers.on_orphan(at, key, is_absent && is_followed);
    }
    c.breakers.on_orphan(at, BreakerKey::DeletedProjects, is_absent && !is_followed);
    c.route_verdicts.insert(at.clone(), plan.verdict);
    Some(plan.next)
}

/// Called at the end of a step: only then is it known which orphans wait in the queue.
pub(super) fn report_verdicts(c: &mut Controller) {
    for (at, verdict) in std::mem::take(&mut c.route_verdicts) {
        let verdict = c.shown_verdict(&at, verdict);
        if verdict.is_absent() || c.memory.routes.contains_key(&at) {
            let memory = c.memory.routes.entry(at.clone()).or_default();
            memory.on_verdict(verdict, c.now);
            if memory.is_at_rest() {
                c.memory.routes.remove(&at);
            }
        }
        find_problems(c, &at, verdict);
    }
}

fn find_problems(c: &mut Controller, at: &ObjectRef, verdict: Verdict) {
    let at_rest = OrphanMemory::default();
    let memory = c.memory.routes.get(at).unwrap_or(&at_rest);
    let found = view(c, at, memory, None).map(|view| orphan::find(&view, verdict));
    c.notes.found_by_rule(&Subject::Route(at.clone()), found.unwrap_or_default());
}

pub(super) fn on_change(c: &mut Controller, change: &Change) {
    if let Change::RouteSeen { at } = change
        && let Some(memory) = c.memory.routes.get_mut(at)
    {
        memory.write.on_object_changed();
    }
}

pub(super) fn on_finished(c: &mut Controller, at: &ObjectRef, id: ActionId, outcome: &Outcome) {
    let Some(memory) = c.memory.routes.get_mut(at) else { return };
    let retry = &c.settings.retry;
    let completion = memory.write.on_finished(id, outcome, retry, c.now);
    if let Some(Completion::Written { .. }) = completion {
        // The watch will show that the route is gone. Until then it is not deleted again.
        memory.write.pause(c.now.plus(DELETED_MS));
    }
}
