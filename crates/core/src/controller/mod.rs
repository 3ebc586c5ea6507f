//! Carries out plans. Its functions are of three kinds:
//!
//! - A. `on_*` take an event, an outcome, or a change of leadership, and mark subjects dirty.
//! - B. [`Machine::end_step`] plans the dirty subjects and those whose timer is due.
//! - C. [`InFlight::poll_action`] returns actions for the executor, and [`Notes::poll`] returns
//!   notes. [`Timers::next_at`] is when B must be called even without an event.
//!
//! [`InFlight::poll_action`]: in_flight::InFlight::poll_action
//! [`Notes::poll`]: notes::Notes::poll
//! [`Timers::next_at`]: crate::timers::Timers::next_at

mod breakers;
mod hub;
mod hub_changes;
mod hub_memory;
mod in_flight;
mod limits;
mod memory;
mod naming;
mod notes;
mod orphan;
mod state;
mod touch;
mod whole;

pub(crate) use breakers::Breakers;
pub(crate) use hub_memory::HubMemory;
pub(crate) use memory::Memory;
pub(crate) use notes::Finder;
pub(crate) use orphan::{judge_route, shown_verdict};
pub use state::Machine;

use self::in_flight::Submitted;
use self::limits::limit_of;
use crate::contract::event::{EventKind, Outcome};
use crate::data::ids::{ActionId, ClusterName, Kind};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::plan::{Next, Turn};
use crate::roster::{Facts, Roster};
use crate::scheduler::Timer;
use crate::subject::Subject;
use crate::world::Change;
use crate::write_queue::QueueKey;
use crate::write_state::FailureClass;

/// More iterations mean an endless loop: a write is admitted and never started.
const STEPS_MAX: u32 = 10_000_000;

const WRITTEN_KINDS: [Kind; 3] = [Kind::Connector, Kind::Gateway, Kind::HttpRoute];

/// Handlers.
impl Machine {
    pub(crate) fn on_watch_event(&mut self, event: &EventKind) {
        match self.world.observe(event, self.now) {
            Ok(changes) => changes.iter().for_each(|change| self.on_change(change)),
            Err(unknown) => {
                let detail = "events of a cluster that is not in the run are ignored";
                whole::on_bug(self, unknown, detail);
            }
        }
    }

    /// An event from cluster discovery.
    pub(crate) fn on_discovery(&mut self, event: &EventKind) {
        self.with_roster(|roster, facts| roster.on_event(event, facts));
        if let EventKind::DiscoveryFinished { .. } = event {
            naming::on_discovery_finished(self);
        }
    }

    /// An action ended. Plans its subject again. After a success, it also plans the subjects whose
    /// writes failed for the same reason.
    pub(crate) fn on_outcome(&mut self, id: ActionId, outcome: &Outcome) {
        let Some(Submitted { subject, queue, at }) = self.in_flight.finish(id) else {
            // It is a second outcome, or one of a cluster that left.
            if !self.in_flight.has_decided(id) {
                let detail =
                    format!("an outcome came for action {}, which was never decided", id.0);
                whole::on_bug(self, &"".into(), &detail);
            }
            return;
        };
        let is_delete = matches!(subject, Subject::Route(_));
        let is_unspent = queue.is_scarce() && outcome.changed_nothing(is_delete);
        self.scheduler.on_finished(queue, at, is_unspent, self.now);

        let ended = self.ended_failure(&subject, outcome);
        match &subject {
            Subject::HubConnector(at) => hub_changes::on_finished(self, at, id, outcome),
            Subject::Target(target) => touch::on_finished(self, target, id, outcome),
            Subject::Route(at) => orphan::on_finished(self, at, id, outcome),
        }
        if let Some(class) = ended {
            self.release(subject.cluster(), subject.kind(), class);
        }
        self.dirty.insert(subject);
    }

