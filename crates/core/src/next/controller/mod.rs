//! The only place with effects: it carries plans out.
//!
//! The [`Controller`] has three kinds of methods:
//!
//! - A. `on_*` for what happened: an event of a watch, the outcome of an action, a Lease won or lost.
//!   They say which subjects are dirty.
//! - B. [`Controller::end_moment`] plans these and what is due.
//! - C. [`InFlight::poll_action`] and [`Notes::poll`] for what the executor has to do, and what is
//!   reported; [`Scheduler::next_deadline`] for when B must be called although nothing happens.
//!
//! Each part of its state knows only its own: what the watches show ([`World`]), what throughline did
//! ([`Memory`]), when things happen ([`Scheduler`]), what is too much at once ([`Breakers`]), and what
//! has no outcome yet ([`InFlight`]). The scheduler knows no rule.

mod breakers;
mod hub;
mod in_flight;
mod leadership;
mod limits;
mod memory;
mod naming;
mod notes;
mod orphan;
mod reports;
mod touch;

use std::collections::BTreeSet;

pub(crate) use breakers::Breakers;
pub(crate) use hub::HubMemory;
pub(crate) use in_flight::{InFlight, Submitted};
pub(crate) use leadership::Leadership;
pub(crate) use memory::Memory;
pub(crate) use notes::Notes;

use crate::contract::error_cause::{ErrorCause, RequestFailure};
use crate::contract::event::{EventKind, Outcome};
use crate::contract::note::AnomalyKind;
use crate::contract::settings::{OrphanMode, Settings};
use crate::data::ids::{ActionId, ClusterName, Kind};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::next::plan::{Agenda, PlannedWrite, Turn};
use crate::next::roster::{Facts, Roster};
use crate::next::scheduler::{Scheduler, Timer};
use crate::next::subject::Subject;
use crate::next::world::{Change, World};
use crate::next::write_queue::{QueueKey, QueueLimit};
use crate::next::write_state::FailureClass;
use limits::queue_limit;

/// A moment that takes more steps would never end: a write is admitted and not started.
const STEPS_MAX: u32 = 10_000_000;

/// Kinds of objects that throughline writes.
const WRITTEN_KINDS: [Kind; 3] = [Kind::Connector, Kind::Gateway, Kind::HttpRoute];

/// Subjects that are planned again in this moment.
pub(crate) type Dirty = BTreeSet<Subject>;

#[derive(Default)]
pub(crate) struct Controller {
    pub(crate) world: World,
    pub(crate) memory: Memory,
    pub(crate) scheduler: Scheduler,
    pub(crate) breakers: Breakers,
    pub(crate) in_flight: InFlight,
    pub(crate) roster: Roster,
    pub(crate) notes: Notes,
    pub(crate) leadership: Leadership,
    pub(crate) settings: Settings,
    /// Whether it is their turn in a queue is known once all of this moment wait in it.
    pub(crate) awaiting_turn: Dirty,
}

impl Controller {
    /// A cluster joined or left, or one of its watches showed something.
    pub(crate) fn on_watch_event(&mut self, event: &EventKind, dirty: &mut Dirty, now: UnixMillis) {
        for change in self.world.observe(event, now) {
            self.on_change(&change, dirty, now);
        }
    }

    /// An event about what a discovery shows.
    pub(crate) fn on_discovery(&mut self, event: &EventKind, dirty: &mut Dirty, now: UnixMillis) {
        if !self.roster.has_sources() {
            naming::on_discovery_started(self, now);
        }
        self.with_roster(dirty, now, |roster, facts| roster.on_event(event, facts));
    }

    /// The shell, or the header of a log, added a cluster.
    pub(crate) fn on_member_added(
        &mut self,
        name: &ClusterName,
        dirty: &mut Dirty,
        now: UnixMillis,
    ) {
        self.with_roster(dirty, now, |roster, facts| roster.on_cluster_added(name, facts));
    }

    /// The shell removed a cluster, or could not let it join.
    pub(crate) fn on_member_removed(
        &mut self,
        name: &ClusterName,
        dirty: &mut Dirty,
        now: UnixMillis,
    ) {
        self.with_roster(dirty, now, |roster, facts| roster.on_cluster_removed(name, facts));
    }

