//! When a watch lists or resumes: in its turn, and after which pause.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use tokio::time::Instant;

use super::pace::{Host, Order, Turn};
use super::pauses::pauses;
use super::{Attempt, WatchConstants, WatchTask};
use crate::client::CallError;

/// After a watch has lasted this long, pauses start again from the shortest.
pub(super) const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// In the message of a 429: the API server has just begun to serve this resource, or this project.
const INITIALIZING: &str = "storage is (re)initializing";

/// For so long that is no failure.
const INITIALIZING_MAX: Duration = Duration::from_secs(30);

/// The pauses meanwhile, with jitter.
pub(super) const INITIALIZING_PAUSE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_millis(900);

/// How the last attempt to list or to open a watch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastAttempt {
    /// Or there was none.
    Succeeded,
    /// The API server says since then that it begins to serve this.
    Initializing(Instant),
    Failed,
}

impl LastAttempt {
    fn order(self) -> Order {
        match self {
            Self::Succeeded => Order::First,
            Self::Initializing(since) if since.elapsed() < INITIALIZING_MAX => Order::First,
            Self::Initializing(_) | Self::Failed => Order::Retry,
        }
    }
}

/// The pauses of one watch: they grow until an attempt has lasted for [`HEALTHY_AFTER`].
#[derive(Debug)]
pub(super) struct Pauses {
    left: Option<Box<ExponentialBackoff>>,
    last_ended_at: Instant,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { left: None, last_ended_at: Instant::now() }
    }

    pub(super) fn next(&mut self, config: &WatchConstants) -> Duration {
        if self.was_healthy() {
            self.left = None;
        }
        let left = self.left.get_or_insert_with(|| Box::new(pauses(config)));
        left.next().unwrap_or(Duration::from_millis(config.backoff_max_ms))
    }

    /// Whether the last pause is long ago.
    pub(super) fn was_healthy(&self) -> bool {
        self.last_ended_at.elapsed() > HEALTHY_AFTER
    }

    /// A pause ends, or one of no length.
    pub(super) fn ended(&mut self) {
        self.last_ended_at = Instant::now();
    }
}

impl WatchTask {
    /// A list is complete, or a watch is open.
    pub(super) fn succeeded(&mut self) {
        self.last_attempt = LastAttempt::Succeeded;
        if let Some(host) = &self.host {
            host.answered();
        }
    }

    /// Notes that an attempt failed. Returns whether the API server only begins to serve this resource,
    /// or this project: that is no failure, unless it lasts.
    pub(super) fn is_initializing(&mut self, error: &CallError) -> bool {
        let is = matches!(error, CallError::Status { code: 429, message, .. }
            if message.contains(INITIALIZING));
        self.last_attempt = match self.last_attempt {
            _ if !is => LastAttempt::Failed,
            LastAttempt::Initializing(since) => LastAttempt::Initializing(since),
            LastAttempt::Succeeded | LastAttempt::Failed => {
                LastAttempt::Initializing(Instant::now())
            }
        };
        self.last_attempt.order() == Order::First
    }

    /// The API server, if it is down rather than this cluster: its first answer to anybody ends the
    /// pause after this error.
    pub(super) fn host_that_is_down(&self, error: &CallError) -> Option<Arc<Host>> {
        let is_unreachable = matches!(error, CallError::Unreachable(_));
        self.host.clone().filter(|host| is_unreachable && host.unreachable())
    }

    /// Waits for the right to ask for a list, or to resume where many watches were cut at the same
    /// moment.
    pub(super) async fn take_turn(&mut self, next: &Attempt, turn: Option<Turn>) -> Option<Turn> {
        let needs_one = match next {
            Attempt::List(_) => self.history.last == 0 || self.shared.is_crowd(),
            Attempt::Watch { .. } => self.history.is_unsure && self.shared.is_crowd(),
        };
        if !needs_one || turn.is_some() {
            return turn;
        }
        if self.host.is_none() {
            // Without a client, the request tells why.
            let address = self.cluster.host().await.ok();
            self.host = address.map(|address| self.shared.pace.host(&address));
        }
        let host = self.host.as_ref()?;
        Some(host.turn(self.last_attempt.order()).await)
    }
}
