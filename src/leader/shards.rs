//! Elections for all shards of a fleet, of which an instance takes its share.
//!
//! One task looks at all Leases every retry period and tells the elections (`board.rs`); it announces this
//! instance by a Lease of its own, looks after the group's (`claim.rs`), and says which shard to give up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::board::{Board, ShownLease};
use super::candidate::Candidate;
use super::claim::Claim;
use super::election::{LeaseRecord, LeaseRequest, LeaseResponse, Timings};
use super::gate::{GateKeeper, Gates};
use super::group::LeaseGroup;
use super::lease::{LeaseApi, LeaseClient, RenewTimes};
use super::publish::Told;
use super::seat::{HandIn, IsCommon, Seat, ShardLease};
use crate::core::contract::event::EventKind;
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::ClusterName;
use crate::core::data::shard::ShardSet;
use crate::environment::{here, random};
use crate::metrics::Metrics;

/// An instance whose Lease has not changed for this long is gone for good.
const FORGET_MEMBER_MS: u64 = 3_600_000;
/// At most one Lease of such an instance is deleted in this time.
const FORGET_EVERY_MS: u64 = 60_000;

/// Takes part in the elections of all shards until it is released or dropped.
#[derive(Debug)]
pub struct ShardElections {
    board: BoardHandle,
    resigns: Vec<oneshot::Sender<()>>,
    candidates: JoinSet<()>,
    stop: oneshot::Sender<()>,
    looker: JoinSet<()>,
    hand_ins: mpsc::UnboundedReceiver<HandIn>,
}

struct BoardHandle(Arc<Board>);

impl std::fmt::Debug for BoardHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.identity)
    }
}

/// What the elections of shards need of the run.
pub struct ElectionParts {
    pub timings: Timings,
    pub gates: Gates,
    /// In the order of the shards.
    pub keepers: Vec<GateKeeper>,
    pub orphans: OrphanMode,
    /// Whether every instance follows a cluster, not only the one that holds its shard.
    pub is_common: Arc<dyn Fn(&ClusterName) -> bool + Send + Sync>,
    pub events: mpsc::UnboundedSender<EventKind>,
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for ElectionParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElectionParts").field("timings", &self.timings).finish_non_exhaustive()
    }
}

impl ShardElections {
    /// Joins all elections of the group under `identity`, which no other instance may ever have. `events`
    /// receives what becomes of each shard, as with one election
    /// ([`LeaderElection::start`](super::LeaderElection::start)); and [`EventKind::ShardFollowed`] and
    /// [`EventKind::ShardLeft`] when a Lease is held and no longer held, and whether the Lease API
    /// answers.
    pub fn start(group: LeaseGroup, identity: String, parts: ElectionParts) -> Self {
        let ElectionParts { timings, gates, keepers, orphans, is_common, events, metrics } = parts;
        info!(identity, shards = group.shards.count(), "joined the elections of the shards");
        metrics.set_shards(group.shards);
        let board = Arc::new(Board::new(group, identity.clone(), timings, gates));
        let (hand_ins, handed_in) = mpsc::unbounded_channel();
        let (mut resigns, mut orders, mut candidates) = (Vec::new(), Vec::new(), JoinSet::new());
        for (shard, keeper) in board.group.shards.all().zip(keepers) {
            let (resign, resigned) = oneshot::channel();
            let (order, ordered) = mpsc::channel(1);
            let told = Told::new(Some(shard), events.clone(), metrics.clone());
            let is_common: IsCommon = is_common.clone();
            let seat = Seat {
                board: board.clone(),
                hand_ins: hand_ins.clone(),
                is_common,
                follows: false,
                gives_up: false,
            };
            let candidate = Candidate::new(identity.clone(), timings, keeper, orphans, told);
            let candidate = Candidate { seat: Some(seat), ..candidate };
            let group = &board.group;
            let client = group.lease(group.shard_name(shard), group.events.clone());
            let lease = ShardLease::new(client, shard, board.clone());
            candidates.spawn(here(candidate.run(lease, resigned, Some(ordered))));
            resigns.push(resign);
            orders.push(order);
        }
        let looker = Looker::new(board.clone(), orders, events, metrics);
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(here(looker.run(stopped)));
        let (board, looker, hand_ins) = (BoardHandle(board), task, handed_in);
        Self { board, resigns, candidates, stop, looker, hand_ins }
    }

