//! The Lease without a number: it says how many shards the fleet has.
//!
//! An upstream is of shard 3 of 8 and of shard 7 of 16, so instances that have different numbers would
//! have two writers for it. So the instances of a group hold one Lease together, in the name of their
//! number of shards, and an instance writes the Lease of a shard only while it saw that within half a
//! lease duration. It is the Lease of instances without shards, too, which thereby wait until the group is gone.
//!
//! | the Lease | what a member does | when it may take shards |
//! |---|---|---|
//! | has the group's number | the first of those that live renews it; another one, if nobody did for a lease duration | at once |
//! | was released | takes it | at once |
//! | has not changed for its duration | takes it | at once |
//! | is not there, or names nobody | takes it, with a holder that says so | a lease duration later: who lost it may still write. What has no Lease yet, at once: its holder waits anyway |
//! | has another holder | waits, and warns | |

use tracing::{info, warn};

use super::board::Board;
use super::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use super::group::LeaseGroup;
use super::lease::{LeaseApi, LeaseClient, RenewTimes};

/// The Lease lasts for so many lease durations. A shard's is written until half a lease duration after the
/// claim was seen, and its holder's last write ends ten elevenths of one later: by a clock that runs a tenth
/// faster, that is less than two.
const CLAIM_LEASES: u64 = 2;
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

/// One member's part in the group's Lease.
pub(super) struct Claim {
    client: LeaseClient,
    claimant: String,
    /// The holder of a Lease that somebody else may have lost less than a lease duration ago.
    settling: String,
    renew_times: RenewTimes,
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
            others: None,
            warned_of: String::new(),
        }
    }

    /// Looks at the Lease as the LIST showed it that was sent at `asked_at`.
    pub(super) async fn look_after(&mut self, board: &Board, asked_at: u64) {
        let Some(lease) = board.lease(&board.group.name).filter(|l| self.is_ours(&l.record)) else {
            board.set_claim(None);
            for _ in 0..MAKE_ATTEMPTS_MAX {
                if self.make(board).await {
                    break;
                }
            }
            return;
        };
        board.set_claim(Some(self.claim(&lease.record, asked_at)));
        self.others = None;
        let age = board.now().saturating_sub(lease.since);
        let is_first = board.is_first();
        let lease_ms = board.timings.lease_ms;
        let is_due = age >= lease_ms / 3 && lease.record.holder == self.claimant;
        if age > lease_ms || is_first && is_due {
            self.client.show(lease.object);
            let record = self.record(board, &lease.record, self.claimant.clone());
            self.write(board, LeaseRequest::Update(record, lease.version)).await;
        }
    }

    fn is_ours(&self, record: &LeaseRecord) -> bool {
        record.holder == self.claimant || record.holder == self.settling
    }

    fn claim(&self, record: &LeaseRecord, asked_at: u64) -> Claimed {
        Claimed { asked_at, is_settled: record.holder == self.claimant }
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
                board.set_claim(Some(self.claim(&record, asked_at)));
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
            board.set_claim(Some(self.claim(record, sent_at)));
        }
        response
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

    /// The last member stops: whoever comes next need not wait.
    pub(super) async fn release(&mut self, board: &Board) {
        let (response, _) = self.client.send(&LeaseRequest::Get).await;
        if let LeaseResponse::Current(record, version) = response
            && self.is_ours(&record)
        {
            let released = LeaseRecord::released(record.transitions, self.renew_times.next_time());
            self.client.send(&LeaseRequest::Update(released, version)).await;
        }
        board.set_claim(None);
    }
}
