//! Sorts a replay's notes and actions by connector.

use std::collections::HashMap;

use crate::core::contract::action::Verb;
use crate::core::contract::note::{Hop, Note, NoteKind, Stall};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::replay::{ActionRecord, Replay};

/// Everything about one connector.
#[derive(Default)]
pub(super) struct ConnectorHistory<'a> {
    pub(super) upstream: Option<(&'a str, &'a ObjectKey)>,
    /// Its name at the hub and the edges.
    pub(super) hub: Option<&'a ObjectKey>,
    /// Hops and stalls, in the order noted.
    pub(super) notes: Vec<&'a Note>,
    /// In the order decided.
    pub(super) actions: Vec<&'a ActionRecord>,
    /// The shortest name that no other connector has.
    pub(super) label: String,
    /// When upstream last changed before the first note, and whether it was online then. A live run
    /// sets it, because it reports its notes in pieces.
    pub(super) upstream_before: Option<(UnixMillis, bool)>,
}

impl<'a> ConnectorHistory<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.actions.is_empty()
    }

    /// The value of `--connector` that selects it.
    pub(super) fn key(&self) -> Option<&'a ObjectKey> {
        self.upstream.map(|(_, key)| key).or(self.hub)
    }

    /// Its full name, e.g. `project-a default/home-lab`.
    pub(super) fn full_name(&self) -> String {
        match (self.upstream, self.hub) {
            (Some((cluster, key)), _) => format!("{cluster} {key}"),
            (None, Some(hub)) => hub.to_string(),
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

/// How long the mirror of what routes nothing waited.
pub(super) struct DeferralSpan<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) connector: &'a ObjectKey,
    pub(super) since: UnixMillis,
    pub(super) ended_at: Option<UnixMillis>,
}

/// A replay, sorted by connector.
pub(super) struct ConnectorIndex<'a> {
    /// Ordered by upstream cluster and name.
    pub(super) histories: Vec<ConnectorHistory<'a>>,
    /// Actions that are not tied to one connector.
    pub(super) others: ConnectorHistory<'a>,
    pub(super) stalls: Vec<StallSpan<'a>>,
    pub(super) deferrals: Vec<DeferralSpan<'a>>,
    only: Option<&'a ObjectKey>,
    by_hub: HashMap<&'a ObjectKey, usize>,
    by_upstream: HashMap<(&'a str, &'a ObjectKey), Vec<usize>>,
}

impl<'a> ConnectorIndex<'a> {
    /// Indexes everything, or `only` one connector.
    pub(super) fn new(replay: &'a Replay, only: Option<&'a ObjectKey>) -> Self {
        let mut index = Self {
            histories: Vec::new(),
            others: ConnectorHistory::default(),
            stalls: Vec::new(),
            deferrals: Vec::new(),
            only,
            by_hub: HashMap::new(),
            by_upstream: HashMap::new(),
        };
        for names in &replay.connectors {
            let upstream = names.upstream.as_ref().map(|(cluster, key)| (cluster.as_str(), key));
            let is_wanted =
                |only| &names.hub == only || upstream.is_some_and(|(_, key)| key == only);
            if only.is_none_or(is_wanted) {
                index.add_connector(upstream, Some(&names.hub));
            }
        }
        index.add_notes(&replay.notes);
        for record in &replay.actions {
            index.add_action(record);
        }
        index.sort_and_label();
        index
    }

    /// Adds a connector if it is new; returns its index.
    fn add_connector(
        &mut self,
        upstream: Option<(&'a str, &'a ObjectKey)>,
        hub: Option<&'a ObjectKey>,
    ) -> usize {
        let known = hub.and_then(|hub| self.by_hub.get(hub)).copied();
        // A hub Connector may be seen first without labels, or named twice.
        if let Some(known) = known
            && let Some(history) = self.histories.get_mut(known)
            && (history.upstream.is_none() || upstream.is_none() || history.upstream == upstream)
        {
            if history.upstream.is_none()
                && let Some(upstream) = upstream
            {
                history.upstream = Some(upstream);
                self.by_upstream.entry(upstream).or_default().push(known);
            }
            return known;
        }
        let at = self.histories.len();
        if let Some(hub) = hub {
            self.by_hub.entry(hub).or_insert(at);
        }
        if let Some(upstream) = upstream {
            self.by_upstream.entry(upstream).or_default().push(at);
        }
        self.histories.push(ConnectorHistory { upstream, hub, ..ConnectorHistory::default() });
        at
    }

