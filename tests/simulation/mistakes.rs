//! The seeded mistakes of `make mistakes`: each is a patch that must still apply to the tree.

use std::fs;
use std::path::Path;

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(root.join("tests/simulation/mistakes")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let patches: Vec<_> = paths.filter(|path| path.extension().is_some()).collect();
    assert!(patches.len() >= 15, "{}", patches.len());
    for path in patches {
        let (name, text) = (path.display(), fs::read_to_string(&path).unwrap());
        // What it is, and which seed found it; then a diff.
        let (header, diff) = text.split_at(text.find("--- a/").unwrap());
        let mut lines = header.lines();
        assert!(lines.next().is_some_and(|line| line.ends_with('.') || line.len() > 60), "{name}");
        let found = lines.any(|line| line.starts_with("Found by seed "));
        assert!(found, "{name}: `make mistakes` writes which seed finds it");
        let hunks = hunks(diff);
        assert!(!hunks.is_empty(), "{name}: no change");
        for (file, lines) in hunks {
            let places = fs::read_to_string(root.join(file)).unwrap().matches(&lines).count();
            assert_eq!(places, 1, "{name}: {file} has these lines {places} times:\n{lines}");
        }
    }
}
