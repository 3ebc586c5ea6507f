//! The program, run by a test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::constants;

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    for name in ["RUST_LOG", "KUBECONFIG", "THROUGHLINE_CONFIG", "NO_COLOR", "COLUMNS"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    let mut command = program();
    give_constants(&mut command, args);
    let Output { status, stdout, stderr } = command.args(args).output().unwrap();
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code().unwrap(), out, err)
}

fn give_constants(command: &mut Command, args: &[&str]) {
    if let Some(at) = args.iter().position(|arg| *arg == "--config") {
        constants::give(command, Path::new(args[at + 1]));
    }
}

pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an instance; returns it with the URL of its admin port.
pub(crate) async fn start_instance(args: &[&str]) -> (Running, String) {
    let mut command = program();
    give_constants(&mut command, args);
    command.arg("run").args(args).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let found = tokio::task::spawn_blocking(move || {
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let found = lines.find(|line| line["message"] == "admin port listening").unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        found["address"].as_str().unwrap().to_owned()
    });
    (running, format!("http://{}", found.await.unwrap()))
}
