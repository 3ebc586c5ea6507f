//! One watch of one kind in one cluster, for as long as the process runs: it lists page by page,
//! watches from there, resumes a broken watch at the last resourceVersion, and relists when that is
//! too old.
//!
//! kube-runtime's `watcher` is not used because its `Event` has no bookmarks. After a watch breaks,
//! only a bookmark shows that it is live again while nothing changes, and the machine has to know
//! that. Nor does it show a list's resourceVersion, by which a restored API server is recognised.
//! kube's lower level, `Api::watch` and `Client::request_events`, yields `WatchEvent`s with bookmarks,
//! but copies each event into an owned type and ends a broken watch like a complete one. So this
//! module uses the level below: `Client::send`, with requests from `kube::core::Request`.
//!
//! ```text
//!            list_started, listed …, list_finished        applied, deleted …
//!   ──► list ───────────────────────────────────► watch ◄───────────────────┐
//!        ▲ │ fails: watch_lost, pause              │ │ ends, or is silent ──┘ same resourceVersion
//!        │ └──┐                                    │ │ breaks: watch_lost, pause, watch_resumed
//!        └────┴──────── 410: too old ──────────────┘ └──────────────────────┘
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

use backon::ExponentialBackoff;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::client::{CallError, ClusterClient};
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Kind};
use crate::metrics::{Metrics, WatchMetrics};
use end::WatchEnd;
use log::WatchName;
use pace::{Host, Turn, in_turn};
use pauses::between;
use retry::INITIALIZING_PAUSE;
pub use shared::{MembershipId, WatchConstants, WatchMessage, WatchShared};

/// After a watch has lasted this long, pauses start again from the shortest.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct WatchTask {
    cluster: Arc<ClusterClient>,
    kind: Kind,
    membership: MembershipId,
    shared: Arc<WatchShared>,
    metrics: Arc<WatchMetrics>,
    /// The API server; `None` until it is known.
    host: Option<Arc<Host>>,
    /// The right to list now.
    turn: Option<Turn>,
    /// The pauses that are left; `None` while all is well.
    pauses: Option<Box<ExponentialBackoff>>,
    /// A list was complete.
    was_listed: bool,
    /// The last attempt failed.
    has_failed: bool,
    /// Since when the API server says that it begins to serve this.
    initializing_since: Option<Instant>,
    /// While the watch is lost: the error that was last logged.
    lost: Option<String>,
    /// The last resourceVersion seen before the next list.
    last_version: u64,
    /// The watch broke, was silent or ended early: the API server may have another history by now.
    is_history_unsure: bool,
    /// The watch brought nothing for too long, and is opened again.
    was_silent: bool,
    /// An object that can't be read was logged since the last list.
    unreadable_logged: bool,
    /// Changes when the kubeconfig names another address.
    moves: watch::Receiver<()>,
    /// A later page of the last list had expired: the next list asks for everything at once.
    lists_at_once: bool,
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
            turn: None,
            pauses: None,
            was_listed: false,
            has_failed: false,
            initializing_since: None,
            lost: None,
            last_version: 0,
            is_history_unsure: false,
            was_silent: false,
            unreadable_logged: false,
            moves,
            lists_at_once: false,
        }
    }

    /// Runs until the bus is closed.
    pub async fn run(mut self) {
        let mut from = None;
        let mut pauses_since = Instant::now();
        loop {
            if self.moves.has_changed().unwrap_or(false) {
                // Another address may be another API server: only a list shows what it holds.
                self.moves.mark_unchanged();
                (from, self.host, self.turn) = (None, None, None);
            }
            let end = match &mut from {
                None => match self.list_in_turn().await {
                    Ok(version) => {
                        from = Some(version);
                        self.succeeded();
                        continue;
                    }
                    Err(end) => end,
                },
                Some(version) => {
                    let ended = self.watch_from(version).await;
                    self.last_version = self.last_version.max(numeric(version));
                    match ended {
                        Ok(()) => continue,
                        Err(end) => end,
                    }
                }
            };
            if pauses_since.elapsed() > HEALTHY_AFTER {
                self.pauses = None;
            }
            let pause = match end {
                WatchEnd::BusClosed => return,
                WatchEnd::Moved => {
                    (from, self.host, self.turn) = (None, None, None);
                    continue;
                }
                WatchEnd::Expired(error) => {
                    let was_watched = from.take().is_some();
                    self.turn = None;
                    if pauses_since.elapsed() > HEALTHY_AFTER {
                        pauses_since = Instant::now();
                        continue; // relist without a pause after a healthy watch
                    }
                    // Nothing follows the changes during the pause.
                    if was_watched && self.report_lost(&error).await.is_err() {
                        return;
                    }
                    self.next_pause()
                }
                WatchEnd::Failed(error) if self.is_initializing(&error) => {
                    // In its turn: beginning to serve is what costs the API server most.
                    between(INITIALIZING_PAUSE)
                }
                WatchEnd::Failed(error) => {
                    if self.report_lost(&error).await.is_err() {
                        return;
                    }
                    match self.pause_after(&error).await {
                        Some(pause) => pause,
                        None => {
                            pauses_since = Instant::now();
                            continue;
                        }
                    }
                }
            };
            let turn = self.turn.take();
            ((), self.turn) = in_turn(turn, sleep(pause)).await;
            pauses_since = Instant::now();
        }
    }

    async fn send(&self, kind: EventKind) -> Result<(), mpsc::error::SendError<WatchMessage>> {
        self.shared.bus.send(WatchMessage { membership: self.membership, kind }).await
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
    async fn report_lost(&mut self, error: &CallError) -> Result<(), WatchEnd> {
        let failure = error.failure();
        self.is_history_unsure = true;
        self.metrics.lost(&failure);
        let text = failure.to_string();
        if self.lost.as_ref() != Some(&text) {
            let (cluster, kind) = (self.cluster.name(), self.kind);
            let remedy = error.remedy("list and watch", kind);
            if self.shared.is_crowd() {
                self.shared.log.lost(self.watch_name(), &failure, remedy);
            } else {
                warn!(%cluster, %kind, error = %text, remedy, "watch lost; retrying");
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
