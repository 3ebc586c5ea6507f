//! The program, run by a test, and a folder for it.

use std::io::{BufRead, BufReader, Read, read_to_string};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::Role;
use throughline::core::data::time::UnixMillis;
use throughline_sim::SimClusters;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::constants;
use crate::sim_apiserver::{TestServer, serve_cluster_with};
use crate::temp_folder::temp_folder;

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

/// What the program prints with these arguments.
pub(crate) fn printed(args: &[&str]) -> String {
    let (_, out, err) = run(args);
    assert!(!out.is_empty(), "{args:?}: {err}");
    out
}

pub(crate) fn fixture(name: &str) -> String {
    format!("{}/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

fn ended(output: Output) -> Ended {
    let Output { status, stdout, stderr } = output;
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code().unwrap(), out, err)
}

/// Lines, as they come.
pub(crate) fn lines_of(output: impl Read + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, received) = tokio::sync::mpsc::unbounded_channel();
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    std::thread::spawn(move || lines.try_for_each(|line| sender.send(line)));
    received
}

/// A program that ends with its test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(mut self) -> Ended {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let ended = tokio::task::spawn_blocking(move || {
            let out = self.0.stdout.take().map(|pipe| read_to_string(pipe).unwrap());
            let err = self.0.stderr.take().map(|pipe| read_to_string(pipe).unwrap());
            let code = self.0.wait().unwrap().code().unwrap();
            (code, out.unwrap_or_default(), err.unwrap_or_default())
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
    /// Serves these clusters, which begin at this time; with a configuration of them.
    pub(crate) async fn serve<const N: usize>(
        clusters: [(&str, &[Role]); N],
        now: UnixMillis,
        mut config: Value,
    ) -> (Self, [TestServer; N]) {
        let folder = temp_folder("place");
        let specs =
            clusters.map(|(name, roles)| ClusterSpec { name: name.into(), roles: roles.to_vec() });
        let mut sim = SimClusters::new(&specs, 0);
        sim.advance(now);
        let sim = Arc::new(Mutex::new(sim));
        let (mut servers, mut configured) = (Vec::new(), Vec::new());
        for ClusterSpec { name, roles } in specs {
            let server = serve_cluster_with(&sim, name, None).await;
            let kubeconfig = server.kubeconfig(&folder);
            configured
                .push(json!({"name": server.cluster, "roles": roles, "kubeconfig": kubeconfig}));
            servers.push(server);
        }
        config["clusters"] = configured.into();
        constants::write(&folder.join("config.yaml"), &config);
        (Self(folder), servers.try_into().unwrap_or_else(|_| unreachable!()))
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
