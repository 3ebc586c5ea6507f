//! The script of requests, and how one server answers it: each answer brought to a form in which
//! two servers can be compared.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod plain;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use plain::Plain;

/// One request and what must come of it; `script.yaml` says what each member means.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    request: String,
    #[serde(default)]
    body: Value,
    #[serde(default, rename = "as")]
    manager: Option<String>,
    #[serde(default, rename = "type")]
    content_type: Option<String>,
    code: u16,
    #[serde(default)]
    reason: Option<String>,
    /// The texts differ, and that is known.
    #[serde(default)]
    own_words: bool,
    #[serde(default)]
    capture: BTreeMap<String, String>,
    #[serde(default)]
    watch: Option<usize>,
    #[serde(default)]
    pub(crate) hook: Option<String>,
}

pub(crate) fn script() -> Vec<Step> {
    serde_saphyr::from_str(include_str!("script.yaml")).unwrap()
}

/// One server under the script.
pub(crate) struct Run {
    client: Client,
    captured: BTreeMap<String, String>,
    plain: Plain,
}

impl Run {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, captured: BTreeMap::new(), plain: Plain::default() }
    }

    /// Sends a step's request; gives the answer in comparable form.
    ///
    /// # Panics
    /// The answer's code or reason are not the script's.
    pub(crate) async fn step(&mut self, step: &Step) -> Value {
        let (method, path) = step.request.split_once(' ').unwrap();
        let mut path = self.fill(path);
        if let Some(manager) = &step.manager {
            path = format!("{path}?fieldManager={manager}");
        }
        let content_type = step.content_type.as_deref().unwrap_or(match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        });
        let body =
            if step.body.is_null() { String::new() } else { self.fill(&step.body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(kube::client::Body::from(body.into_bytes()))
            .unwrap();
        let answer = async {
            let answer = self.client.send(request).await.unwrap();
            let code = answer.status().as_u16();
            let answer = match step.watch {
                Some(lines) if code == 200 => watched(answer, lines).await,
                _ => whole(answer).await,
            };
            (code, answer)
        };
        let (code, answer) =
            tokio::time::timeout(Duration::from_secs(60), answer).await.expect(&step.name);
        assert_eq!(code, step.code, "{}: {answer}", step.name);
        if let Some(reason) = &step.reason {
            assert_eq!(answer["reason"], **reason, "{}: {answer}", step.name);
        }
        for (name, pointer) in &step.capture {
            let value = answer.pointer(pointer).and_then(Value::as_str);
            self.captured.insert(name.clone(), value.expect(&step.name).to_owned());
        }
        let mut plain = self.plain.answer(&answer, step.manager.as_deref());
        if step.own_words {
            plain["message"] = Value::Null;
            let causes = plain.pointer_mut("/details/causes").and_then(Value::as_array_mut);
            for cause in causes.into_iter().flatten() {
                cause["message"] = Value::Null;
            }
        }
        plain
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.captured {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        if let Some((before, rest)) = text.split_once("FILL:") {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(digits);
            text = format!("{before}{}{after}", "x".repeat(number.parse().unwrap()));
        }
        assert!(!text.contains("${"), "{text}: nothing was captured");
        text
    }
}

async fn whole(answer: Response<kube::client::Body>) -> Value {
    let bytes = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await.unwrap();
    serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).trim().to_owned()))
}

/// The first lines of a watch, as an array; fewer where the watch ends before.
async fn watched(answer: Response<kube::client::Body>, lines: usize) -> Value {
    let mut stream = Body::new(answer.into_body()).into_data_stream();
    let mut text = Vec::new();
    let mut events = Vec::new();
    while events.len() < lines {
        let Some(bytes) = stream.next().await else { break };
        text.extend_from_slice(&bytes.unwrap());
        let end = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let complete: Vec<u8> = text.drain(..end).collect();
        for line in complete.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).unwrap();
            let marks = event["type"] != "BOOKMARK"
                || event["object"]["metadata"]["annotations"].is_object();
            if marks {
                events.push(event);
            }
        }
    }
    events.truncate(lines);
    Value::Array(events)
}
