//! Which instance mirrors and deletes: leader election on a Lease. [`election`] holds the rules;
//! this module adds clock, timers, requests, log lines and Kubernetes Events. It never ends the
//! process, and keeps trying for as long as it runs.

pub mod election;
pub mod gate;
pub mod handover;
pub mod lease;
pub mod share;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::clock::sleep_until_opt;
use crate::core::contract::event::EventKind;
use crate::core::contract::settings::OrphanMode;
use crate::core::data::shard::Shard;
use crate::environment::{here, random};
use crate::leader::gate::GateKeeper;
use crate::metrics::Metrics;
use election::{Election, LeaseRecord, LeaseResponse, Timings};
use handover::Sight;
use lease::{LeaseApi, RenewTimes};

/// After failures, an instance that does not hold the Lease waits at most this many pauses.
const PAUSES_MAX: u64 = 4;
/// A Lease of more than so many of this instance's durations is suspicious.
const LONG_LEASES: u64 = 4;
/// Attempts to release the Lease.
const RELEASE_ATTEMPTS_MAX: usize = 4;

/// Takes part in an election until it is released or dropped.
#[derive(Debug)]
pub struct LeaderElection {
    resign: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl LeaderElection {
    /// Joins the election under `identity`, which no other instance may ever have (see
    /// [`identity`]). `orphans` is only logged. `events` receives [`EventKind::LeadershipAcquired`] or
    /// [`EventKind::LeadershipLost`] at each change, also when the tenure merely runs out; and
    /// [`EventKind::LeadershipPending`] when this instance has created the Lease and may lead later.
    pub fn start<A: LeaseApi + 'static>(
        api: A,
        identity: String,
        timings: Timings,
        keeper: GateKeeper,
        orphans: OrphanMode,
        events: mpsc::UnboundedSender<EventKind>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (resign, resigned) = oneshot::channel();
        info!(identity, "joined the leader election");
        let candidate = Candidate {
            election: Election::new(identity.clone(), timings),
            identity,
            timings,
            keeper,
            orphans,
            events,
            metrics,
            renew_times: RenewTimes::default(),
            open_until: None,
            pending_from: None,
            is_lease_missing: false,
            holder: String::new(),
            failure: None,
            failures: 0,
            unposted_events: Vec::new(),
            sight: Sight::default(),
            warned_of: None,
            has_twin: false,
        };
        let mut task = JoinSet::new();
        task.spawn(here(candidate.run(api, resigned)));
        Self { resign, task }
    }

    /// Closes the gate and releases the Lease, so that another instance can lead at once. All
    /// leader-only writes must have ended. Where they have not, drop this instead: the gate closes,
    /// and the Lease expires.
    pub async fn release(mut self, within: Duration) {
        // The receiver is gone only if the task has ended already.
        let _ = self.resign.send(());
        if timeout(within, self.task.join_next()).await.is_err() {
            warn!("could not release the Lease in time; it will expire");
        }
    }
}

/// A name that no other instance has: the pod's or host's name and a random part.
pub fn identity() -> String {
    let read = |file| std::fs::read_to_string(file).ok();
    let host = std::env::var("HOSTNAME").ok().or_else(|| read("/etc/hostname"));
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "throughline".to_owned());
    let (a, b) = (random(), random());
    let (c, d, e) = (a >> 16 & 0xffff, a & 0xffff, b & 0xffff_ffff_ffff);
    format!("{host}_{:08x}-{c:04x}-{d:04x}-{:04x}-{e:012x}", a >> 32, b >> 48)
}

struct Candidate {
    election: Election,
    identity: String,
    timings: Timings,
    keeper: GateKeeper,
    orphans: OrphanMode,
    events: mpsc::UnboundedSender<EventKind>,
    metrics: Arc<Metrics>,
    renew_times: RenewTimes,
    /// Until when the gate is open, as last published; `None` when it is closed.
    open_until: Option<u64>,
    /// From when this instance leads, while it waits for that, as last reported.
    pending_from: Option<u64>,
    /// There was no Lease, and no other instance has held it since.
    is_lease_missing: bool,
    /// The Lease's holder, as last logged.
    holder: String,
    /// Why the last attempt failed, as last logged.
    failure: Option<String>,
    /// Attempts that failed in a row.
    failures: u64,
    /// Messages of Kubernetes Events that are still to be posted.
    unposted_events: Vec<&'static str>,
    sight: Sight,
    /// The record of a Lease of absurd length, as last warned of.
    warned_of: Option<LeaseRecord>,
    /// Another process has this instance's identity, as last logged.
    has_twin: bool,
}

