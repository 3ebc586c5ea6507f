//! What an election says: events, log lines and metrics, once per change.

use tracing::{info, warn};

use super::Listeners;
use super::election::{Election, LeaseResponse, Timings};
use super::group::Obstacle;
use super::lease::LeaseClient;
use crate::clock::wall_clock_now;
use crate::core::contract::cause::{About, Cause, Facts, Problem};
use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::EventKind;

/// A Lease that is not renewed for so many of its durations has no leader.
const UNLED_AFTER: u64 = 2;

/// The listeners, and what they heard last.
pub(super) struct Publisher {
    identity: String,
    orphans: &'static str,
    pub(super) listeners: Listeners,
    /// Until when the gate is open; `None` when it is closed.
    pub(super) open_until: Option<u64>,
    /// From when this instance leads, while it waits for that.
    pending_from: Option<u64>,
    /// There was no Lease, and no other instance has held it since.
    is_lease_missing: bool,
    /// The Lease's holder.
    holder: String,
    /// Another process has this instance's identity.
    is_identity_taken: bool,
    /// Why the last attempt failed.
    failure: Option<RequestFailure>,
    /// Attempts that failed in a row.
    pub(super) failures: u64,
    /// What keeps this instance from leading.
    pub(super) obstacle: Option<Obstacle>,
    /// Messages of Kubernetes Events that are still to be posted.
    pub(super) unposted_events: Vec<&'static str>,
}

impl Publisher {
    pub(super) fn new(identity: String, orphans: &'static str, listeners: Listeners) -> Self {
        Self {
            identity,
            orphans,
            listeners,
            open_until: None,
            pending_from: None,
            is_lease_missing: false,
            holder: String::new(),
            is_identity_taken: false,
            failure: None,
            failures: 0,
            obstacle: None,
            unposted_events: Vec::new(),
        }
    }

    fn event(&self, kind: EventKind) {
        // Without a receiver the run has ended.
        drop(self.listeners.events.send(kind));
    }

    /// Posts the Events that are not posted yet.
    pub(super) fn post_events(&mut self, lease: &LeaseClient) {
        for message in self.unposted_events.drain(..) {
            lease.post_event(format!("{} {message}", self.identity));
        }
    }

    /// Takes from an answer whether there was no Lease.
    pub(super) fn observe(&mut self, response: &LeaseResponse) {
        match response {
            LeaseResponse::NotFound => self.is_lease_missing = true,
            LeaseResponse::Current(record, _) if record.holder != self.identity => {
                self.is_lease_missing = false;
            }
            _ => {}
        }
    }

    /// Tells what an attempt changed: once per change, not once per attempt.
    pub(super) fn log_attempt(
        &mut self,
        election: &Election,
        failure: Option<RequestFailure>,
        lease: &About,
    ) {
        self.failures = if failure.is_some() { self.failures.saturating_add(1) } else { 0 };
        let lasting = failure.as_ref().filter(|_| self.failures > 1);
        let unusable =
            lasting.map(|error| problem(Cause::LeaseUnusable, lease, Facts::of_refusal(error)));
        self.listeners.usable.set(unusable);
        self.failure = failure;
        let holder = election.record().map_or("", |record| &record.holder);
        let is_identity_taken = holder == self.identity && !election.owns_lease();
        if is_identity_taken && !self.is_identity_taken {
            warn!(
                holder,
                "the Lease names this instance, which did not write it: another process has the same \
                 identity (a copy of its machine?), or somebody edited the Lease; waiting for its \
                 duration. If a copy runs, restart it"
            );
        }
        self.is_identity_taken = is_identity_taken;
        if holder != self.holder {
            if !holder.is_empty() && holder != self.identity {
                info!(holder, "another instance holds the Lease");
            }
            self.listeners.metrics.set_lease_holder(holder);
            self.holder = holder.to_owned();
        }
    }

    /// Whether anybody leads: an instance that does renews the Lease. Where this one cannot read it, it
    /// does not know. `foreign`: who holds it and is no throughline.
    pub(super) fn report_unled(
        &mut self,
        now: u64,
        election: &Election,
        timings: &Timings,
        lease: &About,
        foreign: Option<&str>,
    ) {
        if self.failure.is_some() {
            return;
        }
        let own_ms = timings.lease_ms;
        let unchanged_ms = election.record().zip(election.free_from()).map(|(record, free)| {
            now.saturating_add(record.lease_ms.max(own_ms)).saturating_sub(free)
        });
        let is_led =
            election.owns_lease() || unchanged_ms.is_none_or(|ms| ms < UNLED_AFTER * own_ms);
        let is_led = is_led && foreign.is_none() && self.obstacle.is_none();
        self.listeners.led.set((!is_led).then(|| no_leader(lease, foreign)));
    }

