//! An open watch, from its request to its end.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::end::WatchEnd;
use super::pauses::between;
use super::request::watch_request;
use super::wire::{self, Lines, WatchEvent, WatchEventType};
use super::{HEALTHY_AFTER, WatchTask, numeric};
use crate::client::{CallError, Frames};
use crate::core::contract::event::EventKind;

/// API servers end a watch after a time between these, drawn for each as client-go does, so that those
/// which began together don't end together. It is resumed without an event.
const WATCH_SECONDS: RangeInclusive<u32> = 300..=600;

/// A watch that an API server ends sooner than it was asked to, by more than this, was cut on its way,
/// or the API server went away.
const WATCH_END_EARLY: Duration = Duration::from_secs(10);

/// An API server answers 200 even when a resourceVersion is too old, and then sends an ERROR event at
/// once. A watch counts as resumed if none came within this time.
const EXPIRED_WITHIN: Duration = Duration::from_secs(1);

/// Where a watch was silent, an API server that does not answer sooner than this is silent, too: what
/// it showed is unknown.
const SILENT_ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl WatchTask {
    /// Opens a watch from `version`.
    pub(super) async fn open(&mut self, version: &str, seconds: u32) -> Result<Frames, WatchEnd> {
        let request = watch_request(self.kind, version, seconds)?;
        let timeout = match std::mem::take(&mut self.was_silent) {
            true => self.timeout().min(SILENT_ANSWER_WITHIN),
            false => self.timeout(),
        };
        let response = self.cluster.open(request, timeout).await?;
        if self.is_history_unsure {
            self.check_history(version).await?;
            self.is_history_unsure = false;
        }
        Ok(Frames::new(response.into_body()))
    }

    /// Watches from `version`, and advances it, until the API server ends the watch or is silent for
    /// too long.
    pub(super) async fn watch_from(&mut self, version: &mut String) -> Result<(), WatchEnd> {
        let seconds = between(WATCH_SECONDS);
        let mut frames = Box::pin(self.open_in_turn(version, seconds)).await?;
        self.succeeded();
        let (opened, asked) = (Instant::now(), Duration::from_secs(seconds.into()));
        let mut lines = Lines::default();
        let silent_after = Duration::from_millis(self.shared.config.silent_after_ms);
        let mut has_frames = false;
        loop {
            let wait = if self.lost.is_some() { EXPIRED_WITHIN } else { silent_after };
            let frame = tokio::select! {
                biased;
                _ = self.moves.changed() => return Err(WatchEnd::Moved),
                frame = timeout(wait, frames.next()) => frame,
            };
            let frame = match frame {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) if has_frames || opened.elapsed() > HEALTHY_AFTER => {
                    self.is_history_unsure = opened.elapsed() + WATCH_END_EARLY < asked;
                    return Ok(());
                }
                Ok(Ok(None)) => {
                    let error = "the watch ended at once without an event".to_owned();
                    return Err(CallError::Unreadable(error).into());
                }
                Err(_) if self.lost.is_some() => {
                    self.report_resumed().await?;
                    continue;
                }
                // Silent: resuming it will show whether the API server still answers.
                Err(_) => {
                    (self.is_history_unsure, self.was_silent) = (true, true);
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error.into()),
            };
            has_frames = true;
            lines.push(&frame);
            while let Some(line) = lines.next_line()? {
                self.handle_line(line, version).await?;
            }
        }
    }

    /// Nothing was missed: the changes since the watch was lost follow, in order.
    async fn report_resumed(&mut self) -> Result<(), WatchEnd> {
        self.lost = None;
        self.metrics.resumed();
        let (cluster, kind) = (self.cluster_name(), self.kind);
        self.send(EventKind::WatchResumed { cluster, kind }).await?;
        if !self.shared.log.resumed(self.watch_name()) {
            info!(cluster = %self.cluster.name(), kind = %self.kind, "watch resumed");
        }
        Ok(())
    }

    async fn handle_line(&mut self, line: &[u8], version: &mut String) -> Result<(), WatchEnd> {
        let WatchEvent { event_type, object } = wire::watch_event(line)?;
        if self.lost.is_some() && event_type != WatchEventType::Error {
            self.report_resumed().await?;
        }
        match event_type {
            WatchEventType::Bookmark => {
                self.metrics.bookmark_received();
                let bookmark = wire::version(object.get())?;
                if numeric(&bookmark) < numeric(version) {
                    // The API server was restored from an older state: only a list shows it.
                    return Err(WatchEnd::went_back());
                }
                *version = bookmark;
                if self.proves_absence() {
                    let (cluster, kind) = (self.cluster_name(), self.kind);
                    self.send(EventKind::Bookmark { cluster, kind }).await?;
                }
            }
            WatchEventType::Error => return Err(wire::status(object.get()).into()),
            WatchEventType::Added | WatchEventType::Modified | WatchEventType::Deleted => {
                self.metrics.event_received();
                let object = match wire::object(object.get(), self.kind) {
                    Ok(object) => object,
                    Err(error) => {
                        *version = wire::version(object.get())?;
                        let event = self.unreadable(object.get(), &error);
                        return Ok(self.send(event).await?);
                    }
                };
                version.clear();
                version.push_str(&object.meta.resource_version);
                let (cluster, object) = (self.cluster_name(), Arc::new(object));
                let kind = match event_type {
                    WatchEventType::Deleted => EventKind::Deleted { cluster, object },
                    _ => EventKind::Applied { cluster, object },
                };
                self.send(kind).await?;
            }
        }
        Ok(())
    }

    /// Whether the absence of an object in this watch may lead to a delete.
    fn proves_absence(&self) -> bool {
        self.kind.can_prove_absence(self.cluster.roles())
    }

    /// An object that can't be read exists all the same, and must not stop the others. Only the first
    /// after a list is logged; the machine counts them.
    pub(super) fn unreadable(&mut self, text: &str, error: &CallError) -> EventKind {
        let object = wire::key(text);
        if !std::mem::replace(&mut self.unreadable_logged, true) {
            warn!(cluster = %self.cluster.name(), kind = %self.kind, %object, %error,
                "cannot read an object, so none of its kind counts as missing there");
        }
        let (cluster, kind) = (self.cluster_name(), self.kind);
        EventKind::Unreadable { cluster, kind, object, error: error.failure() }
    }
}