    fn add_notes(&mut self, notes: &'a [Note]) {
        // The index of each open stall.
        type OpenStalls<'a> = HashMap<(&'a ClusterName, &'a ObjectKey, Hop, UnixMillis), usize>;
        let mut open: OpenStalls<'a> = HashMap::new();
        let mut deferred: HashMap<(&'a ClusterName, &'a ObjectKey), usize> = HashMap::new();
        for note in notes {
            let (cluster, connector, hop) = match &note.kind {
                NoteKind::HopPassed { cluster, connector, hop, .. } => (cluster, connector, *hop),
                NoteKind::Deferred { cluster, connector, .. } => {
                    (cluster, connector, Hop::Mirrored)
                }
                NoteKind::Stalled(s) | NoteKind::StallEnded(s) => (&s.cluster, &s.connector, s.hop),
                NoteKind::Began(_)
                | NoteKind::Ended(_)
                | NoteKind::Anomaly(_)
                | NoteKind::Orphan { .. }
                | NoteKind::OrphanGone { .. }
                | NoteKind::Held { .. }
                | NoteKind::DeletesHeld { .. }
                | NoteKind::Naming { .. }
                | NoteKind::TouchesWaiting { .. }
                | NoteKind::Discovery { .. }
                | NoteKind::ClusterGone { .. } => {
                    continue;
                }
            };
            let found = self.find_or_add(cluster, connector, hop);
            if found.is_empty() {
                continue;
            }
            for at in found {
                if let Some(history) = self.histories.get_mut(at) {
                    history.notes.push(note);
                }
            }
            match &note.kind {
                NoteKind::Stalled(stall) => {
                    open.insert((cluster, connector, hop, stall.since), self.stalls.len());
                    let reported_at = note.at;
                    self.stalls.push(StallSpan { stall, reported_at, ended_at: None });
                }
                NoteKind::StallEnded(stall) => {
                    let found = open.remove(&(cluster, connector, hop, stall.since));
                    if let Some(span) = found.and_then(|at| self.stalls.get_mut(at)) {
                        span.ended_at = Some(note.at);
                    }
                }
                NoteKind::Deferred { deferred: true, .. } => {
                    deferred.insert((cluster, connector), self.deferrals.len());
                    let (since, ended_at) = (note.at, None);
                    self.deferrals.push(DeferralSpan { cluster, connector, since, ended_at });
                }
                NoteKind::Deferred { deferred: false, .. } => {
                    let found = deferred.remove(&(cluster, connector));
                    if let Some(span) = found.and_then(|at| self.deferrals.get_mut(at)) {
                        span.ended_at = Some(note.at);
                    }
                }
                _ => {}
            }
        }
    }

    /// The indexes of the connectors that a hop is about. Adds one if there is none yet; returns
    /// none if the report is about another connector.
    fn find_or_add(
        &mut self,
        cluster: &'a ClusterName,
        connector: &'a ObjectKey,
        hop: Hop,
    ) -> Vec<usize> {
        let known = match hop {
            Hop::Upstream => self.by_upstream.get(&(cluster.as_str(), connector)).cloned(),
            _ => self.by_hub.get(connector).map(|at| vec![*at]),
        };
        match known {
            Some(found) => found,
            None if self.only.is_some_and(|only| only != connector) => Vec::new(),
            None if hop == Hop::Upstream => {
                vec![self.add_connector(Some((cluster.as_str(), connector)), None)]
            }
            None => vec![self.add_connector(None, Some(connector))],
        }
    }

    fn add_action(&mut self, record: &'a ActionRecord) {
        let action = &record.decision.action;
        let about = match action.verb {
            Verb::Mirror | Verb::Nudge => std::slice::from_ref(&action.object),
            Verb::Touch => &action.connectors,
            Verb::Delete => &[],
        };
        if about.is_empty() && self.only.is_none() {
            self.others.actions.push(record);
        }
        for connector in about {
            for at in self.find_or_add(&action.cluster, connector, Hop::Mirrored) {
                if let Some(history) = self.histories.get_mut(at) {
                    history.actions.push(record);
                }
            }
        }
    }

    fn sort_and_label(&mut self) {
        self.histories.sort_by_key(|h| (h.upstream.is_none(), h.upstream, h.hub));
        self.by_hub.clear();
        for (at, history) in self.histories.iter().enumerate() {
            if let Some(hub) = history.hub {
                self.by_hub.entry(hub).or_insert(at);
            }
        }
        self.by_upstream.clear();
        let (mut names, mut keys) = (HashMap::new(), HashMap::new());
        for key in self.histories.iter().filter_map(ConnectorHistory::key) {
            *names.entry(&key.name).or_insert(0_usize) += 1;
            *keys.entry(key).or_insert(0_usize) += 1;
        }
        for history in &mut self.histories {
            let Some(key) = history.key() else { continue };
            history.label = match (names.get(&key.name), keys.get(key)) {
                (Some(1), _) => key.name.clone(),
                (_, Some(1)) => key.to_string(),
                _ => history.full_name(),
            };
        }
    }

    /// Whether the report covers a connector, given by its name at the hub and the edges.
    pub(super) fn includes(&self, hub: &ObjectKey) -> bool {
        self.only.is_none_or(|only| only == hub) || self.by_hub.contains_key(hub)
    }

    /// The label of a connector, given by its name at the hub and the edges.
    pub(super) fn label(&self, hub: &ObjectKey) -> String {
        match self.by_hub.get(hub).and_then(|at| self.histories.get(*at)) {
            Some(history) => history.label.clone(),
            None => hub.to_string(),
        }
    }

    pub(super) fn includes_action(&self, record: &ActionRecord) -> bool {
        let action = &record.decision.action;
        self.only.is_none()
            || match action.verb {
                Verb::Mirror | Verb::Nudge => self.includes(&action.object),
                Verb::Touch => action.connectors.iter().any(|key| self.includes(key)),
                Verb::Delete => false,
            }
    }
}
