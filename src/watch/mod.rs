//! One watch of one kind in one cluster, for as long as the process runs: it lists page by page,
//! watches from there, resumes a broken watch at the last resourceVersion, and relists when that is
//! too old. [`State`] says what it does, and `WatchTask::next` what follows.
//!
//! kube-runtime's `watcher`, which follows what `discovery/` needs, is not used here. It collects a
//! whole page of a list before it hands out the first object; one of 200 MiB took 398 MiB, and takes 8
//! here. To it a watch that broke, one that ended and one that is silent are the same, but the machine
//! deletes only on proof that a view is current. And it has no limit for a line, and no `Retry-After`.
//! `Client::request_events`, one level below, copies each event into an owned type and ends a broken
//! watch like a complete one. So this module uses `Client::send`, with requests from
//! `kube::core::Request`.
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
mod pace;
pub mod page;
pub(crate) mod pauses;
mod request;
mod retry;
mod shared;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument, error_span, warn};

use crate::client::{CallError, ClusterClient};
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Kind};
use crate::metrics::{Metrics, WatchMetrics};
use end::{BusClosed, WatchEnd};
use list::History;
use log::WatchName;
use pace::{Host, Turn, in_turn};
use pauses::between;
use retry::{INITIALIZING_PAUSE, LastAttempt, Pauses};
pub use shared::{MembershipId, WatchConstants, WatchMessage, WatchShared};

/// Where a watch was silent, an API server that does not answer sooner than this is silent, too: what
/// it showed is unknown.
const SILENT_ANSWER_WITHIN: Duration = Duration::from_secs(5);

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
    /// Pauses after a failure, until `host` answers anybody at the latest. A turn goes unused as long.
    Backoff {
        until: Instant,
        host: Option<Arc<Host>>,
        next: Attempt,
        turn: Option<Turn>,
    },
    /// Another address may be another API server: only a list shows what it holds.
    Moved,
}

/// A request that may have to wait.
#[derive(Debug)]
enum Attempt {
    List(Pages),
    /// From a resourceVersion, with a limit for the time to the answer.
    Watch {
        from: String,
        answer_within: Duration,
    },
}

/// How a list asks for what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Limited,
    /// A later page of the last list had expired. Where that fails, too, everything may be too much:
    /// the next list is one of pages again.
    AllAtOnce,
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
    last_attempt: LastAttempt,
    pauses: Pauses,
    /// While the watch is lost: the error that was last logged.
    lost: Option<String>,
    /// When to list again, because an object came whose name can't be read.
    list_at: Option<Instant>,
    /// An object that can't be read was logged since the last list.
    unreadable_logged: bool,
}

