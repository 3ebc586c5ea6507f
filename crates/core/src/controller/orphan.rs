//! Routes: what the controller does around a plan of the orphan rule. It tells the breakers,
//! reports verdicts that changed, and says when orphans are too many.

use super::breakers::Updated;
use super::notes::anomaly;
use super::problems::Finder;
use super::state::Controller;
use crate::circuit_breaker::{BreakerChange, BreakerKey};
use crate::contract::action::Verb;
use crate::contract::event::Outcome;
use crate::contract::keep_reason::KeepReason;
use crate::contract::note::{AnomalyKind, NoteKind};
use crate::contract::settings::OrphanMode;
use crate::data::ids::{ActionId, ClusterName};
use crate::data::object_ref::ObjectRef;
use crate::plan::Agenda;
use crate::rules::orphan::{self, OrphanMemory, Verdict, View};
use crate::subject::Subject;
use crate::world::Change;
use crate::write_queue::QueueKey;
use crate::write_state::Completion;

impl Controller {
    /// A route as its rule sees it, and the verdict on it by now.
    pub(crate) fn judge_route<'w>(
        &'w self,
        at: &'w ObjectRef,
        memory: &'w OrphanMemory,
    ) -> Option<(View<'w>, Verdict)> {
        let view = view(self, at, memory)?;
        let verdict = orphan::plan(&view).verdict;
        Some((view, shown(self, at, verdict)))
    }
}

/// An orphan that waits in the queue is kept by the limit of deletes.
fn shown(c: &Controller, at: &ObjectRef, verdict: Verdict) -> Verdict {
    let queue = || c.scheduler.queue_of(&Subject::Route(at.clone()));
    match verdict {
        Verdict::Orphan if queue() == Some(QueueKey::Deletes) => {
            Verdict::Absent(KeepReason::Budget)
        }
        verdict => verdict,
    }
}

fn view<'w>(c: &'w Controller, at: &'w ObjectRef, memory: &'w OrphanMemory) -> Option<View<'w>> {
    let view = orphan::view(&c.world, at, memory, &c.settings.orphans, c.now)?;
    let deleted_project = view.named().and_then(|named| c.roster.deleted_project(named));
    let breaker = c.breakers.orphans_of(view.upstream.map(|upstream| &upstream.name));
    Some(View { deleted_project, breaker, is_leader: c.leadership.is_leader, ..view })
}

pub(super) fn plan(
    c: &mut Controller,
    at: &ObjectRef,
    admitted_by: Option<QueueKey>,
) -> Option<Agenda> {
    let at_rest = OrphanMemory::default();
    let view = view(c, at, c.memory.routes.get(at).unwrap_or(&at_rest))?;
    let plan = orphan::plan(&View { admitted_by, ..view });
    let key = view.named().cloned().map(BreakerKey::Orphans);
    let is_followed = view.upstream.is_some();

    let is_absent = plan.verdict.is_absent();
    if let Some(key) = key {
        c.breakers.on_orphan(at, key, is_absent && is_followed);
    }
    c.breakers.on_orphan(at, BreakerKey::DeletedProjects, is_absent && !is_followed);
    c.route_verdicts.insert(at.clone(), plan.verdict);
    Some(Agenda::of([plan.next]))
}

/// Called when a moment ends: only then is it known which orphans wait in the queue.
pub(super) fn report_verdicts(c: &mut Controller) {
    for (at, verdict) in std::mem::take(&mut c.route_verdicts) {
        let verdict = shown(c, &at, verdict);
        find_problems(c, &at, verdict);
        if !verdict.is_absent() && !c.memory.routes.contains_key(&at) {
            continue;
        }

        let memory = c.memory.routes.entry(at.clone()).or_default();
        let is_news = memory.on_verdict(verdict, c.now);
        if memory.is_at_rest() {
            c.memory.routes.remove(&at);
        }
        if is_news {
            let cluster = c.world.name_of(at.cluster);
            let route = at.name.key();
            c.notes.push(NoteKind::Orphan { cluster, route, kept: verdict.keep_reason() });
        }
    }
}

