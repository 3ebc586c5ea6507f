//! Commands as a person types them, and what they print. Each file of `transcripts/` is a list of shell
//! commands, each with its output and its exit code; `UPDATE_EXPECT=1` rewrites what follows a command.
//! The commands of a file run in one folder, which has the fixtures and the examples of `deploy`. `try` is
//! `throughline`, with the exit code of each of several runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::expect_file;

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

#[track_caller]
fn assert_transcript(name: &str) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("transcripts").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for shown in ["fixtures", "deploy"] {
        symlink(repository.join(shown), folder.join(shown)).unwrap();
    }
    let golden =
        expect_file![repository.join(format!("tests/commands/transcripts/{name}.transcript"))];
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
fn replays_as_text() {
    assert_transcript("reports");
}

#[test]
fn replays_and_their_input() {
    assert_transcript("replay");
}

#[test]
fn status_and_trace_of_logs() {
    assert_transcript("look");
}

#[test]
fn configurations() {
    assert_transcript("config");
}

#[test]
fn restored_routes() {
    assert_transcript("restore");
}

#[test]
fn the_other_commands() {
    assert_transcript("others");
}
