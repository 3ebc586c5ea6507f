//! One watch of one kind in one cluster, for as long as the process lives: a paged list, the watch
//! from there on, taken up again where it broke, or listed anew when that is too long ago.
//!
//! kube-runtime's `watcher` does the same but hides the bookmarks, and with them whether a broken
//! watch is live again while nothing changes; the machine has to know that.
//!
//! ```text
//!            list_started, listed …, list_finished        applied, deleted …
//!   ──► list ───────────────────────────────────► follow ◄──────────────────┐
//!        ▲ │ fails: watch_lost, pause              │ │ ends, or is silent ──┘ same resourceVersion
//!        │ └──┐                                    │ │ breaks: watch_lost, pause, watch_resumed
//!        └────┴──────── 410: too long ago ─────────┘ └──────────────────────┘
//! ```

pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::client::{CallError, Cluster, Frames, no_request, path};
use crate::clock::millis;
use crate::config::WatchConfig;
use crate::core::event::Happened;
use crate::core::ids::{ClusterName, Kind, Role};
use crate::core::objects::Object;
use crate::metrics::{Metrics, WatchMetrics};
use wire::{Change, Lines, Page};

/// API servers end a watch after this time; it is taken up again where it was, unnoticed.
const WATCH_SECONDS: u32 = 290;

/// What API servers say of a version that they have not come to yet.
const TOO_LARGE: &str = "Too large resource version";

/// A watch that is too old to go on is answered with 200 like any other, and then with an ERROR
/// event at once. Only when none came in this time does a watch count as resumed.
const TOO_OLD_WITHIN: Duration = Duration::from_secs(1);

/// A watch that lived for so long was healthy: the next pause is the first again.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// One watch.
#[derive(Debug)]
pub struct Watch {
    cluster: Arc<Cluster>,
    kind: Kind,
    config: WatchConfig,
    bus: mpsc::Sender<Happened>,
    metrics: Arc<WatchMetrics>,
    pauses: ExponentialBackoff,
    /// What was told last of a watch that is lost; `None` while it is not.
    lost: Option<String>,
    /// The last resourceVersion that was followed before a list.
    highest: u64,
}

/// Why following came to an end.
enum End {
    /// The loop is gone: nobody listens any more.
    Closed,
    /// 410: the resourceVersion is too old to go on from.
    TooOld,
    /// Anything else.
    Failed(CallError),
}

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status { code: 410, .. } => End::TooOld,
            // It was restored from an older state, and will not reach this version for long.
            CallError::Status { code: 504, message, .. } if message.contains(TOO_LARGE) => {
                End::TooOld
            }
            error => End::Failed(error),
        }
    }
}

impl From<mpsc::error::SendError<Happened>> for End {
    fn from(_: mpsc::error::SendError<Happened>) -> Self {
        End::Closed
    }
}

impl Watch {
    /// A watch of `kind` in `cluster`, whose events go to `bus`; it waits when the bus is full.
    pub fn new(
        cluster: Arc<Cluster>,
        kind: Kind,
        config: WatchConfig,
        bus: mpsc::Sender<Happened>,
        metrics: &Metrics,
    ) -> Self {
        let metrics = metrics.watch(cluster.name(), kind);
        let pauses = pauses(&config);
        Self { cluster, kind, config, bus, metrics, pauses, lost: None, highest: 0 }
    }