    /// What keeps this instance from leading: it waits.
    pub(super) fn set_obstacle(&mut self, obstacle: Option<Obstacle>) {
        if self.obstacle == obstacle {
            return;
        }
        match &obstacle {
            Some(Obstacle::Other { lease, holder }) => {
                info!(lease, holder, "waiting for a Lease of another number of shards to end");
            }
            Some(Obstacle::NoFirst { lease }) => {
                info!(lease, "waiting for shard 0 to take its Lease");
            }
            None => {}
        }
        self.obstacle = obstacle;
    }

    /// Shards that nobody holds, as a leader sees it.
    pub(super) fn report_unheld(&mut self, unheld: &[u16], lease: &About) {
        let first = unheld.first().filter(|_| self.open_until.is_some());
        let unheld = first.map(|_| {
            let numbers: Vec<_> = unheld.iter().map(ToString::to_string).collect();
            let what = Some(numbers.join(", ").into());
            problem(Cause::ShardUnheld, lease, Facts { what, ..Facts::default() })
        });
        self.listeners.held.set(unheld);
    }

    /// Reports that the gate opened or closed, or stays open for longer. `gate`: until when it is open.
    pub(super) fn set_gate(&mut self, now: u64, gate: Option<u64>, election: &Election) {
        let was_open_until = std::mem::replace(&mut self.open_until, gate);
        // A gate that was closed even for a moment counts as closed: the machine must repeat the
        // writes that were dropped then.
        let stayed_open = was_open_until.is_some_and(|until| now < until) && gate.is_some();
        if was_open_until.is_some() && !stayed_open {
            let because = self.why_lost(election);
            if election.is_resigning() {
                info!(because, "no longer leader: mirroring and deleting stopped");
            } else {
                warn!(because, "no longer leader: mirroring and deleting stopped");
            }
            self.unposted_events.push("stopped leading");
            // It may be cut off, and another instance sees who holds the shards.
            self.listeners.held.set(None);
            self.event(EventKind::LeadershipLost);
        }
        if gate.is_some() && !stayed_open {
            info!("became leader: mirroring started; orphans: {}", self.orphans);
            self.unposted_events.push("became leader");
            self.event(EventKind::LeadershipAcquired);
        }
        self.publish_wait(now, election);
    }

    /// Reports that this instance waits before it leads, because it created the Lease; and that it
    /// no longer does, because it lost the Lease meanwhile.
    fn publish_wait(&mut self, now: u64, election: &Election) {
        // Whatever happens to the Lease from here on has another reason.
        self.is_lease_missing &= self.open_until.is_none();
        let leads_from = election.leads_from().filter(|from| *from > now);
        let pending_from = leads_from.filter(|_| self.is_lease_missing);
        if pending_from == self.pending_from {
            return;
        }
        let was_pending = std::mem::replace(&mut self.pending_from, pending_from).is_some();
        if let Some(from) = pending_from {
            let wait_ms = from - now;
            info!(
                "waiting up to {} s for a Lease that was not there: if it was deleted, its holder may \
                 still write until then",
                wait_ms.div_ceil(1_000)
            );
            self.event(EventKind::LeadershipPending { wait_ms });
        } else if was_pending && self.open_until.is_none() {
            self.event(EventKind::LeadershipLost);
        }
    }

    fn why_lost(&self, election: &Election) -> String {
        match election.record() {
            _ if election.is_resigning() => "stopping".to_owned(),
            _ if election.is_standing_down() => "it lost the watches of a cluster".to_owned(),
            _ if let Some(obstacle) = &self.obstacle => match obstacle {
                Obstacle::Other { lease, .. } => format!("another number of shards holds {lease}"),
                Obstacle::NoFirst { lease } => format!("shard 0 has no Lease {lease} any more"),
            },
            None => "the Lease was deleted".to_owned(),
            Some(record) if record.holder.is_empty() => "somebody edited the Lease".to_owned(),
            Some(record) if record.holder != self.identity => {
                format!("{} holds the Lease", record.holder)
            }
            Some(_) => match &self.failure {
                Some(error) => format!("could not renew the Lease: {error}"),
                None => "the Lease's renewal was not answered in time".to_owned(),
            },
        }
    }
}

/// Nobody leads by this Lease. `foreign`: who holds it and is no throughline.
pub(crate) fn no_leader(lease: &About, foreign: Option<&str>) -> Problem {
    let holder = foreign.map(Into::into);
    problem(Cause::NoLeader, lease, Facts { holder, ..Facts::default() })
}

/// A problem of a Lease that begins now.
fn problem(cause: Cause, lease: &About, facts: Facts) -> Problem {
    let hub = Some(lease.cluster.clone());
    let facts = Facts { hub, ..facts };
    Problem { facts, ..Problem::new(cause, lease.clone(), wall_clock_now()) }
}
