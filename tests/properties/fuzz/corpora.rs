//! What fuzzing starts from: pieces of the fixtures, of the vectors and of the documents in this
//! repository, made when they are needed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use throughline::event_log::LogReader;
use throughline::inspect::log::{LogMoment, fleet};

/// Of each fixture, no more than this many bytes.
const LOG_BYTES_MAX: usize = 3_000;

/// The first byte of the inputs that are read in pieces: short ones, long ones, all at once.
const PIECES: [u8; 3] = [0, 16, 255];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The inputs for a target, by its name.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    match target {
        "event_log" | "compressed_log" | "log_fleet" => in_pieces(&LOGS),
        "watch_stream" => in_pieces(&watches()),
        "list_page" => in_pieces(&pages()),
        "object" => bytes(OBJECTS.iter().map(Value::to_string).chain(written(target))),
        "canonical_json" => bytes(statuses().chain(spellings())),
        "liveness" => bytes(liveness_vectors().chain(statuses())),
        "redaction" => bytes(statuses().chain(error_texts())),
        "labels" => bytes(labels()),
        "lease" | "kubeconfig" => bytes(written(target)),
        "config" => bytes(configs()),
        "state" => bytes(states()),
        _ => panic!("{target} has no corpus"),
    }
}

fn bytes(texts: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    texts.into_iter().map(String::into_bytes).collect()
}

fn in_pieces(texts: &[String]) -> Vec<Vec<u8>> {
    let texts = texts.iter().zip(PIECES.iter().cycle());
    texts.map(|(text, first)| [&[*first], text.as_bytes()].concat()).collect()
}

/// The inputs of a target that were written by hand.
fn written(target: &str) -> Vec<String> {
    let text = read(format!("tests/properties/fuzz/inputs/{target}.txt"));
    text.trim_end().split("\n===\n").map(str::to_owned).collect()
}

static FIXTURES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = fs::read_dir(repository().join("fixtures")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    paths.sort();
    assert!(paths.len() > 80, "{} fixtures", paths.len());
    paths.into_iter().map(read).collect()
});

/// The beginning of each fixture, and single lines of every sort after a header.
static LOGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut logs = Vec::new();
    let mut sorts = BTreeMap::new();
    for log in FIXTURES.iter() {
        let end = log.char_indices().map(|(at, _)| at).take_while(|at| *at < LOG_BYTES_MAX).last();
        logs.push(log[..end.unwrap_or(0)].to_owned());
        for line in log.lines().skip(1) {
            let value: Value = serde_json::from_str(line).unwrap();
            let sort =
                [&value["event"], &value["outcome"], &value["state"], &value["action"]["type"]];
            sorts.entry(format!("{sort:?}")).or_insert_with(|| line.to_owned());
        }
    }
    let header = r#"{"log":"throughline","version":1,"part":1,"started_ms":1763715600000,"clusters":[{"name":"up","roles":["upstream"]},{"name":"hub","roles":["hub","edge"]}],"recorded":true}"#;
    let gap = r#"{"at_ms":1763715600000,"event":"log_gap","lines":7}"#;
    let lines: Vec<_> = sorts.into_values().collect();
    logs.push(format!("{header}\n{gap}\n{}\n", lines.join("\n")));
    logs.extend(lines.into_iter().map(|line| format!("{header}\n{gap}\n{line}\n")));
    logs
});

/// Objects of the fixtures: of each kind, those that have other fields than the ones before.
static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    fn form(value: &Value) -> String {
        match value {
            Value::Object(map) => {
                map.iter().map(|(key, value)| format!("{key}{{{}}}", form(value))).collect()
            }
            Value::Array(list) => list.first().map(form).unwrap_or_default(),
            Value::String(text) => text.starts_with('{').to_string(),
            _ => String::new(),
        }
    }
    let mut found = BTreeMap::new();
    for line in FIXTURES.iter().flat_map(|log| log.lines()) {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let object = line["object"].take();
        if object.is_object() {
            found.entry(format!("{} {}", object["kind"], form(&object))).or_insert(object);
        }
    }
    found.into_values().collect()
});

