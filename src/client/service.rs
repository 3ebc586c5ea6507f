//! A kube client over ours, for kube's libraries: with our credentials, connections, time-outs, metrics
//! and errors.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::{Request, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt, iter, once};

use super::error::root_cause;
use super::{AT_ONCE, CallError, ClusterClient, JSON, OBJECT_BYTES_MAX, frames, get, no_request};
use crate::core::data::objects::null_as_empty;

type Pieces = BoxStream<'static, Result<Frame<Bytes>, CallError>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a whole answer, or the head of a watch.
    pub(crate) answer: Duration,
    /// A watch without data for this long ends and is opened again.
    pub(crate) silence: Duration,
}

/// A client whose requests go through `cluster`, and a receiver that changes whenever a watch is
/// opened.
pub(crate) fn kube_client(
    cluster: Arc<ClusterClient>,
    timeouts: Timeouts,
) -> (kube::Client, watch::Receiver<()>) {
    let (opened, receiver) = watch::channel(());
    let opened = Arc::new(opened);
    let service = tower::service_fn(move |request: Request<Body>| {
        let cluster = cluster.clone();
        let opened = opened.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(|error| no_request(&error))?;
            let request = Request::from_parts(head, body.to_vec());
            let Some(from) = watched_from(&request) else {
                let answer = cluster.call_with_head(request, timeouts.answer).await?;
                return Ok(answer.map(|bytes| pieces(once(Ok(bytes)))));
            };
            let path = request.uri().path();
            let now = current_version(&cluster, path, timeouts.answer).await?;
            if now.parse().unwrap_or(0) < from {
                return Err(went_backwards());
            }
            let answer = cluster.open(request, timeouts.answer).await?;
            opened.send_replace(());
            Ok::<_, CallError>(answer.map(|body| watch_pieces(frames(body), timeouts.silence)))
        }
    });
    (kube::Client::new(service, "default"), receiver)
}

/// The version that a watch begins at; `None` for another request.
fn watched_from(request: &Request<Vec<u8>>) -> Option<u64> {
    let query = request.uri().query()?;
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key));
    value("watch=").filter(|watch| *watch == "true")?;
    Some(value("resourceVersion=").and_then(|version| version.parse().ok()).unwrap_or(0))
}

/// The current resourceVersion of a collection; empty if the list has none. An API server restored from
/// an older state accepts a watch from a version that it has not reached, and is silent until it has.
///
/// # Errors
/// As [`ClusterClient::call`], and for an answer that is no list.
pub(crate) async fn current_version(
    cluster: &ClusterClient,
    path: &str,
    timeout: Duration,
) -> Result<String, CallError> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
        /// Go writes `null` for an empty list. Without the field, the answer is no list.
        #[serde(rename = "items", deserialize_with = "null_as_empty")]
        _items: Vec<IgnoredAny>,
    }
    let answer = cluster.call(get(&format!("{path}?limit=1"), JSON)?, timeout).await?;
    // The reader's own error may quote a Secret.
    let list: List = serde_json::from_slice(&answer).map_err(|error| {
        let line = error.line();
        CallError::Unreadable(format!("a list: the answer is not the JSON of a list, line {line}"))
    })?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// The error of a watch that can't continue: the API server was restored and has not reached its
/// resourceVersion. No server sent this error.
pub(crate) fn went_backwards() -> CallError {
    let message = "its resourceVersions went back: it was restored from an older state".to_owned();
    let code = StatusCode::GONE.as_u16();
    CallError::of_status(Status { code, message, ..Status::default() }, None)
}

fn pieces(
    stream: impl Stream<Item = Result<Bytes, CallError>> + Send + 'static,
) -> StreamBody<Pieces> {
    StreamBody::new(Box::pin(stream.map(|piece| piece.map(Frame::data))))
}