impl Candidate {
    async fn run<A: LeaseApi>(mut self, mut api: A, mut resigned: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut resigned => break,
                // A write to the Lease that is cancelled here counts as unanswered.
                () = self.attempt_and_pause(&mut api) => {}
            }
        }
        self.election.resign();
        self.publish();
        self.post_events(&api);
        for _ in 0..RELEASE_ATTEMPTS_MAX {
            self.attempt(&mut api).await;
            if !self.election.owns_lease() {
                break;
            }
        }
    }

    async fn attempt_and_pause(&mut self, api: &mut impl LeaseApi) {
        let began = self.keeper.now_ms();
        self.attempt(api).await;
        self.compare_sight(api).await;
        self.warn_of_long_lease();
        let now = self.keeper.now_ms();
        let pauses =
            if self.election.is_holder(now) { 1 } else { self.failures.clamp(1, PAUSES_MAX) };
        let pause = self.timings.next_attempt(began, now).saturating_sub(now) * pauses;
        // Up to a fifth shorter, so that instances that failed together do not retry together.
        let pause = pause - random() % (pause / 5 + 1);
        // If the Lease may be acquired before the pause ends, wake up then.
        let free = self.election.free_from().filter(|at| *at > now && self.failures == 0);
        let next = self.keeper.instant(free.unwrap_or(u64::MAX).min(now + pause));
        loop {
            tokio::select! {
                biased;
                () = sleep_until(next) => break,
                () = sleep_until_opt(self.next_gate_change()) => {
                    self.publish();
                    self.post_events(api);
                }
            }
        }
    }

    fn post_events(&mut self, api: &impl LeaseApi) {
        for message in self.unposted_events.drain(..) {
            api.post_event(format!("{} {message}", self.identity));
        }
    }

    async fn attempt(&mut self, api: &mut impl LeaseApi) {
        let mut failure = None;
        let mut next =
            self.election.begin_attempt(self.keeper.now_ms(), &self.renew_times.next_time());
        while let Some(request) = next {
            let (response, why) = {
                let mut sent = std::pin::pin!(api.send(&request));
                loop {
                    tokio::select! {
                        biased;
                        response = &mut sent => break response,
                        // The request hangs, and the tenure begins or ends meanwhile.
                        () = sleep_until_opt(self.next_gate_change()) => self.publish(),
                    }
                }
            };
            // A conflict means that another instance was faster, which is no failure unless this
            // instance holds the Lease.
            let lost_race = response == LeaseResponse::Conflict && self.election.owns_lease();
            let failed = response == LeaseResponse::Failed || lost_race;
            failure = failed.then(|| why.unwrap_or_default());
            match &response {
                LeaseResponse::NotFound => self.is_lease_missing = true,
                LeaseResponse::Current(record, _) if record.holder != self.identity => {
                    self.is_lease_missing = false;
                }
                _ => {}
            }
            let now = self.keeper.now_ms();
            let renew_time = self.renew_times.next_time();
            next = self.election.handle_response(&request, response, now, &renew_time);
            self.publish();
            self.post_events(api);
        }
        self.log_attempt(failure);
    }

    /// When the gate next opens or closes without another response.
    fn next_gate_change(&self) -> Option<Instant> {
        let opens = self.election.leads_from().filter(|from| *from > self.keeper.now_ms());
        Some(self.keeper.instant(self.open_until.or(opens)?))
    }

    /// Logs what an attempt changed: once per change, not once per attempt.
    fn log_attempt(&mut self, failure: Option<String>) {
        match (&failure, &self.failure) {
            (Some(error), None) => {
                warn!(error, "cannot read or renew the Lease; retrying");
            }
            (None, Some(_)) => info!("the Lease can be read and renewed again"),
            _ => {}
        }
        self.failures = if failure.is_some() { self.failures.saturating_add(1) } else { 0 };
        self.failure = failure;
        let holder = self.election.record().map_or("", |record| &record.holder);
        let has_twin = holder == self.identity && !self.election.owns_lease();
        if has_twin && !self.has_twin {
            warn!(
                holder,
                "the Lease names this instance, which did not write it: another process has the same \
                 identity (a copy of its machine?), or somebody edited the Lease; waiting for its \
                 duration. If a copy runs, restart it"
            );
        }
        self.has_twin = has_twin;
        if holder != self.holder {
            if !holder.is_empty() && holder != self.identity {
                info!(holder, "another instance holds the Lease");
            }
            self.metrics.set_lease_holder(holder);
            self.holder = holder.to_owned();
        }
    }

    /// Warns of a Lease that another instance holds for much longer than this one would, once it has
    /// not been renewed for as long as this one's would last: its holder may be gone.
    fn warn_of_long_lease(&mut self) {
        let Some(record) = self.election.record().filter(|_| !self.election.owns_lease()) else {
            return;
        };
        let own_ms = self.timings.lease_ms;
        let is_long = record.lease_ms > LONG_LEASES * own_ms && !record.is_released();
        let unchanged_ms = self.election.free_from().map_or(0, |free| {
            let now = self.keeper.now_ms();
            now.saturating_add(record.lease_ms.max(own_ms)).saturating_sub(free)
        });
        if !is_long || unchanged_ms < own_ms || self.warned_of.as_ref() == Some(record) {
            return;
        }
        warn!(
            holder = record.holder,
            lease_s = record.lease_ms / 1_000,
            "the Lease has not been renewed, and lasts much longer than configured here; if its holder \
             is gone, delete the Lease: nobody leads until it expires"
        );
        self.warned_of = Some(record.clone());
    }

    /// Opens or closes the gate, and reports the change.
    fn publish(&mut self) {
        let now = self.keeper.now_ms();
        let gate = self.election.gate(now);
        self.keeper.set(gate);
        let was_open_until = self.open_until.take();
        // A gate that was closed even for a moment counts as closed: the machine must repeat the
        // writes that were dropped then.
        let stayed_open = was_open_until.is_some_and(|until| now < until) && gate.is_some();
        if was_open_until.is_some() && !stayed_open {
            let because = self.why_lost();
            if self.election.is_resigning() {
                info!(because, "no longer leader: mirroring and deleting stopped");
            } else {
                warn!(because, "no longer leader: mirroring and deleting stopped");
            }
            self.unposted_events.push("stopped leading");
            self.metrics.set_leader(false);
            drop(self.events.send(EventKind::LeadershipLost { shard: Shard::FIRST }));
        }
        if gate.is_some() && !stayed_open {
            let orphans = match self.orphans {
                OrphanMode::Off => "off",
                OrphanMode::Report => "report only",
                OrphanMode::Delete => "delete",
            };
            info!("became leader: mirroring started; orphans: {orphans}");
            self.unposted_events.push("became leader");
            self.metrics.set_leader(true);
            drop(self.events.send(EventKind::LeadershipAcquired { shard: Shard::FIRST }));
        }
        self.open_until = gate;
        self.publish_wait(now);
        let renewed = self.election.renewed_at().map(|ms| self.keeper.instant(ms));
        self.metrics.set_lease(renewed, gate.map(|ms| self.keeper.instant(ms)));
    }

    /// Reports that this instance waits before it leads, because it created the Lease; and that it
    /// no longer does, because it lost the Lease meanwhile.
    fn publish_wait(&mut self, now: u64) {
        // Whatever happens to the Lease from here on has another reason.
        self.is_lease_missing &= self.open_until.is_none();
        let leads_from = self.election.leads_from().filter(|from| *from > now);
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
            drop(self.events.send(EventKind::LeadershipPending { wait_ms, shard: Shard::FIRST }));
        } else if was_pending && self.open_until.is_none() {
            drop(self.events.send(EventKind::LeadershipLost { shard: Shard::FIRST }));
        }
    }

    fn why_lost(&self) -> String {
        match self.election.record() {
            _ if self.election.is_resigning() => "stopping".to_owned(),
            _ if self.election.is_standing_down() => "another instance sees more".to_owned(),
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
