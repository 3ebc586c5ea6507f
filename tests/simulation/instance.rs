//! An instance: the real run, on a computer of its own, with its event log kept in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde_json::json;
use throughline::config::{ClusterConfig, Config};
use throughline::core::contract::action::{Action, Decision};
use throughline::core::contract::cause::{Cause, Problem, ProblemId};
use throughline::core::contract::event::{ClusterSpec, Event, EventKind, Outcome};
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, NamespacedName};
use throughline::environment::within;
use throughline::event_log::{Header, LogReader, LogWriter};
use throughline::observer::Observer;
use throughline::replay::{ReplayMode, ReplayOptions, replay};
use throughline::run::Run;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::computer::Computer;
use crate::crash_points::CrashProbe;
use crate::world::Names;

/// What an instance wrote into its event log, and what is wrong by what it says.
#[derive(Default)]
pub(crate) struct Tape {
    log: Option<LogWriter<Vec<u8>>>,
    pub(crate) problems: BTreeMap<ProblemId, Problem>,
    /// When each cause began last, and what that said.
    pub(crate) began: BTreeMap<Cause, (Instant, String)>,
    /// The clusters whose list of Gateways has begun and had none so far.
    lists_none: BTreeSet<ClusterName>,
    /// The clusters that had no Gateways once, when they were listed.
    pub(crate) saw_empty: BTreeSet<ClusterName>,
    /// The actions that have no outcome yet, and since when.
    pub(crate) open: BTreeMap<ActionId, (Instant, Action)>,
    pub(crate) done: Vec<Done>,
    /// Actions without an outcome that came before one that was carried out: nothing ends them any more.
    pub(crate) forgotten: Vec<Action>,
    pub(crate) lists: Vec<CompleteList>,
    /// When it began to lead, and when it stopped.
    pub(crate) leadership: Vec<(Instant, bool)>,
}

/// An action that succeeded, as its instance sees it.
pub(crate) struct Done {
    pub(crate) decided: Instant,
    pub(crate) ended: Instant,
    pub(crate) action: Action,
}

/// A list that is complete, as its instance sees it.
pub(crate) struct CompleteList {
    pub(crate) at: Instant,
    pub(crate) cluster: ClusterName,
    pub(crate) kind: Kind,
}

impl Tape {
    fn writer(&mut self) -> &mut LogWriter<Vec<u8>> {
        self.log.as_mut().unwrap()
    }

    pub(crate) fn log(&mut self) -> &[u8] {
        self.writer().sink_mut()
    }

    pub(crate) fn decided(&mut self, action: Action) {
        self.open.insert(action.id, (Instant::now(), action));
    }

    pub(crate) fn finished(&mut self, id: ActionId, outcome: &Outcome) {
        let Some((decided, action)) = self.open.remove(&id) else { return };
        if let Outcome::Applied { .. } | Outcome::Unchanged = outcome {
            let older = self.open.range(..id).map(|(_, (_, older))| older);
            let replaced = older.filter(|older| target(older) == target(&action));
            self.forgotten.extend(replaced.cloned());
            self.done.push(Done { decided, ended: Instant::now(), action });
        }
    }
}

/// What an action writes, and the cluster that it asks first: of two that are equal, nothing is sent for the
/// older one once the newer one is.
fn target(action: &Action) -> (&ClusterName, Option<&ClusterName>, Kind, &NamespacedName) {
    let asked = action.precondition.absent.as_ref().map(|absent| &absent.cluster);
    (&action.cluster, asked, action.kind, &action.object)
}

struct Recorder {
    probe: Arc<CrashProbe>,
    tape: Arc<Mutex<Tape>>,
}

