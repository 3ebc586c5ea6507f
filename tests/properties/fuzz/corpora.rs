//! What fuzzing starts from: pieces of the fixtures, of the vectors and of the documents in this
//! repository, made when they are needed, and what was written by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use throughline::event_log::LogReader;
use throughline::inspect::log::fleet;

/// Error texts with characters that nobody would see in a file of inputs.
const DECEPTIVE: [&str; 2] =
    ["größer: \u{2028}192.168.7.7!", "a\u{202e}b\x1b[2J\u{2066}c\r\nd\u{feff}"];

/// Of each fixture, no more than this many bytes.
const LOG_BYTES_MAX: usize = 3_000;

/// The inputs for a target, by its name.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut texts = match target {
        "event_log" | "compressed_log" | "log_fleet" => logs(),
        "watch_stream" => watches(),
        "list_page" => pages(),
        "object" => OBJECTS.iter().map(Value::to_string).collect(),
        "canonical_json" => STATUSES.clone(),
        "redaction" => STATUSES.iter().cloned().chain(DECEPTIVE.map(str::to_owned)).collect(),
        // What an annotation says, and what a live status does.
        "liveness" => STATUSES.windows(2).map(|two| two.join("\0")).collect(),
        "labels" => labels(),
        "config" => configs(),
        "state" => states(),
        _ => Vec::new(),
    };
    texts.extend(written(target));
    texts.into_iter().map(String::into_bytes).collect()
}

fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The inputs of a target that were written by hand, if there are some.
pub(crate) fn written(target: &str) -> Vec<String> {
    let file = path("tests/properties/fuzz/inputs").join(format!("{target}.txt"));
    if !file.exists() {
        return Vec::new();
    }
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.trim_end().split("\n===\n").map(str::to_owned).collect()
}

/// The files in a folder that end like this.
fn files(folder: &str, end: &str) -> Vec<String> {
    let entries = fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().path());
    let paths: BTreeSet<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == end)).collect();
    assert!(!paths.is_empty(), "no {end} in {folder}");
    paths.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

static FIXTURES: LazyLock<Vec<String>> = LazyLock::new(|| files("fixtures", "jsonl"));

/// Lines of the fixtures: of each form the first.
static LINES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    /// The keys of a value, and those texts that come from a closed list.
    fn form(value: &Value) -> String {
        let form_of = |(key, value): (&String, &Value)| match (key.as_str(), value) {
            ("event" | "kind" | "outcome" | "state" | "type", Value::String(text)) => text.clone(),
            _ => format!("{key}{{{}}}", form(value)),
        };
        match value {
            Value::Object(map) => map.iter().map(form_of).collect(),
            Value::Array(list) => list.first().map(form).unwrap_or_default(),
            Value::String(text) => text.starts_with('{').to_string(),
            _ => String::new(),
        }
    }
    let mut found = BTreeMap::new();
    for line in FIXTURES.iter().flat_map(|log| log.lines().skip(1)) {
        found.entry(form(&serde_json::from_str(line).unwrap())).or_insert(line);
    }
    found.into_values().collect()
});

static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let lines = LINES.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|mut line| line["object"].take()).filter(Value::is_object).collect()
});

/// Statuses and status annotations: of these objects, and of Go's vectors.
static STATUSES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let vectors = files("tests/vectors", "jsonl");
    let vectors = vectors.iter().flat_map(|file| file.lines());
    let vectors = vectors.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let values = vectors
        .chain(OBJECTS.iter().cloned())
        .flat_map(|mut value| ["status", "annotation", "live"].map(|field| value[field].take()));
    let texts = values.filter(|value| !value.is_null()).map(|value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    });
    texts.collect()
});

/// The beginning of each fixture, and single lines after a header.
fn logs() -> Vec<String> {
    let header = r#"{"log":"throughline","version":1,"part":1,"started_ms":1763715600000,"clusters":[{"name":"up","roles":["upstream"]},{"name":"hub","roles":["hub","edge"]}],"recorded":true}"#;
    let gap = r#"{"at_ms":1763715600000,"event":"log_gap","lines":7}"#;
    let beginning = |log: &String| log[..log.floor_char_boundary(LOG_BYTES_MAX)].to_owned();
    let mut logs: Vec<_> = FIXTURES.iter().map(beginning).collect();
    for lines in LINES.chunks(LINES.len()).chain(LINES.chunks(1)) {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        logs.push(format!("{header}\n{gap}\n{lines}"));
    }
    logs
}

fn watches() -> Vec<String> {
    let event = |name: &str, object: &Value| json!({"type": name, "object": object}).to_string();
    let names = ["ADDED", "MODIFIED", "DELETED"].into_iter().cycle();
    let mut watches: Vec<_> = OBJECTS
        .chunks(3)
        .zip(names)
        .map(|(objects, name)| objects.iter().map(|object| event(name, object) + "\n").collect())
        .collect();
    let bookmark = event("BOOKMARK", &json!({"metadata": {"resourceVersion": "12746"}}));
    watches.extend(written("object").iter().map(|status| {
        format!("{bookmark}\n\n{}\r\n", event("ERROR", &serde_json::from_str(status).unwrap()))
    }));
    watches
}

fn pages() -> Vec<String> {
    let page = |objects: &[Value]| {
        let metadata = json!({"resourceVersion": "7", "continue": "n\"x", "remainingItemCount": 3});
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": objects})
    };
    OBJECTS.chunks(4).map(|objects| page(objects).to_string()).collect()
}

fn labels() -> Vec<String> {
    let fields = ["labels", "annotations"];
    let maps = OBJECTS.iter().flat_map(|object| fields.map(|field| &object["metadata"][field]));
    let values = maps.filter_map(Value::as_object).flat_map(|map| map.values());
    let labels: BTreeSet<_> = values.filter_map(Value::as_str).collect();
    labels.into_iter().map(str::to_owned).collect()
}

fn configs() -> Vec<String> {
    let bad = fs::read_to_string(path("tests/commands/config/bad.txt")).unwrap();
    // Each ends in the line that is printed.
    let bad = bad.split("===\n").map(|config| config.split("\n> ").next().unwrap().to_owned());
    bad.chain(files("deploy/examples", "yaml")).collect()
}

/// The state at the end of some fixtures.
fn states() -> Vec<String> {
    let logs = FIXTURES.iter().filter(|log| log.len() < 6_000).step_by(4);
    let states = logs.filter_map(|log| {
        let mut reader = LogReader::new("x", Cursor::new(log)).unwrap();
        let (fleet, _) = fleet(&mut reader, None, true).ok()?;
        Some(serde_json::to_string(&fleet).unwrap())
    });
    states.collect()
}
