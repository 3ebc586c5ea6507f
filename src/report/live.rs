//! The story of a live run, told while it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::Options;
use super::index::{Chapter, Index};
use super::passage::{parts, passages};
use super::style::Style::{self, Bold, Dim, Plain, Yellow};
use super::style::{Page, count, duration, offset};
use crate::core::action::{Decision, Hop, Note, Noted};
use crate::core::event::Outcome;
use crate::core::ids::{ActionId, ClusterName, Kind, ObjectKey};
use crate::core::time::UnixMillis;
use crate::replay::{Done, Mode, Replay};

/// Labels are padded to this width, at most.
const LABEL_MAX: usize = 24;

/// Something that is told beside the machine's own doings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The recording has a pause, and it was shortened.
    Silence {
        /// How long it was.
        recorded_ms: u64,
        /// How long it is waited.
        waited_ms: u64,
    },
    /// An object changed as the recording says, by somebody else's doing.
    Played {
        /// Where.
        cluster: ClusterName,
        /// Of which kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// It was deleted.
        deleted: bool,
    },
    /// Watches of a cluster broke.
    Lost {
        /// The cluster.
        cluster: ClusterName,
        /// What came back.
        error: String,
    },
    /// All of its watches are live again.
    Back {
        /// The cluster.
        cluster: ClusterName,
    },
    /// Anything else, in words.
    Words(String),
}

/// Gathers what a live run tells, and tells it in the words of a replay's story: together what
/// belongs together, each line with its time since the start.
#[derive(Debug)]
pub struct Live {
    options: Options,
    started: UnixMillis,
    /// What is not told yet.
    pending: Replay,
    asides: Vec<(UnixMillis, Aside)>,
    under_way: BTreeMap<ActionId, usize>,
    /// What upstream said last of each connector, and when.
    said: BTreeMap<(ClusterName, ObjectKey), (UnixMillis, bool)>,
    label_width: usize,
}

impl Live {
    /// Nothing is told yet. `like` has the clusters, settings and ways of the run.
    pub fn new(like: &Replay, started: UnixMillis, options: Options) -> Self {
        let (clusters, settings) = (like.clusters.clone(), like.settings.clone());
        let mut pending = Replay::new(&like.file, Mode::Live, clusters, settings);
        pending.ways.clone_from(&like.ways);
        let index = Index::new(&pending, None);
        let widths = index.chapters.iter().map(|chapter| chapter.label.chars().count());
        let label_width = widths.max().unwrap_or(0).min(LABEL_MAX);
        let (asides, said) = (Vec::new(), BTreeMap::new());
        let under_way = BTreeMap::new();
        Self { options, started, pending, asides, under_way, said, label_width }
    }

    /// The machine decided something.
    pub fn decided(&mut self, decision: Decision) {
        self.under_way.insert(decision.action.id, self.pending.actions.len());
        self.pending.actions.push(Done { decision, finished: None });
    }

    /// An action came to its end.
    pub fn finished(&mut self, at: UnixMillis, id: ActionId, outcome: Outcome) {
        let at_index = self.under_way.remove(&id);
        if let Some(done) = at_index.and_then(|i| self.pending.actions.get_mut(i)) {
            done.finished = Some((at, outcome));
        }
    }

    /// The machine told something.
    pub fn noted(&mut self, note: Note) {
        self.pending.notes.push(note);
    }

    /// Something else happened.
    pub fn aside(&mut self, at: UnixMillis, aside: Aside) {
        self.asides.push((at, aside));
    }

    /// How many actions have no outcome yet.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether there is something to tell.
    pub fn has_news(&self) -> bool {
        !(self.pending.notes.is_empty()
            && self.pending.actions.is_empty()
            && self.asides.is_empty())
    }

