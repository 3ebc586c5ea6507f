//! A recorded log, driven through the machine.
//!
//! Two ways: *verify* feeds the recorded lines alone and compares the machine's actions with the
//! recorded ones; *what-if* carries the machine's actions out in a [`World`](crate::world::World)
//! on top of the recorded changes, and goes on after the last line until nothing is due.

pub(crate) mod audit;
mod bookmarks;
mod land;
pub(crate) mod overlay;
mod threads;
mod verify;
mod what_if;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Sender, sync_channel};

use crate::core::action::{Decision, Note, Noted, Stall};
use crate::core::event::{Event, Happened, Outcome};
use crate::core::ids::{ActionId, ClusterName, ObjectKey};
use crate::core::settings::Settings;
use crate::core::time::UnixMillis;
use crate::event_log::{ClusterSpec, Header, Line, LogError, Reader, Writer};
use crate::outage::Outage;
use threads::{BATCH, BATCHES, Observed, OutageThread, Timeline, read_batches};

/// How a log is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Actions are carried out in memory on top of the recorded changes.
    WhatIf,
    /// The recorded lines alone; the actions must equal the recorded ones.
    Verify,
    /// No replay: a real run acted on clusters in memory, into which the log was played.
    #[value(skip)]
    Live,
}

/// An action and its fate.
#[derive(Clone, Debug)]
pub struct Done {
    /// What was decided, when, and why.
    pub decision: Decision,
    /// When its outcome came, and which.
    pub finished: Option<(UnixMillis, Outcome)>,
}

/// Whether all ended well.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What-if: everything is as it should be at the end, and nothing is under way.
    /// Verify: every action equals the recorded one. Live: as what-if, and its own log verifies.
    pub good: bool,
    /// What is not, in words; empty when `good`.
    pub problems: Vec<String>,
}

/// Everything there is to tell of one replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The file's name as it was given.
    pub file: String,
    /// How it was replayed.
    pub mode: Mode,
    /// The clusters of the log.
    pub clusters: Vec<ClusterSpec>,
    /// The settings that were decided by.
    pub settings: Settings,
    /// Lines that were events.
    pub events: u64,
    /// The time of the first line; live, the recording's, as is the next.
    pub first_at: UnixMillis,
    /// The time of the last line.
    pub last_at: UnixMillis,
    /// When virtual time ended; live, when the run did, by the run's own clock.
    pub ended_at: UnixMillis,
    /// Every action, in order.
    pub actions: Vec<Done>,
    /// Everything that was told, in order.
    pub notes: Vec<Note>,
    /// The reader's warnings.
    pub warnings: Vec<String>,
    /// Which upstream connectors are which replicas, for every replica seen.
    pub ways: Vec<Way>,
    /// When users saw the wrong thing, as recorded.
    pub recorded: Vec<Outage>,
    /// When they would have with throughline, or did in a live run; none in a verify.
    pub replayed: Vec<Outage>,
    /// What the API servers were asked; live only.
    pub requests: Vec<Requests>,
    /// Whether all ended well.
    pub verdict: Verdict,
}

/// How often a cluster's API server was asked for something.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Requests {
    /// The cluster.
    pub cluster: ClusterName,
    /// As RBAC has it: `list`, `watch`, `patch` …
    pub verb: &'static str,
    /// The resource's name in paths, e.g. `connectors`.
    pub resource: &'static str,
    /// Whether such a request changes anything.
    pub writes: bool,
    /// How often.
    pub count: u64,
}

impl Replay {
    /// Nothing happened yet.
    pub(crate) fn new(
        file: &str,
        mode: Mode,
        clusters: Vec<ClusterSpec>,
        settings: Settings,
    ) -> Self {
        Self {
            file: file.to_owned(),
            mode,
            clusters,
            settings,
            events: 0,
            first_at: UnixMillis(0),
            last_at: UnixMillis(0),
            ended_at: UnixMillis(0),
            actions: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            ways: Vec::new(),
            recorded: Vec::new(),
            replayed: Vec::new(),
            requests: Vec::new(),
            verdict: Verdict::default(),
        }
    }

    /// Writes that an API server took and that changed nothing there, or that it refused; live
    /// only.
    pub fn needless_writes(&self) -> u64 {
        let sent: u64 = self.requests.iter().filter(|r| r.writes).map(|r| r.count).sum();
        let applied = |done: &&Done| matches!(done.finished, Some((_, Outcome::Applied { .. })));
        let changed = self.actions.iter().filter(applied).count();
        sent.saturating_sub(u64::try_from(changed).unwrap_or(u64::MAX))
    }
}

