//! Limits the parallel lists of one API server, and the watches reopened at once after many were cut.
//!
//! Each list or watch takes a *turn*. A server has a fixed number of turns (`fleet.listsInParallel`),
//! and gives them first, in the order of requests, to watches that did not fail before. A turn ends
//! after a second at the latest, so clusters that hang delay the others a little but never block them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// A list that takes longer continues without its turn: a healthy server answers in a tenth of it.
pub(crate) const TURN_MAX: Duration = Duration::from_secs(1);

/// A server that can't be reached counts as down after this long without an answer.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// The servers of a run.
#[derive(Debug)]
pub(crate) struct Pace {
    parallel: usize,
    hosts: Mutex<HashMap<Arc<str>, Weak<Host>>>,
}

/// One server, as scheme, host and port.
#[derive(Debug)]
pub(crate) struct Host {
    turns: Mutex<TurnState>,
    /// Notified when the server answers again.
    answers: Notify,
}

#[derive(Debug)]
struct TurnState {
    free: usize,
    waiting: VecDeque<oneshot::Sender<()>>,
    /// Watches that failed before; they follow the others.
    retrying: VecDeque<oneshot::Sender<()>>,
    answered_at: Instant,
    is_down: bool,
}

/// The priority of a watch that waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    First,
    /// It failed before.
    Retry,
}

/// The permission to request a list or a watch now. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn {
    host: Arc<Host>,
    until: Instant,
}

impl Pace {
    pub(crate) fn new(parallel: usize) -> Self {
        Self { parallel: parallel.max(1), hosts: Mutex::default() }
    }

    pub(crate) fn parallel(&self) -> usize {
        self.parallel
    }

    pub(crate) fn host(&self, address: &Arc<str>) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(address).and_then(Weak::upgrade) {
            return host;
        }
        hosts.retain(|_, host| host.strong_count() > 0);
        let turns = TurnState {
            free: self.parallel,
            waiting: VecDeque::new(),
            retrying: VecDeque::new(),
            answered_at: Instant::now(),
            is_down: false,
        };
        let host = Arc::new(Host { turns: Mutex::new(turns), answers: Notify::new() });
        hosts.insert(address.clone(), Arc::downgrade(&host));
        host
    }
}

impl Host {
    fn turns(&self) -> MutexGuard<'_, TurnState> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Cancel-safe.
    pub(crate) async fn turn(self: &Arc<Self>, order: Order) -> Turn {
        let waiting = {
            let mut turns = self.turns();
            if turns.free > 0 {
                turns.free -= 1;
                None
            } else {
                let (give, given) = oneshot::channel();
                match order {
                    Order::First => turns.waiting.push_back(give),
                    Order::Retry => turns.retrying.push_back(give),
                }
                Some(Waiting { given, host: self })
            }
        };
        if let Some(mut waiting) = waiting {
            // The sender is dropped only with the host, which this borrows.
            let _ = (&mut waiting.given).await;
        }
        Turn { host: self.clone(), until: Instant::now() + TURN_MAX }
    }

    fn give_back(&self) {
        let mut turns = self.turns();
        while let Some(next) = turns.waiting.pop_front().or_else(|| turns.retrying.pop_front()) {
            if next.send(()).is_ok() {
                return;
            }
        }
        turns.free += 1;
    }

    /// Records an answer of the server. If it was down, ends the pauses because of that.
    pub(crate) fn answered(&self) {
        let mut turns = self.turns();
        turns.answered_at = Instant::now();
        if std::mem::take(&mut turns.is_down) {
            self.answers.notify_waiters();
        }
    }

    /// Records that the server could not be reached. Returns whether it is down, rather than one of its
    /// clusters.
    pub(crate) fn unreachable(&self) -> bool {
        let mut turns = self.turns();
        turns.is_down |= turns.answered_at.elapsed() > DOWN_AFTER;
        turns.is_down
    }

    /// Waits until the server answers again after it was down.
    pub(crate) async fn answers(&self) {
        self.answers.notified().await;
    }
}

/// Waits for a turn; a turn granted after the wait is cancelled goes to the next.
struct Waiting<'a> {
    given: oneshot::Receiver<()>,
    host: &'a Host,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.given.close();
        // The turn was already taken if the wait is over.
        if self.given.try_recv().is_ok() {
            self.host.give_back();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.host.give_back();
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
        let turn = host.turn(Order::First).await;
        let mut retry = Box::pin(host.turn(Order::Retry));
        let mut gave_up = Box::pin(host.turn(Order::First));
        let mut first = Box::pin(host.turn(Order::First));
        for waiting in [&mut retry, &mut gave_up, &mut first] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(turn);
        // It is granted the turn, and never takes it.
        drop(gave_up);
        let turn = first.now_or_never().expect("the next of those who did not fail");
        assert!((&mut retry).now_or_never().is_none());
        drop(turn);
        assert!(retry.now_or_never().is_some());
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

    #[test]
    fn servers_without_clusters_are_forgotten() {
        let pace = Pace::new(1);
        for number in 0..1_000 {
            pace.host(&format!("{number}").into());
        }
        assert!(pace.hosts.lock().unwrap().len() < 2);
    }
}