fn watches() -> Vec<String> {
    let event = |name: &str, object: &Value| json!({"type": name, "object": object}).to_string();
    let bookmark = json!({"metadata": {"resourceVersion": "12746"}});
    let mut watches: Vec<_> = OBJECTS
        .chunks(3)
        .zip(["ADDED", "MODIFIED", "DELETED"].into_iter().cycle())
        .map(|(objects, name)| objects.iter().map(|object| event(name, object) + "\n").collect())
        .collect();
    watches.extend(written("object").iter().map(|status| {
        let status = serde_json::from_str(status).unwrap();
        format!("{}\n\n{}\r\n", event("BOOKMARK", &bookmark), event("ERROR", &status))
    }));
    watches
}

fn pages() -> Vec<String> {
    let page = |objects: &[Value]| {
        let metadata = json!({"resourceVersion": "7", "continue": "n\"x", "remainingItemCount": 3});
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": objects})
    };
    let mut pages: Vec<_> = OBJECTS.chunks(4).map(|objects| page(objects).to_string()).collect();
    pages.extend(written("list_page"));
    pages
}

fn vectors(file: &str) -> impl Iterator<Item = Value> {
    let lines = read(Path::new("tests/vectors").join(file));
    let lines: Vec<_> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.into_iter()
}

/// Annotation and live status, with a zero byte between.
fn liveness_vectors() -> impl Iterator<Item = String> {
    vectors("liveness.jsonl").chain(vectors("platform-liveness.jsonl")).map(|vector| {
        let annotation = vector["annotation"].as_str().unwrap_or_default().to_owned();
        format!("{annotation}\0{}", vector["live"])
    })
}

fn statuses() -> impl Iterator<Item = String> {
    let of_objects = OBJECTS.iter().map(|object| object["status"].to_string());
    let annotations =
        vectors("liveness.jsonl").map(|v| v["annotation"].as_str().map(str::to_owned));
    of_objects.filter(|status| status != "null").chain(annotations.flatten())
}

fn spellings() -> impl Iterator<Item = String> {
    let both = vectors("spelling.jsonl").chain(vectors("platform-spelling.jsonl"));
    both.map(|vector| vector["status"].as_str().unwrap_or_default().to_owned())
}

fn error_texts() -> Vec<String> {
    [
        "dial tcp 10.20.0.7:6443: connect: connection refused",
        "Get \"https://api.example.test/apis?x=1\": EOF",
        "no route to fe80::1%eth0 (2001:db8::7), 10.0.0.0/8; größer: \u{2028}192.168.7.7!",
        "Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
        "the bearer token=hunter2-hunter2 is wrong; token abcdef.0123456789abcdef",
        "a\u{202e}b\x1b[2J\u{2066}c\r\nd\u{feff}",
    ]
    .map(str::to_owned)
    .into()
}

fn labels() -> Vec<String> {
    let mut labels = written("labels");
    for object in OBJECTS.iter() {
        for values in [&object["metadata"]["labels"], &object["metadata"]["annotations"]] {
            let values = values.as_object().into_iter().flat_map(|map| map.values());
            labels.extend(values.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    labels.sort();
    labels.dedup();
    labels
}

fn configs() -> Vec<String> {
    let bad = read("tests/commands/config/bad.txt");
    let mut configs: Vec<_> = bad.split("===\n").map(str::to_owned).collect();
    configs.extend(written("config"));
    configs.extend(
        [
            "deploy/examples/hub.yaml",
            "deploy/kustomize/components/sidecar/config.yaml",
            "deploy/kustomize/overlays/standalone-hub/config.yaml",
            "deploy/kustomize/overlays/all-in-one/config.yaml",
            "deploy/kustomize/overlays/standalone-edge/config.yaml",
        ]
        .map(read),
    );
    configs
}

/// The state at the end of some fixtures.
fn states() -> Vec<String> {
    let logs = FIXTURES.iter().filter(|log| log.len() < 6_000).step_by(4);
    let states = logs.filter_map(|log| {
        let mut reader = LogReader::new("x", Cursor::new(log)).unwrap();
        let (fleet, _) = fleet(&mut reader, LogMoment::End, true).ok()?;
        Some(serde_json::to_string(&fleet).unwrap())
    });
    states.collect()
}