fn find_problems(c: &mut Controller, at: &ObjectRef, verdict: Verdict) {
    let at_rest = OrphanMemory::default();
    let memory = c.memory.routes.get(at).unwrap_or(&at_rest);
    let found = view(c, at, memory).map(|view| orphan::find(&view, verdict, &c.settings.mirror));
    let problems = found.unwrap_or_default().problems;
    c.notes.found(&Finder::Subject(Subject::Route(at.clone())), problems);
}

pub(super) fn on_change(c: &mut Controller, change: &Change) {
    match change {
        Change::RouteSeen { at } => {
            if let Some(memory) = c.memory.routes.get_mut(at) {
                memory.write.on_object_changed();
            }
        }
        // Whoever remembers a verdict on it can forget it.
        Change::Gone { subject: Subject::Route(at), .. } => {
            let memory = c.memory.routes.get(at);
            if memory.is_some_and(|memory| memory.absence.is_some()) {
                let cluster = c.world.name_of(at.cluster);
                let route = at.name.key();
                c.notes.push(NoteKind::OrphanGone { cluster, route });
            }
        }
        _ => {}
    }
}

pub(super) fn on_finished(c: &mut Controller, at: &ObjectRef, id: ActionId, outcome: &Outcome) {
    let Some(memory) = c.memory.routes.get_mut(at) else { return };
    let retry = &c.settings.retry;
    match memory.write.on_finished(id, outcome, retry, c.now) {
        // The watch will show that it is gone. It is not deleted twice in the meantime.
        Some(Completion::Written { .. }) => {
            memory.write.pause(c.now.plus(retry.outcome_timeout_ms));
        }
        Some(Completion::Refused { is_news: true }) => {
            let error = outcome.error().map(ToString::to_string).unwrap_or_default();
            let next = format!("next attempt in {} s", retry.max_ms.div_ceil(1_000));
            let hub = c.world.name_of(at.cluster);
            c.notes.refused(&hub, &at.name, Verb::Delete, &error, &next);
        }
        Some(Completion::Refused { is_news: false } | Completion::NotWritten) | None => {}
    }
}

pub(super) fn on_breaker_updated(c: &mut Controller, updated: &Updated) {
    let Some(change) = updated.change else { return };
    let is_held = change == BreakerChange::Tripped;
    let is_told = is_held && c.settings.orphans.mode == OrphanMode::Delete;
    let Updated { key, count: orphans, population: routes, .. } = updated;
    let share = c.settings.orphans.max_share;

    match key {
        BreakerKey::Orphans(cluster) => {
            if is_told {
                let detail = format!(
                    "{orphans} of its {routes} routes at the hub are orphans, more than {share}; \
                     none is deleted until there are fewer, or limits.maxShare is raised"
                );
                c.notes.push_summary(too_many(cluster, detail));
            }
            c.notes.push_summary(NoteKind::DeletesHeld {
                cluster: cluster.clone(),
                held: is_held,
                orphans: *orphans,
                routes: *routes,
            });
        }
        BreakerKey::DeletedProjects if is_told => {
            let hub = c.world.hubs().next().map_or_else(|| "".into(), |hub| hub.name.clone());
            let detail = format!(
                "{orphans} of the {routes} routes at the hub are of deleted projects, more than \
                 {share}; none of them is deleted until there are fewer, or limits.maxShare is \
                 raised"
            );
            c.notes.push_summary(too_many(&hub, detail));
        }
        BreakerKey::DeletedProjects | BreakerKey::Removals(_) | BreakerKey::FleetRemovals => {}
    }
}

fn too_many(cluster: &ClusterName, detail: String) -> NoteKind {
    NoteKind::Anomaly(anomaly(AnomalyKind::TooManyOrphans, cluster, None, detail))
}