    /// Tells what has not been told; actions without an outcome are told as unfinished.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn tell(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = Vec::new();
        let mut index = Index::new(&self.pending, None);
        for chapter in &mut index.chapters {
            let upstream = chapter.upstream;
            let key = upstream.map(|(cluster, key)| (ClusterName::from(cluster), key.clone()));
            chapter.before = key.and_then(|key| self.said.get(&key)).copied();
            self.label_width = self.label_width.max(chapter.label.chars().count().min(LABEL_MAX));
            lines.extend(told(chapter, &self.pending));
        }
        lines.extend(told(&index.others, &self.pending));
        for note in &self.pending.notes {
            match &note.what {
                Noted::HopPassed { cluster, connector, hop: Hop::Upstream, online, .. } => {
                    self.said.insert((cluster.clone(), connector.clone()), (note.at, *online));
                }
                Noted::Anomaly(anomaly) => {
                    let object = anomaly.object.as_ref().map(ToString::to_string);
                    let object = object.unwrap_or_default();
                    let text = format!("{} {object}: {}", anomaly.cluster, anomaly.detail);
                    lines.push((note.at, String::new(), vec![(Yellow, text)]));
                }
                _ => {}
            }
        }
        lines.extend(asides(&std::mem::take(&mut self.asides)));
        lines.sort_by_key(|(at, ..)| *at);
        let mut page = Page::new(out, &self.options);
        for (at, label, words) in lines {
            let time = format!("{:>10}  ", offset(at.since(self.started)));
            let label = format!("{label:<width$}  ", width = self.label_width);
            let hang = (time.chars().count() + label.chars().count()).min(LABEL_MAX + 16);
            let mut line = vec![(Dim, time.as_str()), (Bold, label.as_str())];
            line.extend(parts(&words));
            page.put(0, hang, &line)?;
        }
        page.finish()?;
        self.pending.notes.clear();
        self.pending.actions.clear();
        // What is told as unfinished is not told again, and yet waited for.
        self.under_way.values_mut().for_each(|at| *at = usize::MAX);
        Ok(())
    }
}

/// A line to be: when, about what, in words.
type Line = (UnixMillis, String, Vec<(Style, String)>);

fn told(chapter: &Chapter<'_>, replay: &Replay) -> Vec<Line> {
    let passages = passages(chapter, &replay.settings);
    passages.iter().map(|p| (p.at, chapter.label.clone(), p.words())).collect()
}

/// What came one after the other of the same kind in the same cluster is one line.
fn asides(asides: &[(UnixMillis, Aside)]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut played: BTreeMap<(&ClusterName, Kind, bool), (UnixMillis, BTreeSet<&str>)> =
        BTreeMap::new();
    for (at, aside) in asides {
        let words = match aside {
            Aside::Played { cluster, kind, name, deleted } => {
                let place = (cluster, *kind, *deleted);
                played.entry(place).or_insert((*at, BTreeSet::new())).1.insert(name);
                continue;
            }
            Aside::Silence { recorded_ms, waited_ms } => {
                let (recorded, waited) = (duration(*recorded_ms), duration(*waited_ms));
                vec![(Dim, format!("… the recording is silent for {recorded}: waiting {waited}"))]
            }
            Aside::Lost { cluster, error } => {
                vec![(Yellow, format!("{cluster} can't be watched: {error}"))]
            }
            Aside::Back { cluster } => vec![(Plain, format!("{cluster} is watched again"))],
            Aside::Words(words) => vec![(Dim, words.clone())],
        };
        lines.push((*at, String::new(), words));
    }
    for ((cluster, kind, deleted), (at, names)) in played {
        let names: Vec<_> = names.into_iter().collect();
        let what = match names.as_slice() {
            [name] => format!("{kind} {name}"),
            [first, .., last] => {
                format!("{} ({first} … {last})", count(names.len(), kind.as_str()))
            }
            [] => continue,
        };
        let done = if deleted { "deleted" } else { "written" };
        let words = format!("{what} {done} at {cluster} by others, as recorded");
        lines.push((at, String::new(), vec![(Dim, words)]));
    }
    lines
}