    /// Watches until the bus is closed.
    pub async fn run(mut self) {
        let mut from = None;
        let mut pauses_since = Instant::now();
        loop {
            let end = match &mut from {
                None => match self.list().await {
                    Ok(version) => {
                        from = Some(version);
                        continue;
                    }
                    Err(end) => end,
                },
                Some(version) => {
                    let followed = self.follow(version).await;
                    self.highest = self.highest.max(number(version));
                    match followed {
                        Ok(()) => continue,
                        Err(end) => end,
                    }
                }
            };
            if pauses_since.elapsed() > HEALTHY_AFTER {
                self.pauses = pauses(&self.config);
            }
            match end {
                End::Closed => return,
                End::TooOld => {
                    from = None;
                    if pauses_since.elapsed() > HEALTHY_AFTER {
                        pauses_since = Instant::now();
                        continue; // once is no reason to wait
                    }
                }
                End::Failed(error) => {
                    if self.lose(&error).await.is_err() {
                        return;
                    }
                }
            }
            let longest = Duration::from_millis(self.config.backoff_max_ms);
            tokio::time::sleep(self.pauses.next().unwrap_or(longest)).await;
            pauses_since = Instant::now();
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    fn name(&self) -> ClusterName {
        self.cluster.name().clone()
    }

    /// Tells that the watch is lost: the machine once, people once for each new reason.
    async fn lose(&mut self, error: &CallError) -> Result<(), End> {
        let text = error.to_string();
        self.metrics.lost(&text);
        if self.lost.is_none() {
            let (cluster, kind, error) = (self.name(), self.kind, text.clone());
            self.bus.send(Happened::WatchLost { cluster, kind, error }).await?;
        }
        if self.lost.as_ref() != Some(&text) {
            let remedy = error.remedy("list and watch", self.kind);
            warn!(cluster = %self.cluster.name(), kind = %self.kind, error = %text, remedy,
                "watch lost, trying again");
            self.lost = Some(text);
        }
        Ok(())
    }

    /// Lists everything, page by page. Gives the resourceVersion to follow from.
    async fn list(&mut self) -> Result<String, End> {
        let began = Instant::now();
        let all = Request::new(path(self.kind, None));
        let mut next = String::new();
        let mut objects = 0_u64;
        loop {
            let limit = self.config.page_size;
            let token = Some(next).filter(|token| !token.is_empty());
            let is_first = token.is_none();
            let params =
                ListParams { limit: Some(limit), continue_token: token, ..ListParams::default() };
            let request = all.list(&params).map_err(|e| no_request(&e))?;
            let page = self.cluster.call(request, self.timeout()).await?;
            let page: Page<'_> = wire::page(&page)?;
            if is_first {
                // Only now: an API server that doesn't answer has not begun a list.
                self.metrics.listing();
                let (cluster, kind) = (self.name(), self.kind);
                self.bus.send(Happened::ListStarted { cluster, kind }).await?;
                self.lost = None;
            }
            for item in &page.items {
                if let Some(object) = self.object(item.get()) {
                    objects += 1;
                    let (cluster, object) = (self.name(), Arc::new(object));
                    self.bus.send(Happened::Listed { cluster, object }).await?;
                }
            }
            next = page.metadata.next.unwrap_or_default().into_owned();
            if next.is_empty() {
                let version = page.metadata.resource_version.into_owned();
                self.compare(&version).await?;
                self.metrics.live(objects);
                let (cluster, kind) = (self.name(), self.kind);
                self.bus.send(Happened::ListFinished { cluster, kind }).await?;
                let ms = millis(began.elapsed());
                info!(cluster = %self.cluster.name(), kind = %self.kind, objects, ms, "listed");
                return Ok(version);
            }
        }
    }

    /// Follows from `version`, which moves along, until the API server ends the watch or nothing
    /// was heard for too long.
    async fn follow(&mut self, version: &mut String) -> Result<(), End> {
        let opened = Instant::now();
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let request = Request::new(path(self.kind, None)).watch(&params, version);
        let request = request.map_err(|e| no_request(&e))?;
        let answer = self.cluster.open(request, self.timeout()).await?;
        if self.lost.is_some() && self.proves_absence() {
            self.is_the_same_history(version).await?;
        }
        let mut frames = Frames::new(answer.into_body());
        let mut lines = Lines::default();
        let patience = Duration::from_millis(self.config.silent_after_ms);
        let mut heard = false;
        loop {
            let patience = if self.lost.is_some() { TOO_OLD_WITHIN } else { patience };
            let frame = match timeout(patience, frames.next()).await {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) if heard || opened.elapsed() > HEALTHY_AFTER => return Ok(()),
                Ok(Ok(None)) => {
                    let error = "the watch ended at once, without an event".to_owned();
                    return Err(CallError::Unreadable(error).into());
                }
                Err(_) if self.lost.is_some() => {
                    self.resumed().await?;
                    continue;
                }
                // Silent: whether it is dead is told by the attempt to take it up again.
                Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
            };
            heard = true;
            lines.push(&frame);
            while let Some(line) = lines.next()? {
                self.change(line, version).await?;
            }
        }
    }

    /// The watch goes on. Nothing was missed: what happened meanwhile comes now, in order.
    async fn resumed(&mut self) -> Result<(), End> {
        self.lost = None;
        self.metrics.resumed();
        let (cluster, kind) = (self.name(), self.kind);
        self.bus.send(Happened::WatchResumed { cluster, kind }).await?;
        info!(cluster = %self.cluster.name(), kind = %self.kind, "watch resumed");
        Ok(())
    }

    async fn change(&mut self, line: &[u8], version: &mut String) -> Result<(), End> {
        let Change { what, object } = wire::change(line)?;
        if self.lost.is_some() && what != "ERROR" {
            self.resumed().await?;
        }
        match &*what {
            "BOOKMARK" => {
                self.metrics.heard(false);
                let told = wire::version(object.get())?;
                if number(&told) < number(version) {
                    // Another state than the one that was followed: only a list can tell which.
                    return Err(End::TooOld);
                }
                *version = told;
                if self.proves_absence() {
                    let (cluster, kind) = (self.name(), self.kind);
                    self.bus.send(Happened::WatchHeard { cluster, kind }).await?;
                }
            }
            "ERROR" => return Err(wire::status(object.get()).into()),
            "ADDED" | "MODIFIED" | "DELETED" => {
                self.metrics.heard(true);
                let Some(object) = self.object(object.get()) else {
                    *version = wire::version(object.get())?;
                    return Ok(());
                };
                version.clear();
                version.push_str(&object.meta.resource_version);
                let (cluster, object) = (self.name(), Arc::new(object));
                let happened = match &*what {
                    "DELETED" => Happened::Deleted { cluster, object },
                    _ => Happened::Applied { cluster, object },
                };
                self.bus.send(happened).await?;
            }
            other => {
                let error = format!("a watch event of type {other:?}");
                return Err(CallError::Unreadable(error).into());
            }
        }
        Ok(())
    }

    /// That something is absent here may lead to a delete.
    fn proves_absence(&self) -> bool {
        self.kind == Kind::Gateway && self.cluster.roles().contains(&Role::Upstream)
    }

    /// An API server that was restored from an older state takes a watch from a version that it has
    /// not come to, and says nothing until it has. So it is asked how far it is.
    async fn is_the_same_history(&mut self, version: &str) -> Result<(), End> {
        let one = Request::new(path(self.kind, None)).list(&ListParams::default().limit(1));
        let one = one.map_err(|e| no_request(&e))?;
        let page = self.cluster.call(one, self.timeout()).await?;
        let page: Page<'_> = wire::page(&page)?;
        if number(&page.metadata.resource_version) >= number(version) {
            return Ok(());
        }
        self.highest = self.highest.max(number(version));
        self.compare(&page.metadata.resource_version).await?;
        Err(End::TooOld)
    }

    /// A list's version before the last one that was followed: the API server was restored from an
    /// older state, and of an upstream the machine must know.
    async fn compare(&mut self, version: &str) -> Result<(), End> {
        let told = number(version);
        let before = std::mem::replace(&mut self.highest, told);
        if told < before {
            warn!(cluster = %self.cluster.name(), kind = %self.kind, before, told,
                "the API server went back to an older state");
            if self.cluster.roles().contains(&Role::Upstream) {
                let (cluster, kind) = (self.name(), self.kind);
                self.bus.send(Happened::WentBack { cluster, kind }).await?;
            }
        }
        Ok(())
    }

    /// An object that can't be read is told and passed over: it must not stop the others.
    fn object(&self, text: &str) -> Option<Object> {
        match wire::object(text, self.kind) {
            Ok(object) => Some(object),
            Err(error) => {
                warn!(cluster = %self.cluster.name(), kind = %self.kind, %error,
                    "an object can't be read and is passed over");
                None
            }
        }
    }
}

/// API servers' versions are numbers that grow; one that is none is the least.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

fn pauses(config: &WatchConfig) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(config.backoff_first_ms))
        .with_max_delay(Duration::from_millis(config.backoff_max_ms))
        .with_jitter()
        .without_max_times()
        .build()
}