    /// The failure that this success ends. Other writes that failed like this may succeed now, too.
    fn ended_failure(&mut self, subject: &Subject, outcome: &Outcome) -> Option<FailureClass> {
        match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged => {
                Some(self.memory.write_state(subject)?.failure()?.class)
            }
            _ => None,
        }
    }

    /// Makes the writes due that failed for this reason, or for a lesser one.
    fn release(&mut self, cluster: ClusterId, kind: Kind, up_to: FailureClass) {
        self.dirty.extend(self.memory.release(cluster, kind, up_to, self.now));
    }

    /// This instance leads, or no longer holds the Lease: plans all pending work on hubs again.
    pub(crate) fn on_leadership(&mut self, is_leader: bool) {
        self.is_leader = is_leader;
        self.lease_wait_until = self.lease_wait_until.min(self.now);
        self.dirty.extend(self.memory.hub_objects());
    }

    fn on_change(&mut self, change: &Change) {
        match change {
            Change::Changed(subject) | Change::Gone(subject) => {
                self.dirty.insert(subject.clone());
            }
            // Its write state is kept: a write may be in flight.
            Change::Unlinked { at, from } => self.breakers.forget(at, from),
            Change::ClusterAnswers { id, name, kind } => {
                for written in WRITTEN_KINDS {
                    self.release(*id, written, FailureClass::Unreachable);
                }
                self.breakers.on_cluster_answers(name);
                whole::on_cluster_answers(self, *id, *kind);
            }
            Change::WatchLost { id, name, kind, error } => {
                whole::on_watch_lost(self, *id, name, *kind, error);
            }
            Change::ClusterLeft { id, name } => self.forget_cluster(*id, name),
            Change::ReferenceChanged { upstream } => {
                self.with_roster(|roster, facts| roster.on_references_changed(upstream, facts));
            }
            Change::HopPassed { cluster, connector, hop, is_online } => {
                self.notes.hop_passed(cluster, connector, *hop, *is_online, None);
            }
            Change::Restored { cluster } => whole::on_restored(self, cluster),
            Change::Unreadable { at } => whole::on_unreadable(self, at),
            Change::Readable { at } => self.notes.found(&Finder::Object(at.clone()), None),
            _ => {}
        }
        self.symptoms.on_change(&self.world, change);
        hub_changes::on_change(self, change);
        touch::on_change(self, change);
        orphan::on_change(self, change);
        naming::on_change(self, change);
        if let Change::Gone(subject) = change {
            self.forget(subject);
        }
    }

    pub(crate) fn with_roster(&mut self, f: impl FnOnce(&mut Roster, &Facts<'_>)) {
        let facts = Facts { world: &self.world, now: self.now };
        f(&mut self.roster, &facts);
        self.scheduler.timers.set(Timer::Roster, self.roster.next_at());

        for (source, found) in self.roster.take_found() {
            self.notes.found(&Finder::Source(source), found);
        }
        for name in self.roster.take_affected() {
            whole::on_project(self, &name);
            naming::on_change(self, &Change::NamingChanged { upstream: name.clone() });
            self.dirty.extend(self.world.links.routes_in(&name, None).cloned().map(Subject::Route));
        }
    }
}

/// Planning.
impl Machine {
    /// Plans everything that changed or is due, and gives the resulting actions to the executor.
    pub(crate) fn end_step(&mut self) {
        self.with_roster(Roster::run);
        self.run();
        self.in_flight.submit_decided(&self.world, &mut self.memory, self.now);
        touch::report_waiting(self);
        orphan::report_verdicts(self);
        self.notes.add(self.symptoms.update(&self.world));
        self.notes.end_step(self.now);
    }

    /// Plans everything that changed, then updates the breakers, then admits writes. In this order,
    /// no queue admits a write before the breakers have counted the whole step.
    fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            self.fire_timers();
            while let Some(subject) = self.dirty.pop_first() {
                self.reconcile(&subject, None);
            }
            self.update_breakers();
            if !self.dirty.is_empty() {
                continue;
            }