    /// A shard that this instance gives up: its gate is closed. Cancel-safe.
    pub async fn next_hand_in(&mut self) -> HandIn {
        match self.hand_ins.recv().await {
            Some(hand_in) => hand_in,
            None => std::future::pending().await,
        }
    }

    /// Closes the gates and releases all Leases, so that other instances can lead at once. All
    /// leader-only writes must have ended. Where they have not, drop this instead.
    pub async fn release(mut self, within: Duration) {
        self.board.0.stop();
        for resign in self.resigns {
            // The receiver is gone only if the task has ended already.
            let _ = resign.send(());
        }
        let released = async {
            while self.candidates.join_next().await.is_some() {}
            let _ = self.stop.send(());
            while self.looker.join_next().await.is_some() {}
        };
        if timeout(within, released).await.is_err() {
            warn!("could not release all Leases in time; they will expire");
        }
    }
}

/// Looks at all Leases, over and over.
struct Looker {
    board: Arc<Board>,
    /// This instance's own Lease.
    member: LeaseClient,
    member_version: Option<String>,
    announced_at: Option<u64>,
    renew_times: RenewTimes,
    claim: Claim,
    /// By shard: orders to give it up.
    orders: Vec<mpsc::Sender<()>>,
    events: mpsc::UnboundedSender<EventKind>,
    metrics: Arc<Metrics>,
    answered_at: u64,
    is_lost: bool,
    /// Why the last look failed, as last logged.
    failure: Option<Arc<str>>,
    /// Shards of which it was said that nobody holds them.
    warned_of: ShardSet,
    forgot_at: u64,
}

impl Looker {
    fn new(
        board: Arc<Board>,
        orders: Vec<mpsc::Sender<()>>,
        events: mpsc::UnboundedSender<EventKind>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let group = &board.group;
        Self {
            member: group.lease(group.member_name(&board.identity), None),
            member_version: None,
            announced_at: None,
            renew_times: RenewTimes::default(),
            claim: Claim::new(group),
            orders,
            events,
            metrics,
            answered_at: board.now(),
            is_lost: false,
            failure: None,
            warned_of: ShardSet::default(),
            forgot_at: board.now(),
            board,
        }
    }

