//! The same events give the same actions, so nothing in the core may read the time, do I/O or use chance; and
//! its modules stand in layers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that only compute. Macros run in the compiler, so what they need does not count.
const DEPENDENCIES: [&str; 9] = [
    "itoa",
    "memchr",
    "serde",
    "serde_core",
    "serde_json",
    "strum",
    "throughline-core",
    "xxhash-rust",
    "zmij",
];

/// What the standard library would give.
const FORBIDDEN: [&str; 12] = [
    "std::time",
    "SystemTime",
    "Instant",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "async ",
    "RandomState",
    "println!",
];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The code of each source file, without comments and tests.
fn sources() -> Vec<(PathBuf, String)> {
    let (mut files, mut folders) = (Vec::new(), vec![package().join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.split("#[cfg(test)]").next().unwrap().lines();
            let code: Vec<_> = lines.map(|line| line.split("//").next().unwrap()).collect();
            files.push((path, code.join("\n")));
        }
    }
    files
}

#[test]
fn the_core_is_pure() {
    let files = sources();
    assert!(files.len() > 50, "{}", files.len());
    for (path, code) in files {
        for (number, line) in code.lines().enumerate() {
            for word in FORBIDDEN {
                assert!(!line.contains(word), "{}:{}: {word}", path.display(), number + 1);
            }
        }
    }
}

/// Modules are listed from the bottom up in `lib.rs`.
#[test]
fn a_module_imports_only_those_below_it() {
    let root = package().join("src");
    let listed = fs::read_to_string(root.join("lib.rs")).unwrap();
    let name = |line: &str| Some(line.split_once("mod ")?.1.strip_suffix(';')?.to_owned());
    let layers: Vec<String> = listed.lines().filter_map(name).collect();
    assert!(layers.len() > 12, "{layers:?}");
    let layer = |module: &str| layers.iter().position(|name| name == module);

    for (path, code) in sources() {
        let inside = path.strip_prefix(&root).unwrap().components().next().unwrap();
        let Some(own) = layer(inside.as_os_str().to_str().unwrap().trim_end_matches(".rs")) else {
            continue;
        };
        for import in code.split("crate::").skip(1) {
            let module = import.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            let imported = module.and_then(layer);
            assert!(imported.is_none_or(|it| it <= own), "{}: {module:?}", path.display());
        }
    }
}

#[test]
fn the_core_depends_on_nothing_that_could_be_impure() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "throughline-core", "--edges", "normal,no-proc-macro"])
        .args(["--target", "all", "--prefix", "none", "--locked", "--offline"])
        .current_dir(package())
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let needed: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(needed, BTreeSet::from(DEPENDENCIES), "{error}");
}
