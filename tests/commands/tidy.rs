//! House rules that a program can judge fairly.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {endings:?} under {folder}");
    found.sort();
    found
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
const UNCLEAR: [(&str, &str); 41] = [
    ("anew", "again"),
    ("so long as many", "as long as"),
    ("the own", "its own"),
    ("by hand of", "by"),
    ("who leads", "the leader"),
    ("is wished", "is desired"),
    ("none to be seen", "none found"),
    ("wants to be", "must be"),
    ("wants to have", "needs"),
    ("spoil", "overwrite"),
    ("spoils", "overwrites"),
    ("heard of", "received from"),
    ("the how-manieth", "the index of"),
    ("is told", "is reported"),
    ("are told", "are reported"),
    ("was told", "was reported"),
    ("were told", "were reported"),
    ("be told", "be reported, be known"),
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
    let mut paths = vec![repository().join("README.md")];
    for folder in ["crates", "src", "tests", "docs", "deploy"] {
        paths.extend(files_under(folder, &[".rs", ".md", ".yaml", ".js"]));
    }
    // Between two spaces, a phrase is made of whole words.
    let words = |text: &str| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let text = text.to_lowercase().replace(|c| !is_word(c), " ");
        format!(" {text} ")
    };
    let unclear = UNCLEAR.map(|(phrase, plain)| (words(phrase), phrase, plain));
    let mut found = String::new();
    for path in paths.iter().filter(|path| !path.ends_with("tests/commands/tidy.rs")) {
        for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
            let line = words(line);
            for (_, phrase, plain) in unclear.iter().filter(|(words, ..)| line.contains(words)) {
                let path = path.strip_prefix(repository()).unwrap().display();
                found += &format!("{path}:{}: {phrase:?}; say {plain:?}\n", number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}{} in all", found.lines().count());
}
