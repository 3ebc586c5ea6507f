//! What one instance knows of all Leases of its group, by one LIST each retry period. It answers the
//! questions of all elections at once, so that the number of requests does not grow with the shards that
//! an instance does not hold.
//!
//! A LIST answers a question only if it was sent later: what it shows was true when the question was
//! asked, or after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::claim::Claimed;
use super::election::{LeaseRecord, Timings};
use super::gate::Gates;
use super::group::LeaseGroup;
use super::share::{ShardHolder, Share};
use crate::clock::millis;
use crate::core::data::shard::{Shard, ShardSet};
use crate::environment;

/// A Lease as a LIST showed it.
#[derive(Clone, Debug)]
pub(super) struct ShownLease {
    pub(super) object: Value,
    pub(super) record: LeaseRecord,
    pub(super) version: String,
    /// When a LIST first showed this record.
    pub(super) since: u64,
}

impl ShownLease {
    /// Whether it has not changed for its duration, or for this instance's.
    pub(super) fn is_expired(&self, now: u64, own_ms: u64) -> bool {
        now > self.since.saturating_add(self.record.lease_ms.max(own_ms))
    }
}

/// One look at all Leases.
#[derive(Clone, Debug, Default)]
struct Look {
    number: u64,
    /// Why it failed.
    failure: Option<Arc<str>>,
}

/// All Leases of a group, as one instance knows them. Times are milliseconds of its own clock.
pub(super) struct Board {
    pub(super) group: LeaseGroup,
    pub(super) identity: String,
    pub(super) timings: Timings,
    gates: Gates,
    started: Instant,
    state: Mutex<State>,
    looks: watch::Sender<Look>,
}

struct State {
    leases: BTreeMap<String, ShownLease>,
    share: Share,
    /// The shards whose Lease this instance wrote last, or is writing.
    owned: ShardSet,
    /// Looks that have begun.
    begun: u64,
    /// The last answer about the claim; `None` where the fleet is not this group's.
    claimed: Option<Claimed>,
    is_stopping: bool,
}

impl Board {
    pub(super) fn new(group: LeaseGroup, identity: String, timings: Timings, gates: Gates) -> Self {
        let share = Share::new(identity.clone(), group.shards, timings.lease_ms);
        let state = State {
            leases: BTreeMap::new(),
            share,
            owned: ShardSet::default(),
            begun: 0,
            claimed: None,
            is_stopping: false,
        };
        let looks = watch::Sender::new(Look::default());
        let started = Instant::now();
        Self { group, identity, timings, gates, started, state: Mutex::new(state), looks }
    }

    pub(super) fn now(&self) -> u64 {
        millis(environment::elapsed(self.started))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look begins: its LIST is about to be sent.
    pub(super) fn begin_look(&self) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        state.begun
    }

    /// A look has ended: what it showed was taken, or it failed. Whoever waits for it goes on.
    pub(super) fn end_look(&self, number: u64, failure: Option<Arc<str>>) {
        self.looks.send_replace(Look { number, failure });
    }

    /// Takes what a look showed.
    pub(super) fn see(&self, shown: Vec<ShownLease>) {
        let (now, members) = (self.now(), self.group.member_prefix());
        let mut state = self.state();
        let mut former = std::mem::take(&mut state.leases);
        for mut lease in shown {
            let Some(name) = lease.object["metadata"]["name"].as_str().map(str::to_owned) else {
                continue;
            };
            if let Some(known) = former.remove(&name).filter(|known| known.record == lease.record) {
                lease.since = known.since;
            }
            state.leases.insert(name, lease);
        }
        let State { leases, share, .. } = &mut *state;
        let live = leases
            .iter()
            .filter(|(name, lease)| name.starts_with(&members) && !lease.record.holder.is_empty())
            .filter(|(_, lease)| self.group.is_of_same_number(&lease.object));
        let live = live.map(|(_, lease)| {
            let LeaseRecord { holder, lease_ms, renew_time, .. } = lease.record.clone();
            (holder, lease_ms, renew_time)
        });
        share.see_members(now, live);
        self.look_at_holders(&mut state, now);
    }

    fn look_at_holders(&self, state: &mut State, now: u64) {
        let State { leases, share, owned, .. } = state;
        share.see_holders(now, |shard| {
            if owned.contains(shard) {
                return ShardHolder::ThisInstance;
            }
            match leases.get(&self.group.shard_name(shard)) {
                Some(lease) if lease.record.holder.is_empty() => ShardHolder::Nobody,
                Some(lease) if lease.is_expired(now, self.timings.lease_ms) => ShardHolder::Nobody,
                Some(lease) if lease.record.holder == self.identity => ShardHolder::ThisInstance,
                Some(lease) => ShardHolder::AnotherInstance(&lease.record.holder),
                None => ShardHolder::Nobody,
            }
        });
    }

