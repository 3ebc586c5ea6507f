//! Every reader of bytes from outside, with what it should be able to read and with mutations of that.
//!
//! The same cases in every run: they are counted, and their seed is fixed. `make fuzz` looks for new
//! ones with libFuzzer; docs/explanation/testing.md says what it found.

mod corpora;
mod go;
mod mutator;
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;

use corpora::corpus;
use mutator::{Random, mutated};
use targets::{TARGETS, run};

/// How many mutations each target gets.
fn executions(target: &str) -> usize {
    match target {
        // A log through a machine, or a report for each.
        "log_fleet" | "state" | "config" => 300,
        "compressed_log" => 500,
        _ => 2_000,
    }
}

fn fuzz(target: &str) {
    let corpus = corpus(target);
    assert!(corpus.len() >= 5, "{} inputs", corpus.len());
    corpus.iter().for_each(|input| run(target, input));
    let mut random = Random(7);
    for i in 0..executions(target) {
        let input = mutated(&corpus, &mut random);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(target, &input))) {
            let text = String::from_utf8_lossy(&input);
            eprintln!("mutation {i} for {target}, {} bytes: {text:?}", input.len());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn every_target_holds() {
    thread::scope(|scope| {
        for (target, _) in TARGETS {
            scope.spawn(move || fuzz(target));
        }
    });
}

#[test]
fn every_target_has_its_file_for_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for (target, _) in TARGETS {
        let file = fs::read_to_string(folder.join(format!("fuzz_targets/{target}.rs"))).unwrap();
        assert!(file.contains(&format!("run({target:?}, data)")), "{file}");
        assert!(manifest.contains(&format!("name = {target:?}")), "{target} in Cargo.toml");
    }
}

/// For `make fuzz`: writes the corpora into the folder that FUZZ_CORPORA names.
#[test]
#[ignore = "writes files"]
fn write_corpora() {
    let folder = std::env::var("FUZZ_CORPORA").unwrap();
    for (target, _) in TARGETS {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder).unwrap();
        for (i, input) in corpus(target).into_iter().enumerate() {
            fs::write(folder.join(format!("fixture-{i:04}")), input).unwrap();
        }
    }
}
