//! The election of one shard among several: its Lease is read with all others by one LIST, it is taken
//! only if that is this instance's share, and given up when another instance has too few.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::info;

use super::board::Board;
use super::candidate::Candidate;
use super::election::{LeaseRequest, LeaseResponse};
use super::handover::{Follows, Unseen};
use super::lease::{LeaseApi, LeaseClient};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::data::ids::ClusterName;
use crate::core::data::shard::Shard;

/// Whether every instance follows a cluster, not only the one that holds its shard.
pub(super) type IsCommon = Arc<dyn Fn(&ClusterName) -> bool + Send + Sync>;

/// A shard that this instance gives up: its gate is closed.
#[derive(Debug)]
pub struct HandIn {
    pub shard: Shard,
    /// To be used once no write of the shard's is under way.
    pub ended: oneshot::Sender<()>,
}

/// What a candidate has where its Lease is a shard's.
pub(super) struct Seat {
    pub(super) board: Arc<Board>,
    pub(super) hand_ins: mpsc::UnboundedSender<HandIn>,
    pub(super) is_common: IsCommon,
    /// As last published.
    pub(super) follows: bool,
    /// It is being given up.
    pub(super) gives_up: bool,
}

impl Candidate {
    /// Until when the gate may be open that the shard's Lease leaves open `until` then: a shard is led only
    /// while the fleet is the group's, too.
    pub(super) fn while_claimed(&self, now: u64, until: u64) -> Option<u64> {
        let Some(seat) = &self.seat else { return Some(until) };
        Some(until.min(now + seat.board.claimed_for_ms()?))
    }

    /// Gives the shard up: no write begins any more, those under way end, and the Lease is released. Then
    /// it takes part again.
    pub(super) async fn give_up(&mut self, api: &mut impl LeaseApi) {
        let Some(seat) = &mut self.seat else { return };
        seat.gives_up = true;
        let (ended, has_ended) = oneshot::channel();
        let hand_in = HandIn { shard: self.told.shard(), ended };
        let hand_ins = seat.hand_ins.clone();
        self.resign(api);
        // Without a receiver the run has ended.
        drop(hand_ins.send(hand_in));
        let ended = async {
            if has_ended.await.is_err() {
                std::future::pending().await
            }
        };
        // No write lasts longer after the gate was closed, whoever forgets to tell.
        let _ = timeout(Duration::from_millis(self.timings.write_ms), ended).await;
        self.release(api).await;
        info!(
            shard = self.told.number(),
            released = !self.election.owns_lease(),
            "gave a shard up"
        );
        self.election.rejoin();
        // If it was not released, the Lease names this instance until another one has it.
        self.has_twin = true;
        api.owns(false);
        self.publish_following();
        if let Some(seat) = &mut self.seat {
            seat.gives_up = false;
        }
    }
}

/// The Lease of a shard. Who does not hold it reads it from the board.
pub(super) struct ShardLease {
    client: LeaseClient,
    shard: Shard,
    board: Arc<Board>,
    /// This instance wrote the Lease as it was last seen.
    is_owned: bool,
}

impl ShardLease {
    pub(super) fn new(client: LeaseClient, shard: Shard, board: Arc<Board>) -> Self {
        Self { client, shard, board, is_owned: false }
    }

    async fn read(&mut self) -> (LeaseResponse, Option<RequestFailure>) {
        // An owner that is not sure must know soon; so must whoever may take it now.
        if self.is_owned || self.board.is_overdue(self.shard) {
            return self.client.send(&LeaseRequest::Get).await;
        }
        match self.board.next_look().await {
            Err(why) => {
                (LeaseResponse::Failed, Some(RequestFailure::new(ErrorCause::Other, &*why)))
            }
            Ok(()) => match self.board.shown(self.shard) {
                None => (LeaseResponse::NotFound, None),
                Some(shown) => {
                    let (record, version) = (shown.record.clone(), shown.version.clone());
                    self.client.show(shown.object);
                    (LeaseResponse::Current(record, version), None)
                }
            },
        }
    }
}

impl LeaseApi for ShardLease {
    async fn send(&mut self, request: &LeaseRequest) -> (LeaseResponse, Option<RequestFailure>) {
        let holds_on = match request {
            LeaseRequest::Get => return self.read().await,
            LeaseRequest::Create(record) | LeaseRequest::Update(record, _) => {
                !record.holder.is_empty()
            }
        };
        if holds_on && self.board.claimed_for_ms().is_none() {
            let why = "the Lease without a number does not name this number of shards";
            return (LeaseResponse::Failed, Some(RequestFailure::new(ErrorCause::Other, why)));
        }
        self.client.send(request).await
    }

    fn may_take(&mut self) -> bool {
        self.board.may_take(self.shard)
    }

    fn owns(&mut self, is_owned: bool) {
        self.is_owned = is_owned;
        self.board.owns(self.shard, is_owned);
    }

    fn post_event(&self, message: String) {
        self.client.post_event(message);
    }

    fn set_remarks(&mut self, unseen: &Unseen, follows: &Follows) {
        self.client.set_remarks(unseen, follows);
    }

    fn holder_unseen(&self) -> Option<Unseen> {
        self.client.holder_unseen()
    }

    fn holder_follows(&self) -> Option<Follows> {
        self.client.holder_follows()
    }

    async fn ask(&mut self, identity: &str) {
        self.client.ask(identity).await;
    }

    fn take_question(&mut self) -> Option<String> {
        self.client.take_question()
    }
}