impl Observer for Recorder {
    fn on_event(&mut self, event: &Event) {
        let mut tape = self.tape.lock().unwrap();
        match &event.kind {
            EventKind::ActionFinished { id, outcome } => tape.finished(*id, outcome),
            EventKind::ListStarted { cluster, kind: Kind::Gateway } => {
                tape.lists_none.insert(cluster.clone());
            }
            EventKind::Listed { cluster, object } if object.kind() == Kind::Gateway => {
                tape.lists_none.remove(cluster);
            }
            EventKind::ListFinished { cluster, kind } => {
                if *kind == Kind::Gateway && tape.lists_none.contains(cluster) {
                    tape.saw_empty.insert(cluster.clone());
                }
                let (cluster, kind) = (cluster.clone(), *kind);
                tape.lists.push(CompleteList { at: Instant::now(), cluster, kind });
            }
            EventKind::LeadershipAcquired => tape.leadership.push((Instant::now(), true)),
            EventKind::LeadershipLost => tape.leadership.push((Instant::now(), false)),
            _ => {}
        }
        if self.probe.pass() {
            tape.writer().event(event).unwrap();
        }
    }

    fn on_decision(&mut self, decision: &Decision) {
        let mut tape = self.tape.lock().unwrap();
        tape.decided(decision.action.clone());
        if self.probe.pass() {
            tape.writer().action(decision).unwrap();
        }
    }

    fn on_note(&mut self, note: &Note) {
        if self.probe.is_dead() {
            return;
        }
        let mut tape = self.tape.lock().unwrap();
        match &note.kind {
            NoteKind::Began(problem) => {
                tape.began.insert(problem.cause, (Instant::now(), problem.sentence()));
                tape.problems.insert(problem.id(), problem.clone());
            }
            NoteKind::Ended(problem) => _ = tape.problems.remove(&problem.id()),
            NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => {}
        }
    }
}

