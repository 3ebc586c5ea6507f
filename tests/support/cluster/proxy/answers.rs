//! What the proxy answers: what the API server does, or what a fault makes of it.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::super::faults::{Fault, status_body};
use super::{Answer, CutOff, Record};

pub(super) async fn answer_with_fault(
    parts: &Parts,
    body: Bytes,
    fault: Option<Fault>,
    record: &mut Record,
) -> Result<Answer, CutOff> {
    match fault {
        Some(Fault::Cut) => return Err(CutOff),
        Some(Fault::Status(code)) => {
            let mut answer = json_answer(status_body(code).to_string());
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            return Ok(answer);
        }
        Some(Fault::Expire) => {
            let expired = json!({ "type": "ERROR", "object": status_body(410) });
            return Ok(json_answer(format!("{expired}\n")));
        }
        Some(Fault::Answer(body)) => return Ok(json_answer(body.to_string())),
        Some(Fault::Freeze) => std::future::pending::<()>().await,
        Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
        Some(Fault::Hold(ref gate)) => gate.pass().await,
        Some(Fault::LoseAnswer | Fault::Truncate) | None => {}
    }
    let answer = pass_on(parts, body, record).await;
    // A frozen proxy holds back answers as well as watch events.
    record.shared.is_thawed().await;
    match fault {
        Some(Fault::LoseAnswer) => Err(CutOff),
        Some(Fault::Truncate) => truncated(answer?).await,
        _ => answer,
    }
}

fn json_answer(body: String) -> Answer {
    with_type(full(body.into()))
}

fn with_type(body: UnsyncBoxBody<Bytes, std::io::Error>) -> Answer {
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}

fn full(bytes: Bytes) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Sends half of the answer and closes the connection.
async fn truncated(answer: Answer) -> Result<Answer, CutOff> {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|_| CutOff)?.to_bytes();
    let half = Frame::data(bytes.slice(..bytes.len() / 2));
    let broken = std::io::Error::other("truncated by the test's proxy");
    let stream = stream::iter([Ok(half), Err(broken)]);
    Ok(Response::from_parts(parts, StreamBody::new(stream).boxed_unsync()))
}

/// The project of a Milo whose control plane a path leads to, and the path there.
pub(super) fn control_plane(path: &str) -> (Option<&str>, &str) {
    let projects = path.strip_prefix("/apis/resourcemanager.miloapis.com/v1alpha1/projects/");
    let parts = projects.and_then(|rest| rest.split_once("/control-plane"));
    parts.map_or((None, path), |(project, rest)| (Some(project), rest))
}

async fn pass_on(parts: &Parts, body: Bytes, record: &mut Record) -> Result<Answer, CutOff> {
    let Record { shared, exchange } = record;
    let (project, path) = control_plane(parts.uri.path());
    let mut backend = shared.backend.clone();
    if let Some(project) = project {
        let found = shared.projects.lock().unwrap().get(project).cloned();
        let Some(found) = found else {
            shared.strangers.lock().unwrap().insert(project.to_owned());
            return Ok(nothing(exchange.target.is_watch));
        };
        backend = found;
    }
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let answer = forward(parts, &format!("{path}{query}"), body, &backend).await;
    let (parts, body) = answer.map_err(|_| CutOff)?.into_parts();
    if exchange.target.is_write() {
        let bytes = body.collect().await.map_err(|_| CutOff)?.to_bytes();
        let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        version.clone_into(&mut exchange.resource_version);
        return Ok(Response::from_parts(parts, full(bytes)));
    }
    let open = exchange.target.is_watch.then(|| shared.open_watches.clone());
    let frames = stream::unfold(Some((body, shared.clone(), open)), |state| async {
        let (mut body, shared, open) = state?;
        let frame = body.frame().await?;
        shared.is_thawed().await;
        match frame {
            Ok(frame) => Some((Ok::<Frame<Bytes>, _>(frame), Some((body, shared, open)))),
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    });
    Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
}

/// What Milo answers for a project that does not exist: an empty list, or a watch without events.
fn nothing(is_watch: bool) -> Answer {
    if is_watch {
        let never = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        return with_type(StreamBody::new(never).boxed_unsync());
    }
    let metadata = json!({ "resourceVersion": "1" });
    let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": [] });
    json_answer(list.to_string())
}

/// Sends a request on to `backend`. The answer's body is not read.
async fn forward(
    parts: &Parts,
    path_and_query: &str,
    body: Bytes,
    backend: &Client,
) -> Result<Response<Body>, kube::Error> {
    let mut request = Request::builder().method(&parts.method).uri(path_and_query);
    let mut headers = parts.headers.clone();
    remove_connection_headers(&mut headers);
    *request.headers_mut().unwrap() = headers;
    let mut answer = backend.send(request.body(Body::from(body)).unwrap()).await?;
    remove_connection_headers(answer.headers_mut());
    Ok(answer)
}

/// Removes the headers that belong to one connection only.
fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in
        [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
    {
        headers.remove(name);
    }
}
