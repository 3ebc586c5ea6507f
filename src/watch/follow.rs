//! An open watch, from its request to its end.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::api::WatchParams;
use kube::core::Request;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::end::WatchEnd;
use super::pauses::between;
use super::wire::{self, Lines, NoObject, WatchEvent, WatchEventType};
use super::{UNKNOWN_AFTER, WatchTask, numeric};
use crate::client::{AT_ONCE, CallError, Frames, frames, no_request, path};
use crate::core::contract::event::EventKind;
use crate::core::data::ids::Kind;

/// API servers end a watch after a random time in this range, drawn for each watch as in client-go, so
/// that watches that began together don't end together. It is resumed without an event.
const WATCH_TIME: RangeInclusive<Duration> = Duration::from_secs(300)..=Duration::from_secs(600);

/// A watch that ends this much sooner than requested was cut on its way, or the API server went away.
const WATCH_END_EARLY: Duration = Duration::from_secs(10);

/// An API server answers 200 even when a resourceVersion is too old, and then sends an ERROR event at
/// once. A watch counts as resumed if nothing arrives within this time.
const EXPIRED_WITHIN: Duration = Duration::from_secs(1);

/// A watch whose response has begun.
pub(super) struct OpenWatch {
    frames: Frames,
    /// How long the API server was asked to keep the watch open.
    lasts: Duration,
    /// After a break: the version from which on its events are news. `None` if that is no number.
    caught_up_at: Option<u64>,
}

