//! One instance's part in one election: clock, timers and requests for the rules of `election.rs`.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Listeners;
use super::election::{Election, LeaseResponse, Timings};
use super::gate::GateKeeper;
use super::handover::Sight;
use super::lease::{LeaseApi, RenewTimes};
use crate::clock::sleep_until_opt;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::EventKind;
use crate::core::contract::settings::OrphanMode;
use crate::environment::random;
use crate::metrics::Metrics;
use crate::problems::Outside;

/// After failures, an instance that does not hold the Lease waits at most this many pauses.
const PAUSES_MAX: u64 = 4;
/// Attempts to release the Lease.
const RELEASE_ATTEMPTS_MAX: usize = 4;

pub(super) struct Candidate {
    pub(super) election: Election,
    pub(super) identity: String,
    pub(super) timings: Timings,
    pub(super) keeper: GateKeeper,
    pub(super) orphans: OrphanMode,
    pub(super) events: mpsc::UnboundedSender<EventKind>,
    pub(super) usable: Outside,
    pub(super) led: Outside,
    pub(super) metrics: Arc<Metrics>,
    pub(super) renew_times: RenewTimes,
    /// Until when the gate is open, as last published; `None` when it is closed.
    pub(super) open_until: Option<u64>,
    /// From when this instance leads, while it waits for that, as last reported.
    pub(super) pending_from: Option<u64>,
    /// There was no Lease, and no other instance has held it since.
    pub(super) is_lease_missing: bool,
    /// The Lease's holder, as last logged.
    pub(super) holder: String,
    /// Why the last attempt failed.
    pub(super) failure: Option<RequestFailure>,
    /// Attempts that failed in a row.
    pub(super) failures: u64,
    /// Messages of Kubernetes Events that are still to be posted.
    pub(super) unposted_events: Vec<&'static str>,
    pub(super) sight: Sight,
    /// Another process has this instance's identity, as last logged.
    pub(super) has_twin: bool,
}

impl Candidate {
    pub(super) fn new(
        identity: String,
        timings: Timings,
        keeper: GateKeeper,
        orphans: OrphanMode,
        listeners: Listeners,
    ) -> Self {
        let Listeners { events, usable, led, metrics } = listeners;
        Self {
            election: Election::new(identity.clone(), timings),
            identity,
            timings,
            keeper,
            orphans,
            events,
            usable,
            led,
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
            has_twin: false,
        }
    }

    /// Takes part until it is `resigned`.
    pub(super) async fn run<A: LeaseApi>(
        mut self,
        mut api: A,
        mut resigned: oneshot::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                biased;
                _ = &mut resigned => break,
                // A write to the Lease that is cancelled here counts as unanswered.
                () = self.attempt_and_pause(&mut api) => {}
            }
        }
        self.resign(&api);
        self.release(&mut api).await;
    }

    /// Closes the gate for good.
    fn resign(&mut self, api: &impl LeaseApi) {
        self.election.resign();
        self.publish();
        self.post_events(api);
    }

    /// Releases the Lease, once the leader's writes have ended.
    async fn release(&mut self, api: &mut impl LeaseApi) {
        for _ in 0..RELEASE_ATTEMPTS_MAX {
            self.attempt(api).await;
            if !self.election.owns_lease() {
                break;
            }
        }
    }

    async fn attempt_and_pause(&mut self, api: &mut impl LeaseApi) {
        let began = self.keeper.now_ms();
        self.attempt(api).await;
        self.compare_sight(api).await;
        self.look_for_leader(&api.about(), api.foreign_holder().as_deref());
        let now = self.keeper.now_ms();
        let is_holder = self.election.is_holder(now);
        let pauses = if is_holder { 1 } else { self.failures.clamp(1, PAUSES_MAX) };
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
                let mut sent = pin!(api.send(&request));
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
        self.log_attempt(failure, &api.about());
    }

    /// When the gate next opens or closes without another response.
    fn next_gate_change(&self) -> Option<Instant> {
        let opens = self.election.leads_from().filter(|from| *from > self.keeper.now_ms());
        Some(self.keeper.instant(self.open_until.or(opens)?))
    }
}
