//! What the proxy answers: what the API server does, or what a fault makes of it.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use h2::Reason;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::Value;

use super::super::faults::{Fault, Target, status_body};
use super::super::http::{full, remove_connection_headers};
use super::{Answer, CutOff, Shared};

pub(super) async fn answer_with_fault(
    parts: &http::request::Parts,
    target: &Target,
    body: Bytes,
    fault: Option<Fault>,
    shared: &Arc<Shared>,
    version: &mut String,
) -> Result<Answer, CutOff> {
    match fault {
        Some(Fault::Cut) => return Err(CutOff::Closed),
        Some(Fault::RefuseStream) => return Err(CutOff::Refused(Reason::REFUSED_STREAM.into())),
        Some(Fault::Status { code, reason, retry_after_s }) => {
            return Ok(error_answer(code, reason, retry_after_s));
        }
        Some(Fault::Expire) => {
            let status = status_body(410, "Expired", None);
            let event = serde_json::json!({ "type": "ERROR", "object": status }).to_string();
            let body = full(format!("{event}\n").into());
            return Ok(Response::builder().header(header::CONTENT_TYPE, JSON).body(body).unwrap());
        }
        Some(Fault::Answer(body)) => {
            let body = full(body.to_string().into());
            return Ok(Response::builder().header(header::CONTENT_TYPE, JSON).body(body).unwrap());
        }
        Some(Fault::Freeze) => std::future::pending::<()>().await,
        Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
        Some(Fault::Hold(ref gate)) => gate.pass().await,
        Some(Fault::LoseAnswer | Fault::Truncate | Fault::Date(_)) | None => {}
    }
    let answer = forward(parts, target, body, shared, version).await;
    // A frozen proxy holds back answers as well as watch events.
    let _ = shared.frozen.subscribe().wait_for(|frozen| !frozen).await;
    match fault {
        Some(Fault::LoseAnswer) => Err(CutOff::Closed),
        Some(Fault::Truncate) => truncated(answer?).await,
        Some(Fault::Date(date)) => {
            let mut answer = answer?;
            answer.headers_mut().insert(header::DATE, header::HeaderValue::from_static(date));
            Ok(answer)
        }
        _ => answer,
    }
}

/// Sends half of the answer and closes the connection.
async fn truncated(answer: Answer) -> Result<Answer, CutOff> {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|_| CutOff::Closed)?.to_bytes();
    let half = Frame::data(bytes.slice(..bytes.len() / 2));
    let broken = std::io::Error::other("truncated by the test's proxy");
    let stream = stream::iter([Ok(half), Err(broken)]);
    Ok(Response::from_parts(parts, StreamBody::new(stream).boxed_unsync()))
}

const JSON: &str = "application/json";

fn error_answer(code: u16, reason: &str, retry_after_s: Option<u32>) -> Answer {
    let mut answer = Response::builder().status(code).header(header::CONTENT_TYPE, JSON);
    if let Some(seconds) = retry_after_s {
        answer = answer.header(header::RETRY_AFTER, seconds);
    }
    answer.body(full(status_body(code, reason, retry_after_s).to_string().into())).unwrap()
}

async fn forward(
    parts: &http::request::Parts,
    target: &Target,
    body: Bytes,
    shared: &Arc<Shared>,
    version: &mut String,
) -> Result<Answer, CutOff> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(&parts.method).uri(path);
    let mut headers = parts.headers.clone();
    remove_connection_headers(&mut headers);
    *request.headers_mut().unwrap() = headers;
    let answer = shared.backend.send(request.body(Body::from(body)).unwrap()).await;
    let (mut parts, body) = answer.map_err(|_| CutOff::Closed)?.into_parts();
    remove_connection_headers(&mut parts.headers);
    if target.is_write() {
        let bytes = body.collect().await.map_err(|_| CutOff::Closed)?.to_bytes();
        let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let found = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        found.clone_into(version);
        return Ok(Response::from_parts(parts, full(bytes)));
    }
    let open = target.is_watch.then(|| OpenWatch::new(shared));
    let frozen = shared.frozen.subscribe();
    let stream = stream::unfold(Some((body, frozen, open)), |state| async {
        let (mut body, mut frozen, open) = state?;
        let frame = body.frame().await?;
        let _ = frozen.wait_for(|frozen| !frozen).await;
        match frame {
            Ok(frame) => Some((Ok::<Frame<Bytes>, _>(frame), Some((body, frozen, open)))),
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    });
    Ok(Response::from_parts(parts, StreamBody::new(stream).boxed_unsync()))
}

struct OpenWatch(Arc<Shared>);

impl OpenWatch {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open_watches.send_modify(|open| *open += 1);
        Self(shared.clone())
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open_watches.send_modify(|open| *open -= 1);
    }
}
