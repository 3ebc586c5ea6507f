//! The Lease without a number: it says how many shards the fleet has.
//!
//! An upstream is of shard 3 of 8 and of shard 7 of 16, so instances that have different numbers would
//! have two writers for it. So the instances of a group hold one Lease together, in the name of their
//! number of shards. It is the Lease of instances without shards, too, which thereby wait until the group is
//! gone. An instance leads a shard only while both Leases allow it, and by the same rule: what it knows of
//! either counts from when it asked, and for [`Timings::gate_ms`](super::election::Timings::gate_ms).
//!
//! | the Lease | what a member does | when it may take shards |
//! |---|---|---|
//! | has the group's number | the first of those that live renews it; another one, if nobody did for a lease duration | at once |
//! | has it, as the first look shows | renews it: it may be about to expire | when that was answered |
//! | was released | takes it | at once |
//! | has not changed for its duration | takes it | at once |
//! | is not there, or names nobody | takes it, with a holder that says so | a lease duration later: who lost it may still write. What has no Lease yet, at once: its holder waits anyway |
//! | had another holder, who did not release it | nothing | a lease duration later: somebody may have edited it |
//! | has another holder | waits, and warns | |

use tracing::{info, warn};

use super::board::Board;
use super::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use super::group::LeaseGroup;
use super::lease::{LeaseApi, LeaseClient, RenewTimes};

/// The Lease lasts for so many lease durations. It is trusted for [`trusted_ms`], and who trusted it last
/// writes for less than another lease duration: by a clock that runs a tenth faster, that is less than three.
const CLAIM_LEASES: u64 = 3;
/// Somebody else who makes the claim at the same time has most likely the same number.
const MAKE_ATTEMPTS_MAX: usize = 2;

/// What an answer said of the claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    /// When the question was asked.
    pub(super) asked_at: u64,
    /// Nobody can have lost the Lease less than a lease duration ago.
    pub(super) is_settled: bool,
}

/// How long after its last change the Lease is trusted. Every member renews it a third earlier.
fn trusted_ms(lease_ms: u64) -> u64 {
    lease_ms * 3 / 2
}

/// The Lease at the last look.
#[derive(Debug)]
struct LastLook {
    asked_at: u64,
    /// `None`: it was not there.
    record: Option<LeaseRecord>,
    /// It changed after this; `None` where the first look showed it.
    changed_after: Option<u64>,
}

/// One member's part in the group's Lease.
pub(super) struct Claim {
    client: LeaseClient,
    claimant: String,
    /// The holder of a Lease that somebody else may have lost less than a lease duration ago.
    settling: String,
    renew_times: RenewTimes,
    last_look: Option<LastLook>,
    /// Since when it is the group's, where somebody else may have lost it then.
    unsettled_since: Option<u64>,
    /// The Lease of others, and since when it has not changed.
    others: Option<(LeaseRecord, u64)>,
    /// The holder that was last warned of.
    warned_of: String,
}

impl Claim {
    pub(super) fn new(group: &LeaseGroup) -> Self {
        Self {
            client: group.lease(group.name.clone(), None),
            claimant: group.claimant(),
            settling: format!("{}, settling", group.claimant()),
            renew_times: RenewTimes::default(),
            last_look: None,
            unsettled_since: None,
            others: None,
            warned_of: String::new(),
        }
    }

    /// Looks at the Lease as the LIST showed it that was sent at `asked_at`.
    pub(super) async fn look_after(&mut self, board: &Board, asked_at: u64) {
        let lease = board.lease(&board.group.name);
        self.see(board, asked_at, lease.as_ref().map(|lease| &lease.record));
        let Some(lease) = lease.filter(|lease| self.is_ours(&lease.record)) else {
            for _ in 0..MAKE_ATTEMPTS_MAX {
                if self.make(board).await {
                    break;
                }
            }
            return;
        };
        self.others = None;
        let lease_ms = board.timings.lease_ms;
        let changed_after = self.last_look.as_ref().and_then(|look| look.changed_after);
        let age = changed_after.map(|at| board.now().saturating_sub(at));
        let is_due = match age {
            None => true,
            Some(age) => age > lease_ms || board.is_first() && age >= lease_ms / 3,
        };
        if is_due {
            let is_settled = self.is_settled(board);
            let holder = if is_settled { &self.claimant } else { &lease.record.holder };
            let record = self.record(board, &lease.record, holder.clone());
            self.client.show(lease.object);
            self.write(board, LeaseRequest::Update(record, lease.version)).await;
        }
    }

    fn is_ours(&self, record: &LeaseRecord) -> bool {
        record.holder == self.claimant || record.holder == self.settling
    }

    /// Takes what an answer says that was asked for at `asked_at`, and says on the board whether to trust it.
    fn see(&mut self, board: &Board, asked_at: u64, record: Option<&LeaseRecord>) {
        let (was_others, changed_after) = match &self.last_look {
            None => (false, None),
            Some(last) if last.record.as_ref() == record => (false, last.changed_after),
            Some(last) => {
                let was_free = last.record.as_ref().is_some_and(LeaseRecord::is_released);
                let was_ours = last.record.as_ref().is_some_and(|record| self.is_ours(record));
                (!was_free && !was_ours, Some(last.asked_at))
            }
        };
        self.last_look = Some(LastLook { asked_at, record: record.cloned(), changed_after });
        let Some(record) = record.filter(|record| self.is_ours(record)) else {
            self.unsettled_since = None;
            return board.set_claim(None);
        };
        if was_others || record.holder == self.settling {
            self.unsettled_since.get_or_insert(board.now());
        }
        self.tell(board);
    }

