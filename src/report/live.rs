//! The story of a live run, written while it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::ReportOptions;
use super::model::Report;
use super::story_entry::{Seen, StoryEntry, borrowed, new_entries};
use super::style::Style::{self, Bold, Dim};
use super::style::{TextWriter, count, duration, offset};
use crate::core::contract::action::Decision;
use crate::core::contract::event::Outcome;
use crate::core::contract::note::Note;
use crate::core::data::ids::{ActionId, ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use crate::replay::{ActionRecord, Replay, ReplayMode};

/// Longer labels do not widen the label column.
const LABEL_CHARS_MAX: usize = 24;

/// Something that happens in a live run besides the machine's own notes and actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A pause in the recording is shortened.
    PauseShortened {
        recorded_ms: u64,
        waited_ms: u64,
    },
    /// The recording changed an object, as another client had.
    RecordedChange {
        cluster: ClusterName,
        kind: Kind,
        name: String,
        deleted: bool,
    },
    Text(String),
}

/// Collects a live run's notes, actions and notices, and writes them as entries of a replay's story,
/// each with its time since the start.
#[derive(Debug)]
pub struct LiveStory {
    options: ReportOptions,
    started: UnixMillis,
    replay: Replay,
    /// What was written.
    seen: Seen,
    /// Not yet written.
    notices: Vec<(UnixMillis, Notice)>,
    /// The index of each action without an outcome.
    in_flight: BTreeMap<ActionId, usize>,
    label_width: usize,
}

impl LiveStory {
    /// `replay` has the clusters, settings and connectors of the run.
    pub fn new(replay: &Replay, started: UnixMillis, options: ReportOptions) -> Self {
        let (clusters, settings) = (replay.clusters.clone(), replay.settings.clone());
        let mut empty = Replay::new(&replay.file, ReplayMode::Live, clusters, settings);
        empty.connectors.clone_from(&replay.connectors);
        Self {
            options,
            started,
            replay: empty,
            seen: Seen::default(),
            notices: Vec::new(),
            in_flight: BTreeMap::new(),
            label_width: 0,
        }
    }

    pub fn add_decision(&mut self, decision: Decision) {
        self.in_flight.insert(decision.action.id, self.replay.actions.len());
        self.replay.actions.push(ActionRecord { decision, finished: None });
    }

    pub fn add_outcome(&mut self, at: UnixMillis, id: ActionId, outcome: Outcome) {
        let index = self.in_flight.remove(&id);
        if let Some(record) = index.and_then(|i| self.replay.actions.get_mut(i)) {
            record.finished = Some((at, outcome));
        }
    }

    pub fn add_note(&mut self, note: Note) {
        self.replay.notes.push(note);
    }

    pub fn add_notice(&mut self, at: UnixMillis, notice: Notice) {
        self.notices.push((at, notice));
    }

    /// What the run did.
    pub fn into_replay(self) -> Replay {
        self.replay
    }

    /// The number of actions without an outcome.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether there is anything to write.
    pub fn has_news(&self) -> bool {
        let Replay { notes, actions, .. } = &self.replay;
        notes.len() > self.seen.notes
            || actions.len() > self.seen.actions
            || !self.notices.is_empty()
    }

    /// Writes everything that has not been written; actions without an outcome as unfinished.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_news(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let report = Report::new(&self.replay, None);
        let mut lines = Vec::new();
        for story in report.connectors.iter().chain([&report.others]) {
            self.label_width = self.label_width.max(story.label.chars().count());
            let entries = new_entries(&report, story, self.seen);
            let line = |entry: &StoryEntry<'_>| (entry.at, story.label.clone(), entry.text());
            lines.extend(entries.iter().map(line));
        }
        lines.extend(notice_lines(&std::mem::take(&mut self.notices)));
        lines.sort_by_key(|(at, ..)| *at);
        let width = self.label_width.min(LABEL_CHARS_MAX);
        let mut writer = TextWriter::new(out, &self.options);
        for (at, label, text) in lines {
            let time = format!("{:>10}  ", offset(at.since(self.started)));
            let label = format!("{label:<width$}  ");
            let hang = (time.chars().count() + label.chars().count()).min(LABEL_CHARS_MAX + 16);
            let mut line = vec![(Dim, time.as_str()), (Bold, label.as_str())];
            line.extend(borrowed(&text));
            writer.put(0, hang, &line)?;
        }
        writer.finish()?;
        self.seen = Seen { notes: self.replay.notes.len(), actions: self.replay.actions.len() };
        Ok(())
    }
}

/// Time, label, text.
type StoryLine = (UnixMillis, String, Vec<(Style, String)>);

/// Changes of the same kind in the same cluster share one line.
fn notice_lines(notices: &[(UnixMillis, Notice)]) -> Vec<StoryLine> {
    let mut lines = Vec::new();
    let mut changes: BTreeMap<(&ClusterName, Kind, bool), (UnixMillis, BTreeSet<&str>)> =
        BTreeMap::new();
    for (at, notice) in notices {
        let text = match notice {
            Notice::RecordedChange { cluster, kind, name, deleted } => {
                let group = (cluster, *kind, *deleted);
                changes.entry(group).or_insert((*at, BTreeSet::new())).1.insert(name);
                continue;
            }
            Notice::PauseShortened { recorded_ms, waited_ms } => {
                let (recorded, waited) = (duration(*recorded_ms), duration(*waited_ms));
                let text = format!("… {recorded} pause in the recording, shortened to {waited}");
                vec![(Dim, text)]
            }
            Notice::Text(text) => vec![(Dim, text.clone())],
        };
        lines.push((*at, String::new(), text));
    }
    for ((cluster, kind, deleted), (at, names)) in changes {
        let names: Vec<_> = names.into_iter().collect();
        let objects = match names.as_slice() {
            [name] => format!("{kind} {name}"),
            [first, .., last] => {
                format!("{} ({first} … {last})", count(names.len(), kind.as_str()))
            }
            [] => continue,
        };
        let verb = if deleted { "deletes" } else { "writes" };
        let text = format!("the recording {verb} {objects} at {cluster}");
        lines.push((at, String::new(), vec![(Dim, text)]));
    }
    lines
}