    /// An action ended. Its subject is planned again, and what failed for the same reason.
    pub(crate) fn on_outcome(
        &mut self,
        id: ActionId,
        outcome: &Outcome,
        dirty: &mut Dirty,
        now: UnixMillis,
    ) {
        let Some(Submitted { subject, queue, at }) = self.in_flight.finish(id) else {
            return self.on_unknown_outcome(id);
        };
        self.scheduler.set_timer(Timer::Outcome(id), None);
        let is_unspent = queue.is_scarce() && outcome.changed_nothing();
        self.scheduler.on_finished(queue, at, is_unspent, now);

        let ended = self.ended_failure(&subject, outcome);
        match &subject {
            Subject::HubConnector(at) => hub::on_finished(self, at, id, outcome, now),
            Subject::Target(target) => touch::on_finished(self, target, id, outcome, dirty, now),
            Subject::Route(at) => orphan::on_finished(self, at, id, outcome, now),
            Subject::EdgeConnector(_) => {}
        }
        if let Some(class) = ended {
            self.release(subject.cluster(), subject.kind(), class, dirty, now);
        }
        dirty.insert(subject);
    }

    /// This instance leads, or does no longer: everything that waited is due, or waits for nothing.
    pub(crate) fn on_leadership(&mut self, is_leader: bool, dirty: &mut Dirty, now: UnixMillis) {
        self.leadership.on_decided(is_leader, now);
        dirty.extend(self.memory.unsettled());
    }

    /// Everything is planned that changed or is due. What that decides gets its numbers, and goes to
    /// the executor.
    pub(crate) fn end_moment(&mut self, dirty: Dirty, now: UnixMillis) {
        self.run(dirty, now);
        self.number_decided(now);
        touch::report_waiting(self, now);
        orphan::report_verdicts(self, now);
        self.notes.end_moment();
    }

    /// All that changed is planned, then counted, then what may go is written. In this order nothing
    /// goes before all that the moment brings is counted.
    fn run(&mut self, mut dirty: Dirty, now: UnixMillis) {
        let mut at_last = Dirty::new();
        for _ in 0..STEPS_MAX {
            self.with_roster(&mut dirty, now, Roster::run);
            self.fire_timers(&mut dirty, now);
            while let Some(subject) = dirty.pop_first() {
                match subject {
                    // Nothing is written for it, and whether it is late depends on what is.
                    Subject::EdgeConnector(_) => drop(at_last.insert(subject)),
                    _ => self.reconcile(&subject, None, now),
                }
            }
            self.update_breakers(&mut dirty, now);
            if !dirty.is_empty() {
                continue;
            }

            if let Some(admitted) = self.scheduler.admit(now) {
                self.on_admitted(&admitted.subject, admitted.queue, now);
                self.reconcile(&admitted.subject, Some(admitted.queue), now);
                continue;
            }
            // Those that are left say that a limit holds them.
            dirty = std::mem::take(&mut self.awaiting_turn);
            if dirty.is_empty() {
                return at_last.iter().for_each(|subject| self.reconcile(subject, None, now));
            }
        }
        debug_assert!(false, "a moment does not end");
    }