fn watch_request(
    kind: Kind,
    from: &str,
    lasts: Duration,
) -> Result<http::Request<Vec<u8>>, CallError> {
    let params = WatchParams::default().timeout(lasts.as_secs() as u32);
    let request = Request::new(path(kind, None)).watch(&params, from);
    let mut request = request.map_err(|e| no_request(&e))?;
    // Kubernetes 1.37 may compress each event as a separate gzip member (`WatchListCompression`,
    // kubernetes/kubernetes#139308), which decoders of one member can't read, and without the header a
    // proxy could ask for compression. kube's `request_events` does the same.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}

impl WatchTask {
    /// Opens a watch from a resourceVersion.
    pub(super) async fn open(
        &mut self,
        from: &str,
        answer_within: Duration,
    ) -> Result<OpenWatch, WatchEnd> {
        let lasts = between(WATCH_TIME);
        let request = watch_request(self.kind, from, lasts)?;
        let cluster = self.cluster.clone();
        let response = self.wait_for(cluster.open(request, answer_within)).await??;
        let mut caught_up_at = None;
        if self.history.is_unsure || self.lost.is_some() {
            caught_up_at = self.check_history(from).await?;
            self.history.is_unsure = false;
        }
        Ok(OpenWatch { frames: frames(response.into_body()), lasts, caught_up_at })
    }

    /// Passes on the events of a watch, and advances `from`, until the watch ends.
    pub(super) async fn follow(
        &mut self,
        OpenWatch { mut frames, lasts, caught_up_at }: OpenWatch,
        from: &mut String,
    ) -> Result<Infallible, WatchEnd> {
        let opened = Instant::now();
        let mut lines = Lines::default();
        let silent_after = Duration::from_millis(self.shared.config.silent_after_ms);
        let mut has_frames = false;
        loop {
            let list_in = self.list_at.map(|at| at.saturating_duration_since(Instant::now()));
            if list_in.is_some_and(|left| left.is_zero()) {
                return Err(WatchEnd::Nameless);
            }
            let wait = if self.lost.is_some() { EXPIRED_WITHIN } else { silent_after };
            let frame = tokio::select! {
                biased;
                _ = self.moves.changed() => return Err(WatchEnd::Moved),
                frame = timeout(list_in.map_or(wait, |left| left.min(wait)), frames.try_next()) => frame,
            };
            let frame = match frame {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) if has_frames || opened.elapsed() > AT_ONCE => {
                    self.history.is_unsure = opened.elapsed() + WATCH_END_EARLY < lasts;
                    let is_soon = opened.elapsed() < AT_ONCE;
                    return Err(if is_soon { WatchEnd::EndedSoon } else { WatchEnd::Ended });
                }
                Ok(Ok(None)) => {
                    let error = "the watch ended at once without an event".to_owned();
                    return Err(CallError::Unreadable(error).into());
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_) if list_in.is_some_and(|left| left < wait) => continue,
                Err(_) if self.lost.is_some() => {
                    self.report_resumed().await?;
                    continue;
                }
                Err(_) => {
                    self.history.is_unsure = true;
                    return Err(WatchEnd::Silent);
                }
            };
            has_frames = true;
            lines.push(&frame);
            while let Some(line) = lines.next_line()? {
                let event_type = self.handle_line(line, from).await?;
                let is_current = match caught_up_at {
                    Some(version) => numeric(from) >= version,
                    None => event_type == WatchEventType::Bookmark,
                };
                // Versions may not be comparable, and a busy watch is never quiet.
                let was_opened_long_ago = opened.elapsed() >= UNKNOWN_AFTER;
                if self.lost.is_some() && (is_current || was_opened_long_ago) {
                    Box::pin(self.report_resumed()).await?;
                }
            }
        }
    }

    /// Reports a resumed watch, after the changes that it missed: until those have arrived, the machine
    /// must not act on what they replace.
    async fn report_resumed(&mut self) -> Result<(), WatchEnd> {
        self.lost = None;
        self.metrics.resumed();
        self.send(|cluster, kind| EventKind::WatchResumed { cluster, kind }).await?;
        debug!("watch resumed");
        Ok(())
    }

    async fn handle_line(
        &mut self,
        line: &[u8],
        from: &mut String,
    ) -> Result<WatchEventType, WatchEnd> {
        let WatchEvent { event_type, object } = wire::watch_event(line)?;
        let text = object.get();
        match event_type {
            WatchEventType::Error => return Err(wire::status(text).into()),
            WatchEventType::Bookmark => {
                wire::check_type(text, self.kind).map_err(WatchEnd::OtherType)?;
                self.metrics.bookmark_received();
                let bookmark = wire::version(text)?;
                if numeric(&bookmark) < numeric(from) {
                    // The API server was restored from an older state: only a list shows it.
                    return Err(WatchEnd::went_backwards());
                }
                *from = bookmark;
                // Only where the absence of an object may lead to a delete.
                if self.kind.can_prove_absence(self.cluster.roles()) {
                    self.send(|cluster, kind| EventKind::Bookmark { cluster, kind }).await?;
                }
            }
            WatchEventType::Added | WatchEventType::Modified | WatchEventType::Deleted => {
                let is_deleted = event_type == WatchEventType::Deleted;
                let object = if is_deleted { wire::deleted } else { wire::object };
                let object = object(text, self.kind).map(Arc::new);
                self.metrics.event_received();
                match object {
                    Ok(object) => {
                        if !object.meta.resource_version.is_empty() {
                            from.clear();
                            from.push_str(&object.meta.resource_version);
                        }
                        self.send(|cluster, _| match is_deleted {
                            true => EventKind::Deleted { cluster, object },
                            false => EventKind::Applied { cluster, object },
                        })
                        .await?;
                    }
                    Err(error) => {
                        if let Ok(version) = wire::version(text) {
                            *from = version;
                        }
                        Box::pin(self.no_object(error)).await?;
                    }
                }
            }
        }
        Ok(event_type)
    }

    /// An unreadable object exists nevertheless, and must not block the others. If its name is
    /// unreadable, no event can show that it became readable or was deleted, so the watch lists again.
    pub(super) async fn no_object(&mut self, error: NoObject) -> Result<(), WatchEnd> {
        let (object, error) = match error {
            NoObject::OtherType(error) => return Err(WatchEnd::OtherType(error)),
            NoObject::Unreadable(object, error) => (object, error),
        };
        if object.name().is_empty() && self.list_at.is_none() {
            self.list_later();
        }
        debug!(%object, %error, "cannot read an object");
        let error = error.failure();
        self.send(|cluster, kind| EventKind::Unreadable { cluster, kind, object, error }).await
    }

    /// Schedules a list, after a pause: the next list may contain the object, too.
    pub(super) fn list_later(&mut self) {
        let longest = Duration::from_millis(self.shared.config.backoff_max_ms);
        self.list_at = Some(Instant::now() + between(longest / 2..=longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_ask_for_no_compression_and_for_their_own_time() {
        let request = watch_request(Kind::Gateway, "7", Duration::from_secs(400)).unwrap();
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        let query = request.uri().query().unwrap();
        assert!(query.split('&').any(|pair| pair == "timeoutSeconds=400"), "{query}");
    }
}
