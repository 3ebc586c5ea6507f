//! The demo: serves a log's clusters on loopback, plays the recorded changes into them, runs the
//! real [`run`](crate::run) against them, and prints what happens as it happens. It needs no
//! cluster.
//!
//! Differences from real clusters: long pauses of the recording are shortened, a touch is confirmed
//! once instead of twice, only the kinds in the recording exist, and the carrier takes 50 ms.
//! Changes that others made in the recording are played as well.

mod clusters;
mod play;
mod recording;
mod story;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::clusters::{DemoClusters, TempFolder};
use self::play::Player;
use self::recording::DemoLog;
use self::story::RunStory;
use crate::clock::{Clock, sleep_until_opt};
use crate::config::{ClusterConfig, Config, EventLogConfig};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Kind};
use crate::event_log::LogReader;
use crate::replay::{self, Replay, ReplayMode, stall_problems};
use crate::report::{self, Notice};
use crate::run::Run;
use crate::sim::CarrierRate;

/// After the recording, the demo checks for convergence once the run has been quiet for this long.
/// It is longer than any delay of the machine that the state of the clusters does not show.
const QUIET_TIME: Duration = Duration::from_millis(1_500);
/// The demo ends without convergence once the run has been quiet for this long.
const GIVE_UP_TIME: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The log to play; `None` plays the built-in incident.
    pub log: Option<String>,
    /// Longer pauses of the recording are shortened to this.
    pub longest_pause_ms: u64,
    /// How many changes the carrier takes in a second; `None`: no limit.
    pub carrier_rate: Option<CarrierRate>,
    /// Where to write the run's event log; `None` does not keep it.
    pub event_log: Option<PathBuf>,
    /// How to print the story; `None` prints nothing.
    pub report: Option<report::ReportOptions>,
    /// Keep clusters, run and live page up after the end, until the demo is stopped.
    pub linger: bool,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let report = Some(report::ReportOptions::default());
        Self {
            log: None,
            longest_pause_ms: 2_000,
            carrier_rate: None,
            event_log: None,
            report,
            linger: false,
        }
    }
}

/// Plays a log and prints to `out` what happens. Ends once everything has converged, once nothing
/// happens any more, or when `stop` becomes true.
///
/// Returns a [`Replay`] of mode [`ReplayMode::Live`]: the run's actions from its own event log,
/// which was verified; what users saw in the recording, and what they would have seen in the run.
/// Its verdict is good if every status annotation at the hub matches upstream and has reached the
/// edges, every gateway concerned announces what its edge holds, and the event log verifies.
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
    recording.replay.carrier_rate = options.carrier_rate;
    let mut player = Player::new(&mut recording, clock, options.longest_pause_ms);
    let clusters = DemoClusters::serve(&player.sim, &recording.replay.clusters, clock).await?;
    let (recorded, unrecorded) = watched_kinds(&recording);
    for (cluster, kind) in &unrecorded {
        clusters.stop_serving(cluster, *kind);
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening on 127.0.0.1")?;
    let page = format!("http://{}/", listener.local_addr()?);
    if let Some(report) = &options.report {
        report::head(&recording.replay, report, out)?;
        print_introduction(options, &unrecorded, &page, out)?;
    }

    let folder = TempFolder::new()?;
    let log = options.event_log.clone().unwrap_or_else(|| folder.path().join("events.jsonl"));
    let cluster_configs = clusters.write_kubeconfig(folder.path())?;
    let mut config = run_config(&recording.replay.settings, cluster_configs, &log);
    if recording.has_outages {
        // Outages are shortened like pauses, so reconnect quickly.
        config.watch.backoff_max_ms = 1_000;
    }
    let replay = &recording.replay;
    let (mut story, observer) =
        RunStory::new(replay, clock.now(), recorded, options.report.clone());
    let (stop_run, stopping) = watch::channel(false);
    let mut running =
        tokio::spawn(Run::new(config, vec![observer]).listening(listener).until(stopping));
    let mut demo = DemoLoop {
        player: &mut player,
        clusters: &clusters,
        story: &mut story,
        settings: &recording.replay.settings,
        clock,
        is_playing: false,
        checked_at_activity: None,
    };
    let mut ended = demo.run(&mut running, &mut stop, out).await;
    if options.linger
        && matches!(ended, Ok(DemoEnd::Converged | DemoEnd::NotConverged(_)))
        && let Err(error) = demo.linger(&page, options, &mut running, &mut stop, out).await
    {
        ended = Err(error);
    }
    if ended.is_err() {
        running.abort();
    }
    let problems = match ended? {
        DemoEnd::Converged => Vec::new(),
        DemoEnd::Stopped => vec!["the demo was stopped before its end".to_owned()],
        DemoEnd::NotConverged(problems) => problems,
    };
    stop_run.send_replace(true);
    running.await.context("the run crashed")??;
    let ended_at = clock.now();
    story.apply_rest();
    story.print(out)?;

    let mut replay = verify_run(&log, recording.replay).await?;
    replay.requests = clusters.requests();
    replay.ended_at = ended_at;
    replay.replayed = story.outages();
    replay.verdict.problems.extend(problems);
    replay.verdict.problems.extend(stall_problems(&replay.notes));
    replay.verdict.good = replay.verdict.problems.is_empty();
    if let Some(report) = &options.report {
        report::summary(&replay, report, out)?;
        print_event_log_hint(options.event_log.as_deref(), out)?;
    }
    Ok(replay)
}

