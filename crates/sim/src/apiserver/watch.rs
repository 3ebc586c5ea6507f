//! Watches: initial objects, changes, bookmarks, and how a watch ends.

use std::sync::Arc;
use std::time::Duration;

use crate::signal::Receiver;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Server;
use super::body::{Body, WatchCut, streamed};
use super::fault::ServerMode;
use super::front::{Counted, Gauge};
use super::list::requested_version;
use super::request::{QueryParams, RequestTarget};
use super::resource::Resource;
use super::selector::LabelSelector;
use super::status::Failure;
use super::store::ServedObject;
use crate::{Change, ChangeKind};

/// The type of a watch event.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum WatchEventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    /// Its object is a Status; the watch ends.
    Error,
}

/// The duration of a watch that requests none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// One running watch.
struct WatchStream {
    server: Arc<Server>,
    resource: Resource,
    namespace: Option<String>,
    selector: LabelSelector,
    /// All changes up to this resourceVersion have been sent.
    sent_version: u64,
    wants_bookmarks: bool,
    changes: Receiver<()>,
    cuts: Receiver<[u64; Resource::ALL.len()]>,
    cuts_at_start: u64,
    mode: Receiver<ServerMode>,
    deadline: Instant,
    next_bookmark: Instant,
    has_ended: bool,
    /// At the server, and at its front.
    _counted: [Counted; 2],
}

