//! Canonical JSON and liveness against Go itself, with the same inputs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use throughline::core::status::go_json::canonical;
use throughline::core::status::liveness::{Liveness, read};

use super::{corpus, mutated};

/// How many mutations Go is asked about.
const MUTATIONS: usize = 200_000;

/// `canonical` descends no further than this, and Go does.
const DEPTH_MAX: usize = 128;

/// The inputs of these targets, what libFuzzer has found here, and mutations. Go and Rust differ in what
/// they do with bytes that are not UTF-8, which no API server lets through.
#[test]
#[ignore = "needs Go"]
fn go_gives_the_same_answers() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for target in ["canonical_json", "liveness", "redaction"] {
        all.extend(corpus(target));
        let found = fs::read_dir(repository.join("fuzz/corpus").join(target));
        let found = found.into_iter().flatten().map(|entry| entry.unwrap().path());
        all.extend(found.map(|path| fs::read(path).unwrap()));
    }
    let (mutated, mut runner) = (mutated(&all), TestRunner::deterministic());
    let mutations = (0..MUTATIONS).map(|_| mutated.new_tree(&mut runner).unwrap().current());
    let texts = all.into_iter().chain(mutations).filter_map(|bytes| String::from_utf8(bytes).ok());
    let inputs: BTreeSet<String> = texts.collect();
    let questions = || inputs.iter().map(|input| input.split_once('\0').unwrap_or((input, "")));

    let lines: String = questions()
        .map(|(annotation, live)| format!("{}\n", json!({"annotation": annotation, "live": live})))
        .collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go_questions.jsonl");
    fs::write(&path, lines).unwrap();
    let answers = Command::new("go")
        .args(["run", "./gojson"])
        .current_dir(repository.join("tests/apiserver"))
        .stdin(fs::File::open(path).unwrap())
        .output()
        .unwrap();
    let answers = String::from_utf8(answers.stdout).unwrap();
    assert_eq!(answers.lines().count(), inputs.len());
    let (mut decoded, mut refused) = (0, 0);
    for ((annotation, live), answer) in questions().zip(answers.lines()) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let liveness = Liveness {
            online: answer["online"].as_bool().unwrap(),
            node_id: answer["node_id"].as_str().unwrap().into(),
        };
        assert_eq!(read(Some(annotation), Some(live)), liveness, "{annotation:?} {live:?}");
        if annotation.matches(['[', '{']).count() <= DEPTH_MAX {
            assert_eq!(
                canonical(annotation).as_deref(),
                answer["canonical"].as_str(),
                "{annotation:?}"
            );
        }
        *if answer["canonical"].is_string() { &mut decoded } else { &mut refused } += 1;
    }
    eprintln!("{} inputs: Go reads {decoded} as JSON and refuses {refused}", inputs.len());
    assert!(decoded > 1_000 && refused > 1_000);
}
