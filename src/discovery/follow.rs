//! Follows the objects that show clusters: lists them page by page, watches from there, resumes a
//! broken watch where it stopped, and lists again when that is too old. [`watch`](crate::watch) does
//! the same for the kinds that the machine reads, and holds the reasons; here objects become offers.

mod list;

use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::api::WatchParams;
use kube::core::Request;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::ledger::{BusClosed, Ledger, Offer};
use super::proof::Question;
use crate::client::{CallError, ClusterClient, Frames, no_request};
use crate::core::data::ids::{ClusterName, Kind};
use crate::watch::WatchConstants;
use crate::watch::pauses::pauses;
use crate::watch::wire::{self, Lines, WatchEvent, WatchEventType};

/// API servers end a watch after this time; it is resumed without a sign.
const WATCH_SECONDS: u32 = 290;

/// A watch counts as resumed if no error came within this time.
const RESUMED_AFTER: Duration = Duration::from_secs(1);

/// After a watch has lasted this long, pauses start again from the shortest.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The longest pause that an API server may ask for.
const THROTTLED_MAX: Duration = Duration::from_secs(5);

/// In the message of a 504: the API server has not reached this resourceVersion yet.
const TOO_LARGE: &str = "Too large resource version";

/// The objects that show clusters.
pub(super) struct Objects {
    /// Of the list, as `/apis/GROUP/VERSION/PLURAL`.
    pub(super) path: String,
    /// As RBAC and CRDs name them, with the group.
    pub(super) resource: &'static str,
    pub(super) label_selector: Option<String>,
}

/// Reads objects of one kind.
pub(super) trait Reader: Send + Sync + 'static {
    /// What an object offers; `ledger` has what it offered before.
    ///
    /// # Errors
    /// It is no object of this kind; what it shows is unknown.
    fn offer(&self, object: &str, ledger: &Ledger) -> Result<Offer, CallError>;

    /// The name that a deleted object had, and who showed it.
    ///
    /// # Errors
    /// As [`Reader::offer`].
    fn deleted(&self, object: &str) -> Result<(ClusterName, String), CallError>;
}

/// Finds the cluster that holds the objects; `None` while it is not there.
pub(super) type FindHost = Box<dyn Fn() -> Option<Arc<ClusterClient>> + Send + Sync>;

/// Where names go whose Project may be gone, and where those come from whose Project is.
pub(super) struct Proofs {
    pub(super) ask: mpsc::UnboundedSender<Question>,
    pub(super) proven: mpsc::UnboundedReceiver<ClusterName>,
}

pub(super) struct Follower<R> {
    pub(super) find_host: FindHost,
    pub(super) objects: Objects,
    pub(super) reader: R,
    pub(super) ledger: Ledger,
    pub(super) config: WatchConstants,
    pub(super) proofs: Option<Proofs>,
}

/// Why a list or a watch ended.
enum End {
    BusClosed,
    /// The kubeconfig names another address.
    Moved,
    /// 410: too old to resume from.
    Expired,
    Failed(CallError),
}

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status { code: 410, .. } => End::Expired,
            // Restored from an older state, it will not reach this version for a long time.
            CallError::Status { code: 504, message, .. } if message.contains(TOO_LARGE) => {
                End::Expired
            }
            error => End::Failed(error),
        }
    }
}

impl From<BusClosed> for End {
    fn from(_: BusClosed) -> Self {
        End::BusClosed
    }
}

/// The state of one connection to the host.
struct Position {
    host: Arc<ClusterClient>,
    moves: watch::Receiver<()>,
    /// Where to watch from; `None` before a list.
    from: Option<String>,
    /// The latest version before the next list.
    last_version: u64,
    /// A broken watch: the API server may have another history by now.
    is_unsure: bool,
    /// What is missing in the next list may be missing because it comes from elsewhere.
    is_elsewhere: bool,
}

impl<R: Reader> Follower<R> {
    /// Runs until the bus is closed.
    pub(super) async fn run(mut self) {
        let mut pauses_since = Instant::now();
        let mut pause_of = pauses(&self.config);
        let mut position = None;
        loop {
            let end = self.step(&mut position).await;
            if pauses_since.elapsed() > HEALTHY_AFTER {
                pause_of = pauses(&self.config);
            }
            let mut pause = match end {
                Ok(()) => continue,
                Err(End::BusClosed) => return,
                Err(End::Moved) => continue,
                Err(End::Expired) => self.next_pause(&mut pause_of),
                // It is starting up, or busy: it has lost nothing.
                Err(End::Failed(error)) if error.code() == Some(429) => {
                    let asked = error.retry_after().unwrap_or_default().min(THROTTLED_MAX);
                    self.next_pause(&mut pause_of).max(asked)
                }
                Err(End::Failed(error)) => {
                    if let Some(position) = &mut position {
                        position.is_unsure = true;
                    }
                    let remedy = self.remedy(&error);
                    if self.ledger.lost(error.failure(), remedy.as_deref()).await.is_err() {
                        return;
                    }
                    self.next_pause(&mut pause_of).saturating_sub(error.waited())
                }
            };
            while !pause.is_zero() {
                let began = Instant::now();
                tokio::select! {
                    () = sleep(pause) => break,
                    gone = next_proven(&mut self.proofs) => {
                        if self.ledger.gone(gone).await.is_err() {
                            return;
                        }
                    }
                }
                pause = pause.saturating_sub(began.elapsed());
            }
            pauses_since = Instant::now();
        }
    }

