//! The shape of JSON: which members there are and of which types, whatever their values.

use super::*;
use throughline::admin::Query;
use throughline::config::StateAccess;
use throughline::event_log::LogReader;
use throughline::inspect::log::{self, LogMoment};

use crate::http::Server;
use crate::program::fixture;

/// Logs that together show most of what can be shown.
const LOGS: [(&str, &str); 8] = [
    ("careless-platform", ""),
    ("../tests/commands/surface/corpus/settings-and-retry", ""),
    ("incident-503", "default/home-lab"),
    ("oversized-status-nothing-fits", "default/home-lab"),
    ("second-writer-keeps-at-it", "default/home-lab"),
    ("three-tiers-through-the-carrier", "default/home-lab"),
    ("upstream-cluster-not-configured", "default/known"),
    ("orphan-is-reported", ""),
];

/// Adds each member under its path, with the type of its value.
fn add(value: &Value, path: &str, members: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    members.entry(path.to_owned()).or_default().insert(kind);
    match value {
        Value::Array(items) => items.iter().for_each(|v| add(v, &format!("{path}[]"), members)),
        Value::Object(object) => {
            for (key, value) in object {
                // Annotations and labels are data.
                let key = if key.contains('/') { "*" } else { key };
                add(value, &format!("{path}.{key}"), members);
            }
        }
        _ => {}
    }
}

fn assert_shape(name: &str, values: impl IntoIterator<Item = Value>) {
    let mut members = BTreeMap::new();
    values.into_iter().for_each(|value| add(&value, "", &mut members));
    let mut text = String::new();
    for (path, kinds) in members.iter().filter(|(path, _)| !path.is_empty()) {
        let _ =
            writeln!(text, "{path}: {}", kinds.iter().copied().collect::<Vec<_>>().join(" or "));
    }
    assert_golden(name, &text);
}

/// What `/state` says of each log, at its end and in its middle.
#[tokio::test]
async fn shape_of_the_state() {
    let mut states = Vec::new();
    for (name, _) in LOGS {
        for at in [LogMoment::End, LogMoment::Offset(5_000), LogMoment::Offset(8_000)] {
            let mut reader = LogReader::open(&fixture(name)).unwrap();
            let (fleet, _) = log::fleet(&mut reader, at, true).unwrap();
            let (server, mut asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
            tokio::spawn(async move {
                if let Some(Query::State(answer)) = asked.recv().await {
                    drop(answer.send(Box::new(fleet)));
                }
            });
            states.push(serde_json::from_str(&server.get("/state").await.body).unwrap());
            server.stop().await;
        }
    }
    assert_shape("state.txt", states);
}

#[test]
fn shape_of_what_commands_print() {
    let of = |words: &str, log: &str| {
        let words: Vec<_> = words.split(' ').collect();
        json(&[&words[..], &[fixture(log).as_str(), "-o", "json"]].concat())
    };
    assert_shape("status.txt", LOGS.map(|(log, _)| of("status --log", log)));
    assert_shape("replay.txt", LOGS.map(|(log, _)| of("replay", log)));
    let traced = LOGS.into_iter().filter(|(_, connector)| !connector.is_empty());
    let trace = |(log, of_log): (&str, &str)| of(&format!("trace connector {of_log} --log"), log);
    assert_shape("trace.txt", traced.map(trace));
}