/// One connector: what it is called upstream, and at hub and edges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The upstream cluster and connector, as the replica's labels say; `None` where no replica
    /// with labels was seen (an edge alone).
    pub upstream: Option<(String, ObjectKey)>,
    /// Its name at hub and edges.
    pub replica: ObjectKey,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// `None`: verify when the log holds outcomes, else what-if. Telling that apart costs memory
    /// for lines read ahead; for a file, [`holds_outcomes`](crate::event_log::holds_outcomes) tells
    /// without.
    pub mode: Option<Mode>,
    /// After the last line, virtual time goes on for at most this long.
    pub run_on_ms: u64,
    /// From a hub's change to the edge's, in what-if.
    pub carrier_delay_ms: u64,
    /// From a decision to its landing, in what-if.
    pub write_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: None, run_on_ms: 900_000, carrier_delay_ms: 50, write_ms: 10 }
    }
}

/// Replays a log. `settings` change what the header says (or the defaults); `progress` hears of
/// every line; everything that enters and leaves the machine is written to `log`.
///
/// # Errors
/// The log can't be read, or the new one can't be written.
pub fn replay<R: BufRead + Send, W: Write>(
    reader: &mut Reader<R>,
    file: &str,
    settings: impl FnOnce(&mut Settings) -> anyhow::Result<()>,
    options: &Options,
    log: Option<W>,
    mut progress: impl FnMut(&Reader<R>) + Send,
) -> anyhow::Result<Replay> {
    let mut header = reader.header().clone();
    let foreign = header.settings.is_none();
    let mut changed = header.settings.take().unwrap_or_default();
    settings(&mut changed)?;
    let mut ahead = Vec::new();
    let mode = match options.mode {
        Some(mode) => mode,
        None => detect(reader, &mut ahead)?,
    };
    let mut story = Story::new(file, mode, header.clusters.clone(), changed.clone());
    let header = Header { settings: Some(changed), recorded: false, ..header };
    let log = log.map(|sink| Writer::new(sink, &header)).transpose()?;
    let reading = &mut *reader;
    // Reading is about half of the work, and looking for outages a quarter: each is a thread.
    let done = std::thread::scope(|scope| {
        let (batches, lines) = sync_channel(BATCHES);
        scope.spawn(move || read_batches(reading, ahead, &batches, &mut progress));
        let mut batch = Vec::new().into_iter();
        let next = || loop {
            if let Some(line) = batch.next() {
                return Ok(Some(line));
            }
            match lines.recv() {
                Ok(Ok(lines)) => batch = Vec::into_iter(lines),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(None),
            }
        };
        let outages = OutageThread::new(scope, &story);
        story.outages = Some(outages.send);
        let done = match mode {
            Mode::WhatIf | Mode::Live => what_if::run(&mut story, options, foreign, next, log),
            Mode::Verify => verify::run(&mut story, next, log),
        };
        drop(story.outages.take());
        let found = outages.thread.join();
        // The reader must not wait for somebody who has stopped listening.
        drop(lines);
        done.map(|()| found)
    })?;
    let Ok((ways, recorded, replayed)) = done else {
        anyhow::bail!("the search for outages broke off")
    };
    story.replay.ways = ways;
    story.replay.recorded = recorded;
    story.replay.replayed = if mode != Mode::Verify { replayed } else { Vec::new() };
    if mode == Mode::Verify {
        // First, because the differences that follow may come of them.
        let gaps =
            reader.gaps().into_iter().map(|gap| format!("{}:{}: {}", gap.file, gap.line, gap.text));
        story.replay.verdict.problems.splice(0..0, gaps);
    }
    let mut replay = story.finish();
    replay.warnings = reader.warnings().iter().map(ToString::to_string).collect();
    Ok(replay)
}

/// Whether the log holds outcomes, where it can't be searched beforehand: reads at most
/// [`DETECT_LINES_MAX`] lines ahead.
fn detect<R: BufRead>(reader: &mut Reader<R>, ahead: &mut Vec<Line>) -> Result<Mode, LogError> {
    while ahead.len() < DETECT_LINES_MAX {
        let Some(line) = reader.next_line()? else { break };
        let outcome =
            matches!(&line, Line::Event(e) if matches!(e.what, Happened::ActionFinished { .. }));
        ahead.push(line);
        if outcome {
            return Ok(Mode::Verify);
        }
    }
    Ok(Mode::WhatIf)
}

