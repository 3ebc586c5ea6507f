//! The demo: serves a log's clusters on loopback, plays the recorded changes into them, runs the real
//! [`run`](crate::run) against them, and prints its story. It needs no cluster.
//!
//! Differences from real clusters: long pauses of the recording are shortened, a touch is confirmed
//! once instead of twice, only the kinds in the recording exist, and the carrier takes 50 ms.
//! Changes by other clients in the recording are played as well.

mod clusters;
mod demo_loop;
mod play;
mod recording;
mod story;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::clusters::{DemoClusters, TempFolder};
use self::demo_loop::{DemoEnd, DemoLoop};
use self::play::Player;
use self::recording::DemoLog;
use self::story::RunStory;
use crate::clock::Clock;
use crate::config::{ClusterConfig, Config, EventLogConfig};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Kind};
use crate::event_log::LogReader;
use crate::replay::{self, Outage, Replay, ReplayMode};
use crate::report;
use crate::run::Run;

#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The log to play; `None` plays the built-in incident.
    pub log: Option<String>,
    /// Longer pauses of the recording are shortened to this.
    pub longest_pause_ms: u64,
    /// How to print the story.
    pub report: report::ReportOptions,
    /// Keep clusters, run and live page running after the end, until the demo is stopped.
    pub linger: bool,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let report = report::ReportOptions::default();
        Self { log: None, longest_pause_ms: 2_000, report, linger: false }
    }
}