impl WatchTask {
    pub fn new(
        cluster: Arc<ClusterClient>,
        kind: Kind,
        membership: MembershipId,
        shared: Arc<WatchShared>,
        metrics: &Metrics,
    ) -> Self {
        let metrics = metrics.watch(cluster.name(), kind);
        let moves = cluster.moves();
        Self {
            cluster,
            kind,
            membership,
            shared,
            metrics,
            host: None,
            moves,
            history: History::default(),
            last_attempt: LastAttempt::Succeeded,
            pauses: Pauses::new(),
            lost: None,
            list_at: None,
            unreadable_logged: false,
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

    async fn next(&mut self, state: State) -> Result<State, BusClosed> {
        let has_moved = self.moves.has_changed().unwrap_or(false);
        Ok(match if has_moved { State::Moved } else { state } {
            State::Waiting { next, turn } => {
                let turn = self.take_turn(&next, turn).await;
                match next {
                    Attempt::List(pages) => State::Listing { pages, turn },
                    Attempt::Watch { from, answer_within } => {
                        State::Watching { from, answer_within, turn }
                    }
                }
            }
            State::Listing { pages, turn } => {
                // In a box, because this is seldom run and the task is as large as its largest part.
                match in_turn(turn, Box::pin(self.list(pages))).await {
                    (Ok(from), _) => {
                        self.succeeded();
                        Attempt::Watch { from, answer_within: self.timeout() }.into()
                    }
                    (Err(end), turn) => self.after(end, None, turn).await?,
                }
            }
            State::Watching { mut from, answer_within, turn } => {
                let opened = Box::pin(self.open(&from, answer_within));
                let (end, turn) = match in_turn(turn, opened).await {
                    (Ok(watch), turn) => {
                        drop(turn);
                        self.succeeded();
                        let Err(end) = self.follow(watch, &mut from).await;
                        (end, None)
                    }
                    (Err(end), turn) => (end, turn),
                };
                self.history.reached(&from);
                self.after(end, Some(from), turn).await?
            }
            State::Backoff { until, host, next, turn } => {
                let pause = async {
                    match host {
                        Some(host) => drop(timeout_at(until, host.answers()).await),
                        None => sleep_until(until).await,
                    }
                };
                let ((), turn) = in_turn(turn, pause).await;
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

    /// What follows the end of a list, or of a watch that had come to `from`.
    async fn after(
        &mut self,
        end: WatchEnd,
        from: Option<String>,
        turn: Option<Turn>,
    ) -> Result<State, BusClosed> {
        let list = Attempt::List(match end {
            WatchEnd::PageExpired(_) => Pages::AllAtOnce,
            _ => Pages::Limited,
        });
        let was_watched = from.is_some();
        let answer_within = match end {
            WatchEnd::Silent => self.timeout().min(SILENT_ANSWER_WITHIN),
            _ => self.timeout(),
        };
        let again = match from {
            Some(from) => Attempt::Watch { from, answer_within },
            None => Attempt::List(Pages::Limited),
        };
        self.history.is_unsure |= matches!(end, WatchEnd::Early | WatchEnd::Silent);
        Ok(match end {
            WatchEnd::BusClosed => return Err(BusClosed),
            WatchEnd::Moved => State::Moved,
            WatchEnd::Complete | WatchEnd::Early | WatchEnd::Silent => again.into(),
            WatchEnd::Nameless => list.into(),
            WatchEnd::Expired(_) | WatchEnd::PageExpired(_) if self.pauses.was_healthy() => {
                self.pauses.ended();
                list.into()
            }
            WatchEnd::Expired(error) | WatchEnd::PageExpired(error) => {
                // Nothing follows the changes during the pause.
                if was_watched {
                    self.report_lost(&error).await?;
                }
                let until = Instant::now() + self.pauses.next(&self.shared.config);
                State::Backoff { until, host: None, next: list, turn: None }
            }
            WatchEnd::Failed(error) if self.is_initializing(&error) => {
                // In its turn: beginning to serve is what costs the API server most.
                let until = Instant::now() + between(INITIALIZING_PAUSE);
                State::Backoff { until, host: None, next: again, turn }
            }
            WatchEnd::Failed(error) => self.after_failure(&error, again, turn).await?,
            WatchEnd::OtherType(error) => self.after_failure(&error, list, turn).await?,
        })
    }

    async fn after_failure(
        &mut self,
        error: &CallError,
        next: Attempt,
        turn: Option<Turn>,
    ) -> Result<State, BusClosed> {
        self.report_lost(error).await?;
        // Waiting in vain for a response is a pause already.
        let pause = self.pauses.next(&self.shared.config).saturating_sub(error.waited());
        let now = Instant::now();
        Ok(match error.retry_after() {
            // The turn goes unused as long, so that the others heed it, too.
            Some(asked) => State::Backoff { until: now + pause.max(asked), host: None, next, turn },
            None => {
                let host = self.host_that_is_down(error);
                State::Backoff { until: now + pause, host, next, turn: None }
            }
        })
    }

    async fn send(&self, kind: EventKind) -> Result<(), BusClosed> {
        Ok(self.shared.bus.send(WatchMessage { membership: self.membership, kind }).await?)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.shared.config.timeout_ms)
    }

    fn watch_name(&self) -> WatchName<'_> {
        WatchName { membership: self.membership, cluster: self.cluster.name(), kind: self.kind }
    }

    fn cluster_name(&self) -> ClusterName {
        self.cluster.name().clone()
    }

    /// Reports a failure: to the machine when the watch becomes lost, in the log for each new error.
    async fn report_lost(&mut self, error: &CallError) -> Result<(), BusClosed> {
        let failure = error.failure();
        self.history.is_unsure = true;
        self.metrics.lost(&failure);
        let text = failure.to_string();
        if self.lost.as_ref() != Some(&text) {
            let remedy = error.remedy("list and watch", self.kind);
            if self.shared.is_crowd() {
                self.shared.log.lost(self.watch_name(), &failure, remedy);
            } else {
                warn!(error = %text, remedy, "watch lost; retrying");
            }
        }
        if self.lost.replace(text).is_none() {
            let (cluster, kind) = (self.cluster_name(), self.kind);
            self.send(EventKind::WatchLost { cluster, kind, error: failure }).await?;
        }
        Ok(())
    }
}

/// Not before its last poll: a task that is cancelled may be running.
impl Drop for WatchTask {
    fn drop(&mut self) {
        self.shared.log.ended(self.watch_name());
    }
}

/// An API server's resourceVersions are growing numbers; any other text counts as 0.
fn numeric(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}