/// Answers a watch request.
///
/// # Errors
/// A malformed parameter. A version that is too old is reported within the watch, as by API
/// servers.
pub(super) fn watch(
    server: &Arc<Server>,
    target: &RequestTarget,
    params: &QueryParams,
) -> Result<Response<Body>, Failure> {
    let timeout = match params.timeout_seconds()? {
        0 => DEFAULT_TIMEOUT,
        seconds => Duration::from_secs(seconds),
    };
    let requested = requested_version(&params.resource_version)?;
    let resource = target.resource;
    let selector = LabelSelector::parse(&params.label_selector)?;
    let mut cuts = server.watch_cuts.subscribe();
    let cuts_at_start = cuts.get()[resource as usize];
    let now = Instant::now();
    let wants_initial = params.send_initial_events().unwrap_or(requested.is_none());
    let (current, changes, initial) = {
        let cluster = server.lock();
        let all = || cluster.all(resource, target.namespace.as_deref());
        let mut initial = if wants_initial { all() } else { Vec::new() };
        initial.retain(|object| selector.matches(object));
        (cluster.version(), cluster.sim.subscribe(&server.cluster), initial)
    };
    let sent_version = if wants_initial { current } else { requested.unwrap_or(current) };
    let mut lines = Vec::new();
    for object in initial {
        push_event(&mut lines, WatchEventType::Added, &object.to_value());
    }
    if wants_initial && params.wants_bookmarks() {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        push_event(
            &mut lines,
            WatchEventType::Bookmark,
            &bookmark(resource, sent_version, Some(annotations)),
        );
    }
    let Some(changes) = changes else { return Err(Failure::no_such_path()) };
    let stream = WatchStream {
        server: server.clone(),
        resource,
        namespace: target.namespace.clone(),
        selector,
        sent_version,
        wants_bookmarks: params.wants_bookmarks(),
        changes,
        cuts,
        cuts_at_start,
        mode: server.front.mode.subscribe(),
        deadline: now + timeout,
        next_bookmark: now + server.front.settings.bookmark_every,
        has_ended: false,
        _counted: [&server.watches[resource as usize], &server.front.watches].map(Gauge::count),
    };
    let first = futures::stream::iter((!lines.is_empty()).then(|| Ok(Bytes::from(lines))));
    let rest = futures::stream::unfold(stream, |mut stream| async move {
        let next = stream.next().await?;
        Some((next, stream))
    });
    let mut response = Response::new(streamed(futures::StreamExt::chain(first, rest)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl WatchStream {
    /// The next lines; `None` at the end of the watch.
    async fn next(&mut self) -> Option<Result<Bytes, WatchCut>> {
        loop {
            if self.cuts.get()[self.resource as usize] != self.cuts_at_start {
                return Some(Err(WatchCut));
            }
            if self.has_ended {
                return None;
            }
            // A frozen server does not end its watches, either.
            self.mode.wait_for(|mode| *mode != ServerMode::Frozen).await;
            let lines = self.new_events();
            if !lines.is_empty() {
                self.has_ended |= Instant::now() >= self.deadline;
                return Some(Ok(lines.into()));
            }
            let now = Instant::now();
            self.has_ended = now >= self.deadline;
            if self.wants_bookmarks && (self.has_ended || now >= self.next_bookmark) {
                self.next_bookmark = now + self.server.front.settings.bookmark_every;
                if !self.may_send_bookmark() {
                    continue;
                }
                let mut lines = Vec::new();
                let bookmark = bookmark(self.resource, self.sent_version, None);
                push_event(&mut lines, WatchEventType::Bookmark, &bookmark);
                return Some(Ok(lines.into()));
            }
            let until = match self.wants_bookmarks {
                true => self.deadline.min(self.next_bookmark),
                false => self.deadline,
            };
            tokio::select! {
                biased;
                () = self.cuts.changed() => {}
                () = self.changes.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// A watch from a version that the watch cache has not reached gets no bookmark.
    fn may_send_bookmark(&self) -> bool {
        let cluster = self.server.lock();
        !cluster.state.has_no_bookmarks && cluster.cached_version() >= self.sent_version
    }

    /// Events for all changes not sent yet.
    fn new_events(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        self.changes.get();
        let cluster = self.server.lock();
        match cluster.changes(self.resource, self.sent_version) {
            Ok(changes) => {
                let until = cluster.cached_version();
                self.sent_version = self.sent_version.max(until);
                drop(cluster);
                for change in changes.into_iter().filter(|change| change.version <= until) {
                    let key = change.object.key();
                    if self.namespace.as_ref().is_some_and(|ns| key.namespace() != *ns) {
                        continue;
                    }
                    if let Some((kind, object)) = selected(&self.selector, &change) {
                        push_event(&mut lines, kind, &object);
                    }
                }
            }
            Err(too_old) => {
                self.has_ended = true;
                let status = Failure::too_old(self.sent_version, too_old.oldest).to_value();
                push_event(&mut lines, WatchEventType::Error, &status);
            }
        }
        lines
    }
}

/// The event of a change for a watch with this selector; `None` if the watch does not show it. An
/// object that no longer matches appears as deleted, in its last matching state.
fn selected(
    selector: &LabelSelector,
    change: &Change<ServedObject>,
) -> Option<(WatchEventType, Value)> {
    let object = || change.object.to_value();
    let matches = selector.matches(&change.object);
    let matched = change.previous.as_ref().is_some_and(|previous| selector.matches(previous));
    match change.kind {
        ChangeKind::Deleted => matched.then(|| (WatchEventType::Deleted, object())),
        _ if matches && matched => Some((WatchEventType::Modified, object())),
        _ if matches => Some((WatchEventType::Added, object())),
        _ => {
            let mut last = change.previous.as_ref().filter(|_| matched)?.to_value();
            last["metadata"]["resourceVersion"] = change.version.to_string().into();
            Some((WatchEventType::Deleted, last))
        }
    }
}

fn bookmark(resource: Resource, version: u64, annotations: Option<Value>) -> Value {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(annotations) = annotations {
        metadata["annotations"] = annotations;
    }
    json!({"apiVersion": resource.api_version(), "kind": resource.kind(), "metadata": metadata})
}

/// Appends one watch event as a line.
fn push_event(lines: &mut Vec<u8>, event_type: WatchEventType, object: &Value) {
    #[derive(Serialize)]
    struct WatchLine<'a> {
        #[serde(rename = "type")]
        event_type: WatchEventType,
        object: &'a Value,
    }
    lines.extend(serde_json::to_vec(&WatchLine { event_type, object }).unwrap_or_default());
    lines.push(b'\n');
}
