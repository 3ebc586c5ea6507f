//! One watch of one kind in one cluster, for as long as the process runs: it lists page by page,
//! watches from there, resumes a broken watch at the last resourceVersion, and relists when that is too
//! old. `State` is its state machine, `WatchTask::next` takes each step, and `WatchTask::after` handles
//! the end of a list or a watch.
//!
//! kube-runtime's `watcher`, which `discovery/` uses, collects a whole page of a list before it returns
//! the first object: a page of 200 MiB took 398 MiB, and takes 8 here. It does not distinguish a broken
//! watch from an ended or a silent one, but the machine deletes only on proof that a view is current.
//! It also limits no line, and ignores `Retry-After`. `Client::request_events`, one level below, ends a
//! broken watch like a complete one. So this module uses `Client::send`.
//!
//! ```text
//!            list_started, listed …, list_finished        applied, deleted …
//!   ──► list ───────────────────────────────────► watch ◄───────────────────┐
//!        ▲ │ fails: watch_lost, pause              │ │ ends, or is silent ──┘ same resourceVersion
//!        │ └──┐                                    │ │ breaks: watch_lost, pause, watch_resumed
//!        └────┴── 410; another type; no name ──────┘ └──────────────────────┘
//! ```
//!
//! `watch_lost` also comes when a watch was not opened again for five seconds, and `watch_resumed` after
//! the changes that were missed.

mod end;
mod follow;
mod list;
mod log;
pub mod page;
pub(crate) mod pauses;
mod shared;
pub mod wire;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument, error_span};

use crate::client::pace::{Host, Order, Turn, in_turn};
use crate::client::{CallError, ClusterClient};
use crate::core::contract::cause::Cause;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Kind};
use crate::metrics::{Metrics, WatchMetrics};
use end::WatchEnd;
use list::History;
use page::Pages;
use pauses::Pauses;
pub use shared::{WatchMessage, WatchShared};

/// The longest time for which the machine may count a watch as live while it is being opened again.
const UNKNOWN_AFTER: Duration = Duration::from_secs(5);

/// The state of a watch.
#[derive(Debug)]
enum State {
    /// Waits for its turn at the API server, if the next request needs one.
    Waiting { next: Attempt, turn: Option<Turn> },
    /// Lists or watches.
    Attempting { attempt: Attempt, turn: Option<Turn> },
    /// Pauses after a failure: until `until` at most, and ends early when `host` answers any watch or
    /// the credentials change. What is left of a turn goes on meanwhile.
    Backoff { until: Instant, host: Option<Arc<Host>>, next: Attempt, turn: Option<Turn> },
}

/// The next request.
#[derive(Debug)]
enum Attempt {
    List(Pages),
    Watch { from: String, answer_within: Duration },
}

impl From<Attempt> for State {
    fn from(next: Attempt) -> Self {
        State::Waiting { next, turn: None }
    }
}

#[derive(Debug)]
pub struct WatchTask {
    cluster: Arc<ClusterClient>,
    kind: Kind,
    shared: Arc<WatchShared>,
    metrics: Arc<WatchMetrics>,
    /// The API server; `None` until it is known.
    host: Option<Arc<Host>>,
    /// Changes when the kubeconfig names another address.
    moves: watch::Receiver<()>,
    history: History,
    pauses: Pauses,
    /// When the API server first answered that it is initializing this resource.
    initializing_since: Option<Instant>,
    /// While the watch is lost: the cause that was last reported to the machine.
    lost: Option<Cause>,
    /// When to report that nothing is watched, if the machine counts the watch as live.
    unknown_at: Option<Instant>,
    /// When to list again, because an object without a readable name arrived.
    list_at: Option<Instant>,
}

