//! The program, run by a test, and a folder for it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::constants;
use crate::sim_apiserver::TestServer;

/// Exit code, standard output and standard error.
pub(crate) type Ended = (i32, String, String);

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    for name in ["RUST_LOG", "KUBECONFIG", "THROUGHLINE_CONFIG", "NO_COLOR", "COLUMNS"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn run(args: &[&str]) -> Ended {
    ended(program().args(args).output().unwrap())
}

fn ended(output: Output) -> Ended {
    let Output { status, stdout, stderr } = output;
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code().unwrap(), out, err)
}

/// A program that ends with its test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// The lines of standard output, as they come.
    pub(crate) fn lines(&mut self) -> tokio::sync::mpsc::UnboundedReceiver<String> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let (sender, received) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        received
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(mut self) -> Ended {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let ended = tokio::task::spawn_blocking(move || {
            let (mut out, mut err) = (String::new(), String::new());
            if let Some(mut stdout) = self.0.stdout.take() {
                stdout.read_to_string(&mut out).unwrap();
            }
            if let Some(mut stderr) = self.0.stderr.take() {
                stderr.read_to_string(&mut err).unwrap();
            }
            (self.0.wait().unwrap().code().unwrap(), out, err)
        });
        ended.await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with `config.yaml`, and the program in it.
pub(crate) struct Place(PathBuf);

impl Place {
    /// With a configuration of these clusters, each by its name.
    pub(crate) fn new(clusters: &[(&TestServer, &[&str])], mut config: Value) -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("throughline-commands-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = |(server, roles): &(&TestServer, &[&str])| {
            let kubeconfig = server.kubeconfig(&folder);
            json!({"name": server.cluster, "roles": roles, "kubeconfig": kubeconfig})
        };
        config["clusters"] = clusters.iter().map(cluster).collect();
        constants::write(&folder.join("config.yaml"), &config);
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.args(args).current_dir(&self.0).env("THROUGHLINE_CONFIG", "config.yaml");
        constants::give(&mut command, &self.path("config.yaml"));
        command
    }

    /// Runs the program on another thread than those that serve the clusters.
    pub(crate) async fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        ended(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all::<&Path>(&self.0);
    }
}
