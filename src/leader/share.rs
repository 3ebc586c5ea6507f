//! The fair share: which shards an instance takes, and which it gives up. Without clock or I/O.
//!
//! Members are the instances whose own Lease changed within its duration, by this instance's clock.
//! Sorted by identity, with N shards and M members, the first N mod M have a quota of one more than the
//! others. Which shards make up the quota is left to who takes them first: the Leases decide that.
//!
//! | rule | what would go wrong without it |
//! |---|---|
//! | nothing is given up while nobody has two shards fewer | the larger quotas, which change with every member, move shards between instances that are even |
//! | the quota for taking counts every live member, that for giving up only those that have been live for a lease duration | an instance that starts and crashes in turns moves shards to and fro |
//! | a shard that was free for longer than a lease duration is taken whatever the quota | a member that announces itself and takes nothing leaves shards to nobody |
//! | nothing is given up while a shard is free | several instances free shards faster than others take them |
//! | a shard that nobody else took makes the pauses between give-ups longer | such a member makes a shard go round for ever |

use std::collections::BTreeMap;

use super::election::LEASE_MAX_MS;
use crate::core::data::shard::{Shard, ShardSet, Shards};

/// The least time between two give-ups of one instance.
const PAUSE_MIN_MS: u64 = 1_000;
/// The pause before the next give-up grows to this while nobody takes what is given up.
const PAUSE_MAX_MS: u64 = 300_000;

/// Who holds a shard's Lease, as this instance sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardHolder<'a> {
    /// Nobody: it was released, has expired, or does not exist.
    Nobody,
    ThisInstance,
    /// By its identity.
    AnotherInstance(&'a str),
}

/// Another instance's member Lease.
#[derive(Clone, Debug)]
struct Member {
    /// Changes with each renewal.
    version: String,
    changed_at: u64,
    duration_ms: u64,
    /// Since when it has been live without a break.
    live_since: u64,
    /// How many shards it was last seen to hold.
    held: usize,
}

impl Member {
    fn is_live(&self, now: u64) -> bool {
        now <= self.changed_at + self.duration_ms
    }
}

/// The last shard that this instance gave up, until it is known what became of it.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    shard: Shard,
    at: u64,
    /// This instance was seen not to hold it since.
    is_released: bool,
}

/// One instance's share of the shards. Times are milliseconds of its own monotonic clock.
#[derive(Clone, Debug)]
pub struct Share {
    identity: String,
    shards: Shards,
    lease_ms: u64,
    members: BTreeMap<String, Member>,
    held: ShardSet,
    free_since: BTreeMap<Shard, u64>,
    given_up: Option<GivenUp>,
    last_given_up_at: Option<u64>,
    pause_ms: u64,
}

impl Share {
    pub fn new(identity: String, shards: Shards, lease_ms: u64) -> Self {
        Self {
            identity,
            shards,
            lease_ms,
            members: BTreeMap::new(),
            held: ShardSet::default(),
            free_since: BTreeMap::new(),
            given_up: None,
            last_given_up_at: None,
            pause_ms: PAUSE_MIN_MS,
        }
    }

    /// Takes the member Leases that somebody holds, as read at `now`: holder, duration, resourceVersion.
    pub fn see_members(&mut self, now: u64, seen: impl IntoIterator<Item = (String, u64, String)>) {
        let mut former = std::mem::take(&mut self.members);
        for (identity, duration_ms, version) in seen {
            if identity == self.identity {
                continue;
            }
            let duration_ms = duration_ms.min(LEASE_MAX_MS);
            let member = match former.remove(&identity) {
                Some(known) if known.version == version => Member { duration_ms, ..known },
                known => {
                    let held = known.as_ref().map_or(0, |known| known.held);
                    let live = known.filter(|known| known.is_live(now));
                    let live_since = live.map_or(now, |known| known.live_since);
                    Member { version, changed_at: now, duration_ms, live_since, held }
                }
            };
            self.members.insert(identity, member);
        }
    }