    /// Waits for a look that begins after this call.
    pub(super) async fn next_look(&self) -> Result<(), Arc<str>> {
        let begun = {
            let state = self.state();
            if state.is_stopping {
                return Err("stopping".into());
            }
            state.begun
        };
        let mut looks = self.looks.subscribe();
        match looks.wait_for(|look| look.number > begun).await {
            Ok(look) => look.failure.clone().map_or(Ok(()), Err),
            Err(_) => Err("stopping".into()),
        }
    }

    /// A shard's Lease, as last shown.
    pub(super) fn shown(&self, shard: Shard) -> Option<ShownLease> {
        self.lease(&self.group.shard_name(shard))
    }

    pub(super) fn lease(&self, name: &str) -> Option<ShownLease> {
        self.state().leases.get(name).cloned()
    }

    /// Whether the shard's Lease has expired, and this instance should take it now.
    pub(super) fn is_overdue(&self, shard: Shard) -> bool {
        let is_expired = |lease: ShownLease| lease.is_expired(self.now(), self.timings.lease_ms);
        self.shown(shard).is_some_and(is_expired) && self.should_take(&mut self.state(), shard)
    }

    fn should_take(&self, state: &mut State, shard: Shard) -> bool {
        let now = self.now();
        self.look_at_holders(state, now);
        let is_new = !state.leases.contains_key(&self.group.shard_name(shard));
        let claimed = self.claimed(state, now).is_some_and(|claim| claim.is_settled || is_new);
        claimed && !state.is_stopping && state.share.should_take(now, shard)
    }

    /// Whether this instance may take the shard. If so, it counts as taken until [`Board::owns`] says
    /// otherwise.
    pub(super) fn may_take(&self, shard: Shard) -> bool {
        let mut state = self.state();
        let may = self.should_take(&mut state, shard);
        if may {
            state.owned.insert(shard);
            state.share.taking(shard);
        }
        may
    }

    /// Whether this instance wrote the shard's Lease as it was last seen.
    pub(super) fn owns(&self, shard: Shard, is_owned: bool) {
        let mut state = self.state();
        if is_owned {
            state.owned.insert(shard);
        } else if !state.owned.remove(shard) {
            return;
        }
        state.share.taken(shard, is_owned);
    }

    /// A shard to give up now.
    pub(super) fn give_up(&self) -> Option<Shard> {
        let mut state = self.state();
        if state.is_stopping {
            return None;
        }
        state.share.give_up(self.now(), |shard| self.gates.is_open(shard))
    }

    /// For how long the fleet is this group's at least, as a question said that was asked a short while
    /// ago.
    pub(super) fn claimed_for_ms(&self) -> Option<u64> {
        let now = self.now();
        let claim = self.claimed(&self.state(), now)?;
        Some(claim.asked_at + self.timings.gate_ms() - now)
    }

    fn claimed(&self, state: &State, now: u64) -> Option<Claimed> {
        state.claimed.filter(|claim| now < claim.asked_at + self.timings.gate_ms())
    }

    /// What the last answer said of the claim; `None`: it is not this group's.
    pub(super) fn set_claim(&self, claimed: Option<Claimed>) {
        self.state().claimed = claimed;
    }

    /// Whether this instance comes first of those that live.
    pub(super) fn is_first(&self) -> bool {
        self.state().share.is_first(self.now())
    }

    /// Whether no other instance lives, or holds a shard.
    pub(super) fn is_alone(&self) -> bool {
        let state = self.state();
        let is_held = state.share.unheld().count() < self.group.shards.count();
        state.share.is_alone(self.now()) && !is_held
    }

    /// The shards that nobody holds, and since when.
    pub(super) fn unheld(&self) -> Vec<(Shard, u64)> {
        self.state().share.unheld().collect()
    }

    /// A member's Lease that has not changed for so long that its instance is gone.
    pub(super) fn forgotten_member(&self, after_ms: u64) -> Option<ShownLease> {
        let (now, members) = (self.now(), self.group.member_prefix());
        let state = self.state();
        let mut leases = state.leases.iter().filter(|(name, _)| name.starts_with(&members));
        let is_gone = |lease: &ShownLease| {
            lease.record.holder != self.identity && lease.is_expired(now, after_ms)
        };
        leases.find(|(_, lease)| is_gone(lease)).map(|(_, lease)| lease.clone())
    }

    /// This instance stops: it takes nothing any more, and no election waits for a look.
    pub(super) fn stop(&self) {
        self.state().is_stopping = true;
        let failure = Some("stopping".into());
        self.looks.send_replace(Look { number: u64::MAX, failure });
    }
}
