//! Runs the real binary against real clusters.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use throughline::core::contract::cause::{Cause, State};
use tokio::time::timeout;

use super::constants;
use super::fleet::{Fleet, Spec};
use super::process::{Folder, Process, Signal, free_port};
use super::testbed::{Testbed, Topology};
use super::{SOON, ensure, eventually, oracle};

/// The configuration of a run.
pub(crate) struct Setup {
    config: Value,
    pod: Option<String>,
    provoked: Vec<Cause>,
}

impl Setup {
    /// All clusters, without leader election. Without confirmations too, so that a change is one touch
    /// and nothing follows it.
    pub(crate) fn of(testbed: &Testbed) -> Self {
        let clusters: Vec<_> = testbed.clusters.iter().map(|cluster| cluster.config()).collect();
        Self::new(&json!({ "clusters": clusters })).set(&json!({
            "leaderElection": { "enabled": false },
            "touch": { "confirmAfterMs": [], "confirmAfterOutageMs": 1000 },
        }))
    }

    /// Only this configuration.
    pub(crate) fn new(config: &Value) -> Self {
        let base = json!({ "log": { "format": "json" } });
        Self { config: base, pod: None, provoked: Vec::new() }.set(config)
    }

    /// Merges more settings into the configuration.
    pub(crate) fn set(mut self, more: &Value) -> Self {
        merge_json(&mut self.config, more);
        self
    }

    /// The name of its pod.
    pub(crate) fn pod(mut self, name: &str) -> Self {
        self.pod = Some(name.to_owned());
        self
    }

    /// What the test does to the clusters has these causes. Any other that is an error, or makes a connector
    /// stuck, fails the test.
    pub(crate) fn provokes(mut self, causes: &[Cause]) -> Self {
        self.provoked.extend(causes);
        self
    }

    /// The log is text, with a line for each hop.
    pub(crate) fn text_log(self) -> Self {
        let level = "info,throughline::engine=debug,kube_client=error";
        self.set(&json!({ "log": { "format": "text", "level": level } }))
    }

    /// Starts the binary and waits only until its admin port is open.
    pub(crate) async fn start(self) -> Throughline {
        let folder = Folder::new("throughline");
        let config = folder.path().join("config.yaml");
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let setup = self.set(&json!({ "admin": { "address": admin } }));
        constants::write(&config, &setup.config);
        let event_log = folder.path().join("events.jsonl");
        let mut command = Command::new(binary());
        constants::give(&mut command, &config);
        command.arg("run").arg("--config").arg(&config);
        command.arg("--set").arg(format!("eventLog.file={}", event_log.display()));
        command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
        command.envs(setup.pod.map(|name| ("POD_NAME", name)));
        let process = Process::start("throughline", command, folder.path());
        let mut started =
            Throughline { process, folder, event_log, admin, provoked: setup.provoked };
        eventually("the admin port is open", SOON, async || {
            assert!(started.runs(), "throughline has ended");
            started.get("/livez").await.map(drop)
        })
        .await;
        started
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn ready(self) -> Throughline {
        let started = self.start().await;
        started.wait_ready().await;
        started
    }

    /// Starts it and waits until it has brought all in sync.
    pub(crate) async fn settled(self, testbed: &Testbed) -> Throughline {
        let started = self.ready().await;
        oracle::settles(testbed).await;
        started
    }
}

/// Clusters with a fleet, and a throughline with these settings that has brought all in sync.
pub(crate) async fn in_sync(
    topology: Topology,
    spec: Spec,
    settings: &Value,
    provoked: &[Cause],
) -> (Testbed, Fleet, Throughline) {
    let testbed = Testbed::start(topology).await;
    let fleet = Fleet::seed(&testbed, spec).await;
    let setup = Setup::of(&testbed).set(settings).provokes(provoked);
    let throughline = setup.settled(&testbed).await;
    (testbed, fleet, throughline)
}

/// Runs a command of throughline; returns its exit code, standard output and standard error.
pub(crate) async fn command(words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(binary());
    command.args(words).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), out, err)
}

/// Merges `above` into `below`: objects member by member, everything else replaced.
pub(crate) fn merge_json(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                merge_json(below.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (below, above) => above.clone_into(below),
    }
}

/// The binary that cargo built along with this test, bench or example, or the one that
/// `THROUGHLINE_BIN` names.
pub(crate) fn binary() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_throughline").map(PathBuf::from);
    let named = std::env::var_os("THROUGHLINE_BIN").map(PathBuf::from);
    // Examples are built into a folder below the binary's.
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|exe| Some(exe.parent()?.parent()?.join("throughline")));
    named
        .or(built)
        .or(beside.filter(|path| path.is_file()))
        .expect("THROUGHLINE_BIN names the throughline binary")
}

/// A running throughline; killed when dropped.
pub(crate) struct Throughline {
    process: Process,
    folder: Folder,
    event_log: PathBuf,
    admin: SocketAddr,
    provoked: Vec<Cause>,
}