/// How many lines of standard input are kept in memory to tell whether throughline was acting.
const DETECT_LINES_MAX: usize = 200_000;

/// A replay in the making.
struct Story {
    replay: Replay,
    done: BTreeMap<ActionId, usize>,
    outages: Option<Sender<Observed>>,
    observed: [Vec<Event>; 2],
}

impl Story {
    fn new(file: &str, mode: Mode, clusters: Vec<ClusterSpec>, settings: Settings) -> Self {
        Self {
            done: BTreeMap::new(),
            outages: None,
            observed: Default::default(),
            replay: Replay::new(file, mode, clusters, settings),
        }
    }

    fn begin(&mut self, at: UnixMillis) {
        self.replay.first_at = at;
        self.replay.last_at = at;
    }

    fn end(&mut self, at: UnixMillis) {
        self.replay.ended_at = at;
        self.hand_over(Timeline::Recorded);
        self.hand_over(Timeline::Replayed);
    }

    /// Shows an event to the search for outages.
    fn observe(&mut self, timeline: Timeline, event: &Event) {
        let matters = matches!(
            event.what,
            Happened::Listed { .. }
                | Happened::Applied { .. }
                | Happened::Deleted { .. }
                | Happened::ListFinished { .. }
        );
        if matters {
            let observed = &mut self.observed[timeline as usize];
            observed.push(event.clone());
            if observed.len() >= BATCH {
                self.hand_over(timeline);
            }
        }
    }

    fn hand_over(&mut self, timeline: Timeline) {
        let events = std::mem::take(&mut self.observed[timeline as usize]);
        if let Some(outages) = &self.outages {
            // Its end is noticed when it is joined.
            let _ = outages.send((timeline, events));
        }
    }

    /// A line of the log.
    fn recorded(&mut self, event: &Event) {
        self.replay.events += 1;
        self.observe(Timeline::Recorded, event);
    }

    /// What the machine was told.
    fn replayed(&mut self, event: &Event) {
        if self.replay.mode != Mode::Verify {
            self.observe(Timeline::Replayed, event);
        }
        if let Happened::ActionFinished { id, outcome } = &event.what
            && let Some(done) = self.done.get(id).and_then(|&i| self.replay.actions.get_mut(i))
        {
            done.finished = Some((event.at, outcome.clone()));
        }
    }

    /// What it decided.
    fn acted(&mut self, decision: Decision) {
        self.done.insert(decision.action.id, self.replay.actions.len());
        self.replay.actions.push(Done { decision, finished: None });
    }

    /// Objects that some action was about.
    fn written(&self) -> audit::Touched {
        self.replay
            .actions
            .iter()
            .map(|d| (d.decision.action.cluster.clone(), d.decision.action.object.clone()))
            .collect()
    }

    fn problems(&mut self, problems: Vec<String>) {
        self.replay.verdict.problems.extend(problems);
    }

    fn finish(self) -> Replay {
        let mut replay = self.replay;
        if replay.mode != Mode::Verify {
            replay.verdict.problems.extend(stall_problems(&replay.notes));
        }
        replay.verdict.good = replay.verdict.problems.is_empty();
        replay
    }
}

/// The stalls that did not end, in words.
pub(crate) fn stall_problems(notes: &[Note]) -> Vec<String> {
    let words = |s: Stall| format!("{}: {} has not come: {}", s.connector, hop_name(&s), s.reason);
    open_stalls(notes).into_iter().map(words).collect()
}

fn hop_name(stall: &Stall) -> String {
    format!("the hop `{}` at {}", format!("{:?}", stall.hop).to_lowercase(), stall.cluster)
}

/// The stalls that did not end.
pub fn open_stalls(notes: &[Note]) -> Vec<Stall> {
    let mut open = BTreeMap::new();
    for note in notes {
        match &note.what {
            Noted::Stalled(s) => {
                open.insert((s.cluster.clone(), s.connector.clone(), s.hop), s.clone());
            }
            Noted::StallEnded(s) => {
                open.remove(&(s.cluster.clone(), s.connector.clone(), s.hop));
            }
            _ => {}
        }
    }
    open.into_values().collect()
}