    fn next_pause(&self, pauses: &mut ExponentialBackoff) -> Duration {
        pauses.next().unwrap_or(Duration::from_millis(self.config.backoff_max_ms))
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    fn remedy(&self, error: &CallError) -> Option<String> {
        let resource = self.objects.resource;
        match error.code() {
            Some(403) => Some(format!(
                "grant get, list and watch on {resource} to the user or ServiceAccount"
            )),
            Some(404) => Some(format!("check that this API server serves {resource}")),
            // The text for the other causes names no kind.
            _ => error.remedy("list and watch", Kind::Namespace),
        }
    }

    /// One list, or one watch.
    async fn step(&mut self, position: &mut Option<Position>) -> Result<(), End> {
        let host = (self.find_host)().ok_or_else(|| {
            CallError::NoClient("the cluster that holds the objects is not configured".to_owned())
        })?;
        let is_same = |position: &&mut Position| Arc::ptr_eq(&position.host, &host);
        let position = match position.as_mut().filter(is_same) {
            Some(_) => position.as_mut(),
            None => {
                let moves = host.moves();
                let is_elsewhere = position.is_some();
                Some(position.insert(Position {
                    host,
                    moves,
                    from: None,
                    last_version: 0,
                    is_unsure: false,
                    is_elsewhere,
                }))
            }
        };
        let Some(position) = position else { return Ok(()) };
        if position.moves.has_changed().unwrap_or(false) {
            // Another address may be another API server.
            position.moves.mark_unchanged();
            position.from = None;
            position.is_elsewhere = true;
        }
        let Some(mut version) = position.from.take() else {
            position.from = Some(self.list(position).await?);
            return Ok(());
        };
        let ended = self.watch_from(position, &mut version).await;
        position.last_version = position.last_version.max(numeric(&version));
        if !matches!(ended, Err(End::Moved | End::Expired)) {
            position.from = Some(version);
        }
        ended
    }

    fn read(&self, object: &str) -> Result<Offer, CallError> {
        self.reader.offer(object, &self.ledger)
    }

    /// Watches from `version`, and advances it, until the API server ends the watch or is silent.
    async fn watch_from(
        &mut self,
        position: &mut Position,
        version: &mut String,
    ) -> Result<(), End> {
        let opened = Instant::now();
        let params = WatchParams {
            label_selector: self.objects.label_selector.clone(),
            ..WatchParams::default().timeout(WATCH_SECONDS)
        };
        let request = Request::new(self.objects.path.clone()).watch(&params, version);
        let mut request = request.map_err(|e| no_request(&e))?;
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = position.host.open(request, self.timeout()).await?;
        if position.is_unsure {
            self.check_history(position, version).await?;
        }
        let mut frames = Frames::new(response.into_body());
        let mut lines = Lines::default();
        let silent_after = Duration::from_millis(self.config.silent_after_ms);
        let mut has_frames = false;
        let mut silent_at = Instant::now() + silent_after;
        loop {
            let wait = if self.ledger.is_lost() {
                RESUMED_AFTER
            } else {
                silent_at.saturating_duration_since(Instant::now())
            };
            let frame = tokio::select! {
                biased;
                _ = position.moves.changed() => {
                    position.is_elsewhere = true;
                    return Err(End::Moved);
                }
                gone = next_proven(&mut self.proofs) => {
                    self.ledger.gone(gone).await?;
                    continue;
                }
                frame = timeout(wait, frames.next()) => frame,
            };
            match frame {
                Ok(Ok(Some(frame))) => {
                    has_frames = true;
                    silent_at = Instant::now() + silent_after;
                    lines.push(&frame);
                }
                Ok(Ok(None)) if has_frames || opened.elapsed() > HEALTHY_AFTER => {
                    position.is_unsure = opened.elapsed().as_secs() < u64::from(WATCH_SECONDS) - 10;
                    return Ok(());
                }
                Ok(Ok(None)) => {
                    let error = "the watch ended at once without an event".to_owned();
                    return Err(CallError::Unreadable(error).into());
                }
                Err(_) if self.ledger.is_lost() => self.ledger.resumed().await?,
                Err(_) => {
                    position.is_unsure = true;
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error.into()),
            }
            while let Some(line) = lines.next_line()? {
                self.handle_line(line, version).await?;
            }
        }
    }

    async fn handle_line(&mut self, line: &[u8], version: &mut String) -> Result<(), End> {
        let WatchEvent { event_type, object } = wire::watch_event(line)?;
        if self.ledger.is_lost() && event_type != WatchEventType::Error {
            self.ledger.resumed().await?;
        }
        if event_type == WatchEventType::Error {
            return Err(wire::status(object.get()).into());
        }
        let now = wire::version(object.get())?;
        match event_type {
            WatchEventType::Added | WatchEventType::Modified => {
                let offer = self.read(object.get())?;
                self.ledger.changed(offer).await?;
            }
            WatchEventType::Deleted => {
                let (cluster, shown_by) = self.reader.deleted(object.get())?;
                let was_shown = self.ledger.withdrawn(&cluster, &shown_by).await?;
                if let Some(proofs) = self.proofs.as_ref().filter(|_| was_shown) {
                    let _ = proofs.ask.send(Question::Deleted(cluster));
                }
            }
            WatchEventType::Bookmark if numeric(&now) < numeric(version) => {
                return Err(End::Expired);
            }
            WatchEventType::Bookmark | WatchEventType::Error => {}
        }
        *version = now;
        Ok(())
    }
}

/// The next Project that is proven gone; never returns where nothing is proven.
async fn next_proven(proofs: &mut Option<Proofs>) -> ClusterName {
    let proven = match proofs {
        Some(proofs) => proofs.proven.recv().await,
        None => None,
    };
    match proven {
        Some(cluster) => cluster,
        None => std::future::pending().await,
    }
}

/// An API server's resourceVersions are growing numbers; any other text counts as 0.
fn numeric(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}
