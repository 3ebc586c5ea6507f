//! The whole of it with no cluster at hand: a log's clusters are served on loopback, the recorded
//! changes are played into them, the real [`run`](crate::run) is pointed at them, and what happens
//! is shown as it happens.
//!
//! What differs from clusters elsewhere: long pauses of the recording are shortened, a touch is
//! confirmed once and not twice, there are no other kinds than those of the recording, and the
//! carrier takes 50 ms. What others did in the recording they do here, too.

mod clusters;
mod play;
mod recording;
mod show;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::clusters::{Clusters, Folder};
use self::play::Player;
use self::recording::Recording;
use self::show::Audience;
use crate::clock::{Clock, until};
use crate::config::{ClusterConfig, Config, EventLogConfig};
use crate::core::ids::{ClusterName, Kind};
use crate::core::settings::Settings;
use crate::event_log::Reader;
use crate::replay::{self, Mode, Replay, stall_problems};
use crate::report::{self, Aside};
use crate::run::{Run, kinds_watched};

/// When all was played and nothing was heard for so long, it is looked whether all is well. Longer
/// than the machine puts anything off that the state of the clusters does not show.
const SETTLED: Duration = Duration::from_millis(1_500);
/// When nothing was heard for so long, nothing will come any more.
const GIVE_UP: Duration = Duration::from_secs(60);

/// What to play and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The log; `None`: the recorded incident, which is part of the program.
    pub log: Option<String>,
    /// Longer pauses of the recording are cut to this, in milliseconds.
    pub longest_pause_ms: u64,
    /// Where the run's event log is kept; `None`: it is not.
    pub event_log: Option<PathBuf>,
    /// How the story looks; `None`: nothing is shown.
    pub report: Option<report::Options>,
}

impl Default for Options {
    fn default() -> Self {
        let report = Some(report::Options::default());
        Self { log: None, longest_pause_ms: 2_000, event_log: None, report }
    }
}

/// Plays a log, shows on `out` what happens, and ends when all is well, when nothing comes any
/// more, or when `stop` turns true.
///
/// The outcome is a [`Replay`] of mode [`Mode::Live`]: what the run did by its own event log, which
/// was verified; what users saw as recorded, and what they would have seen in the run. Its verdict
/// is good when every hub annotation means what upstream says and has come to the edges, every
/// gateway concerned announces what its edge says, and the event log verifies.
///
/// # Errors
/// The log can't be read, or names no clusters; loopback, the folder for temporary files or the
/// event log can't be used; those of `out`.
pub async fn run(
    options: &Options,
    mut stop: watch::Receiver<bool>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<Replay> {
    let mut recording = Recording::read(options.log.as_deref())?;
    let clock = Clock::start();
    let mut player = Player::new(&mut recording, clock, options.longest_pause_ms);
    let clusters = Clusters::serve(&player.world, &recording.replay.clusters, clock).await?;
    let (awaited, unknown) = kinds(&recording);
    for (cluster, kind) in &unknown {
        clusters.hide(cluster, *kind);
    }
    if let Some(report) = &options.report {
        report::head(&recording.replay, report, out)?;
        introduce(options, &unknown, out)?;
    }

    let folder = Folder::new()?;
    let log = options.event_log.clone().unwrap_or_else(|| folder.path().join("events.jsonl"));
    let mut config = config(&recording.replay.settings, clusters.kubeconfig(folder.path())?, &log);
    if recording.has_outages {
        // They are as short as pauses.
        config.watch.backoff_max_ms = 1_000;
    }
    let replay = &recording.replay;
    let (mut audience, ear) = Audience::new(replay, clock.now(), awaited, options.report.clone());
    let (stop_run, stopping) = watch::channel(false);
    let mut running = tokio::spawn(Run::new(config, vec![ear])?.until(stopping));
    let mut show = Show {
        player: &mut player,
        clusters: &clusters,
        audience: &mut audience,
        settings: &recording.replay.settings,
        clock,
        begun: false,
        looked_at: None,
    };
    let ended = show.go_on(&mut running, &mut stop, out).await;
    if ended.is_err() {
        running.abort();
    }
    let problems = match ended? {
        Ended::Well => Vec::new(),
        Ended::Stopped => vec!["it was stopped before its end".to_owned()],
        Ended::Badly(problems) => problems,
    };
    stop_run.send_replace(true);
    running.await.context("the run broke off")??;
    let ended_at = clock.now();
    audience.take_rest();
    audience.tell(out)?;

    let mut replay = verified(&log, recording.replay).await?;
    replay.requests = clusters.requests();
    replay.ended_at = ended_at;
    replay.replayed = audience.outages();
    replay.verdict.problems.extend(problems);
    replay.verdict.problems.extend(stall_problems(&replay.notes));
    replay.verdict.good = replay.verdict.problems.is_empty();
    if let Some(report) = &options.report {
        report::bottom_line(&replay, report, out)?;
        tell_of_log(options.event_log.as_deref(), out)?;
    }
    Ok(replay)
}

type Kinds = BTreeSet<(ClusterName, Kind)>;

/// The kinds that the run will watch: those that the recording lists, and those it knows nothing of.
fn kinds(recording: &Recording) -> (Kinds, Kinds) {
    let watched = recording.replay.clusters.iter().flat_map(|spec| {
        let kinds = kinds_watched(&spec.roles, &recording.replay.settings);
        kinds.into_iter().map(|kind| (spec.name.clone(), kind))
    });
    watched.partition(|(name, kind)| recording.listed.get(name).is_some_and(|k| k.contains(kind)))
}

fn config(settings: &Settings, clusters: Vec<ClusterConfig>, log: &Path) -> Config {
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
    // Nobody else is there to lead.
    config.leader_election.enabled = false;
    // Nobody looks at them, and what is written shall be counted.
    config.events.enabled = false;
    config.admin.address = SocketAddr::from(([127, 0, 0, 1], 0));
    config.shutdown.grace_ms = 2_000;
    config
}

fn introduce(options: &Options, unknown: &Kinds, out: &mut dyn Write) -> io::Result<()> {
    let pause_ms = options.longest_pause_ms;
    writeln!(
        out,
        "  each cluster is served on loopback, `run` is pointed at them by a kubeconfig"
    )?;
    writeln!(
        out,
        "  pauses last {:.1} s at most; touches are confirmed once",
        pause_ms as f64 / 1e3
    )?;
    if !unknown.is_empty() {
        let unknown: Vec<_> =
            unknown.iter().map(|(cluster, kind)| format!("{kind} in {cluster}")).collect();
        writeln!(out, "  not in the recording, so not served: {}", unknown.join(", "))?;
    }
    writeln!(out)?;
    out.flush()
}

fn tell_of_log(kept: Option<&Path>, out: &mut dyn Write) -> io::Result<()> {
    match kept {
        Some(path) => {
            let path = path.display();
            writeln!(out, "  its event log verifies by `throughline replay {path}`")?;
        }
        None => writeln!(
            out,
            "  --event-log FILE keeps the run's event log, for `throughline replay FILE`"
        )?,
    }
    out.flush()
}

/// The run's event log, decided again; the rest is as in `recording`.
async fn verified(log: &Path, recording: Replay) -> anyhow::Result<Replay> {
    let path = log.to_string_lossy().into_owned();
    let replayed = tokio::task::spawn_blocking(move || {
        let mut reader = Reader::open(&path)?;
        let options = replay::Options { mode: Some(Mode::Verify), ..replay::Options::default() };
        let log = None::<io::Sink>;
        replay::replay(&mut reader, &path, |_| Ok(()), &options, log, |_| {})
    });
    let replayed = replayed.await.context("verifying the run's event log broke off")??;
    let mut replay = recording;
    let not_verified = |problem| format!("the run's event log does not verify: {problem}");
    replay.verdict.problems = replayed.verdict.problems.into_iter().map(not_verified).collect();
    replay.warnings.extend(replayed.warnings);
    replay.actions = replayed.actions;
    replay.notes = replayed.notes;
    replay.ways = replayed.ways;
    Ok(replay)
}

/// How it ended.
enum Ended {
    Well,
    Stopped,
    Badly(Vec<String>),
}

/// The play, and those who watch it.
struct Show<'a> {
    player: &'a mut Player,
    clusters: &'a Clusters,
    audience: &'a mut Audience,
    settings: &'a Settings,
    clock: Clock,
    begun: bool,
    /// What had been heard when it was last looked whether all is well.
    looked_at: Option<Instant>,
}

