//! Routes: what the controller does around a plan of the orphan rule. It tells the breakers, reports
//! verdicts that changed, and says when orphans are too many.

use super::breakers::{Breakers, Updated};
use super::{Controller, Dirty};
use crate::circuit_breaker::{BreakerChange, BreakerKey};
use crate::contract::action::Verb;
use crate::contract::event::Outcome;
use crate::contract::keep_reason::KeepReason;
use crate::contract::note::{Anomaly, AnomalyKind, NoteKind};
use crate::contract::settings::OrphanMode;
use crate::data::ids::{ActionId, ClusterName};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::next::plan::Agenda;
use crate::next::roster::Roster;
use crate::next::rules::orphan::{self, OrphanMemory, Verdict, View};
use crate::next::subject::Subject;
use crate::next::world::{Change, World};
use crate::next::write_queue::QueueKey;
use crate::next::write_state::Completion;

impl Controller {
    /// A route as its rule sees it, and the verdict on it by now.
    pub(crate) fn judge_route<'w>(
        &'w self,
        at: &'w ObjectRef,
        memory: &'w OrphanMemory,
        now: UnixMillis,
    ) -> Option<(View<'w>, Verdict)> {
        let Self { world, breakers, roster, .. } = self;
        let view = view(world, breakers, roster, self.leadership.is_leader, at, memory)?;
        let verdict = orphan::plan(&view, &self.settings.orphans, now).verdict;
        Some((view, self.shown(at, verdict)))
    }

    /// An orphan that waits in the queue is kept by the limit of deletes.
    fn shown(&self, at: &ObjectRef, verdict: Verdict) -> Verdict {
        let queue = || self.scheduler.queue_of(&Subject::Route(at.clone()));
        match verdict {
            Verdict::Orphan if queue() == Some(QueueKey::Deletes) => {
                Verdict::Absent(KeepReason::Budget)
            }
            verdict => verdict,
        }
    }
}

pub(super) fn plan(
    c: &mut Controller,
    at: &ObjectRef,
    admitted_by: Option<QueueKey>,
    now: UnixMillis,
) -> Option<Agenda> {
    let at_rest = OrphanMemory::default();
    let memory = c.memory.routes.get(at).unwrap_or(&at_rest);
    let view = view(&c.world, &c.breakers, &c.roster, c.leadership.is_leader, at, memory)?;
    let plan = orphan::plan(&View { admitted_by, ..view }, &c.settings.orphans, now);

    let is_absent = plan.verdict.is_absent();
    let is_followed = view.upstream.is_some();
    if let Some(upstream) = view.named() {
        let key = BreakerKey::Orphans(upstream.clone());
        c.breakers.on_orphan(at, key, is_absent && is_followed);
    }
    c.breakers.on_orphan(at, BreakerKey::DeletedProjects, is_absent && !is_followed);
    c.memory.planned_routes.insert(at.clone(), plan.verdict);
    Some(Agenda::of([plan.next]))
}

/// Called when a moment ends: only then is it known which orphans wait in the queue.
pub(super) fn report_verdicts(c: &mut Controller, now: UnixMillis) {
    for (at, verdict) in std::mem::take(&mut c.memory.planned_routes) {
        let verdict = c.shown(&at, verdict);
        if !verdict.is_absent() && !c.memory.routes.contains_key(&at) {
            continue;
        }

        let memory = c.memory.routes.entry(at.clone()).or_default();
        let is_news = memory.on_verdict(verdict, now);
        if memory.is_at_rest() {
            c.memory.routes.remove(&at);
        }
        if is_news {
            let (cluster, route) = (c.world.name_of(at.cluster), at.name.key());
            c.notes.push(NoteKind::Orphan { cluster, route, kept: verdict.keep_reason() });
        }
    }
}

pub(super) fn on_change(c: &mut Controller, change: &Change, _: &mut Dirty, _: UnixMillis) {
    match change {
        Change::RouteSeen { at } => {
            if let Some(memory) = c.memory.routes.get_mut(at) {
                memory.write.on_object_changed();
            }
        }
        Change::Gone { subject: Subject::Route(at), .. } => on_gone(c, at),
        _ => {}
    }
}

/// Whoever remembers a verdict on it can forget it.
fn on_gone(c: &mut Controller, at: &ObjectRef) {
    c.memory.planned_routes.remove(at);
    let memory = c.memory.routes.get(at);
    if memory.is_some_and(|memory| memory.absence.is_some()) {
        let (cluster, route) = (c.world.name_of(at.cluster), at.name.key());
        c.notes.push(NoteKind::OrphanGone { cluster, route });
    }
}

pub(super) fn on_finished(
    c: &mut Controller,
    at: &ObjectRef,
    id: ActionId,
    outcome: &Outcome,
    now: UnixMillis,
) {
    let Some(memory) = c.memory.routes.get_mut(at) else { return };
    let retry = &c.settings.retry;
    match memory.write.on_finished(id, outcome, retry, now) {
        // The watch will show that it is gone. It is not deleted twice in the meantime.
        Some(Completion::Written { .. }) => memory.write.pause(now.plus(retry.outcome_timeout_ms)),
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
                c.notes.push_summary(too_many(cluster.clone(), detail));
            }
            let (cluster, orphans, routes) = (cluster.clone(), *orphans, *routes);
            let note = NoteKind::DeletesHeld { cluster, held: is_held, orphans, routes };
            c.notes.push_summary(note);
        }
        BreakerKey::DeletedProjects if is_told => {
            let hub = c.world.hubs().next().map_or_else(|| "".into(), |hub| hub.name.clone());
            let detail = format!(
                "{orphans} of the {routes} routes at the hub are of deleted projects, more than \
                 {share}; none of them is deleted until there are fewer, or limits.maxShare is \
                 raised"
            );
            c.notes.push_summary(too_many(hub, detail));
        }
        BreakerKey::DeletedProjects | BreakerKey::Removals(_) | BreakerKey::FleetRemovals => {}
    }
}

fn too_many(cluster: ClusterName, detail: String) -> NoteKind {
    let anomaly = AnomalyKind::TooManyOrphans;
    NoteKind::Anomaly(Anomaly { anomaly, cluster, object: None, detail, manager: None })
}

fn view<'w>(
    world: &'w World,
    breakers: &Breakers,
    roster: &Roster,
    is_leader: bool,
    at: &'w ObjectRef,
    memory: &'w OrphanMemory,
) -> Option<View<'w>> {
    let view = orphan::view(world, at, memory)?;
    let deleted_project = view.named().and_then(|named| roster.deleted_project(named));
    let breaker = breakers.orphans_of(view.upstream.map(|upstream| &upstream.name));
    Some(View { deleted_project, breaker, is_leader, ..view })
}