type ClusterKinds = BTreeSet<(ClusterName, Kind)>;

/// The kinds that the run will watch: those that the recording contains, and the others.
fn watched_kinds(recording: &DemoLog) -> (ClusterKinds, ClusterKinds) {
    let watched = recording.replay.clusters.iter().flat_map(|spec| {
        let kinds = recording.replay.settings.kinds_watched(&spec.roles);
        kinds.into_iter().map(|kind| (spec.name.clone(), kind))
    });
    watched.partition(|(name, kind)| recording.listed.get(name).is_some_and(|k| k.contains(kind)))
}

fn run_config(settings: &Settings, clusters: Vec<ClusterConfig>, log: &Path) -> Config {
    let mut config = Config {
        clusters,
        event_log: EventLogConfig {
            file: Some(log.to_owned()),
            redact: false,
            ..EventLogConfig::default()
        },
        mirror: settings.mirror.clone(),
        touch: settings.touch.clone(),
        orphans: settings.orphans.clone(),
        stall: settings.stall.clone(),
        retry: settings.retry,
        ..Config::default()
    };
    // This is the only instance.
    config.leader_election.enabled = false;
    // Events would be counted as writes, and nobody reads them.
    config.events.enabled = false;
    config.shutdown.grace_ms = 2_000;
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

fn print_event_log_hint(kept: Option<&Path>, out: &mut dyn Write) -> io::Result<()> {
    match kept {
        Some(path) => {
            let path = path.display();
            writeln!(out, "  to verify the run's event log: throughline replay {path}")?;
        }
        None => writeln!(
            out,
            "  to keep the run's event log for `throughline replay`: add --event-log FILE"
        )?,
    }
    out.flush()
}

/// Verifies the run's event log and adds the run's actions to the report of the recording.
async fn verify_run(log: &Path, recording: Replay) -> anyhow::Result<Replay> {
    let path = log.to_string_lossy().into_owned();
    let replayed = tokio::task::spawn_blocking(move || {
        let mut reader = LogReader::open(&path)?;
        let options = replay::ReplayOptions {
            mode: Some(ReplayMode::Verify),
            ..replay::ReplayOptions::default()
        };
        let log = None::<io::Sink>;
        replay::replay(&mut reader, &path, |_| Ok(()), &options, log, |_| {})
    });
    let replayed = replayed.await.context("verifying the run's event log crashed")??;
    let mut replay = recording;
    let not_verified = |problem| format!("the run's event log does not verify: {problem}");
    replay.verdict.problems = replayed.verdict.problems.into_iter().map(not_verified).collect();
    replay.warnings.extend(replayed.warnings);
    replay.actions = replayed.actions;
    replay.notes = replayed.notes;
    replay.connectors = replayed.connectors;
    Ok(replay)
}

/// How the demo ended.
enum DemoEnd {
    Converged,
    Stopped,
    NotConverged(Vec<String>),
}

/// Plays the recording while the run reacts, and prints the story.
struct DemoLoop<'a> {
    player: &'a mut Player,
    clusters: &'a DemoClusters,
    story: &'a mut RunStory,
    settings: &'a Settings,
    clock: Clock,
    is_playing: bool,
    /// The run's last activity when convergence was last checked.
    checked_at_activity: Option<Instant>,
}

