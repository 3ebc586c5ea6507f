//! Why a list or a watch ended, and the state that follows.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::page::Pages;
use super::pauses::between;
use super::{Attempt, State, UNKNOWN_AFTER, WatchTask};
use crate::client::CallError;
use crate::client::pace::{Turn, in_turn};
use crate::core::contract::cause::Cause;
use crate::core::contract::event::EventKind;

/// In the message of a 504: the API server has not reached this resourceVersion yet.
const TOO_LARGE: &str = "Too large resource version";

/// In the message of a 429: the API server has just begun to serve this resource, or this project.
const INITIALIZING: &str = "storage is (re)initializing";

/// The longest time for which initializing is no failure.
const INITIALIZING_MAX: Duration = Duration::from_secs(30);

/// The range of pauses meanwhile.
const INITIALIZING_PAUSE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_millis(900);

/// Why a list or a watch ended.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// The bus is closed: the run ends.
    BusClosed,
    /// The kubeconfig names another address.
    Moved,
    /// The API server, or something on the way to it, ended the watch.
    Ended,
    /// It ended soon after it was opened, and may do so each time.
    EndedSoon,
    /// The watch delivered nothing for too long. Resuming it shows whether the API server answers.
    Silent,
    /// An object without a readable name arrived a while ago: only a list can identify it.
    Nameless,
    /// 410: the resourceVersion, or the next page, is too old; or the API server was restored.
    Expired(CallError, Pages),
    /// An object of another type arrived, so missing objects may be elsewhere.
    OtherType(CallError),
    Failed(CallError),
}

impl WatchEnd {
    /// The API server's resourceVersion went backwards.
    pub(super) fn went_backwards() -> Self {
        let error = CallError::Unreadable("its resourceVersions went back".to_owned());
        Self::Expired(error, Pages::Limited)
    }
}

impl From<CallError> for WatchEnd {
    fn from(error: CallError) -> Self {
        let has_expired = match &error {
            CallError::Status { code: 410, .. } => true,
            // An API server restored from an older state will not reach this version for a long time.
            CallError::Status { code: 504, message, .. } => message.contains(TOO_LARGE),
            _ => false,
        };
        if has_expired { Self::Expired(error, Pages::Limited) } else { Self::Failed(error) }
    }
}

impl WatchTask {
    /// The state after the end of a list or a watch. `again` would repeat or resume it.
    pub(super) async fn after(
        &mut self,
        end: WatchEnd,
        again: Attempt,
        turn: Option<Turn>,
    ) -> Result<State, WatchEnd> {
        let was_watched = matches!(again, Attempt::Watch { .. });
        Ok(match (end, again) {
            (WatchEnd::BusClosed, _) => return Err(WatchEnd::BusClosed),
            (WatchEnd::Moved, _) => self.moved(),
            (WatchEnd::Silent, Attempt::Watch { from, answer_within }) => {
                // It may be silent, too.
                let answer_within = answer_within.min(UNKNOWN_AFTER);
                Attempt::Watch { from, answer_within }.into()
            }
            (WatchEnd::EndedSoon, again) => {
                let until = Instant::now() + self.pauses.next(&self.shared.config);
                let error = "the watch ended soon after it was opened".to_owned();
                self.report_unknown(until, &CallError::Unreadable(error)).await?;
                if self.lost.is_none() {
                    self.metrics.reopened();
                }
                State::Backoff { until, host: None, next: again, turn: None }
            }
            (WatchEnd::Ended | WatchEnd::Silent, again) => again.into(),
            (WatchEnd::Nameless, _) => Attempt::List(Pages::Limited).into(),
            (WatchEnd::Expired(_, pages), _) if self.pauses.was_healthy() => {
                self.pauses.ended();
                Attempt::List(pages).into()
            }
            (WatchEnd::Expired(error, pages), _) => {
                drop(turn);
                // Changes go unobserved during the pause.
                if was_watched {
                    self.report_lost(&error).await?;
                }
                let until = Instant::now() + self.pauses.next(&self.shared.config);
                State::Backoff { until, host: None, next: Attempt::List(pages), turn: None }
            }
            (WatchEnd::Failed(error), next) if self.is_initializing(&error) => {
                // Keep the turn: initializing is what costs the API server most.
                self.history.is_unsure = true;
                let until = Instant::now() + between(INITIALIZING_PAUSE);
                let (reported, turn) = in_turn(turn, self.report_unknown(until, &error)).await;
                reported?;
                State::Backoff { until, host: None, next, turn }
            }
            (WatchEnd::Failed(error), next) => self.after_failure(&error, next, turn).await?,
            (WatchEnd::OtherType(error), _) => {
                self.after_failure(&error, Attempt::List(Pages::Limited), turn).await?
            }
        })
    }

    /// Whether the API server is still initializing this resource, or this project. That is no failure
    /// until [`INITIALIZING_MAX`].
    fn is_initializing(&mut self, error: &CallError) -> bool {
        let is = matches!(error, CallError::Status { code: 429, message, .. }
            if message.contains(INITIALIZING));
        if !is {
            self.initializing_since = None;
            return false;
        }
        self.initializing_since.get_or_insert_with(Instant::now).elapsed() < INITIALIZING_MAX
    }

    async fn after_failure(
        &mut self,
        error: &CallError,
        next: Attempt,
        turn: Option<Turn>,
    ) -> Result<State, WatchEnd> {
        let (reported, turn) = in_turn(turn, self.report_lost(error)).await;
        reported?;
        // A wait without a response already counts as a pause.
        let pause = self.pauses.next(&self.shared.config).saturating_sub(error.waited());
        let now = Instant::now();
        if let Some(asked) = error.retry_after() {
            // Keep what is left of the turn, so that other watches ask later, too.
            return Ok(State::Backoff { until: now + pause.max(asked), host: None, next, turn });
        }
        // If the whole API server is down rather than this cluster, its answer to any watch ends the
        // pause.
        let is_unreachable = matches!(error, CallError::Unreachable(_));
        let host = self.host.clone().filter(|host| is_unreachable && host.unreachable());
        Ok(State::Backoff { until: now + pause, host, next, turn: None })
    }

    /// Reports the failure of a watch that the machine counts as live, if the pause is too long for that.
    async fn report_unknown(&mut self, until: Instant, error: &CallError) -> Result<(), WatchEnd> {
        match self.unknown_at.is_some_and(|at| at < until) {
            true => self.report_lost(error).await,
            false => Ok(()),
        }
    }

    /// Reports a failure to the machine when the watch becomes lost, and when the cause changes.
    pub(super) async fn report_lost(&mut self, error: &CallError) -> Result<(), WatchEnd> {
        let failure = error.failure();
        debug!(error = %failure, "watch lost; retrying");
        self.history.is_unsure = true;
        self.metrics.lost(&failure);
        let cause = Cause::of_read(failure.cause);
        if self.lost.replace(cause) == Some(cause) {
            return Ok(());
        }
        self.send(|cluster, kind| EventKind::WatchLost { cluster, kind, error: failure }).await
    }
}
