//! Watches: what is there, what changed since, bookmarks, and how they end.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::Handler;
use super::hooks::Mode;
use super::list::asked_version;
use super::route::{Params, Resource, Target};
use super::status::Failure;
use crate::world::Changed;

/// How long a watch lasts that does not say.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// A watch that was cut: the connection ends without the last chunk, as when a server dies.
#[derive(Debug, thiserror::Error)]
#[error("the watch was cut")]
pub(super) struct Cut;

/// One watch.
struct Watch {
    shared: Handler,
    resource: Resource,
    namespace: Option<String>,
    /// The resourceVersion up to which everything was told.
    told: u64,
    bookmarks: bool,
    versions: Receiver<u64>,
    cuts: Receiver<[u64; Resource::ALL.len()]>,
    cuts_at_start: u64,
    mode: Receiver<Mode>,
    deadline: Instant,
    next_bookmark: Instant,
    ended: bool,
}

/// Answers a watch.
///
/// # Errors
/// A parameter that can't be read. A version that is too old is told within the watch, as API
/// servers do.
pub(super) fn watch(
    shared: &Handler,
    target: &Target,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let timeout = match params.timeout_seconds()? {
        0 => TIMEOUT,
        seconds => Duration::from_secs(seconds),
    };
    let asked = asked_version(&params.resource_version)?;
    let resource = target.resource;
    let cuts = shared.cuts.subscribe();
    let cuts_at_start = cuts.borrow()[resource as usize];
    let now = Instant::now();
    let wants_state = params.send_initial_events().unwrap_or(asked.is_none());
    let (at, versions, state) = {
        let cluster = shared.lock();
        let all = || cluster.all(resource, target.namespace.as_deref());
        let state = if wants_state { all() } else { Vec::new() };
        (cluster.version(), cluster.world.subscribe(&shared.cluster), state)
    };
    let told = if wants_state { at } else { asked.unwrap_or(at) };
    let mut lines = Vec::new();
    for item in state {
        line(&mut lines, "ADDED", &item.to_value());
    }
    if wants_state && params.bookmarks() {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        line(&mut lines, "BOOKMARK", &bookmark(resource, told, Some(annotations)));
    }
    let Some(versions) = versions else { return Err(Failure::no_such_path()) };
    let watch = Watch {
        shared: shared.clone(),
        resource,
        namespace: target.namespace.clone(),
        told,
        bookmarks: params.bookmarks(),
        versions,
        cuts,
        cuts_at_start,
        mode: shared.mode.subscribe(),
        deadline: now + timeout,
        next_bookmark: now + shared.settings.bookmark_every,
        ended: false,
    };
    let first = futures::stream::iter((!lines.is_empty()).then(|| Ok(Bytes::from(lines))));
    let rest = futures::stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next, watch))
    });
    let mut response = Response::new(Body::from_stream(futures::StreamExt::chain(first, rest)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Watch {
    /// The next lines; `None` at the watch's end.
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            if self.cuts.borrow()[self.resource as usize] != self.cuts_at_start {
                return Some(Err(Cut));
            }
            if self.ended {
                return None;
            }
            // A frozen server says nothing, not even that the watch is over.
            let _ = self.mode.wait_for(|mode| *mode != Mode::Frozen).await;
            let lines = self.news();
            if !lines.is_empty() {
                self.ended |= Instant::now() >= self.deadline;
                return Some(Ok(lines.into()));
            }
            let now = Instant::now();
            self.ended = now >= self.deadline;
            if self.bookmarks && (self.ended || now >= self.next_bookmark) {
                self.next_bookmark = now + self.shared.settings.bookmark_every;
                let mut lines = Vec::new();
                line(&mut lines, "BOOKMARK", &bookmark(self.resource, self.told, None));
                return Some(Ok(lines.into()));
            }
            let until = match self.bookmarks {
                true => self.deadline.min(self.next_bookmark),
                false => self.deadline,
            };
            tokio::select! {
                _ = self.cuts.changed() => {}
                _ = self.versions.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// What changed since this was asked last.
    fn news(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        self.versions.borrow_and_update();
        let cluster = self.shared.lock();
        match cluster.changes(self.resource, self.told) {
            Ok(changes) => {
                self.told = self.told.max(cluster.version());
                drop(cluster);
                for (what, item) in changes {
                    if self.namespace.as_ref().is_some_and(|ns| item.key().namespace != *ns) {
                        continue;
                    }
                    let what = match what {
                        Changed::Added => "ADDED",
                        Changed::Modified => "MODIFIED",
                        Changed::Deleted => "DELETED",
                    };
                    line(&mut lines, what, &item.to_value());
                }
            }
            Err(too_old) => {
                self.ended = true;
                let status = Failure::too_old(self.told, too_old.oldest).to_value();
                line(&mut lines, "ERROR", &status);
            }
        }
        lines
    }
}

fn bookmark(resource: Resource, version: u64, annotations: Option<Value>) -> Value {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(annotations) = annotations {
        metadata["annotations"] = annotations;
    }
    json!({"apiVersion": resource.api_version(), "kind": resource.kind(), "metadata": metadata})
}

fn line(lines: &mut Vec<u8>, what: &str, object: &Value) {
    lines.extend_from_slice(format!("{{\"type\":\"{what}\",\"object\":").as_bytes());
    lines.extend_from_slice(object.to_string().as_bytes());
    lines.extend_from_slice(b"}\n");
}