    async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                () = self.look_and_pause() => {}
            }
        }
        // In this order, so that of several that stop at once the last one finds itself alone.
        self.leave().await;
        if let Ok(shown) = self.board.group.list(self.board.now()).await {
            self.board.see(shown);
            if self.board.is_alone() {
                self.claim.release(&self.board).await;
            }
        }
    }

    async fn look_and_pause(&mut self) {
        let began = self.board.now();
        // An instance leads by what a look shows, so nothing delays the next one after a failure.
        if self.failure.is_none() {
            self.announce().await;
        }
        self.look().await;
        self.forget_member().await;
        let now = self.board.now();
        let pause = self.board.timings.next_attempt(began, now).saturating_sub(now);
        // Up to a fifth shorter, so that instances that failed together do not retry together.
        let shorter = if self.failure.is_some() { random() % (pause / 5 + 1) } else { 0 };
        sleep(Duration::from_millis(pause - shorter)).await;
    }

    async fn look(&mut self) {
        let (number, asked_at) = (self.board.begin_look(), self.board.now());
        let listed = self.board.group.list(self.board.now()).await;
        let failure = match listed {
            Ok(shown) => {
                self.board.see(shown);
                // The others must know of an instance that holds the group's Lease with them.
                if self.announced_at.is_some() {
                    self.claim.look_after(&self.board, asked_at).await;
                }
                None
            }
            Err(why) => Some(Arc::from(why)),
        };
        self.board.end_look(number, failure.clone());
        self.say_whether_it_answers(failure);
        self.say_what_is_unheld();
        if let Some(shard) = self.board.give_up()
            && let Some(order) = self.orders.get(usize::from(shard.0))
        {
            info!(shard = shard.0, "another instance has fewer shards: giving one up");
            // One is enough.
            let _ = order.try_send(());
        }
    }

    fn say_whether_it_answers(&mut self, failure: Option<Arc<str>>) {
        let now = self.board.now();
        match (&failure, &self.failure) {
            (Some(error), None) => warn!(%error, "cannot read the Leases; retrying"),
            (None, Some(_)) => info!("the Leases can be read again"),
            _ => {}
        }
        if failure.is_none() {
            self.answered_at = now;
        }
        self.failure = failure;
        let is_lost = now > self.answered_at + self.board.timings.lease_ms;
        if std::mem::replace(&mut self.is_lost, is_lost) != is_lost {
            let kind = if is_lost { EventKind::LeaseApiLost } else { EventKind::LeaseApiReachable };
            drop(self.events.send(kind));
        }
    }

    /// Nobody mirrors for upstreams of a shard that nobody holds.
    fn say_what_is_unheld(&mut self) {
        let (now, instant) = (self.board.now(), Instant::now());
        let Timings { lease_ms, retry_ms, .. } = self.board.timings;
        let mut unheld = ShardSet::default();
        for (shard, since) in self.board.unheld() {
            let free_ms = now.saturating_sub(since);
            self.metrics.set_shard_unheld(
                shard,
                Some(instant.checked_sub(Duration::from_millis(free_ms)).unwrap_or(instant)),
            );
            unheld.insert(shard);
            if free_ms > lease_ms + retry_ms && self.warned_of.insert(shard) {
                let seconds = free_ms / 1_000;
                warn!(
                    shard = shard.0,
                    seconds, "nobody holds a shard: its upstreams are not mirrored"
                );
            }
        }
        for shard in self.board.group.shards.all().filter(|shard| !unheld.contains(*shard)) {
            self.metrics.set_shard_unheld(shard, None);
            if self.warned_of.remove(shard) {
                info!(shard = shard.0, "the shard is held again");
            }
        }
    }

    /// Renews this instance's own Lease, if it is due.
    async fn announce(&mut self) {
        let (now, lease_ms) = (self.board.now(), self.board.timings.lease_ms);
        if self.announced_at.is_some_and(|at| now < at + lease_ms / 3) {
            return;
        }
        let record = LeaseRecord {
            holder: self.board.identity.clone(),
            lease_ms,
            transitions: 0,
            renew_time: self.renew_times.next_time(),
        };
        let request = match &self.member_version {
            Some(version) => LeaseRequest::Update(record, version.clone()),
            None => LeaseRequest::Create(record),
        };
        match self.member.send(&request).await {
            (LeaseResponse::Current(_, version), _) => {
                (self.member_version, self.announced_at) = (Some(version), Some(now));
            }
            (LeaseResponse::NotFound, _) => self.member_version = None,
            (LeaseResponse::Conflict, _) => {
                if let (LeaseResponse::Current(_, version), _) =
                    self.member.send(&LeaseRequest::Get).await
                {
                    self.member_version = Some(version);
                }
            }
            (LeaseResponse::Failed, why) => {
                let error = why.map(tracing::field::display);
                debug!(error, "cannot announce this instance; retrying");
            }
        }
    }

    /// Deletes this instance's own Lease: the others need not wait for it to expire.
    async fn leave(&mut self) {
        let group = &self.board.group;
        if let Some(version) = self.member_version.take() {
            group.delete(&group.member_name(&self.board.identity), &version).await;
        }
    }

    /// Deletes the Lease of an instance that went away without a word, if this one comes first.
    async fn forget_member(&mut self) {
        let now = self.board.now();
        if !self.board.is_first() || now < self.forgot_at + FORGET_EVERY_MS {
            return;
        }
        if let Some(ShownLease { object, version, .. }) =
            self.board.forgotten_member(FORGET_MEMBER_MS)
            && let Some(name) = object["metadata"]["name"].as_str()
        {
            self.forgot_at = now;
            debug!(
                lease = name,
                "deleting the Lease of an instance that has been gone for an hour"
            );
            self.board.group.delete(name, &version).await;
        }
    }
}
