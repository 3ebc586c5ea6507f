//! kube's client over ours: for what kube's libraries do well, with our credentials, connections, time-outs,
//! metrics and errors.

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
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt, iter, once};

use super::error::root_cause;
use super::{CallError, ClusterClient, Frames, JSON, get, no_request};

/// A watch that ends sooner failed: kube's `watcher` opens the next one without a pause.
pub(crate) const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The longest line of a watch, in bytes: kube's client has no limit. etcd holds no object of 1.5 MiB.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

type Pieces = BoxStream<'static, Result<Frame<Bytes>, CallError>>;

/// How long requests may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a whole answer, or the head of a watch.
    pub(crate) timeout: Duration,
    /// A watch that brings nothing for so long ends, and is opened again.
    pub(crate) silent_after: Duration,
}

/// A client whose requests go through `cluster`, and what changes whenever a watch is opened.
pub(crate) fn kube_client(
    cluster: Arc<ClusterClient>,
    patience: Patience,
) -> (kube::Client, watch::Receiver<()>) {
    let (opened, receiver) = watch::channel(());
    let opened = Arc::new(opened);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cluster, opened) = (cluster.clone(), opened.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(|error| no_request(&error))?;
            let request = Request::from_parts(head, body.to_vec());
            let Some(from) = watched_from(&request) else {
                let answer = cluster.call_with_head(request, patience.timeout).await?;
                return Ok(answer.map(|bytes| pieces(once(Ok(bytes)))));
            };
            let path = request.uri().path();
            if current_version(&cluster, path, patience.timeout).await? < from {
                return Err(went_back());
            }
            let answer = cluster.open(request, patience.timeout).await?;
            opened.send_replace(());
            Ok::<_, CallError>(answer.map(|body| watch_pieces(body, patience.silent_after)))
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

/// The resourceVersion that a collection has now. An API server that was restored from an older state
/// accepts a watch from a version that it has not reached, and stays silent until it has.
///
/// # Errors
/// As [`ClusterClient::call`].
async fn current_version(
    cluster: &ClusterClient,
    path: &str,
    timeout: Duration,
) -> Result<u64, CallError> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
    }
    let answer = cluster.call(get(&format!("{path}?limit=1"), JSON)?, timeout).await?;
    let list: List = serde_json::from_slice(&answer)
        .map_err(|e| CallError::Unreadable(format!("a list: line {}", e.line())))?;
    Ok(list.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or(0))
}

/// A watch can't go on: the API server has not reached its resourceVersion, because it was restored. No
/// server sent this.
pub(crate) fn went_back() -> CallError {
    let message = "its resourceVersions went back: it was restored from an older state".to_owned();
    let code = StatusCode::GONE.as_u16();
    CallError::of_status(Status { code, message, ..Status::default() }, None)
}

fn pieces(
    stream: impl Stream<Item = Result<Bytes, CallError>> + Send + 'static,
) -> StreamBody<Pieces> {
    StreamBody::new(Box::pin(stream.map(|piece| piece.map(Frame::data))))
}

/// The body of a watch: it ends when it is silent, and fails where it ends at once or has a line without
/// an end.
fn watch_pieces(body: Body, silent_after: Duration) -> StreamBody<Pieces> {
    let opened = Instant::now();
    let mut line_bytes = 0;
    let lines = Frames::new(body).0.timeout(silent_after).map_while(Result::ok).map(move |piece| {
        let piece = piece.map_err(broke_off)?;
        line_bytes = match memchr::memrchr(b'\n', &piece) {
            Some(end) => piece.len() - end - 1,
            None => line_bytes + piece.len(),
        };
        match line_bytes > LINE_BYTES_MAX {
            true => Err(CallError::Unreadable(format!("a line of over {LINE_BYTES_MAX} bytes"))),
            false => Ok(piece),
        }
    });
    let end = std::iter::once_with(move || {
        let error = || Err(CallError::Unreadable("the watch ended at once".to_owned()));
        (opened.elapsed() < HEALTHY_AFTER).then(error)
    });
    pieces(lines.chain(iter(end.flatten())))
}

/// kube's client takes an "unexpected EOF during chunk" for an end, and its `watcher` opens the next watch
/// without a pause.
fn broke_off(error: CallError) -> CallError {
    match error {
        CallError::Unreadable(text) => {
            CallError::Unreadable(text.replace("EOF during chunk", "end of a chunk"))
        }
        error => error,
    }
}

/// The error of a client that [`kube_client`] made.
pub(crate) fn call_error(error: &(dyn Error + 'static)) -> CallError {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<CallError>() {
            return error.clone();
        }
        // What an ERROR event of a watch carries.
        if let Some(status) = cause.downcast_ref::<Box<Status>>() {
            return CallError::of_status((**status).clone(), None);
        }
        // The source of an `io::Error` is that of the error within.
        let within = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = within.map(|error| error as &dyn Error).or_else(|| cause.source());
    }
    CallError::Unreadable(root_cause(error))
}

#[cfg(test)]
mod tests {
    use kube_runtime::watcher;

    use super::*;

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