    /// Nobody can have lost the Lease less than a lease duration ago.
    fn is_settled(&self, board: &Board) -> bool {
        self.unsettled_since.is_none_or(|since| board.now() > since + board.timings.lease_ms)
    }

    fn tell(&self, board: &Board) {
        let trusted_ms = trusted_ms(board.timings.lease_ms);
        let claimed = self.last_look.as_ref().and_then(|look| {
            let is_trusted = look.changed_after.is_some_and(|at| look.asked_at <= at + trusted_ms);
            let is_settled = self.is_settled(board);
            is_trusted.then_some(Claimed { asked_at: look.asked_at, is_settled })
        });
        board.set_claim(claimed);
    }

    fn record(&mut self, board: &Board, old: &LeaseRecord, holder: String) -> LeaseRecord {
        let is_new = u32::from(!self.is_ours(old));
        LeaseRecord {
            holder,
            lease_ms: board.timings.lease_ms * CLAIM_LEASES,
            transitions: old.transitions.saturating_add(is_new),
            renew_time: self.renew_times.next_time(),
        }
    }

    /// Makes the Lease the group's, if it is nobody's. `false`: somebody else was faster.
    async fn make(&mut self, board: &Board) -> bool {
        let asked_at = board.now();
        let (response, _) = self.client.send(&LeaseRequest::Get).await;
        let (now, lease_ms) = (board.now(), board.timings.lease_ms);
        let request = match response {
            LeaseResponse::Current(record, _) if self.is_ours(&record) => {
                self.see(board, asked_at, Some(&record));
                return true;
            }
            LeaseResponse::Current(record, version) => {
                let since = self.unchanged_since(&record, now);
                let is_expired = now > since + record.lease_ms.max(lease_ms);
                let holder = match () {
                    () if record.is_released() || is_expired => self.claimant.clone(),
                    () if record.holder.is_empty() => self.settling.clone(),
                    () => {
                        self.warn_of(&record);
                        return true;
                    }
                };
                LeaseRequest::Update(self.record(board, &record, holder), version)
            }
            LeaseResponse::NotFound => {
                let holder = self.settling.clone();
                LeaseRequest::Create(self.record(board, &LeaseRecord::default(), holder))
            }
            LeaseResponse::Conflict | LeaseResponse::Failed => return true,
        };
        let response = self.write(board, request).await;
        if matches!(response, LeaseResponse::Current(..)) {
            info!(
                shards = board.group.shards.count(),
                "the instances share their upstreams by shards"
            );
        }
        response != LeaseResponse::Conflict
    }

    fn unchanged_since(&mut self, record: &LeaseRecord, now: u64) -> u64 {
        let known = self.others.take().filter(|(known, _)| known == record);
        self.others.insert(known.unwrap_or_else(|| (record.clone(), now))).1
    }

    async fn write(&mut self, board: &Board, request: LeaseRequest) -> LeaseResponse {
        let sent_at = board.now();
        let (response, _) = self.client.send(&request).await;
        if let LeaseResponse::Current(record, _) = &response {
            let is_unsettled = record.holder == self.settling
                || self.last_record().is_some_and(|last| self.is_ours(last))
                    && !self.is_settled(board);
            if !is_unsettled {
                self.unsettled_since = None;
            } else {
                self.unsettled_since.get_or_insert(board.now());
            }
            let (record, changed_after) = (Some(record.clone()), Some(sent_at));
            self.last_look = Some(LastLook { asked_at: sent_at, record, changed_after });
            self.tell(board);
        }
        response
    }

    fn last_record(&self) -> Option<&LeaseRecord> {
        self.last_look.as_ref()?.record.as_ref()
    }

    fn warn_of(&mut self, record: &LeaseRecord) {
        if self.warned_of == record.holder {
            return;
        }
        self.warned_of.clone_from(&record.holder);
        warn!(
            holder = record.holder,
            lease_s = record.lease_ms / 1_000,
            "instances that have another number of shards share these Leases, so this one takes no \
             shard until they are gone; all instances of a fleet need the same leaderElection.shards, and \
             must be stopped before it changes"
        );
    }

    /// The last member stops: whoever comes next need not wait. The board shows the Lease as it was when
    /// this member found itself alone; who has come since has renewed it, and a conflict keeps it.
    pub(super) async fn release(&mut self, board: &Board) {
        board.set_claim(None);
        let Some(lease) = board.lease(&board.group.name).filter(|l| self.is_ours(&l.record)) else {
            return;
        };
        let renew_time = self.renew_times.next_time();
        let released = LeaseRecord::released(lease.record.transitions, renew_time);
        self.client.show(lease.object);
        self.client.send(&LeaseRequest::Update(released, lease.version)).await;
    }
}