/// The body of a watch, with two limits that kube lacks: a watch that ends at once fails, because
/// kube's `watcher` opens the next one without a pause; and so does an endless line. A silent watch
/// ends.
fn watch_pieces(
    body: impl Stream<Item = Result<Bytes, CallError>> + Send + 'static,
    silence: Duration,
) -> StreamBody<Pieces> {
    let opened = Instant::now();
    let mut line_bytes = 0;
    let lines = body.timeout(silence).map_while(Result::ok).map(move |piece| {
        let piece = piece.map_err(broke_off)?;
        line_bytes = match memchr::memrchr(b'\n', &piece) {
            Some(end) => piece.len() - end - 1,
            None => line_bytes + piece.len(),
        };
        match line_bytes > OBJECT_BYTES_MAX {
            true => Err(CallError::Unreadable(format!("a line of over {OBJECT_BYTES_MAX} bytes"))),
            false => Ok(piece),
        }
    });
    let end = std::iter::once_with(move || {
        let error = || Err(CallError::Unreadable("the watch ended at once".to_owned()));
        (opened.elapsed() < AT_ONCE).then(error)
    });
    pieces(lines.chain(iter(end.flatten())))
}

/// Changes the text of an error that kube's client takes for the end of a watch, "unexpected EOF during
/// chunk", because its `watcher` then opens the next watch without a pause.
fn broke_off(error: CallError) -> CallError {
    match error {
        CallError::Unreadable(text) => {
            CallError::Unreadable(text.replace("EOF during chunk", "end of a chunk"))
        }
        error => error,
    }
}

/// The error of a client made by [`kube_client`].
pub(crate) fn call_error(error: &(dyn Error + 'static)) -> CallError {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<CallError>() {
            return error.clone();
        }
        // From an ERROR event of a watch.
        if let Some(status) = cause.downcast_ref::<Box<Status>>() {
            return CallError::of_status((**status).clone(), None);
        }
        // The source of an `io::Error` is that of its inner error.
        let within = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = within.map(|error| error as &dyn Error).or_else(|| cause.source());
    }
    CallError::Unreadable(root_cause(error))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use kube_runtime::watcher;

    use super::*;

    /// The bytes of a watch, and its error.
    async fn watched(
        body: impl Stream<Item = Result<Bytes, CallError>> + Send + 'static,
    ) -> (usize, Option<CallError>) {
        let mut body = watch_pieces(body, Duration::from_secs(90));
        let mut bytes = 0;
        let mut error = None;
        while let Some(piece) = body.frame().await {
            match piece {
                Ok(piece) => bytes += piece.into_data().unwrap().len(),
                Err(failed) => error = Some(failed),
            }
        }
        (bytes, error)
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_fails_where_it_ends_at_once_and_ends_where_it_is_silent() {
        let ended = Some(CallError::Unreadable("the watch ended at once".to_owned()));
        let line = || once(Ok(Bytes::from_static(b"{}\n")));
        assert_eq!(watched(line()).await, (3, ended));
        assert_eq!(watched(line().chain(tokio_stream::pending())).await, (3, None));
        let endless = iter((0..9).map(|_| Ok(Bytes::from(vec![b' '; OBJECT_BYTES_MAX / 8]))));
        let (bytes, error) = watched(endless.chain(tokio_stream::pending())).await;
        assert!(bytes == OBJECT_BYTES_MAX && error.is_some(), "{bytes} {error:?}");
    }

    #[test]
    fn an_error_has_its_code_wherever_it_comes_from() {
        let gone = || Status { code: 410, ..Status::default() };
        let ours = || CallError::of_status(gone(), None);
        for error in [
            watcher::Error::WatchError(Box::new(gone())),
            watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(gone()))),
            watcher::Error::WatchStartFailed(kube::Error::Service(Box::new(ours()))),
            watcher::Error::WatchFailed(kube::Error::ReadEvents(io::Error::other(ours()))),
        ] {
            assert_eq!(call_error(&error).code(), Some(410), "{error:?}");
        }
        assert_eq!(call_error(&watcher::Error::NoResourceVersion).code(), None);
    }
}