impl Show<'_> {
    async fn go_on(
        &mut self,
        running: &mut JoinHandle<anyhow::Result<()>>,
        stop: &mut watch::Receiver<bool>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<Ended> {
        loop {
            if !self.begun && self.audience.has_seen_all() {
                self.begun = true;
                self.player.begin();
                self.announce();
            }
            let due = until(self.due_at());
            tokio::select! {
                heard = self.audience.hear() => self.audience.take(heard),
                () = self.player.hub_changed() => {}
                () = due => if let Some(ended) = self.turn(out)? {
                    return Ok(ended);
                },
                ended = &mut *running => {
                    ended.context("the run broke off")??;
                    anyhow::bail!("the run ended by itself");
                }
                Ok(_) = stop.wait_for(|stop| *stop) => return Ok(Ended::Stopped),
            }
        }
    }

    fn play_at(&self) -> Option<Instant> {
        self.player.next_at().filter(|_| self.begun).map(|(at, _)| at)
    }

    /// When it is to be looked whether all is well.
    fn look_at(&self) -> Option<Instant> {
        let last = self.audience.last_heard;
        let wait = if self.looked_at == Some(last) { GIVE_UP } else { SETTLED };
        (self.begun && self.player.is_over()).then(|| last + wait)
    }

    fn due_at(&self) -> Option<Instant> {
        let carrier_at = self.player.carrier_at();
        let all = [self.play_at(), carrier_at, self.audience.tell_at(), self.look_at()];
        all.into_iter().flatten().min()
    }

    /// Does what is due.
    fn turn(&mut self, out: &mut (dyn Write + Send)) -> io::Result<Option<Ended>> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.player.carrier_at()) {
            self.player.carry();
        }
        if is_due(self.audience.tell_at()) {
            self.audience.tell(out)?;
        }
        if is_due(self.play_at()) {
            if let Some(aside) = self.player.play(self.clusters) {
                self.audience.aside(self.clock.now(), aside);
            }
            self.audience.last_heard = now;
            self.announce();
        } else if is_due(self.look_at()) {
            return Ok(self.look());
        }
        Ok(None)
    }

    /// Tells of a pause that is shortened, or of the end.
    fn announce(&mut self) {
        let aside = match self.player.next_at() {
            Some((_, silence)) => silence,
            None => Some(Aside::Words("… the recording ends; what is still due".to_owned())),
        };
        if let Some(aside) = aside {
            self.audience.aside(self.clock.now(), aside);
        }
    }

    fn look(&mut self) -> Option<Ended> {
        let waited = self.looked_at == Some(self.audience.last_heard);
        self.looked_at = Some(self.audience.last_heard);
        let mut problems = self.player.problems(self.settings, &self.audience.touched);
        if self.audience.is_waiting_for_writes() {
            problems.push("writes are still under way".to_owned());
        }
        match problems.is_empty() {
            true => Some(Ended::Well),
            false => waited.then_some(Ended::Badly(problems)),
        }
    }
}
