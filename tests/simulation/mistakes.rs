//! The seeded mistakes of `make mistakes`: each is a patch that must still apply to the tree.

use std::fs;
use std::path::Path;

/// A mistake: a header that says what it is, and which seed found it; then a diff.
struct Mistake {
    name: String,
    header: String,
    diff: String,
}

fn mistakes() -> Vec<Mistake> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/mistakes");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let (header, diff) = text.split_at(text.find("--- a/").unwrap());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Mistake { name, header: header.to_owned(), diff: diff.to_owned() }
    };
    paths.iter().map(read).collect()
}

/// The file of each hunk, and the lines that must be in it.
fn hunks(diff: &str) -> Vec<(&str, String)> {
    let (mut file, mut hunks) = ("", Vec::<(&str, String)>::new());
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            file = path;
        } else if line.starts_with("@@ ") {
            hunks.push((file, String::new()));
        } else if let Some(before) = line.strip_prefix([' ', '-'])
            && let Some((_, lines)) = hunks.last_mut()
        {
            lines.push_str(before);
            lines.push('\n');
        }
    }
    hunks
}

#[test]
fn each_mistake_still_applies() {
    let mistakes = mistakes();
    assert!(mistakes.len() >= 15, "{}", mistakes.len());
    for Mistake { name, header, diff } in mistakes {
        let mut lines = header.lines();
        assert!(lines.next().is_some_and(|line| line.ends_with('.') || line.len() > 60), "{name}");
        let found = lines.any(|line| line.starts_with("Found by seed "));
        assert!(found, "{name}: `make mistakes MISTAKE={name}` writes which seed finds it");
        let hunks = hunks(&diff);
        assert!(!hunks.is_empty(), "{name}: no change");
        for (file, lines) in hunks {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let text = fs::read_to_string(path).unwrap();
            let places = text.matches(&lines).count();
            assert_eq!(places, 1, "{name}: {file} has these lines {places} times:\n{lines}");
        }
    }
}
