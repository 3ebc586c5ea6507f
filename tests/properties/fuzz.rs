//! Every reader of bytes from outside, with what it should be able to read and with mutations of that.
//!
//! The same cases in every run: they are counted, and their seed is fixed. `make fuzz` looks for new
//! ones with libFuzzer; docs/explanation/testing.md says what it found.

mod corpora;
mod go;
mod targets;

use std::fs;
use std::path::Path;
use std::thread;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestError, TestRunner};

use crate::config;
use corpora::{corpus, written};
use targets::{TARGETS, list_page_in, run};

/// Tokens that mean something to one reader or another, between spaces.
const TOKENS: &str = "{ } [ ] , : \" \\ \\u0000 \\ud800 \\n null true -0 1e999 1e-7 9223372036854775808 -1 \n \r\n \0 \
    \x1b[2J \u{202e} {} [] [[[[[[[[ \"a\": \"kind\": \"metadata\": \"status\": \"event\": \"at_ms\": \"items\": \
    - &a *a !!str";

/// No input grows beyond this.
const BYTES_MAX: usize = 16 * 1024;

/// One of the inputs with up to four changes. Each puts something in the place of some bytes, or of none.
fn mutated(corpus: &[Vec<u8>]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let input = prop::sample::select(corpus.to_vec());
    let tokens: Vec<_> = TOKENS.split(' ').map(|token| token.as_bytes().to_vec()).collect();
    // The rest of another input, or a piece of it.
    let piece = (input.clone(), any::<Index>(), prop_oneof![Just(40), Just(BYTES_MAX)]).prop_map(
        |(other, from, bytes)| {
            let from = from.index(other.len() + 1);
            other.into_iter().skip(from).take(bytes).collect::<Vec<_>>()
        },
    );
    let put = prop_oneof![
        2 => prop::sample::select(tokens),
        1 => piece,
        2 => prop::collection::vec(any::<u8>(), 0..2),
    ];
    let bytes = prop_oneof![Just(0), Just(1), 2..64_usize, 2..64_usize, Just(BYTES_MAX)];
    // Now and then the bytes are repeated.
    let change = (any::<Index>(), bytes, prop::option::weighted(0.85, put));
    (input, prop::collection::vec(change, 1..=4)).prop_map(|(mut input, changes)| {
        for (at, bytes, put) in changes {
            let at = at.index(input.len() + 1);
            let end = input.len().min(at + bytes);
            let put = put.unwrap_or_else(|| input[at..end].repeat(2));
            input.splice(at..end, put);
        }
        input.truncate(BYTES_MAX);
        input
    })
}

fn fuzz(target: &str, cases: u32) {
    let corpus = corpus(target);
    assert!(corpus.len() >= 5, "{} inputs", corpus.len());
    corpus.iter().for_each(|input| run(target, input));
    let checked = TestRunner::new(config(cases)).run(&mutated(&corpus), |input| {
        run(target, &input);
        Ok(())
    });
    match checked {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => {
            panic!("{target}: {why}: {}", input.escape_ascii())
        }
        Err(TestError::Abort(why)) => panic!("{target}: {why}"),
    }
}

#[test]
fn every_target_holds() {
    thread::scope(|scope| {
        for (target, cases, _) in TARGETS {
            scope.spawn(move || fuzz(target, cases));
        }
    });
}

/// Each page in pieces of each size. And with each byte left out, doubled, or changed to one that means
/// something; and all from there on left out.
#[test]
fn pages_with_one_wrong_byte_hold() {
    let (mut accepted, mut refused) = (0, 0);
    let mut damage = |page: &[u8]| match list_page_in(page, [1, 17, usize::MAX]) {
        true => accepted += 1,
        false => refused += 1,
    };
    for page in written("list_page").iter().map(String::as_bytes) {
        list_page_in(page, 1..=page.len());
        for at in 0..page.len() {
            let (before, byte, after) = (&page[..at], page[at], &page[at + 1..]);
            damage(before);
            let others = b"{}[]\",:\\ 0n\x00\xff".iter().map(|other| vec![*other]);
            for put in others.chain([vec![], vec![byte; 2]]) {
                damage(&[before, &put, after].concat());
            }
        }
    }
    assert!(accepted > 900 && refused > 8_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn every_target_has_its_file_for_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for file in fs::read_dir(folder.with_file_name("tests/properties/fuzz/inputs")).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(TARGETS.iter().any(|(target, ..)| *target == name), "{}", file.display());
    }
    for (target, ..) in TARGETS {
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
    for (target, ..) in TARGETS {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder).unwrap();
        for (i, input) in corpus(target).into_iter().enumerate() {
            fs::write(folder.join(format!("fixture-{i:04}")), input).unwrap();
        }
    }
}
