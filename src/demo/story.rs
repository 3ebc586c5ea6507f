//! Follows the run and prints its story as it happens.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::core::contract::action::Decision;
use crate::core::contract::cause::Problem;
use crate::core::contract::event::{Event, EventKind};
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use crate::observer::Observer;
use crate::replay::{Replay, ReplayMode};
use crate::report::{self, Notice, ReportOptions, Seen};

/// Related lines arrive within this time and are printed together.
const BATCH_WINDOW: Duration = Duration::from_millis(300);
/// The longest time between an event and its line.
const PRINT_DELAY_MAX: Duration = Duration::from_millis(2_500);

/// One observation of the run.
pub(super) enum Observation {
    Event(Event),
    Decision(Decision),
    Note(Note),
}

/// Sends everything to the story; it never waits, and fails only if the demo has ended.
impl Observer for UnboundedSender<Observation> {
    fn on_event(&mut self, event: &Event) {
        let _ = self.send(Observation::Event(event.clone()));
    }

    fn on_decision(&mut self, decision: &Decision) {
        let _ = self.send(Observation::Decision(decision.clone()));
    }

    fn on_note(&mut self, note: &Note) {
        let _ = self.send(Observation::Note(note.clone()));
    }
}

/// The state of the run as observed, and the lines that are not printed yet.
pub(super) struct RunStory {
    observations: UnboundedReceiver<Observation>,
    /// The actions and notes of the run so far.
    replay: Replay,
    clock: Clock,
    started: UnixMillis,
    /// The part of them that was printed.
    seen: Seen,
    /// Not printed yet.
    notices: Vec<(UnixMillis, Notice)>,
    options: ReportOptions,
    /// Kinds that must be listed before the recording is played.
    unlisted: BTreeSet<(ClusterName, Kind)>,
    /// All kinds in the recording.
    known: BTreeSet<(ClusterName, Kind)>,
    /// When the oldest line that is not printed yet was added.
    pending_since: Option<Instant>,
    pub(super) last_activity: Instant,
}

impl RunStory {
    /// A story and its observer. `kinds` are those that the run will list.
    pub(super) fn new(
        replay: &Replay,
        clock: Clock,
        kinds: BTreeSet<(ClusterName, Kind)>,
        options: ReportOptions,
    ) -> (Self, Box<dyn Observer>) {
        let (sender, observations) = unbounded_channel();
        let clusters = replay.clusters.clone();
        let settings = replay.settings.clone();
        let run = Replay::new(&replay.file, ReplayMode::Live, clusters, settings);
        let story = Self {
            observations,
            replay: Replay { upstreams: replay.upstreams.clone(), ..run },
            clock,
            started: clock.now(),
            seen: Seen::default(),
            notices: Vec::new(),
            options,
            known: kinds.clone(),
            unlisted: kinds,
            pending_since: None,
            last_activity: Instant::now(),
        };
        (story, Box::new(sender))
    }

    /// Waits for the next observation; never resolves once the run has ended. Cancel-safe.
    pub(super) async fn next(&mut self) -> Observation {
        match self.observations.recv().await {
            Some(observation) => observation,
            None => std::future::pending().await,
        }
    }

    /// Applies all remaining observations after the run has ended.
    pub(super) fn apply_rest(&mut self) {
        while let Ok(observation) = self.observations.try_recv() {
            self.apply(observation);
        }
    }

    pub(super) fn apply(&mut self, observation: Observation) {
        self.last_activity = Instant::now();
        match observation {
            Observation::Event(event) => self.apply_event(event),
            Observation::Decision(decision) => self.replay.decided(decision),
            Observation::Note(note) if self.is_about_recorded(&note) => {
                self.replay.notes.push(note);
            }
            Observation::Note(_) => {}
        }
        self.update_pending();
    }

    fn apply_event(&mut self, event: Event) {
        match event.kind {
            EventKind::ActionFinished { id, outcome } => {
                self.replay.finished(event.at, id, outcome);
            }
            EventKind::ListFinished { cluster, kind } => {
                self.unlisted.remove(&(cluster, kind));
            }
            _ => {}
        }
    }

    /// Kinds outside the recording are not served; the introduction lists them.
    fn is_about_recorded(&self, note: &Note) -> bool {
        let (NoteKind::Began(Problem { about, .. }) | NoteKind::Ended(Problem { about, .. })) =
            &note.kind
        else {
            return true;
        };
        let is_known = |kind| self.known.contains(&(about.cluster.clone(), kind));
        about.object.is_some() || about.kind.is_none_or(is_known)
    }

    /// Adds a line about an event that the run does not report, such as a pause.
    pub(super) fn add_line(&mut self, line: Notice) {
        self.notices.push((self.clock.now(), line));
        self.update_pending();
    }

    fn update_pending(&mut self) {
        if Seen::all_of(&self.replay) != self.seen || !self.notices.is_empty() {
            self.pending_since.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the run has finished the lists of its start.
    pub(super) fn has_listed_all(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// When to print the pending lines.
    pub(super) fn print_at(&self) -> Option<Instant> {
        let latest = self.pending_since? + PRINT_DELAY_MAX;
        let waits = self.replay.actions.iter().any(|record| record.finished.is_none());
        Some(if waits { latest } else { latest.min(self.last_activity + BATCH_WINDOW) })
    }

    pub(super) fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.pending_since = None;
        let seen = std::mem::replace(&mut self.seen, Seen::all_of(&self.replay));
        let notices = std::mem::take(&mut self.notices);
        report::news(&self.replay, seen, &notices, self.started, &self.options, out)
    }

    /// The actions and notes of the run.
    pub(super) fn finish(self) -> Replay {
        self.replay
    }
}
