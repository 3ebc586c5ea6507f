//! Which note and which action is about which connector.

use std::collections::HashMap;

use crate::core::action::{Hop, Note, Noted, Stall, Verb};
use crate::core::ids::{ClusterName, ObjectKey};
use crate::core::time::UnixMillis;
use crate::replay::{Done, Replay};

/// All that is told of one connector.
pub(super) struct Chapter<'a> {
    pub(super) upstream: Option<(&'a str, &'a ObjectKey)>,
    pub(super) replica: Option<&'a ObjectKey>,
    /// Hops and stalls, in the order told.
    pub(super) notes: Vec<&'a Note>,
    /// What was written, in the order decided.
    pub(super) actions: Vec<&'a Done>,
    /// As short as can be without being mistaken for another.
    pub(super) label: String,
    /// What upstream said before the first note, and when, where that was told elsewhere.
    pub(super) before: Option<(UnixMillis, bool)>,
}

impl<'a> Chapter<'a> {
    pub(super) fn is_quiet(&self) -> bool {
        self.notes.is_empty() && self.actions.is_empty()
    }

    /// The name to ask for it by.
    pub(super) fn key(&self) -> Option<&'a ObjectKey> {
        self.upstream.map(|(_, key)| key).or(self.replica)
    }

    /// Where it lives: `project-a default/home-lab`.
    pub(super) fn place(&self) -> String {
        match (self.upstream, self.replica) {
            (Some((cluster, key)), _) => format!("{cluster} {key}"),
            (None, Some(replica)) => replica.to_string(),
            (None, None) => String::new(),
        }
    }
}

/// A stall from its report to its end.
pub(super) struct StallSpan<'a> {
    pub(super) stall: &'a Stall,
    pub(super) reported_at: UnixMillis,
    pub(super) ended_at: Option<UnixMillis>,
}

/// The replay, sorted by connector.
pub(super) struct Index<'a> {
    /// Ordered by upstream cluster and name.
    pub(super) chapters: Vec<Chapter<'a>>,
    /// What was written for no one connector.
    pub(super) others: Vec<&'a Done>,
    pub(super) stalls: Vec<StallSpan<'a>>,
    only: Option<&'a ObjectKey>,
    by_replica: HashMap<&'a ObjectKey, usize>,
    by_upstream: HashMap<(&'a str, &'a ObjectKey), Vec<usize>>,
}

impl<'a> Index<'a> {
    /// Of everything, or of the connector of that name alone.
    pub(super) fn new(replay: &'a Replay, only: Option<&'a ObjectKey>) -> Self {
        let mut index = Self {
            chapters: Vec::new(),
            others: Vec::new(),
            stalls: Vec::new(),
            only,
            by_replica: HashMap::new(),
            by_upstream: HashMap::new(),
        };
        for way in &replay.ways {
            let upstream = way.upstream.as_ref().map(|(cluster, key)| (cluster.as_str(), key));
            let wanted =
                |only| &way.replica == only || upstream.is_some_and(|(_, key)| key == only);
            if only.is_none_or(wanted) {
                index.open(upstream, Some(&way.replica));
            }
        }
        index.take_notes(&replay.notes);
        for done in &replay.actions {
            index.take_action(done);
        }
        index.arrange();
        index
    }

    fn open(
        &mut self,
        upstream: Option<(&'a str, &'a ObjectKey)>,
        replica: Option<&'a ObjectKey>,
    ) -> usize {
        let known = replica.and_then(|replica| self.by_replica.get(replica)).copied();
        // A replica that was first seen without labels, or is told of twice.
        if let Some(known) = known
            && let Some(chapter) = self.chapters.get_mut(known)
            && (chapter.upstream.is_none() || upstream.is_none() || chapter.upstream == upstream)
        {
            if chapter.upstream.is_none()
                && let Some(upstream) = upstream
            {
                chapter.upstream = Some(upstream);
                self.by_upstream.entry(upstream).or_default().push(known);
            }
            return known;
        }
        let at = self.chapters.len();
        if let Some(replica) = replica {
            self.by_replica.entry(replica).or_insert(at);
        }
        if let Some(upstream) = upstream {
            self.by_upstream.entry(upstream).or_default().push(at);
        }
        self.chapters.push(Chapter {
            upstream,
            replica,
            notes: Vec::new(),
            actions: Vec::new(),
            label: String::new(),
            before: None,
        });
        at
    }

