//! The story of a live run, written while it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::ReportOptions;
use super::index::{ConnectorHistory, ConnectorIndex};
use super::story_entry::{borrowed, story_entries};
use super::style::Style::{self, Bold, Dim, Plain, Yellow};
use super::style::{TextWriter, count, duration, offset};
use crate::core::contract::action::Decision;
use crate::core::contract::event::Outcome;
use crate::core::contract::note::{Hop, Note, NoteKind};
use crate::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey};
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
    WatchLost {
        cluster: ClusterName,
        error: String,
    },
    /// All watches of the cluster are live again.
    WatchesRestored {
        cluster: ClusterName,
    },
    Text(String),
}

/// Collects a live run's notes, actions and notices, and writes them as entries of a replay's story,
/// each with its time since the start.
#[derive(Debug)]
pub struct LiveStory {
    options: ReportOptions,
    started: UnixMillis,
    /// Not yet written.
    pending: Replay,
    notices: Vec<(UnixMillis, Notice)>,
    /// The index of each action without an outcome in `pending.actions`; [`WRITTEN`] if its entry
    /// has been written.
    in_flight: BTreeMap<ActionId, usize>,
    /// The latest upstream change of each connector, and whether it was online then.
    upstream: BTreeMap<(ClusterName, ObjectKey), (UnixMillis, bool)>,
    label_width: usize,
}

const WRITTEN: usize = usize::MAX;

impl LiveStory {
    /// `replay` has the clusters, settings and connectors of the run.
    pub fn new(replay: &Replay, started: UnixMillis, options: ReportOptions) -> Self {
        let (clusters, settings) = (replay.clusters.clone(), replay.settings.clone());
        let mut pending = Replay::new(&replay.file, ReplayMode::Live, clusters, settings);
        pending.connectors.clone_from(&replay.connectors);
        let index = ConnectorIndex::new(&pending, None);
        let widths = index.histories.iter().map(|history| history.label.chars().count());
        let label_width = widths.max().unwrap_or(0).min(LABEL_CHARS_MAX);
        let (notices, upstream) = (Vec::new(), BTreeMap::new());
        let in_flight = BTreeMap::new();
        Self { options, started, pending, notices, in_flight, upstream, label_width }
    }

    pub fn add_decision(&mut self, decision: Decision) {
        self.in_flight.insert(decision.action.id, self.pending.actions.len());
        self.pending.actions.push(ActionRecord { decision, finished: None });
    }

    pub fn add_outcome(&mut self, at: UnixMillis, id: ActionId, outcome: Outcome) {
        let index = self.in_flight.remove(&id);
        if let Some(record) = index.and_then(|i| self.pending.actions.get_mut(i)) {
            record.finished = Some((at, outcome));
        }
    }

    pub fn add_note(&mut self, note: Note) {
        self.pending.notes.push(note);
    }

    pub fn add_notice(&mut self, at: UnixMillis, notice: Notice) {
        self.notices.push((at, notice));
    }

    /// The number of actions without an outcome.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether there is anything to write.
    pub fn has_news(&self) -> bool {
        !(self.pending.notes.is_empty()
            && self.pending.actions.is_empty()
            && self.notices.is_empty())
    }

    /// Writes everything that has not been written; actions without an outcome as unfinished.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_news(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = Vec::new();
        let mut index = ConnectorIndex::new(&self.pending, None);
        for history in &mut index.histories {
            let upstream = history.upstream;
            let key = upstream.map(|(cluster, key)| (ClusterName::from(cluster), key.clone()));
            history.upstream_before = key.and_then(|key| self.upstream.get(&key)).copied();
            let label_width = history.label.chars().count().min(LABEL_CHARS_MAX);
            self.label_width = self.label_width.max(label_width);
            lines.extend(story_lines(history, &self.pending));
        }
        lines.extend(story_lines(&index.others, &self.pending));
        for note in &self.pending.notes {
            match &note.kind {
                NoteKind::HopPassed { cluster, connector, hop: Hop::Upstream, online, .. } => {
                    self.upstream.insert((cluster.clone(), connector.clone()), (note.at, *online));
                }
                NoteKind::Anomaly(anomaly) => {
                    let object = anomaly.object.as_ref().map(|o| format!(" {o}"));
                    let object = object.unwrap_or_default();
                    let text = format!("{}{object}: {}", anomaly.cluster, anomaly.detail);
                    lines.push((note.at, String::new(), vec![(Yellow, text)]));
                }
                _ => {}
            }
        }
        lines.extend(notice_lines(&std::mem::take(&mut self.notices)));
        lines.sort_by_key(|(at, ..)| *at);
        let mut writer = TextWriter::new(out, &self.options);
        for (at, label, text) in lines {
            let time = format!("{:>10}  ", offset(at.since(self.started)));
            let label = format!("{label:<width$}  ", width = self.label_width);
            let hang = (time.chars().count() + label.chars().count()).min(LABEL_CHARS_MAX + 16);
            let mut line = vec![(Dim, time.as_str()), (Bold, label.as_str())];
            line.extend(borrowed(&text));
            writer.put(0, hang, &line)?;
        }
        writer.finish()?;
        self.pending.notes.clear();
        self.pending.actions.clear();
        self.in_flight.values_mut().for_each(|index| *index = WRITTEN);
        Ok(())
    }
}

/// Time, label, text.
type StoryLine = (UnixMillis, String, Vec<(Style, String)>);

fn story_lines(history: &ConnectorHistory<'_>, replay: &Replay) -> Vec<StoryLine> {
    let entries = story_entries(history, &replay.settings);
    entries.iter().map(|entry| (entry.at, history.label.clone(), entry.text())).collect()
}

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
            Notice::WatchLost { cluster, error } => {
                vec![(Yellow, format!("watches of {cluster} lost: {error}"))]
            }
            Notice::WatchesRestored { cluster } => {
                vec![(Plain, format!("watches of {cluster} restored"))]
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