    fn with_roster(
        &mut self,
        dirty: &mut Dirty,
        now: UnixMillis,
        f: impl FnOnce(&mut Roster, &Facts<'_>),
    ) {
        let has_routes = self.settings.orphans.mode != OrphanMode::Off;
        let facts = Facts { world: &self.world, has_routes, now };
        f(&mut self.roster, &facts);
        self.scheduler.set_timer(Timer::Roster, self.roster.next_at());

        for note in self.roster.take_notes() {
            self.notes.push_summary(note);
        }
        for name in self.roster.take_affected() {
            dirty.extend(self.world.routes_naming(&name).cloned().map(Subject::Route));
        }
    }

    fn on_change(&mut self, change: &Change, dirty: &mut Dirty, now: UnixMillis) {
        match change {
            Change::Changed(subject) => {
                dirty.insert(subject.clone());
            }
            Change::Gone { subject, named } => {
                if let (Subject::HubConnector(at) | Subject::Route(at), Some(named)) =
                    (subject, named)
                {
                    self.breakers.forget(at, named);
                }
                dirty.insert(subject.clone());
            }
            // Its write state stays: a write may be in flight.
            Change::Relinked { subject, from } => {
                if let Subject::HubConnector(at) | Subject::Route(at) = subject {
                    self.breakers.forget(at, from);
                }
                dirty.insert(subject.clone());
            }
            Change::ClusterAnswers { id, name, .. } => {
                for kind in WRITTEN_KINDS {
                    self.release(*id, kind, FailureClass::Unreachable, dirty, now);
                }
                self.breakers.on_cluster_answers(name);
            }
            Change::ClusterLeft { id, name } => self.forget_cluster(*id, name, now),
            Change::ReferenceChanged { upstream } => {
                self.with_roster(dirty, now, |roster, facts| {
                    roster.on_references_changed(upstream, facts);
                });
            }
            Change::Report(report) => reports::report(self, report),
            _ => {}
        }
        hub::on_change(self, change, dirty, now);
        touch::on_change(self, change, dirty, now);
        orphan::on_change(self, change, dirty, now);
        naming::on_change(self, change, now);
        if let Change::Gone { subject, .. } = change {
            self.forget(subject);
        }
    }

    fn fire_timers(&mut self, dirty: &mut Dirty, now: UnixMillis) {
        while let Some(timer) = self.scheduler.pop_expired(now) {
            match timer {
                Timer::Subject(subject) => {
                    dirty.insert(subject);
                }
                Timer::Breaker(key) => self.breakers.on_expiry(key),
                Timer::Outcome(id) => {
                    let ms = self.settings.retry.outcome_timeout_ms;
                    let text = format!("no outcome within {ms} ms");
                    let error = RequestFailure::new(ErrorCause::TimedOut, text);
                    let outcome = Outcome::Failed { error, retry_after_ms: None };
                    self.on_outcome(id, &outcome, dirty, now);
                }
                Timer::Outage(edge) => touch::on_outage_over(self, edge, dirty, now),
                Timer::Holds(upstream) => hub::report_holds(self, &upstream),
                Timer::Naming => naming::report(self, now),
                // It was run before.
                Timer::Roster => {}
            }
        }
    }

    fn update_breakers(&mut self, dirty: &mut Dirty, now: UnixMillis) {
        for updated in self.breakers.update(&self.world, &self.roster, &self.settings, now) {
            self.scheduler.set_timer(Timer::Breaker(updated.key.clone()), updated.next_expiry);
            orphan::on_breaker_updated(self, &updated);
            let subject = |at: ObjectRef| match at.kind {
                Kind::HttpRoute => Subject::Route(at),
                _ => Subject::HubConnector(at),
            };
            dirty.extend(updated.affected.into_iter().map(subject));
        }
    }

    /// A queue has room. Retries had their turn with that, whatever they wait for next.
    fn on_admitted(&mut self, subject: &Subject, queue: QueueKey, now: UnixMillis) {
        if let QueueKey::Retries(_) = queue
            && let Some(write) = self.memory.write_state_mut(subject)
        {
            write.on_turn();
            self.scheduler.on_turn(queue, now);
        }
    }

    /// Plans one subject and carries the plan out. `admitted_by`: the queue that has room for it.
    fn reconcile(&mut self, subject: &Subject, admitted_by: Option<QueueKey>, now: UnixMillis) {
        // What this moment decided about it counts as in flight.
        if self.in_flight.is_decided(subject) {
            return;
        }
        match self.plan(subject, admitted_by, now) {
            Some(agenda) => self.carry_out(subject, agenda, now),
            None => self.forget(subject),
        }
    }

    /// `None` where the object no longer exists.
    fn plan(
        &mut self,
        subject: &Subject,
        admitted_by: Option<QueueKey>,
        now: UnixMillis,
    ) -> Option<Agenda> {
        match subject {
            Subject::HubConnector(at) => hub::plan(self, at, admitted_by, now),
            Subject::EdgeConnector(at) => touch::plan_edge_connector(self, at, now),
            Subject::Target(target) => touch::plan(self, target, admitted_by, now),
            Subject::Route(at) => orphan::plan(self, at, admitted_by, now),
        }
    }

    /// A subject has one timer, one place in a queue and one write in flight.
    fn carry_out(&mut self, subject: &Subject, agenda: Agenda, now: UnixMillis) {
        self.scheduler.set_timer(Timer::Subject(subject.clone()), agenda.requeue_at);

        match agenda.write {
            None => self.scheduler.withdraw(subject),
            Some(Turn::Goes(planned)) => {
                self.scheduler.withdraw(subject);
                let limit = self.limit_of(planned.queue);
                self.scheduler.on_started(planned.queue, limit, now);
                hub::on_decided(self, &planned, now);
                self.in_flight.decide(subject.clone(), planned);
            }
            Some(Turn::Waits { queue, due }) => {
                let limit = self.limit_of(queue);
                self.scheduler.enqueue(subject, queue, due, limit, now);
            }
        }
    }

    fn number_decided(&mut self, now: UnixMillis) {
        let Self { world, in_flight, memory, scheduler, settings, .. } = self;
        let decided = in_flight.take_decided(|id| world.name_of(id));
        for (cluster, planned) in decided {
            let PlannedWrite { write, queue, .. } = *planned;
            // The memory takes what the write does, the executor the rest.
            let job = write.job.clone();
            let id = in_flight.submit(cluster, write, queue, now);
            let late_at = now.plus(settings.retry.outcome_timeout_ms);
            scheduler.set_timer(Timer::Outcome(id), Some(late_at));
            memory.on_started(&job, id, now);
        }
    }

    /// A late answer to an action that was given up: the watch shows what it changed.
    fn on_unknown_outcome(&mut self, id: ActionId) {
        if !self.in_flight.has_decided(id) {
            let detail = format!("an outcome came for action {}, which was never decided", id.0);
            self.notes.anomaly(AnomalyKind::UnknownAction, &"".into(), None, detail);
        }
    }

    /// What a success of this write says about others: the failure that it ends.
    fn ended_failure(&self, subject: &Subject, outcome: &Outcome) -> Option<FailureClass> {
        match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged => {
                Some(self.memory.write_state(subject)?.failure()?.class)
            }
            _ => None,
        }
    }