    /// Takes the holder of each shard, as known at `now`.
    pub fn see_holders<'a>(&mut self, now: u64, holder: impl Fn(Shard) -> ShardHolder<'a>) {
        self.members.values_mut().for_each(|member| member.held = 0);
        for shard in self.shards.all() {
            let holder = holder(shard);
            if let ShardHolder::AnotherInstance(identity) = holder
                && let Some(member) = self.members.get_mut(identity)
            {
                member.held += 1;
            }
            if holder == ShardHolder::Nobody {
                self.free_since.entry(shard).or_insert(now);
            } else {
                self.free_since.remove(&shard);
            }
            if holder == ShardHolder::ThisInstance {
                self.held.insert(shard);
            } else {
                self.held.remove(shard);
            }
        }
        self.follow_up(now);
    }

    /// What became of the shard that was given up last.
    fn follow_up(&mut self, now: u64) {
        let Some(GivenUp { shard, at, is_released }) = &mut self.given_up else { return };
        let holds = self.held.contains(*shard);
        let free_since = self.free_since.get(shard);
        let was_taken = !holds && free_since.is_none();
        let was_left = if holds {
            // It came back, or could not be released.
            *is_released || now > *at + 2 * self.lease_ms
        } else {
            free_since.is_some_and(|since| now > since + self.lease_ms)
        };
        *is_released |= !holds;
        if was_taken {
            self.pause_ms = PAUSE_MIN_MS;
        } else if was_left {
            self.pause_ms = (self.pause_ms * 2).min(PAUSE_MAX_MS);
        } else {
            return;
        }
        self.given_up = None;
    }

    /// The other members that have been live for `settled_ms`.
    fn settled(&self, now: u64, settled_ms: u64) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter().filter(move |(_, member)| {
            member.is_live(now) && now.saturating_sub(member.live_since) >= settled_ms
        })
    }

    /// How many shards this instance may hold among the members that have been live for `settled_ms`.
    fn quota(&self, now: u64, settled_ms: u64) -> usize {
        let others = self.settled(now, settled_ms);
        let (before, all) = others.fold((0, 1), |(before, all), (identity, _)| {
            (before + usize::from(*identity < self.identity), all + 1)
        });
        self.shards.count() / all + usize::from(before < self.shards.count() % all)
    }

    /// Whether an instance that has lived for a lease duration has two shards fewer than this one.
    fn is_uneven(&self, now: u64) -> bool {
        let mut others = self.settled(now, self.lease_ms);
        others.any(|(_, member)| member.held + 2 <= self.held.len())
    }

    /// Whether this instance comes first of those that live.
    pub fn is_first(&self, now: u64) -> bool {
        self.settled(now, 0).all(|(other, _)| *other > self.identity)
    }

    /// Whether no other instance lives.
    pub fn is_alone(&self, now: u64) -> bool {
        self.settled(now, 0).next().is_none()
    }

    /// The shards that nobody holds, and since when.
    pub fn unheld(&self) -> impl Iterator<Item = (Shard, u64)> {
        self.free_since.iter().map(|(shard, since)| (*shard, *since))
    }

    /// Whether to take this shard, if nobody holds it.
    pub fn should_take(&self, now: u64, shard: Shard) -> bool {
        let Some(since) = self.free_since.get(&shard) else { return false };
        self.held.len() < self.quota(now, 0) || now > since + self.lease_ms
    }

    /// The shard's Lease is being written: it counts as held until it is known what became of that.
    pub fn taking(&mut self, shard: Shard) {
        self.held.insert(shard);
    }

    /// What became of it.
    pub fn taken(&mut self, shard: Shard, is_held: bool) {
        if is_held {
            self.free_since.remove(&shard);
        } else {
            self.held.remove(shard);
        }
    }

    /// A shard to take part in no longer and to release; it is given up from this call on. The next
    /// one follows after a pause. One that this instance does not lead yet could not be released.
    pub fn give_up(&mut self, now: u64, leads: impl Fn(Shard) -> bool) -> Option<Shard> {
        let is_pause = self.last_given_up_at.is_some_and(|at| now < at + self.pause_ms);
        let is_surplus = self.held.len() > self.quota(now, self.lease_ms) && self.is_uneven(now);
        if is_pause || !is_surplus || self.given_up.is_some() || !self.free_since.is_empty() {
            return None;
        }
        let shard = self.held.iter().filter(|shard| leads(*shard)).last()?;
        self.given_up = Some(GivenUp { shard, at: now, is_released: false });
        self.last_given_up_at = Some(now);
        Some(shard)
    }
}

#[cfg(test)]
mod tests;