pub(crate) struct Instance {
    pub(crate) computer: Arc<Computer>,
    pub(crate) tape: Arc<Mutex<Tape>>,
    pub(crate) reloads: mpsc::Sender<Vec<ClusterConfig>>,
    stop: watch::Sender<bool>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Instance {
    pub(crate) fn start(config: Config, computer: Arc<Computer>) -> Self {
        let settings = config.settings();
        let spec = |c: &ClusterConfig| ClusterSpec { name: c.name.clone(), roles: c.roles.clone() };
        let clusters = config.clusters.iter().map(spec).collect();
        let header = Header { clusters, settings: Some(settings), ..Header::default() };
        let log = Some(LogWriter::new(Vec::new(), &header).unwrap());
        let tape = Arc::new(Mutex::new(Tape { log, ..Tape::default() }));
        let recorder = Recorder { probe: computer.probe.clone(), tape: tape.clone() };
        // Room for all: a process that stood still reads the file as it is in the end.
        let (reloads, reloaded) = mpsc::channel(1_024);
        let (stop, stopping) = watch::channel(false);
        let run = async move {
            Run::new(config, Some(Box::new(recorder))).with_reloads(reloaded).until(stopping).await
        };
        let running = tokio::spawn(within(computer.clone(), run));
        Self { computer, tape, reloads, stop, running }
    }

    pub(crate) fn kill(&self) {
        self.computer.kill();
        self.running.abort();
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn leads(&self) -> bool {
        self.tape.lock().unwrap().leadership.last().is_some_and(|(_, leads)| *leads)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Whether what it saw and decided replays to the same actions, and so does its event log, unless
    /// that says itself that lines are missing.
    pub(crate) fn verify(&self, name: &str) -> Vec<String> {
        let mut problems = verify_log(name, self.tape.lock().unwrap().log());
        let written = self.computer.file(EVENT_LOG);
        if !written.is_empty() {
            // No replay can tell what comes of a gap from a mistake; but it can be read.
            let has_gap = written.windows(LOG_GAP.len()).any(|part| part == LOG_GAP);
            let found = verify_log(&format!("{name} on its disk"), &written);
            let counts = |problem: &String| !has_gap || problem.contains("cannot be read");
            problems.extend(found.into_iter().filter(counts));
        }
        problems
    }
}

/// What is wrong with an event log: it does not replay to the actions that are in it.
pub(crate) fn verify_log(name: &str, log: &[u8]) -> Vec<String> {
    let options = ReplayOptions { mode: Some(ReplayMode::Verify), ..ReplayOptions::default() };
    let read = || -> anyhow::Result<_> {
        let mut reader = LogReader::new(name, log)?;
        replay(&mut reader, name, |_| Ok(()), &options, None, |_| {})
    };
    match read() {
        Ok(replayed) => {
            let broken = |problem| format!("the event log of {name} does not verify: {problem}");
            replayed.problems.into_iter().map(broken).collect()
        }
        Err(error) => vec![format!("the event log of {name} cannot be read: {error:#}")],
    }
}

/// The address of a cluster. A loopback one, so that no proxy of this machine is asked.
pub(crate) fn address(n: usize) -> String {
    format!("127.1.0.{}", n + 1)
}

/// A kubeconfig with a context for each cluster that a plan may have.
static KUBECONFIG: LazyLock<PathBuf> = LazyLock::new(|| {
    let names: Vec<_> = Names::new(3, 2).all().into_iter().map(|spec| spec.name).collect();
    let server = |n| json!({ "server": format!("http://{}", address(n)) });
    let cluster = |(n, name)| json!({ "name": name, "cluster": server(n) });
    let clusters: Vec<_> = names.iter().enumerate().map(cluster).collect();
    let context = |name| json!({ "name": name, "context": { "cluster": name, "user": "u" } });
    let contexts: Vec<_> = names.iter().map(context).collect();
    let content = json!({ "apiVersion": "v1", "kind": "Config", "clusters": clusters,
        "contexts": contexts, "users": [{ "name": "u", "user": {} }] });
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulation.kubeconfig");
    // Another process may be reading it.
    let new = file.with_extension(std::process::id().to_string());
    std::fs::write(&new, content.to_string()).unwrap();
    std::fs::rename(new, &file).unwrap();
    file
});

const EVENT_LOG: &str = "live.jsonl";
const LOG_GAP: &[u8] = br#""event":"log_gap""#;

/// Short pauses, so that everything is right soon after the last fault. Some of the rest depends on the
/// seed.
pub(crate) fn config(specs: &[ClusterSpec], seed: u64) -> Config {
    let cluster = |spec: &ClusterSpec| ClusterConfig {
        name: spec.name.clone(),
        roles: spec.roles.clone(),
        kubeconfig: Some(KUBECONFIG.clone()),
        context: Some(spec.name.to_string()),
        in_cluster: false,
    };
    let mut config = Config { clusters: specs.iter().map(cluster).collect(), ..Config::default() };
    config.events.enabled = seed.is_multiple_of(2);
    config.event_log.file = Some(EVENT_LOG.into());
    config.orphans.mode =
        if seed.is_multiple_of(5) { OrphanMode::Report } else { OrphanMode::Delete };
    config.orphans.min_age = Duration::from_secs(2);
    config.leader_election.lease_namespace = Some("default".to_owned());
    config.constants.watch.silent_after_ms = 15_000;
    config.constants.watch.timeout_ms = 5_000;
    config.constants.watch.backoff_max_ms = 2_000;
    let settings = &mut config.constants.settings;
    settings.orphans.settle_ms = 2_000;
    settings.orphans.fresh_ms = 12_000;
    settings.retry.first_ms = 500;
    settings.retry.max_ms = 4_000;
    settings.mirror.contention_backoff_max_ms = 4_000;
    settings.mirror.nudge_after_ms = 2_000;
    settings.mirror.nudge_max_ms = 8_000;
    settings.mirror.restored_settle_ms = 20_000;
    settings.touch.confirm_after_ms = vec![2_000, 20_000];
    settings.touch.confirm_after_outage_ms = 40_000;
    config
}
