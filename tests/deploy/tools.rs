//! helm, kustomize, kubectl and promtool, which the first call on a machine builds from Go modules.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

/// The folder with the tools and the CRDs of other projects.
pub(crate) fn tools_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| built_by("tests/deploy/tools/build"))
}

/// Runs a script that builds something; returns the path that it prints.
pub(crate) fn built_by(script: &str) -> PathBuf {
    let mut command = Command::new(repo(script));
    without_cargo(&mut command);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{script} failed: {}", output.status);
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// A path in this repository.
pub(crate) fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command; returns exit code, standard output and standard error.
pub(crate) fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), said, complained)
}

/// The standard output of a command that succeeds.
pub(crate) fn succeeds(command: &mut Command) -> String {
    let (code, said, complained) = output(command);
    assert_eq!(code, Some(0), "{command:?}\n{said}{complained}");
    said
}

/// Runs a tool; returns its standard output, or all of its output if it failed.
pub(crate) fn run_tool<A: AsRef<OsStr>>(name: &str, args: &[A]) -> Result<String, String> {
    let mut command = Command::new(tools_folder().join(name));
    // Without the plugins and the kubeconfig of the person who runs the test.
    command.args(args).env("HELM_PLUGINS", "/none").env("KUBECONFIG", "/none");
    let (code, said, complained) = output(&mut command);
    if code == Some(0) { Ok(said) } else { Err(said + &complained) }
}

/// A script in the repository's folder, with the tools.
pub(crate) fn shell(script: &str) -> Command {
    let path = format!("{}:{}", tools_folder().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(repo(".")).env("PATH", path);
    command
}

/// Removes what cargo and make set for this test. With it, a cargo that the command runs would build
/// crates again whose build scripts look at these variables.
pub(crate) fn without_cargo(command: &mut Command) {
    const SET: &str =
        "^(CARGO(_PKG_.*|_MANIFEST.*|_BIN_.*|_CRATE_.*|_PRIMARY_PACKAGE)?|MAKEFLAGS|MAKELEVEL)$";
    let set = Regex::new(SET).unwrap();
    for (name, _) in std::env::vars().filter(|(name, _)| set.is_match(name)) {
        command.env_remove(name);
    }
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

/// The documents of a file in this repository.
pub(crate) fn read(path: impl AsRef<Path>) -> Vec<Value> {
    let path = repo(".").join(path);
    documents(&fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}