impl Throughline {
    /// Waits until `/readyz` answers 200.
    pub(crate) async fn wait_ready(&self) {
        eventually("throughline is ready", SOON, async || {
            let (code, body) = self.get("/readyz").await?;
            ensure(code == 200, || format!("{code}: {body}"))
        })
        .await;
    }

    /// Sends a request to the admin port; returns status code and body.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String), String> {
        get(self.admin, path).await
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The metrics: name with labels, as exposed, to value.
    pub(crate) async fn metrics(&self) -> BTreeMap<String, f64> {
        let (code, text) = self.get("/metrics").await.unwrap();
        assert_eq!(code, 200, "{text}");
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
    }

    /// The answer of `/state`.
    pub(crate) async fn state(&self) -> Value {
        let (code, text) = self.get("/state").await.unwrap();
        assert_eq!(code, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The lines of its log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process.log().lines().map(str::to_owned).collect()
    }

    pub(crate) fn logged(&self, text: &str) -> bool {
        self.process.log().contains(text)
    }

    /// The number of lines that contain this text.
    pub(crate) fn count_logged(&self, text: &str) -> usize {
        self.process.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits until `times` lines contain this text, or more.
    pub(crate) async fn logs(&self, text: &str, times: usize) {
        eventually(&format!("{times} lines {text:?}"), SOON, async || {
            let found = self.count_logged(text);
            ensure(found >= times, || format!("{found}:\n{}", self.process.log()))
        })
        .await;
    }

    /// How many objects of a cluster have this cause; `None` where its series has ended.
    pub(crate) async fn open(&self, cause: Cause, cluster: &str) -> Option<f64> {
        let cause = cause.as_str();
        let series = format!("throughline_causes_open{{cause={cause:?},cluster={cluster:?}}}");
        self.metrics().await.get(&series).copied()
    }

    pub(crate) fn event_log(&self) -> &Path {
        &self.event_log
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> Value {
        let text = fs::read_to_string(self.folder.path().join("config.yaml")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Replaces the configuration file.
    pub(crate) fn write_config(&self, text: &str) {
        let [new, file] = ["new.yaml", "config.yaml"].map(|name| self.folder.path().join(name));
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_exit(&mut self) -> ExitStatus {
        let ended = self.process.wait(SOON).await;
        ended.unwrap_or_else(|| panic!("throughline still runs:\n{}", self.process.log()))
    }

    /// The same as [`Setup::provokes`], for a run that has started.
    pub(crate) fn provokes(&mut self, causes: &[Cause]) {
        self.provoked.extend(causes);
    }

    /// Sends SIGTERM, as a kubelet does, and checks the exit code, the log and the event log.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait_exit().await;
        assert!(status.success(), "throughline ended with {status}:\n{}", self.process.log());
        self.check_logs();
    }

    /// Sends SIGKILL, and checks the log and the event log.
    pub(crate) fn kill(mut self) {
        self.process.kill();
        self.check_logs();
    }

    /// Checks that the log has nothing wrong that the test did not provoke, and that the event log verifies.
    pub(crate) fn check_logs(&self) {
        let unprovoked: Vec<_> =
            self.log().into_iter().filter(|line| !self.is_expected(line)).collect();
        assert!(unprovoked.is_empty(), "not provoked by the test:\n{unprovoked:#?}");
        let mut replay = Command::new(binary());
        replay.args(["replay", "--mode", "verify"]).arg(&self.event_log);
        let output = replay.output().unwrap();
        let [said, complained] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let said = said.get(said.len().saturating_sub(4_000)..).unwrap_or(&said);
        let file = self.event_log.display();
        assert!(output.status.success(), "{file} does not verify:\n{complained}{said}");
    }

    /// Whether a line of the log, JSON or text, says nothing wrong that the test did not provoke.
    fn is_expected(&self, line: &str) -> bool {
        let json: Value = serde_json::from_str(line).unwrap_or_default();
        let level = json["level"].as_str().or_else(|| line.split_whitespace().nth(1));
        let in_text = || line.split_once("cause=\"")?.1.split('"').next();
        let cause = json["cause"].as_str().or_else(in_text);
        let cause = cause.and_then(|cause| cause.parse::<Cause>().ok());
        let is_provoked = cause.is_some_and(|cause| self.provoked.contains(&cause));
        let is_stuck = cause.is_some_and(|cause| cause.info().state == Some(State::Stuck));
        match level {
            Some("ERROR") => is_provoked,
            Some("WARN") => is_provoked || !is_stuck,
            Some("INFO" | "DEBUG" | "TRACE") => true,
            _ => false,
        }
    }
}

impl Drop for Throughline {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.process.log_tail());
        }
    }
}

/// Sends a request to an admin port; returns status code and body.
pub(crate) async fn get(admin: SocketAddr, path: &str) -> Result<(u16, String), String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let asked = async {
        let answer = client.get(format!("http://{admin}{path}").parse()?).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::Ok((code, String::from_utf8_lossy(&body).into_owned()))
    };
    let answer = timeout(Duration::from_secs(10), asked).await;
    answer.map_err(|late| late.to_string())?.map_err(|error| format!("{error:#}"))
}
