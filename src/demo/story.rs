//! Follows the run and prints its story as it happens.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::core::contract::action::Decision;
use crate::core::contract::cause::Problem;
use crate::core::contract::event::{Event, EventKind};
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::observer::Observer;
use crate::outage::{Outage, OutageTracker};
use crate::replay::Replay;
use crate::report::{self, LiveStory, Notice};

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

/// Sends everything that it observes to a channel; it never waits.
struct ChannelObserver(UnboundedSender<Observation>);

impl ChannelObserver {
    fn send(&self, observation: Observation) {
        // Fails only if the demo has ended.
        let _ = self.0.send(observation);
    }
}

impl Observer for ChannelObserver {
    fn on_event(&mut self, event: &Event) {
        self.send(Observation::Event(event.clone()));
    }

    fn on_decision(&mut self, decision: &Decision) {
        self.send(Observation::Decision(decision.clone()));
    }

    fn on_note(&mut self, note: &Note) {
        self.send(Observation::Note(note.clone()));
    }
}

/// The state of the run as observed, and the lines that are not printed yet.
pub(super) struct RunStory {
    observations: UnboundedReceiver<Observation>,
    live: LiveStory,
    is_printed: bool,
    outages: OutageTracker,
    /// Objects that the run decided to write.
    pub(super) touched: BTreeSet<(ClusterName, ObjectKey)>,
    /// Kinds that must be listed before the recording is played.
    unlisted: BTreeSet<(ClusterName, Kind)>,
    /// All kinds that the recording contains.
    known: BTreeSet<(ClusterName, Kind)>,
    /// When the oldest line that is not printed yet was added.
    pending_since: Option<Instant>,
    pub(super) last_activity: Instant,
}

impl RunStory {
    /// A story and the observer that feeds it. `kinds` are those that the run will list.
    pub(super) fn new(
        replay: &Replay,
        started: UnixMillis,
        kinds: BTreeSet<(ClusterName, Kind)>,
        options: Option<report::ReportOptions>,
    ) -> (Self, Box<dyn Observer>) {
        let (sender, observations) = unbounded_channel();
        let is_printed = options.is_some();
        let story = Self {
            observations,
            live: LiveStory::new(replay, started, options.unwrap_or_default()),
            is_printed,
            outages: OutageTracker::new(&replay.clusters, &replay.settings, false),
            touched: BTreeSet::new(),
            known: kinds.clone(),
            unlisted: kinds,
            pending_since: None,
            last_activity: Instant::now(),
        };
        (story, Box::new(ChannelObserver(sender)))
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
            Observation::Event(event) => {
                self.outages.observe(&event);
                self.apply_event(event);
            }
            Observation::Decision(decision) => {
                let action = &decision.action;
                self.touched.insert((action.cluster.clone(), action.object.clone()));
                self.live.add_decision(decision);
            }
            Observation::Note(note) if self.is_about_recorded(&note) => self.live.add_note(note),
            Observation::Note(_) => {}
        }
        self.update_pending();
    }

    fn apply_event(&mut self, event: Event) {
        match event.kind {
            EventKind::ActionFinished { id, outcome } => {
                self.live.add_outcome(event.at, id, outcome)
            }
            EventKind::ListFinished { cluster, kind } => {
                self.unlisted.remove(&(cluster, kind));
            }
            _ => {}
        }
    }

    /// Kinds that the recording does not have are not served; the introduction lists them.
    fn is_about_recorded(&self, note: &Note) -> bool {
        let (NoteKind::Began(Problem { about, .. }) | NoteKind::Ended(Problem { about, .. })) =
            &note.kind
        else {
            return true;
        };
        let is_known = |kind| self.known.contains(&(about.cluster.clone(), kind));
        about.object.is_some() || about.kind.is_none_or(is_known)
    }

    /// Adds a line about something that the run does not report, such as a pause.
    pub(super) fn add_line(&mut self, at: UnixMillis, line: Notice) {
        self.live.add_notice(at, line);
        self.update_pending();
    }

    fn update_pending(&mut self) {
        if self.live.has_news() {
            self.pending_since.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the run has listed every kind that it lists at its start.
    pub(super) fn has_listed_all(&self) -> bool {
        self.unlisted.is_empty()
    }

    pub(super) fn has_writes_in_flight(&self) -> bool {
        self.live.in_flight() > 0
    }

    /// When to print the pending lines.
    pub(super) fn print_at(&self) -> Option<Instant> {
        let latest = self.pending_since? + PRINT_DELAY_MAX;
        let waits = self.has_writes_in_flight();
        Some(if waits { latest } else { latest.min(self.last_activity + BATCH_WINDOW) })
    }

    pub(super) fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.pending_since = None;
        match self.is_printed {
            true => self.live.write_news(out),
            false => self.live.write_news(&mut io::sink()),
        }
    }

    /// What the run did, and what users would have seen.
    pub(super) fn finish(self) -> (Replay, Vec<Outage>) {
        (self.live.into_replay(), self.outages.finish())
    }
}
