//! When a watch lists or resumes: in its turn, and after which pause.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::WatchTask;
use super::end::WatchEnd;
use super::pace::{Order, in_turn};
use super::pauses::pauses;
use crate::client::{CallError, Frames};

/// In the message of a 429: the API server has just begun to serve this resource, or this project.
const INITIALIZING: &str = "storage is (re)initializing";

/// For so long that is no failure.
const INITIALIZING_MAX: Duration = Duration::from_secs(30);

/// The pauses meanwhile, with jitter.
pub(super) const INITIALIZING_PAUSE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_millis(900);

impl WatchTask {
    pub(super) fn next_pause(&mut self) -> Duration {
        let config = &self.shared.config;
        let pauses = self.pauses.get_or_insert_with(|| Box::new(pauses(config)));
        pauses.next().unwrap_or(Duration::from_millis(config.backoff_max_ms))
    }

    /// The pause after a failure. Where the API server is down rather than this cluster, waits for its
    /// first answer to anybody, too, and returns `None` when it came.
    pub(super) async fn pause_after(&mut self, error: &CallError) -> Option<Duration> {
        self.has_failed = true;
        // Waiting in vain for a response is a pause already.
        let pause = self.next_pause().saturating_sub(error.waited());
        if let Some(asked) = error.retry_after() {
            // The turn goes unused as long, so that the others heed it, too.
            return Some(pause.max(asked));
        }
        self.turn = None;
        let is_unreachable = matches!(error, CallError::Unreachable(_));
        let host = self.host.clone().filter(|host| is_unreachable && host.unreachable());
        let Some(host) = host else { return Some(pause) };
        timeout(pause, host.answers()).await.is_err().then_some(Duration::ZERO)
    }

    /// A list is complete, or a watch is open.
    pub(super) fn succeeded(&mut self) {
        (self.turn, self.initializing_since, self.has_failed) = (None, None, false);
        if let Some(host) = &self.host {
            host.answered();
        }
    }

    /// Whether the API server begins to serve this resource, or this project. That is no failure,
    /// unless it lasts.
    pub(super) fn is_initializing(&mut self, error: &CallError) -> bool {
        let is = matches!(error, CallError::Status { code: 429, message, .. }
            if message.contains(INITIALIZING));
        if !is {
            self.initializing_since = None;
            return false;
        }
        self.initializing_since.get_or_insert_with(Instant::now).elapsed() < INITIALIZING_MAX
    }

    /// Waits for the right to ask for a list.
    pub(super) async fn take_turn(&mut self) {
        if self.host.is_none() {
            // Without a client, the request tells why.
            let address = self.cluster.host().await.ok();
            self.host = address.map(|address| self.shared.pace.host(&address));
        }
        if let (None, Some(host)) = (&self.turn, &self.host) {
            let order = if self.has_failed { Order::Retry } else { Order::First };
            self.turn = Some(host.turn(order).await);
        }
    }

    /// Lists everything. Returns the resourceVersion to watch from.
    pub(super) async fn list_in_turn(&mut self) -> Result<String, WatchEnd> {
        if !self.was_listed || self.shared.is_crowd() {
            self.take_turn().await;
        }
        let turn = self.turn.take();
        // In a box, because this is seldom run and the task is as large as its largest part.
        let (listed, turn) = in_turn(turn, Box::pin(self.list())).await;
        self.turn = turn;
        listed
    }

    /// Where many watches were cut at the same moment, one after another is opened again.
    pub(super) async fn open_in_turn(
        &mut self,
        version: &str,
        seconds: u32,
    ) -> Result<Frames, WatchEnd> {
        if self.is_history_unsure && self.shared.is_crowd() {
            self.take_turn().await;
        }
        let turn = self.turn.take();
        let (opened, turn) = in_turn(turn, self.open(version, seconds)).await;
        self.turn = turn;
        opened
    }
}
