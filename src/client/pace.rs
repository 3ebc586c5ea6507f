//! Limits the parallel lists of one API server, and the watches reopened at once after many were cut.
//!
//! Each list or watch takes a *turn*. A server has a fixed number of turns (`lists_in_parallel`).
//! Turns go in the order of requests. Of the watches that failed before, only one at a time is in that
//! queue, so a thousand of them delay the others by one turn each time. A turn ends after a second at
//! the latest, so clusters that hang delay the others a little but never block them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::weak_map::WeakMap;

/// A list that takes longer continues without its turn: a healthy server answers in a tenth of it.
pub(crate) const TURN_MAX: Duration = Duration::from_secs(1);

/// A server that can't be reached counts as down after this long without an answer.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// The servers of a run.
#[derive(Debug)]
pub(crate) struct Pace {
    parallel: usize,
    hosts: WeakMap<Arc<str>, Host>,
}

/// One server, as scheme, host and port.
#[derive(Debug)]
pub(crate) struct Host {
    turns: Arc<Semaphore>,
    /// The place of the one watch that failed before and waits for a turn.
    retry: Semaphore,
    health: Mutex<Health>,
    /// Notified when the server answers again.
    answers: Notify,
}

#[derive(Debug)]
struct Health {
    answered_at: Instant,
    is_down: bool,
}

/// Whether a watch that waits for a turn failed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It did not fail: it queues at once.
    Fresh,
    /// It failed: it queues once no other one of these does.
    Retry,
}

/// The permission to request a list or a watch now. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    until: Instant,
}

impl Pace {
    pub(crate) fn new(parallel: usize) -> Self {
        Self { parallel: parallel.max(1), hosts: WeakMap::default() }
    }

    pub(crate) fn parallel(&self) -> usize {
        self.parallel
    }

    pub(crate) fn host(&self, address: &Arc<str>) -> Arc<Host> {
        self.hosts.get(address.clone(), || Host {
            turns: Arc::new(Semaphore::new(self.parallel)),
            retry: Semaphore::new(1),
            health: Mutex::new(Health { answered_at: Instant::now(), is_down: false }),
            answers: Notify::new(),
        })
    }
}

impl Host {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Cancel-safe.
    pub(crate) async fn turn(&self, order: Order) -> Turn {
        // Neither semaphore is ever closed.
        let _place = match order {
            Order::Fresh => None,
            Order::Retry => self.retry.acquire().await.ok(),
        };
        let permit = self.turns.clone().acquire_owned().await.ok();
        Turn { _permit: permit, until: Instant::now() + TURN_MAX }
    }

    /// Records an answer of the server. If it was down, ends the pauses because of that.
    pub(crate) fn answered(&self) {
        let mut health = self.health();
        health.answered_at = Instant::now();
        if std::mem::take(&mut health.is_down) {
            self.answers.notify_waiters();
        }
    }

    /// Records that the server could not be reached. Returns whether it is down, rather than one of its
    /// clusters.
    pub(crate) fn unreachable(&self) -> bool {
        let mut health = self.health();
        health.is_down |= health.answered_at.elapsed() > DOWN_AFTER;
        health.is_down
    }

    /// Waits until the server answers again after it was down.
    pub(crate) async fn answers(&self) {
        self.answers.notified().await;
    }
}

/// Runs `work`, and gives the turn back when its time is up. Returns the turn if time is left.
pub(crate) async fn in_turn<T>(
    turn: Option<Turn>,
    work: impl Future<Output = T>,
) -> (T, Option<Turn>) {
    let Some(turn) = turn else { return (work.await, None) };
    let mut work = std::pin::pin!(work);
    match timeout_at(turn.until, &mut work).await {
        Ok(done) => (done, Some(turn)),
        Err(_) => {
            drop(turn);
            (work.await, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_go_to_those_who_did_not_fail_and_to_nobody_who_gave_up() {
        let host = Pace::new(1).host(&"a".into());
        let turn = host.turn(Order::Fresh).await;
        let mut retry = Box::pin(host.turn(Order::Retry));
        let mut later_retry = Box::pin(host.turn(Order::Retry));
        let mut gave_up = Box::pin(host.turn(Order::Fresh));
        let mut first = Box::pin(host.turn(Order::Fresh));
        for waiting in [&mut retry, &mut later_retry, &mut gave_up, &mut first] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(turn);
        let turn = retry.now_or_never().expect("it asked before all others");
        assert!((&mut later_retry).now_or_never().is_none());
        drop(turn);
        // It is granted the turn, and never takes it.
        drop(gave_up);
        let turn = first.now_or_never().expect("the next of those who did not fail");
        assert!((&mut later_retry).now_or_never().is_none());
        drop(turn);
        assert!(later_retry.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_down_only_where_it_answers_nobody() {
        let host = Pace::new(1).host(&"a".into());
        assert!(!host.unreachable());
        tokio::time::advance(2 * DOWN_AFTER).await;
        assert!(host.unreachable());
        let mut answers = Box::pin(host.answers());
        assert!((&mut answers).now_or_never().is_none());
        host.answered();
        assert!(answers.now_or_never().is_some());
        assert!(!host.unreachable());
    }
}