    /// The API server carries out writes of the kind again: those that failed for this reason, or for
    /// a lesser one, are due.
    fn release(
        &mut self,
        cluster: ClusterId,
        kind: Kind,
        up_to: FailureClass,
        dirty: &mut Dirty,
        now: UnixMillis,
    ) {
        if !self.memory.may_release(cluster, kind, now) {
            return;
        }

        let mut released = self.memory.failed(cluster, kind);
        released.retain(|subject| {
            let write = self.memory.write_state_mut(subject);
            write.is_some_and(|write| write.on_api_answers(up_to, now))
        });
        if !released.is_empty() {
            self.memory.on_released(cluster, kind, now);
        }
        dirty.extend(released);
    }

    fn forget(&mut self, subject: &Subject) {
        self.scheduler.set_timer(Timer::Subject(subject.clone()), None);
        self.scheduler.withdraw(subject);
        self.in_flight.withdraw(subject);
        self.memory.forget(subject);
    }

    /// Nothing is kept of a cluster that left. Another one may take its name.
    fn forget_cluster(&mut self, id: ClusterId, name: &ClusterName, now: UnixMillis) {
        for (action, Submitted { queue, at, .. }) in self.in_flight.forget(id) {
            self.scheduler.set_timer(Timer::Outcome(action), None);
            self.scheduler.on_finished(queue, at, false, now);
        }
        touch::on_edge_left(self, id);
        self.memory.forget_cluster(id);
        self.scheduler.forget(id);
        self.breakers.forget_upstream(name);
    }

    fn limit_of(&self, queue: QueueKey) -> QueueLimit {
        queue_limit(queue, &self.settings, &self.world, &self.memory)
    }
}
