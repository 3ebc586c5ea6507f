//! The new entries of a live run, written as they happen.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::ReportOptions;
use super::model::Report;
use super::story_entry::{Seen, StoryEntry, story_entries};
use super::style::Style::{Bold, Dim};
use super::style::{TextWriter, borrowed, count, offset};
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use crate::replay::Replay;

/// Longer labels do not widen the label column.
const LABEL_CHARS_MAX: usize = 24;

/// An event of a live run that is not in the machine's notes and actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The recording changed an object, as another client did when it was made.
    RecordedChange {
        cluster: ClusterName,
        kind: Kind,
        name: String,
        deleted: bool,
    },
    Text(String),
}

/// Writes the entries not printed before, each with its time since the start. Actions without an
/// outcome are unfinished.
///
/// # Errors
/// Those of `out`.
pub fn news(
    replay: &Replay,
    seen: Seen,
    notices: &[(UnixMillis, Notice)],
    started: UnixMillis,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let report = Report::new(replay, None);
    let mut lines = Vec::new();
    let mut width = 0;
    for story in report.connectors.iter().chain([&report.others]) {
        width = width.max(story.label.chars().count().min(LABEL_CHARS_MAX));
        let entries = story_entries(&report, story, seen);
        lines.extend(entries.into_iter().map(|entry| (story.label.as_str(), entry)));
    }
    lines.extend(notice_entries(notices).into_iter().map(|entry| ("", entry)));
    lines.sort_by_key(|(_, entry)| entry.at_ms);
    let mut writer = TextWriter::new(out, options);
    for (label, entry) in lines {
        let time = format!("{:>10}  ", offset(entry.at_ms.since(started)));
        let label = format!("{label:<width$}  ");
        let hang = (time.chars().count() + label.chars().count()).min(LABEL_CHARS_MAX + 16);
        let mut line = vec![(Dim, time.as_str()), (Bold, label.as_str())];
        line.extend(borrowed(&entry.text));
        writer.put(0, hang, &line)?;
    }
    writer.finish()
}

/// Changes of the same kind in the same cluster share one entry.
fn notice_entries(notices: &[(UnixMillis, Notice)]) -> Vec<StoryEntry> {
    let mut entries = Vec::new();
    let mut changes: BTreeMap<_, (UnixMillis, BTreeSet<&str>)> = BTreeMap::new();
    for (at, notice) in notices {
        match notice {
            Notice::RecordedChange { cluster, kind, name, deleted } => {
                let group = (cluster, *kind, *deleted);
                changes.entry(group).or_insert((*at, BTreeSet::new())).1.insert(name);
            }
            Notice::Text(text) => entries.push(StoryEntry::notice(*at, text.clone())),
        }
    }
    for ((cluster, kind, deleted), (at, names)) in changes {
        let objects = match (names.first(), names.last()) {
            (Some(first), Some(last)) if first != last => {
                format!("{} ({first} … {last})", count(names.len(), kind.as_str()))
            }
            (name, _) => format!("{kind} {}", name.copied().unwrap_or_default()),
        };
        let verb = if deleted { "deletes" } else { "writes" };
        let text = format!("the recording {verb} {objects} at {cluster}");
        entries.push(StoryEntry::notice(at, text));
    }
    entries
}