            if let Some((subject, queue)) = self.scheduler.admit(self.now) {
                self.on_admitted(&subject, queue);
                self.reconcile(&subject, Some(queue));
                continue;
            }
            // Plans the rest once more: a limit holds them.
            self.dirty = std::mem::take(&mut self.awaiting_turn);
            if self.dirty.is_empty() {
                return;
            }
        }
        debug_assert!(false, "a moment does not end");
        whole::on_bug(self, &"".into(), "a moment does not end");
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.scheduler.timers.pop(self.now) {
            match timer {
                Timer::Subject(subject) => _ = self.dirty.insert(subject),
                Timer::Breaker(key) => self.breakers.on_expiry(key),
                Timer::Outage(edge) => touch::on_outage_over(self, edge),
                Timer::Naming => naming::report(self),
                // `end_step` has already run the roster.
                Timer::Roster => {}
                Timer::Queue(key) => self.scheduler.on_queue_due(key),
            }
        }
    }

    fn update_breakers(&mut self) {
        for updated in self.breakers.update(&self.world, &self.roster, self.now) {
            let timer = Timer::Breaker(updated.key.clone());
            self.scheduler.timers.set(timer, updated.next_expiry);
            whole::on_breaker_updated(self, &updated);
            let subject = |at: ObjectRef| match at.kind {
                Kind::HttpRoute => Subject::Route(at),
                _ => Subject::HubConnector(at),
            };
            self.dirty.extend(updated.affected.into_iter().map(subject));
        }
    }

    /// A queue admitted the subject. An admitted retry is planned like any other write from now on.
    fn on_admitted(&mut self, subject: &Subject, queue: QueueKey) {
        if let QueueKey::Retries(_) = queue
            && let Some(write) = self.memory.write_state(subject)
        {
            write.on_turn();
            self.scheduler.on_turn(queue, self.now);
        }
    }

    /// Plans one subject and carries out the plan. `admitted_by`: the queue that admits it now.
    fn reconcile(&mut self, subject: &Subject, admitted_by: Option<QueueKey>) {
        // A write decided in this step counts as in flight.
        if self.in_flight.is_decided(subject) {
            return;
        }
        let next = match subject {
            Subject::HubConnector(at) => hub::plan(self, at, admitted_by),
            Subject::Target(target) => touch::plan(self, target, admitted_by),
            Subject::Route(at) => orphan::plan(self, at, admitted_by),
        };
        match next {
            Some(next) => self.carry_out(subject, next),
            None => self.forget(subject),
        }
    }

    /// A subject has one timer, one place in a queue and one write in flight.
    fn carry_out(&mut self, subject: &Subject, next: Next) {
        self.scheduler.timers.set(Timer::Subject(subject.clone()), next.requeue_at);

        match next.turn {
            None => self.scheduler.withdraw(subject),
            Some(Turn { queue, write: Some(write), .. }) => {
                self.scheduler.withdraw(subject);
                let limit = limit_of(self, queue);
                self.scheduler.on_started(queue, limit, self.now);
                self.in_flight.decide(subject.clone(), queue, write);
            }
            Some(Turn { queue, due, write: None }) => {
                let limit = limit_of(self, queue);
                self.scheduler.enqueue(subject, queue, due, limit, self.now);
            }
        }
    }

    fn forget(&mut self, subject: &Subject) {
        self.notes.found(&Finder::Subject(subject.clone()), None);
        self.scheduler.timers.set(Timer::Subject(subject.clone()), None);
        self.scheduler.withdraw(subject);
        self.memory.forget(subject);
    }

    /// Keeps nothing of a cluster that left: another one may take its name.
    fn forget_cluster(&mut self, id: ClusterId, name: &ClusterName) {
        for Submitted { queue, at, .. } in self.in_flight.forget(id) {
            self.scheduler.on_finished(queue, at, false, self.now);
        }
        self.memory.forget_cluster(id);
        self.scheduler.forget(id);
        self.breakers.forget_upstream(name);
        whole::forget_cluster(self, id, name);
    }
}
