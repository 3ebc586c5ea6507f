//! One instance's part in one election: clock, timers and requests for the rules of `election.rs` and
//! `group.rs`.

use std::pin::pin;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::Listeners;
use super::election::{Election, LeaseRequest, LeaseResponse, Timings};
use super::gate::GateKeeper;
use super::group::{Group, Obstacle};
use super::handover::Visibility;
use super::lease::{LeaseClient, RenewTimes};
use super::publish::Publisher;
use crate::clock::sleep_until_opt;
use crate::core::contract::error_cause::RequestFailure;
use crate::environment::random;

/// After failures, an instance that does not hold the Lease waits at most this many pauses.
const PAUSES_MAX: u64 = 4;
/// Attempts to release the Lease.
const RELEASE_ATTEMPTS_MAX: usize = 4;

/// What the last list of the group says about this instance's tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupCheck {
    /// Another number of shards may have begun before this instance held the Lease: no write.
    Unconfirmed,
    Confirmed,
    /// Confirmed, and since then a live Lease of another number of shards was seen once.
    Doubted,
}

pub(super) struct Candidate {
    election: Election,
    group: Group,
    timings: Timings,
    keeper: GateKeeper,
    publisher: Publisher,
    visibility: Visibility,
    renew_times: RenewTimes,
    group_check: GroupCheck,
    /// A single instance asks for no group before it has seen the label on its Lease.
    asks_for_group: bool,
    /// When the last list of the group that came was asked for.
    listed_at: u64,
    /// Until when the gate was last open: a write may end later by the time that it may take.
    led_until: Option<u64>,
}

impl Candidate {
    pub(super) fn new(
        identity: String,
        group: Group,
        timings: Timings,
        keeper: GateKeeper,
        orphans: &'static str,
        listeners: Listeners,
    ) -> Self {
        Self {
            election: Election::new(identity.clone(), timings),
            group,
            publisher: Publisher::new(identity, orphans, listeners),
            timings,
            keeper,
            visibility: Visibility::default(),
            renew_times: RenewTimes::default(),
            group_check: GroupCheck::Unconfirmed,
            asks_for_group: false,
            listed_at: 0,
            led_until: None,
        }
    }

