//! House rules that a program can judge fairly.

use std::fs;
use std::path::{Path, PathBuf};

use regex::RegexSet;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: PathBuf) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    files.extend(folders.into_iter().flat_map(files_under));
    files
}

/// Each promise names its two tests, which exist. A third place is a word.
#[test]
fn every_promise_has_its_two_tests() {
    let page = fs::read_to_string(repository().join("docs/explanation/promises.md")).unwrap();
    let (mut promises, mut missing) = (0, Vec::new());
    for row in
        page.lines().filter(|line| line.starts_with("| ") && !line.contains("| exhaustive |"))
    {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [promise, tests @ ..] = &cells[..] else { panic!("{row}") };
        assert_eq!(tests.len(), 2, "{row}");
        promises += 1;
        for test in tests {
            let Some((file, name)) = test.trim_matches('`').split_once("::") else {
                assert!(["missing", "none is possible"].contains(test), "{row}");
                missing.extend((*test == "missing").then_some(*promise));
                continue;
            };
            let text = fs::read_to_string(repository().join(file));
            let text = text.unwrap_or_else(|error| panic!("{file}: {error}: {row}"));
            assert!(text.contains(&format!("fn {name}")), "{file} has no test {name}: {row}");
        }
    }
    assert!(promises >= 70, "{promises} promises");
    assert!(missing.len() <= 2, "no test where they are used: {missing:#?}");
}

/// `lib.rs` is the code map: readers look there for a module.
#[test]
fn every_module_is_in_the_code_map() {
    let map = fs::read_to_string(repository().join("src/lib.rs")).unwrap();
    for line in map.lines() {
        let module = line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod "));
        if let Some(module) = module.and_then(|module| module.strip_suffix(';')) {
            let (linked, plain) = (format!("//! - [`{module}`]"), format!("//! - `{module}`"));
            assert!(map.contains(&linked) || map.contains(&plain), "{module} is not in the map");
        }
    }
}

/// Calques and private words that readers stumbled over, each with plain words for it. Two spaces or a
/// line break inside a phrase hide it: this is a reminder, not a grammar.
const UNCLEAR: [(&str, &str); 35] = [
    ("anew", "again"),
    ("so long as many", "as long as"),
    ("the own", "its own"),
    ("by hand of", "by"),
    ("who leads", "the leader"),
    ("is wished", "is desired"),
    ("none to be seen", "none found"),
    ("wants to (be|have)", "must be, needs"),
    ("spoils?", "overwrite"),
    ("heard of", "received from"),
    ("the how-manieth", "the index of"),
    ("(is|are|was|were|be) told", "reported, known"),
    ("can't be had", "is not available"),
    ("what came back", "the answer, the error"),
    ("came back with", "returned"),
    ("looked at again", "evaluated again"),
    ("gives back", "returns"),
    ("passed over", "skipped"),
    ("the matter", "the problem"),
    ("may nothing", "may not … anything"),
    ("such a one", "such a …"),
    ("for want of", "without"),
    ("black hole", "a peer that drops packets"),
    ("goes at once", "is sent immediately"),
    ("in this moment", "now"),
    ("gives away", "releases"),
    ("no longer so", "no longer"),
    ("is settled", "is in sync"),
    ("in vain", "without effect"),
    ("sign of life", "proof that it is live"),
    ("came to", "became, began to"),
    ("all the same", "still"),
    ("what became of", "the state of"),
    ("holds up", "delays"),
    ("at most so many", "the most"),
];

#[test]
fn the_words_are_plain() {
    let folders = ["crates", "src", "tests", "docs", "deploy"];
    let mut paths: Vec<_> =
        folders.into_iter().flat_map(|folder| files_under(repository().join(folder))).collect();
    paths.push(repository().join("README.md"));
    let is_read = |path: &PathBuf| {
        let endings = ["rs", "md", "yaml", "js"];
        path.extension().is_some_and(|of| endings.iter().any(|ending| of == *ending))
    };
    paths.retain(|path| is_read(path) && !path.ends_with("tests/commands/tidy.rs"));
    let phrases = UNCLEAR.map(|(phrase, _)| format!(r"(?i-u)\b({phrase})\b"));
    let phrases = RegexSet::new(phrases).unwrap();
    let mut found = String::new();
    for path in paths {
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for unclear in phrases.matches(line) {
                let (phrase, plain) = UNCLEAR[unclear];
                let path = path.strip_prefix(repository()).unwrap().display();
                found += &format!("{path}:{}: {phrase:?}; say {plain:?}\n", number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}{} in all", found.lines().count());
}
