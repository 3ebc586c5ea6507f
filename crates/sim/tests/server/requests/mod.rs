//! The script of requests, and a server's answers to it in a form that can be compared between
//! servers. `tests/e2e/conformance.rs` of the workspace sends it to a real kube-apiserver.

mod normalize;

use std::collections::BTreeMap;
use std::time::Duration;

use http::Response;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use throughline_sim::apiserver::SimApiServerSettings;

use crate::sim_apiserver::{WatchEvents, answer_typed, body_of, serve};
use normalize::Normalizer;

/// One request and its expected response; `script.yaml` explains each member.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    request: String,
    #[serde(default)]
    body: Value,
    #[serde(rename = "as")]
    manager: Option<String>,
    #[serde(rename = "type")]
    content_type: Option<String>,
    code: u16,
    reason: Option<String>,
    /// The messages are known to differ.
    #[serde(default)]
    own_words: bool,
    #[serde(default)]
    capture: BTreeMap<String, String>,
    watch: Option<usize>,
    /// The server drops its history first.
    #[serde(default)]
    compacts: bool,
}

pub(crate) fn script() -> Vec<Step> {
    serde_saphyr::from_str(include_str!("script.yaml")).unwrap()
}

/// What a server answers to each step of the script, in comparable form; `compact` has it drop its history.
///
/// # Panics
/// A code or a reason differs from the script.
pub(crate) async fn answers(client: &Client, compact: impl AsyncFn()) -> Vec<Value> {
    let (captured, normalizer) = (BTreeMap::new(), Normalizer::default());
    let mut run = ScriptRun { client: client.clone(), captured, normalizer };
    let mut answers = Vec::new();
    for step in script() {
        if step.compacts {
            compact().await;
        }
        answers.push(run.step(&step).await);
    }
    answers
}

pub(crate) async fn simulated_answers() -> Vec<Value> {
    let served = serve(SimApiServerSettings::default()).await;
    answers(&served.client, async || served.handle.compact()).await
}

/// The script on its way to one server.
struct ScriptRun {
    client: Client,
    captured: BTreeMap<String, String>,
    normalizer: Normalizer,
}

impl ScriptRun {
    async fn step(&mut self, step: &Step) -> Value {
        let (method, path) = step.request.split_once(' ').unwrap();
        let mut path = self.expand(path);
        if let Some(manager) = &step.manager {
            path = format!("{path}?fieldManager={manager}");
        }
        let body =
            if step.body.is_null() { String::new() } else { self.expand(&step.body.to_string()) };
        let content_type = step.content_type.as_deref();
        let answer = async {
            let answer = answer_typed(&self.client, method, &path, body, content_type);
            let answer = answer.await.unwrap();
            match step.watch {
                Some(lines) if answer.status() == 200 => (200, watch_events(answer, lines).await),
                _ => body_of(answer).await,
            }
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
        let mut comparable = self.normalizer.answer(&answer, step.manager.as_deref());
        if step.own_words {
            comparable["message"] = Value::Null;
            let causes = comparable.pointer_mut("/details/causes").and_then(Value::as_array_mut);
            for cause in causes.into_iter().flatten() {
                cause["message"] = Value::Null;
            }
        }
        comparable
    }

    /// Replaces captured values, and `FILL:N` by N characters.
    fn expand(&self, text: &str) -> String {
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

/// The first events of a watch as an array; fewer if the watch ends earlier.
async fn watch_events(answer: Response<Body>, count: usize) -> Value {
    let (mut watch, mut events) = (WatchEvents::of(answer), Vec::new());
    while events.len() < count
        && let Some(event) = watch.next().await
    {
        let (what, object) = event.unwrap();
        // Plain bookmarks come at any time; the one after the initial events is part of the answer.
        if what != "BOOKMARK" || object["metadata"]["annotations"].is_object() {
            events.push(json!({ "type": what, "object": object }));
        }
    }
    events.into()
}