impl WatchTask {
    pub fn new(
        cluster: Arc<ClusterClient>,
        kind: Kind,
        shared: Arc<WatchShared>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            metrics: metrics.watch(cluster.name(), kind),
            moves: cluster.moves(),
            cluster,
            kind,
            shared,
            host: None,
            history: History::default(),
            initializing_since: None,
            pauses: Pauses::new(),
            lost: None,
            unknown_at: None,
            list_at: None,
        }
    }

    /// Runs until the bus is closed.
    pub fn run(mut self) -> impl Future<Output = ()> + Send {
        let span = error_span!("watch", cluster = %self.cluster.name(), kind = %self.kind);
        let run = async move {
            let mut state = State::from(Attempt::List(Pages::Limited));
            while let Ok(next) = self.next_unless_panicking(state).await {
                state = next;
            }
        };
        run.instrument(span)
    }

    /// After a panic it lists again: without its watch the machine would believe in a state for ever.
    async fn next_unless_panicking(&mut self, state: State) -> Result<State, WatchEnd> {
        match AssertUnwindSafe(self.next(state)).catch_unwind().await {
            Ok(next) => next,
            Err(panic) => {
                let end = WatchEnd::Failed(CallError::defect(&*panic));
                Box::pin(self.after(end, Attempt::List(Pages::Limited), None)).await
            }
        }
    }

    /// Rare branches are boxed: a task is as large as its largest branch.
    async fn next(&mut self, state: State) -> Result<State, WatchEnd> {
        if self.moves.has_changed().unwrap_or(false) {
            return Ok(self.moved());
        }

        Ok(match state {
            State::Waiting { next, turn } => {
                let turn = match turn {
                    None if self.needs_turn(&next) => match Box::pin(self.turn()).await {
                        Ok(turn) => turn,
                        Err(end) => return Box::pin(self.after(end, next, None)).await,
                    },
                    turn => turn,
                };
                State::Attempting { attempt: next, turn }
            }
            State::Attempting { attempt: Attempt::List(pages), turn } => {
                match in_turn(turn, Box::pin(self.list(pages))).await {
                    (Ok(from), _) => {
                        self.succeeded();
                        self.unknown_at = Some(Instant::now() + UNKNOWN_AFTER);
                        Attempt::Watch { from, answer_within: self.timeout() }.into()
                    }
                    (Err(end), turn) => {
                        let again = Attempt::List(Pages::Limited);
                        Box::pin(self.after(end, again, turn)).await?
                    }
                }
            }
            State::Attempting { attempt: Attempt::Watch { mut from, answer_within }, turn } => {
                let opened = Box::pin(self.open(&from, answer_within));
                let (end, turn) = match in_turn(turn, opened).await {
                    (Ok(watch), turn) => {
                        drop(turn);
                        self.succeeded();
                        let Err(end) = self.follow(watch, &mut from).await;
                        self.unknown_at = Some(Instant::now() + UNKNOWN_AFTER);
                        self.history.reached(&from);
                        (end, None)
                    }
                    (Err(end), turn) => (end, turn),
                };
                let again = Attempt::Watch { from, answer_within: self.timeout() };
                Box::pin(self.after(end, again, turn)).await?
            }
            State::Backoff { until, host, next, turn } => {
                let pause = async {
                    match host {
                        Some(host) => drop(timeout_at(until, host.answers()).await),
                        None => sleep_until(until).await,
                    }
                };
                let cluster = self.cluster.clone();
                let pause = async move {
                    tokio::select! {
                        () = pause => {}
                        () = cluster.renewed() => {}
                    }
                };
                let ((), turn) = in_turn(turn, Box::pin(pause)).await;
                self.pauses.ended();
                State::Waiting { next, turn }
            }
        })
    }

    /// The state after a move: another address may be another API server, and only a list shows its
    /// objects.
    fn moved(&mut self) -> State {
        self.moves.mark_unchanged();
        self.host = None;
        Attempt::List(Pages::Limited).into()
    }

    /// Whether it must wait for a turn: for its first list, and when so many watches were cut at once
    /// that they must be reopened one after another.
    fn needs_turn(&self, next: &Attempt) -> bool {
        match next {
            Attempt::List(_) => self.history.last == 0 || self.shared.is_crowd(),
            Attempt::Watch { .. } => self.history.is_unsure && self.shared.is_crowd(),
        }
    }

    async fn turn(&mut self) -> Result<Option<Turn>, WatchEnd> {
        if self.host.is_none() {
            let address = self.cluster.host().await.ok();
            self.host = address.map(|address| self.shared.pace.host(&address));
        }
        // Without a client, the request returns the error.
        let Some(host) = self.host.clone() else { return Ok(None) };
        let order = if self.lost.is_some() { Order::Retry } else { Order::Fresh };
        // Others of the same API server go first, so this is no sign that it does not answer.
        let turn = tokio::select! {
            biased;
            _ = self.moves.changed() => return Err(WatchEnd::Moved),
            turn = host.turn(order) => turn,
        };
        self.unknown_at = self.unknown_at.map(|at| at.max(Instant::now() + UNKNOWN_AFTER));
        Ok(Some(turn))
    }

    /// Waits for an answer. When nothing has been watched for too long, reports that, and waits on: an
    /// API server may be slow.
    async fn wait_for<T>(&mut self, answer: impl Future<Output = T>) -> Result<T, WatchEnd> {
        let mut answer = std::pin::pin!(answer);
        loop {
            let unknown_at = self.unknown_at.filter(|_| self.lost.is_none());
            let unknown = OptionFuture::from(unknown_at.map(sleep_until));
            tokio::select! {
                biased;
                _ = self.moves.changed() => return Err(WatchEnd::Moved),
                answer = &mut answer => return Ok(answer),
                Some(()) = unknown => self.report_lost(&CallError::TimedOut(UNKNOWN_AFTER)).await?,
            }
        }
    }

    /// Handles a complete list or an open watch.
    fn succeeded(&mut self) {
        self.initializing_since = None;
        if let Some(host) = &self.host {
            host.answered();
        }
    }

    /// Reserves room on the bus, then builds and sends the event.
    async fn send(
        &self,
        event: impl FnOnce(ClusterName, Kind) -> EventKind,
    ) -> Result<(), WatchEnd> {
        let permit = self.shared.bus.reserve().await.map_err(|_| WatchEnd::BusClosed)?;
        let kind = event(self.cluster.name().clone(), self.kind);
        permit.send(WatchMessage { cluster: self.cluster.clone(), kind });
        Ok(())
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.shared.config.timeout_ms)
    }
}

/// The resourceVersion as a growing number; any other text counts as 0.
fn numeric(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;
