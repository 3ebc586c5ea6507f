//! One watch of one kind in one cluster, for as long as the process runs: it lists page by page,
//! watches from there, resumes a broken watch at the last resourceVersion, and relists when that is
//! too old. `State` says what it does, `WatchTask::next` what follows, and `WatchTask::after` what
//! follows the end of a list or a watch.
//!
//! kube-runtime's `watcher`, which `discovery/` uses, collects a whole page of a list before it hands
//! out the first object: one of 200 MiB took 398 MiB, and takes 8 here. To it a watch that broke, one
//! that ended and one that is silent look alike, but the machine deletes only on proof that a view is
//! current. And it limits no line, and heeds no `Retry-After`. `Client::request_events`, one level
//! below, ends a broken watch like a complete one. So this module uses `Client::send`.
//!
//! ```text
//!            list_started, listed …, list_finished        applied, deleted …
//!   ──► list ───────────────────────────────────► watch ◄───────────────────┐
//!        ▲ │ fails: watch_lost, pause              │ │ ends, or is silent ──┘ same resourceVersion
//!        │ └──┐                                    │ │ breaks: watch_lost, pause, watch_resumed
//!        └────┴── 410; another type; no name ──────┘ └──────────────────────┘
//! ```

mod end;
mod follow;
mod list;
mod log;
pub mod page;
pub(crate) mod pauses;
mod shared;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument, error_span};

use crate::client::ClusterClient;
use crate::client::pace::{Host, Order, Turn, in_turn};
use crate::core::contract::cause::Cause;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Kind};
use crate::metrics::{Metrics, WatchMetrics};
use end::WatchEnd;
use list::{History, Pages};
use pauses::Pauses;
pub use shared::{MembershipId, WatchConstants, WatchMessage, WatchShared};

/// What a watch does.
#[derive(Debug)]
enum State {
    /// Waits for its turn at the API server, where what is next needs one.
    Waiting {
        next: Attempt,
        turn: Option<Turn>,
    },
    Listing {
        pages: Pages,
        turn: Option<Turn>,
    },
    Watching {
        from: String,
        answer_within: Duration,
        turn: Option<Turn>,
    },
    /// Pauses after a failure: at most until `until`, and not longer than until `host` answers anybody or
    /// there are other credentials. The turn goes unused as long.
    Backoff {
        until: Instant,
        host: Option<Arc<Host>>,
        next: Attempt,
        turn: Option<Turn>,
    },
    /// Another address may be another API server: only a list shows what it holds.
    Moved,
}

/// What comes once it may.
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
    membership: MembershipId,
    shared: Arc<WatchShared>,
    metrics: Arc<WatchMetrics>,
    /// The API server; `None` until it is known.
    host: Option<Arc<Host>>,
    /// Changes when the kubeconfig names another address.
    moves: watch::Receiver<()>,
    history: History,
    pauses: Pauses,
    /// Since when the API server says that it begins to serve this.
    initializing_since: Option<Instant>,
    /// While the watch is lost: why, as the machine last heard.
    lost: Option<Cause>,
    /// When to list again, because an object came whose name can't be read.
    list_at: Option<Instant>,
}

impl WatchTask {
    pub fn new(
        cluster: Arc<ClusterClient>,
        kind: Kind,
        membership: MembershipId,
        shared: Arc<WatchShared>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            metrics: metrics.watch(cluster.name(), kind),
            moves: cluster.moves(),
            cluster,
            kind,
            membership,
            shared,
            host: None,
            history: History::default(),
            initializing_since: None,
            pauses: Pauses::new(),
            lost: None,
            list_at: None,
        }
    }

    /// Runs until the bus is closed.
    pub fn run(mut self) -> impl Future<Output = ()> + Send {
        let span = error_span!("watch", cluster = %self.cluster.name(), kind = %self.kind);
        let run = async move {
            let mut state = State::from(Attempt::List(Pages::Limited));
            while let Ok(next) = self.next(state).await {
                state = next;
            }
        };
        run.instrument(span)
    }

    /// What is seldom run is in a box: the task is as large as its largest part.
    async fn next(&mut self, state: State) -> Result<State, WatchEnd> {
        let has_moved = self.moves.has_changed().unwrap_or(false);
        Ok(match if has_moved { State::Moved } else { state } {
            State::Waiting { next, turn } => {
                let turn = match turn {
                    None if self.needs_turn(&next) => Box::pin(self.turn()).await,
                    turn => turn,
                };
                match next {
                    Attempt::List(pages) => State::Listing { pages, turn },
                    Attempt::Watch { from, answer_within } => {
                        State::Watching { from, answer_within, turn }
                    }
                }
            }
            State::Listing { pages, turn } => {
                match in_turn(turn, Box::pin(self.list(pages))).await {
                    (Ok(from), _) => {
                        self.succeeded();
                        Attempt::Watch { from, answer_within: self.timeout() }.into()
                    }
                    (Err(end), turn) => Box::pin(self.after(end, None, turn)).await?,
                }
            }
            State::Watching { mut from, answer_within, turn } => {
                let opened = Box::pin(self.open(&from, answer_within));
                let (end, turn) = match in_turn(turn, opened).await {
                    (Ok(watch), turn) => {
                        drop(turn);
                        self.succeeded();
                        let Err(end) = self.follow(watch, &mut from).await;
                        self.history.reached(&from);
                        (end, None)
                    }
                    (Err(end), turn) => (end, turn),
                };
                Box::pin(self.after(end, Some(from), turn)).await?
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
            State::Moved => {
                self.moves.mark_unchanged();
                self.host = None;
                Attempt::List(Pages::Limited).into()
            }
        })
    }

    /// Whether it must wait for the right to ask: for its first list, and where so many watches were cut
    /// at the same moment that one after another is opened again.
    fn needs_turn(&self, next: &Attempt) -> bool {
        match next {
            Attempt::List(_) => self.history.last == 0 || self.shared.is_crowd(),
            Attempt::Watch { .. } => self.history.is_unsure && self.shared.is_crowd(),
        }
    }

    async fn turn(&mut self) -> Option<Turn> {
        if self.host.is_none() {
            // Without a client, the request tells why.
            let address = self.cluster.host().await.ok()?;
            self.host = Some(self.shared.pace.host(&address));
        }
        let order = if self.lost.is_some() { Order::Retry } else { Order::First };
        Some(self.host.as_ref()?.turn(order).await)
    }

    /// A list is complete, or a watch is open.
    fn succeeded(&mut self) {
        self.initializing_since = None;
        if let Some(host) = &self.host {
            host.answered();
        }
    }

    /// Sends an event, which is made once there is room for it.
    async fn send(
        &self,
        event: impl FnOnce(ClusterName, Kind) -> EventKind,
    ) -> Result<(), WatchEnd> {
        let permit = self.shared.bus.reserve().await.map_err(|_| WatchEnd::BusClosed)?;
        let kind = event(self.cluster.name().clone(), self.kind);
        permit.send(WatchMessage { membership: self.membership, kind });
        Ok(())
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.shared.config.timeout_ms)
    }
}

/// An API server's resourceVersions are growing numbers; any other text counts as 0.
fn numeric(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}