/// Plays a log and prints the story to `out`. Ends once everything has converged, once the run is quiet
/// without convergence, or when `stop` becomes true.
///
/// Returns a [`Replay`] of mode [`ReplayMode::Live`]: the run's actions, the outages for users in the
/// recording, and those in the run. It is good if the run reports that every connector is ok
/// or held and no action is in flight, the carrier is done, and the event log verifies.
///
/// # Errors
/// The log cannot be read or names no clusters; loopback, the folder for temporary files or the
/// event log cannot be used; writing to `out` fails.
pub async fn run(
    options: &DemoOptions,
    mut stop: watch::Receiver<bool>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<Replay> {
    let mut recording = DemoLog::read(options.log.as_deref())?;
    let clock = Clock::start();
    let mut player = Player::new(&mut recording, clock, options.longest_pause_ms);
    let clusters = DemoClusters::serve(&player.sim, &recording.replay.clusters, clock).await?;
    let (recorded, unrecorded) = watched_kinds(&recording);
    for (cluster, kind) in &unrecorded {
        clusters.stop_serving(cluster, *kind);
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening on 127.0.0.1")?;
    let page = format!("http://{}/", listener.local_addr()?);
    report::head(&recording.replay, &options.report, out)?;
    print_introduction(options, &unrecorded, &page, out)?;

    let folder = TempFolder::new()?;
    let log = folder.path().join("events.jsonl");
    let cluster_configs = clusters.write_kubeconfig(folder.path())?;
    let mut config = run_config(&recording.replay.settings, cluster_configs, &log);
    if recording.has_outages {
        // Outages are shortened like pauses, so reconnect quickly.
        config.constants.watch.backoff_max_ms = 1_000;
    }
    let replay = &recording.replay;
    let (mut story, observer) = RunStory::new(replay, clock, recorded, options.report.clone());
    let (stop_run, stopping) = watch::channel(false);
    let mut running =
        tokio::spawn(Run::new(config, Some(observer)).listening(listener).until(stopping));
    let mut demo = DemoLoop {
        player: &mut player,
        clusters: &clusters,
        story: &mut story,
        page: &page,
        is_playing: false,
        checked_at_activity: None,
    };
    let mut ended = demo.run(&mut running, &mut stop, out).await;
    if options.linger
        && matches!(ended, Ok(DemoEnd::Converged { .. } | DemoEnd::NotConverged(_)))
        && let Err(error) = demo.linger(&mut running, &mut stop, out).await
    {
        ended = Err(error);
    }
    if ended.is_err() {
        running.abort();
    }
    let (problems, held) = match ended? {
        DemoEnd::Converged { held } => (Vec::new(), held),
        DemoEnd::Stopped => (vec!["the demo was stopped before its end".to_owned()], 0),
        DemoEnd::NotConverged(problems) => (problems, 0),
    };
    stop_run.send_replace(true);
    running.await.context("the run crashed")??;
    let ended_at = clock.now();
    story.apply_rest();
    story.print(out)?;

    let mut replay = verify_run(&log, recording.replay).await?;
    replay.requests = clusters.requests();
    replay.ended_at = ended_at;
    let run = story.finish();
    replay.replayed = Outage::all(&run.notes);
    replay.notes = run.notes;
    replay.actions = run.actions;
    replay.problems.extend(problems);
    replay.held = held;
    report::summary(&replay, &options.report, out)?;
    Ok(replay)
}

type ClusterKinds = BTreeSet<(ClusterName, Kind)>;

/// The kinds that the run will watch: those in the recording, and the others.
fn watched_kinds(recording: &DemoLog) -> (ClusterKinds, ClusterKinds) {
    let watched = recording.replay.clusters.iter().flat_map(|spec| {
        let kinds = recording.replay.settings.kinds_watched(&spec.roles);
        kinds.into_iter().map(|kind| (spec.name.clone(), kind))
    });
    watched.partition(|watched| recording.listed.contains(watched))
}

fn run_config(settings: &Settings, clusters: Vec<ClusterConfig>, log: &Path) -> Config {
    let mut config = Config {
        clusters,
        event_log: EventLogConfig {
            file: Some(log.to_owned()),
            redact: false,
            ..EventLogConfig::default()
        },
        ..Config::deciding_by(settings)
    };
    // This is the only instance.
    config.leader_election.enabled = false;
    // Events would count as writes, and the demo does not show them.
    config.events.enabled = false;
    config.constants.shutdown_grace_ms = 2_000;
    config
}

fn print_introduction(
    options: &DemoOptions,
    unrecorded: &ClusterKinds,
    page: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let pause_s = options.longest_pause_ms as f64 / 1e3;
    writeln!(
        out,
        "  each cluster is an in-memory API server on loopback; throughline runs against them"
    )?;
    writeln!(out, "  longer pauses are shortened to {pause_s:.1} s; each touch is confirmed once")?;
    if !unrecorded.is_empty() {
        let kinds: Vec<_> =
            unrecorded.iter().map(|(cluster, kind)| format!("{kind} in {cluster}")).collect();
        writeln!(out, "  not in the recording, so not served: {}", kinds.join(", "))?;
    }
    match options.linger {
        true => writeln!(out, "  live page: {page}")?,
        false => writeln!(out, "  live page, until the demo ends: {page} (--linger keeps it up)")?,
    }
    writeln!(out)?;
    out.flush()
}

/// Verifies the run's event log, and adds the result to the report of the recording.
async fn verify_run(log: &Path, recording: Replay) -> anyhow::Result<Replay> {
    let path = log.to_string_lossy().into_owned();
    let replayed = tokio::task::spawn_blocking(move || {
        let mut reader = LogReader::open(&path)?;
        let options = replay::ReplayOptions {
            mode: Some(ReplayMode::Verify),
            ..replay::ReplayOptions::default()
        };
        replay::replay(&mut reader, &path, |_| Ok(()), &options, None, |_| {})
    });
    let replayed = replayed.await.context("verifying the run's event log crashed")??;
    let mut replay = recording;
    let not_verified = |problem| format!("the run's event log does not verify: {problem}");
    replay.problems = replayed.problems.into_iter().map(not_verified).collect();
    replay.warnings.extend(replayed.warnings);
    replay.upstreams = replayed.upstreams;
    Ok(replay)
}
