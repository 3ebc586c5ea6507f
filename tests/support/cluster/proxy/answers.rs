//! What the proxy answers: what the API server does, or what a fault makes of it.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::super::faults::{Fault, Target, status_body};
use super::super::http::{forward, full};
use super::{Answer, CutOff, Shared};

pub(super) async fn answer_with_fault(
    parts: &http::request::Parts,
    target: &Target,
    body: Bytes,
    fault: Option<Fault>,
    shared: &Arc<Shared>,
    version: &mut String,
) -> Result<Answer, CutOff> {
    let json = |body: String| {
        Ok(Response::builder().header(header::CONTENT_TYPE, JSON).body(full(body.into())).unwrap())
    };
    match fault {
        Some(Fault::Cut) => return Err(CutOff),
        Some(Fault::Status(code)) => {
            let mut answer = json(status_body(code).to_string())?;
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            return Ok(answer);
        }
        Some(Fault::Expire) => {
            return json(format!("{}\n", json!({ "type": "ERROR", "object": status_body(410) })));
        }
        Some(Fault::Answer(body)) => return json(body.to_string()),
        Some(Fault::Freeze) => std::future::pending::<()>().await,
        Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
        Some(Fault::Hold(ref gate)) => gate.pass().await,
        Some(Fault::LoseAnswer | Fault::Truncate) | None => {}
    }
    let answer = pass_on(parts, target, body, shared, version).await;
    // A frozen proxy holds back answers as well as watch events.
    let _ = shared.frozen.subscribe().wait_for(|frozen| !frozen).await;
    match fault {
        Some(Fault::LoseAnswer) => Err(CutOff),
        Some(Fault::Truncate) => truncated(answer?).await,
        _ => answer,
    }
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

const JSON: &str = "application/json";

async fn pass_on(
    parts: &http::request::Parts,
    target: &Target,
    body: Bytes,
    shared: &Arc<Shared>,
    version: &mut String,
) -> Result<Answer, CutOff> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let answer = forward(parts, path, body, &shared.backend).await.map_err(|_| CutOff)?;
    let (parts, body) = answer.into_parts();
    if target.is_write() {
        let bytes = body.collect().await.map_err(|_| CutOff)?.to_bytes();
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