    fn take_notes(&mut self, notes: &'a [Note]) {
        // Which stalls are open, by what tells one from another.
        type Open<'a> = HashMap<(&'a ClusterName, &'a ObjectKey, Hop, UnixMillis), usize>;
        let mut open: Open<'a> = HashMap::new();
        for note in notes {
            let (cluster, connector, hop) = match &note.what {
                Noted::HopPassed { cluster, connector, hop, .. } => (cluster, connector, *hop),
                Noted::Stalled(s) | Noted::StallEnded(s) => (&s.cluster, &s.connector, s.hop),
                Noted::Anomaly(_) | Noted::Orphan { .. } | Noted::DeletesHeld { .. } => continue,
            };
            let chapters = self.find(cluster, connector, hop);
            if chapters.is_empty() {
                continue;
            }
            for at in chapters {
                if let Some(chapter) = self.chapters.get_mut(at) {
                    chapter.notes.push(note);
                }
            }
            match &note.what {
                Noted::Stalled(stall) => {
                    open.insert((cluster, connector, hop, stall.since), self.stalls.len());
                    let reported_at = note.at;
                    self.stalls.push(StallSpan { stall, reported_at, ended_at: None });
                }
                Noted::StallEnded(stall) => {
                    let found = open.remove(&(cluster, connector, hop, stall.since));
                    if let Some(span) = found.and_then(|at| self.stalls.get_mut(at)) {
                        span.ended_at = Some(note.at);
                    }
                }
                _ => {}
            }
        }
    }

    /// The chapters a hop belongs to; begun where there is none, and none when not asked for.
    fn find(&mut self, cluster: &'a ClusterName, connector: &'a ObjectKey, hop: Hop) -> Vec<usize> {
        let known = match hop {
            Hop::Upstream => self.by_upstream.get(&(cluster.as_str(), connector)).cloned(),
            _ => self.by_replica.get(connector).map(|at| vec![*at]),
        };
        match known {
            Some(chapters) => chapters,
            None if self.only.is_some_and(|only| only != connector) => Vec::new(),
            None if hop == Hop::Upstream => {
                vec![self.open(Some((cluster.as_str(), connector)), None)]
            }
            None => vec![self.open(None, Some(connector))],
        }
    }

    fn take_action(&mut self, done: &'a Done) {
        let action = &done.decision.action;
        let about = match action.verb {
            Verb::Mirror | Verb::Nudge => std::slice::from_ref(&action.object),
            Verb::Touch => &action.connectors,
            Verb::Delete => &[],
        };
        if about.is_empty() && self.only.is_none() {
            self.others.push(done);
        }
        for connector in about {
            for at in self.find(&action.cluster, connector, Hop::Mirrored) {
                if let Some(chapter) = self.chapters.get_mut(at) {
                    chapter.actions.push(done);
                }
            }
        }
    }

    /// Orders the chapters and gives each the shortest name that is its own.
    fn arrange(&mut self) {
        self.chapters.sort_by_key(|c| (c.upstream.is_none(), c.upstream, c.replica));
        self.by_replica.clear();
        for (at, chapter) in self.chapters.iter().enumerate() {
            if let Some(replica) = chapter.replica {
                self.by_replica.entry(replica).or_insert(at);
            }
        }
        self.by_upstream.clear();
        let (mut names, mut keys) = (HashMap::new(), HashMap::new());
        for key in self.chapters.iter().filter_map(Chapter::key) {
            *names.entry(&key.name).or_insert(0_usize) += 1;
            *keys.entry(key).or_insert(0_usize) += 1;
        }
        for chapter in &mut self.chapters {
            let Some(key) = chapter.key() else { continue };
            chapter.label = match (names.get(&key.name), keys.get(key)) {
                (Some(1), _) => key.name.clone(),
                (_, Some(1)) => key.to_string(),
                _ => chapter.place(),
            };
        }
    }

    /// What was written for no one connector, as a chapter of its own.
    pub(super) fn for_no_one(&self) -> Chapter<'a> {
        Chapter {
            upstream: None,
            replica: None,
            notes: Vec::new(),
            actions: self.others.clone(),
            label: String::new(),
            before: None,
        }
    }

    /// Whether a connector, named as at hub and edges, is asked for.
    pub(super) fn has(&self, replica: &ObjectKey) -> bool {
        self.only.is_none_or(|only| only == replica) || self.by_replica.contains_key(replica)
    }

    /// What to call a connector that is named as at hub and edges.
    pub(super) fn label(&self, replica: &ObjectKey) -> String {
        match self.by_replica.get(replica).and_then(|at| self.chapters.get(*at)) {
            Some(chapter) => chapter.label.clone(),
            None => replica.to_string(),
        }
    }

    /// Whether an action is asked for.
    pub(super) fn wants(&self, done: &Done) -> bool {
        let action = &done.decision.action;
        self.only.is_none()
            || match action.verb {
                Verb::Mirror | Verb::Nudge => self.has(&action.object),
                Verb::Touch => action.connectors.iter().any(|key| self.has(key)),
                Verb::Delete => false,
            }
    }
}
