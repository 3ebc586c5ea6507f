//! Canonical JSON and liveness against Go itself, with the same inputs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::json;
use throughline::core::status::go_json::canonical;
use throughline::core::status::liveness::{Liveness, read};

use super::corpora::corpus;
use super::mutator::{Random, mutated};

/// How many mutations Go is asked about.
const MUTATIONS: usize = 200_000;

/// `canonical` descends no further than this, and Go does.
const DEPTH_MAX: usize = 128;

#[derive(Deserialize)]
struct Answer {
    online: bool,
    node_id: String,
    canonical: Option<String>,
}

/// The inputs of both targets, what libFuzzer has found here, and mutations. Go and Rust differ in what
/// they do with bytes that are not UTF-8, which no API server lets through.
fn inputs() -> BTreeSet<String> {
    let mut all = Vec::new();
    for target in ["canonical_json", "liveness", "redaction"] {
        all.extend(corpus(target));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let found = fs::read_dir(folder).into_iter().flatten();
        all.extend(found.map(|entry| fs::read(entry.unwrap().path()).unwrap()));
    }
    let mut random = Random(11);
    let mutations: Vec<_> = (0..MUTATIONS).map(|_| mutated(&all, &mut random)).collect();
    all.into_iter().chain(mutations).filter_map(|bytes| String::from_utf8(bytes).ok()).collect()
}

fn split(input: &str) -> (&str, &str) {
    input.split_once('\0').unwrap_or((input, ""))
}

#[test]
#[ignore = "needs Go"]
fn go_gives_the_same_answers() {
    let inputs = inputs();
    let questions: String = inputs
        .iter()
        .map(|input| {
            let (annotation, live) = split(input);
            json!({"annotation": annotation, "live": live}).to_string() + "\n"
        })
        .collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go_questions.jsonl");
    fs::write(&path, questions).unwrap();
    let answers = Command::new("go")
        .args(["run", "./gojson"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apiserver"))
        .stdin(fs::File::open(path).unwrap())
        .output()
        .unwrap();
    let answers = String::from_utf8(answers.stdout).unwrap();
    assert_eq!(answers.lines().count(), inputs.len());
    let (mut decoded, mut refused) = (0, 0);
    for (input, answer) in inputs.iter().zip(answers.lines()) {
        let answer: Answer = serde_json::from_str(answer).unwrap();
        let (annotation, live) = split(input);
        let liveness = Liveness { online: answer.online, node_id: answer.node_id.into() };
        assert_eq!(read(Some(annotation), Some(live)), liveness, "{input:?}");
        if annotation.matches(['[', '{']).count() <= DEPTH_MAX {
            assert_eq!(canonical(annotation), answer.canonical, "{input:?}");
        }
        *if answer.canonical.is_some() { &mut decoded } else { &mut refused } += 1;
    }
    eprintln!("{} inputs: Go reads {decoded} as JSON and refuses {refused}", inputs.len());
    assert!(decoded > 1_000 && refused > 1_000);
}
