//! House rules that a program can judge fairly.

use std::fs;
use std::path::PathBuf;

use regex::RegexSet;

fn files_under(folder: PathBuf) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    files.extend(folders.into_iter().flat_map(files_under));
    files
}

/// Each promise names its two tests, which exist. A third place is a word.
#[test]
fn every_promise_has_its_two_tests() {
    let page = fs::read_to_string("docs/explanation/promises.md").unwrap();
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
            let text = fs::read_to_string(file);
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
    let map = fs::read_to_string("src/lib.rs").unwrap();
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
const UNCLEAR: &str = include_str!("tidy/unclear.txt");

#[test]
fn the_words_are_plain() {
    let folders = ["crates", "src", "tests", "docs", "deploy"];
    let mut paths: Vec<_> =
        folders.into_iter().flat_map(|folder| files_under(folder.into())).collect();
    paths.push("README.md".into());
    let is_read = |path: &PathBuf| {
        let endings = ["rs", "md", "yaml", "js"];
        path.extension().is_some_and(|of| endings.iter().any(|ending| of == *ending))
    };
    paths.retain(is_read);
    assert!(paths.len() > 500, "{} files", paths.len());
    let unclear: Vec<_> = UNCLEAR.lines().map(|line| line.split_once(": ").unwrap()).collect();
    let phrases = unclear.iter().map(|(phrase, _)| format!(r"(?i-u)\b({phrase})\b"));
    let phrases = RegexSet::new(phrases).unwrap();
    let mut found = String::new();
    for path in paths {
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for index in phrases.matches(line) {
                let (phrase, plain) = unclear[index];
                let place = format!("{}:{}", path.display(), number + 1);
                found += &format!("{place}: {phrase:?}; say {plain:?}\n");
            }
        }
    }
    assert!(found.is_empty(), "\n{found}{} in all", found.lines().count());
}