impl DemoLoop<'_> {
    async fn run(
        &mut self,
        running: &mut JoinHandle<anyhow::Result<()>>,
        stop: &mut watch::Receiver<bool>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<DemoEnd> {
        loop {
            if !self.is_playing && self.story.has_listed_all() {
                self.is_playing = true;
                self.player.start();
                self.announce_next();
            }
            let due = sleep_until_opt(self.due_at());
            tokio::select! {
                observation = self.story.next() => self.story.apply(observation),
                () = self.player.hub_changed() => {}
                () = due => if let Some(ended) = self.do_what_is_due(out)? {
                    return Ok(ended);
                },
                ended = &mut *running => {
                    ended.context("the run crashed")??;
                    anyhow::bail!("the run ended before the demo did");
                }
                Ok(_) = stop.wait_for(|stop| *stop) => return Ok(DemoEnd::Stopped),
            }
        }
    }

    /// Keeps everything up until `stop` turns true.
    async fn linger(
        &mut self,
        page: &str,
        options: &DemoOptions,
        running: &mut JoinHandle<anyhow::Result<()>>,
        stop: &mut watch::Receiver<bool>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        self.story.print(out)?;
        if options.report.is_some() {
            writeln!(out, "\n  the recording is over; throughline keeps running: {page}")?;
            writeln!(out, "  Ctrl-C ends it")?;
            out.flush()?;
        }
        loop {
            let due = sleep_until_opt(self.player.carrier_due_at());
            tokio::select! {
                observation = self.story.next() => self.story.apply(observation),
                () = self.player.hub_changed() => {}
                () = due => self.player.advance_carrier(),
                ended = &mut *running => {
                    ended.context("the run crashed")??;
                    anyhow::bail!("the run ended before the demo did");
                }
                Ok(_) = stop.wait_for(|stop| *stop) => return Ok(()),
            }
        }
    }

    fn play_at(&self) -> Option<Instant> {
        self.player.next_at().filter(|_| self.is_playing).map(|(at, _)| at)
    }

    /// When to check for convergence.
    fn check_at(&self) -> Option<Instant> {
        let last = self.story.last_activity;
        let wait = if self.checked_at_activity == Some(last) { GIVE_UP_TIME } else { QUIET_TIME };
        (self.is_playing && self.player.is_finished()).then(|| last + wait)
    }

    fn due_at(&self) -> Option<Instant> {
        let carrier_at = self.player.carrier_due_at();
        let all = [self.play_at(), carrier_at, self.story.print_at(), self.check_at()];
        all.into_iter().flatten().min()
    }

    fn do_what_is_due(&mut self, out: &mut (dyn Write + Send)) -> io::Result<Option<DemoEnd>> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.player.carrier_due_at()) {
            self.player.advance_carrier();
        }
        if is_due(self.story.print_at()) {
            self.story.print(out)?;
        }
        if is_due(self.play_at()) {
            if let Some(line) = self.player.play_next(self.clusters) {
                self.story.add_line(self.clock.now(), line);
            }
            self.story.last_activity = now;
            self.announce_next();
        } else if is_due(self.check_at()) {
            return Ok(self.check());
        }
        Ok(None)
    }

    /// Adds a line about a shortened pause, or about the end of the recording.
    fn announce_next(&mut self) {
        let line = match self.player.next_at() {
            Some((_, pause)) => pause,
            None => {
                let text = "… the recording ends; waiting until everything has converged";
                Some(Notice::Text(text.to_owned()))
            }
        };
        if let Some(line) = line {
            self.story.add_line(self.clock.now(), line);
        }
    }

    /// Whether everything has converged; if not, gives up at the second check without new activity.
    fn check(&mut self) -> Option<DemoEnd> {
        let is_second_check = self.checked_at_activity == Some(self.story.last_activity);
        self.checked_at_activity = Some(self.story.last_activity);
        let mut problems = self.player.problems(self.settings, &self.story.touched);
        if self.story.has_writes_in_flight() {
            problems.push("writes are still in flight".to_owned());
        }
        match problems.is_empty() {
            true => Some(DemoEnd::Converged),
            false => is_second_check.then_some(DemoEnd::NotConverged(problems)),
        }
    }
}