    /// Takes part until it is `resigned`.
    pub(super) async fn run(mut self, mut lease: LeaseClient, mut resigned: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut resigned => break,
                // A write to the Lease that is cancelled here counts as unanswered.
                () = self.attempt_and_pause(&mut lease) => {}
            }
        }
        self.resign(&lease);
        self.release(&mut lease).await;
    }

    /// Closes the gate for good.
    fn resign(&mut self, lease: &LeaseClient) {
        self.election.resign();
        self.publish();
        self.publisher.post_events(lease);
    }

    /// Releases the Lease, once the leader's writes have ended.
    async fn release(&mut self, lease: &mut LeaseClient) {
        for _ in 0..RELEASE_ATTEMPTS_MAX {
            let failure = self.attempt(lease).await;
            self.publisher.log_attempt(&self.election, failure, &lease.about());
            if !self.election.owns_lease() {
                break;
            }
        }
    }

    async fn attempt_and_pause(&mut self, lease: &mut LeaseClient) {
        let began = self.keeper.now_ms();
        let mut failure = self.attempt(lease).await;
        if failure.is_none() {
            failure = self.look_at_group(lease).await.err();
        }
        self.publisher.log_attempt(&self.election, failure, &lease.about());
        self.hand_over_if_blind();
        self.publisher.post_events(lease);
        let now = self.keeper.now_ms();
        let foreign = lease.foreign_holder();
        self.publisher.report_unled(
            now,
            &self.election,
            &self.timings,
            &lease.about(),
            foreign.as_deref(),
        );
        let is_holder = self.election.is_holder(now);
        let failures = self.publisher.failures;
        let pauses = if is_holder { 1 } else { failures.clamp(1, PAUSES_MAX) };
        let pause = self.timings.next_attempt(began, now).saturating_sub(now) * pauses;
        // Up to a fifth shorter, so that instances that failed together do not retry together. Two
        // numbers of shards that met try again at quite different times.
        let spread = if self.publisher.obstacle.is_some() { pause } else { pause / 5 };
        let pause = pause - random() % (spread + 1);
        // If the Lease may be acquired before the pause ends, wake up then.
        let free = self.election.free_from().filter(|at| *at > now && failures == 0);
        let next = self.keeper.instant(free.unwrap_or(u64::MAX).min(now + pause));
        loop {
            tokio::select! {
                biased;
                () = sleep_until(next) => break,
                () = sleep_until_opt(self.next_gate_change()) => {
                    self.publish();
                    self.publisher.post_events(lease);
                }
            }
        }
    }

    /// Returns why it failed.
    async fn attempt(&mut self, lease: &mut LeaseClient) -> Option<RequestFailure> {
        let mut failure = None;
        let mut obstacle = None;
        self.end_lapsed_tenure();
        let mut next =
            self.election.begin_attempt(self.keeper.now_ms(), &self.renew_times.next_time());
        while let Some(request) = next {
            let takes = request != LeaseRequest::Get && !self.election.is_resigning();
            self.end_lapsed_tenure();
            if takes && !self.election.is_holder(self.keeper.now_ms()) {
                match self.find_obstacle(lease).await {
                    Ok(None) => {}
                    Ok(found) => obstacle = found,
                    Err(error) => failure = Some(error),
                }
                if obstacle.is_some() || failure.is_some() {
                    break;
                }
            }
            let (response, why) = self.answer_to(lease.send(&request)).await;
            // A conflict means that another instance was faster, which is no failure unless this
            // instance holds the Lease.
            let lost_race = response == LeaseResponse::Conflict && self.election.owns_lease();
            let failed = response == LeaseResponse::Failed || lost_race;
            failure = failed.then(|| why.unwrap_or_default());
            self.publisher.observe(&response);
            // What this answer proves may have happened after others took their Leases.
            self.end_lapsed_tenure();
            let now = self.keeper.now_ms();
            let renew_time = self.renew_times.next_time();
            next = self.election.handle_response(&request, response, now, &renew_time);
            self.publish();
            self.publisher.post_events(lease);
        }
        // A holder looks after the attempt.
        if !self.election.owns_lease() && !self.election.is_resigning() {
            self.publisher.set_obstacle(obstacle);
        }
        failure
    }

    /// Opens or closes the gate, and publishes the change.
    fn publish(&mut self) {
        let now = self.keeper.now_ms();
        let is_confirmed = self.group_check != GroupCheck::Unconfirmed;
        let gate = self.election.gate(now).filter(|_| is_confirmed);
        // Where the group cannot be listed, another number of shards may begin unseen.
        let listed_until = self.listed_at.saturating_add(self.timings.lease_ms);
        let is_shared = self.group.is_shared();
        let gate = gate.map(|until| if is_shared { until.min(listed_until) } else { until });
        let gate = gate.filter(|until| now < *until);
        self.keeper.set(gate);
        self.led_until = gate.or(self.led_until);
        self.publisher.set_gate(now, gate, &self.election);
        let until = gate.map(|ms| self.keeper.instant(ms));
        self.publisher.listeners.metrics.set_leader(gate.is_some(), until);
    }

    /// After an attempt: makes a leader that lost a cluster stand down, and lets it take part again
    /// later.
    fn hand_over_if_blind(&mut self) {
        let now = self.keeper.now_ms();
        if self.election.is_standing_down() {
            let is_over = self.visibility.has_stood_down(now, self.timings.lease_ms);
            if is_over || !self.election.owns_lease() {
                self.election.set_standing_down(false);
                self.visibility.end_tenure();
            }
            return;
        }
        if self.publisher.open_until.is_none() {
            return self.visibility.end_tenure();
        }
        if let Some(cluster) = self.visibility.find_lost(now, &self.publisher.listeners) {
            warn!(%cluster, "standing down: this leader lost the watches of a cluster that it mirrors");
            self.publisher.unposted_events.push("stands down: it lost the watches of a cluster");
            self.election.set_standing_down(true);
            self.publish();
        }
    }

    /// Once a tenure is over, the next one is confirmed again.
    fn end_lapsed_tenure(&mut self) {
        if !self.election.is_holder(self.keeper.now_ms()) {
            self.group_check = GroupCheck::Unconfirmed;
        }
    }

    /// After an attempt. Before its first write a new holder looks whether another number of shards began
    /// meanwhile; a leader looks now and then whether all shards are held.
    async fn look_at_group(&mut self, lease: &mut LeaseClient) -> Result<(), RequestFailure> {
        let now = self.keeper.now_ms();
        if !self.election.is_holder(now) {
            return Ok(());
        }
        if self.group_check != GroupCheck::Unconfirmed {
            if self.group.is_shared() && now >= self.listed_at + self.timings.renew_deadline_ms {
                let obstacle = self.find_obstacle(lease).await?;
                self.doubt(obstacle);
                self.publish();
                let unheld = self.group.unheld(self.timings.lease_ms, self.keeper.now_ms());
                self.publisher.report_unheld(&unheld, &lease.about());
            }
            return Ok(());
        }

        // Twice where the label has to go: what is seen before a write says nothing about after it.
        for _ in 0..2 {
            match self.find_obstacle(lease).await {
                Ok(obstacle) => self.publisher.set_obstacle(obstacle),
                Err(error) => {
                    // Another instance may be able to look.
                    self.give_back(lease).await?;
                    return Err(error);
                }
            }
            if self.publisher.obstacle.is_some() {
                return self.give_back(lease).await;
            }
            if self.group.is_shared() || !lease.is_labelled() {
                if self.election.is_holder(self.keeper.now_ms()) {
                    self.group_check = GroupCheck::Confirmed;
                    self.asks_for_group = false;
                }
                break;
            }
            lease.take_label_off();
            if let Some(failure) = self.attempt(lease).await {
                return Err(failure);
            }
        }
        self.publish();
        Ok(())
    }

    /// What a leader sees beside it. Another number of shards waits for this one, and holds a Lease only
    /// for a moment; one that stays leads, too, as somebody made it by hand.
    fn doubt(&mut self, obstacle: Option<Obstacle>) {
        self.group_check = match (&obstacle, self.group_check) {
            (None, _) => GroupCheck::Confirmed,
            (Some(Obstacle::Other { .. }), GroupCheck::Confirmed) => GroupCheck::Doubted,
            (Some(_), _) => GroupCheck::Unconfirmed,
        };
        let is_unconfirmed = self.group_check == GroupCheck::Unconfirmed;
        self.publisher.set_obstacle(obstacle.filter(|_| is_unconfirmed));
    }

    /// Gives the Lease back that it has not led by, or once the writes of then have ended.
    async fn give_back(&mut self, lease: &mut LeaseClient) -> Result<(), RequestFailure> {
        let may_write = |until: u64| self.keeper.now_ms() < until + self.timings.write_ms;
        if self.led_until.is_some_and(may_write) {
            return Ok(());
        }
        self.election.resign();
        let failure = self.attempt(lease).await;
        self.election.rejoin();
        failure.map_or(Ok(()), Err)
    }

    /// What keeps this instance from leading, as a list of the group shows it. A single instance whose Lease
    /// has no label asks nothing.
    async fn find_obstacle(
        &mut self,
        lease: &mut LeaseClient,
    ) -> Result<Option<Obstacle>, RequestFailure> {
        self.asks_for_group |= self.group.is_shared() || lease.is_labelled();
        if !self.asks_for_group {
            return Ok(None);
        }
        let asked_at = self.keeper.now_ms();
        let list = self.answer_to(lease.list_group()).await?;
        let now = self.keeper.now_ms();
        self.listed_at = asked_at;
        self.group.observe(list, now);
        Ok(self.group.obstacle(now))
    }

    /// Waits for the answer to a request. The request may hang, and the tenure begin or end meanwhile.
    async fn answer_to<T>(&mut self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        loop {
            tokio::select! {
                biased;
                answer = &mut request => return answer,
                () = sleep_until_opt(self.next_gate_change()) => self.publish(),
            }
        }
    }

    /// When the gate next opens or closes without another response.
    fn next_gate_change(&self) -> Option<Instant> {
        let opens = self.election.leads_from().filter(|from| *from > self.keeper.now_ms());
        Some(self.keeper.instant(self.publisher.open_until.or(opens)?))
    }
}
