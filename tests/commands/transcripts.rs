//! Commands as a person types them, and what they print. Each file of `transcripts/` is a list of shell
//! commands, each with its output and its exit code; `UPDATE_EXPECT=1` rewrites what follows a command.
//! The commands of a file run in one folder, which has the fixtures, `deploy` and `docs`. `try` is
//! `throughline`, with the exit code of each of several runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::expect_file;

use crate::temp_folder::temp_folder;

const PRELUDE: &str = r#"exec 2>&1; try() { throughline "$@" || echo "[exit $?]"; }
"#;

/// What a command prints on both outputs, and its exit code if it is not 0.
fn output(shell: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_throughline")).parent().unwrap();
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", &format!("{PRELUDE}{shell}")]).current_dir(folder);
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    command.env_clear().envs([("PATH", path.as_str()), ("LC_ALL", "C"), ("KUBECONFIG", "/none")]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap().trim_end().to_owned();
    assert!(!text.contains('\x1b'), "a colour in a pipe: {shell}\n{text}");
    match output.status.code().unwrap() {
        0 => {}
        code if text.is_empty() => text = format!("[exit {code}]"),
        code => text += &format!("\n[exit {code}]"),
    }
    if text.is_empty() { text } else { text + "\n" }
}

fn assert_transcript(name: &str) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = temp_folder(name);
    for shown in ["fixtures", "deploy", "docs"] {
        symlink(repository.join(shown), folder.join(shown)).unwrap();
    }
    let golden = expect_file![format!("transcripts/{name}.transcript")];
    let text = golden.data();
    let mut found = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("## ") {
            found += &format!("\n{line}\n");
        }
        let Some(typed) = line.strip_prefix("$ ") else { continue };
        found += &format!("{line}\n");
        let mut shell = format!("{typed}\n");
        while let Some(line) = lines.next_if(|line| line.starts_with("> ")) {
            found += &format!("{line}\n");
            shell += &format!("{}\n", &line[2..]);
        }
        found += &output(&shell, &folder);
    }
    golden.assert_eq(found.trim_start());
}

#[test]
fn each_transcript_shows_what_is_printed() {
    let files = fs::read_dir("tests/commands/transcripts").unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.map(|name| name.replace(".transcript", "")).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    std::thread::scope(|scope| {
        names.iter().for_each(|name| drop(scope.spawn(|| assert_transcript(name))));
    });
}
