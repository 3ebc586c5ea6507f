//! The model of all reports: the results of a replay, by connector.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use serde::{Serialize, Serializer};

use super::verdict::Verdict;
use crate::core::contract::action::{Action, Precondition, Verb};
use crate::core::contract::cause::{About, Hop};
use crate::core::contract::event::Outcome;
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::core::data::time::UnixMillis;
use crate::replay::{ActionRecord, Outage, Replay, ReplayMode, RequestCounts, Span};

/// An upstream Connector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(super) struct Upstream<'a> {
    pub(super) cluster: &'a str,
    #[serde(flatten)]
    pub(super) key: &'a NamespacedName,
}

/// A hop that a connector passed.
#[derive(Serialize)]
pub(super) struct PassedHop<'a> {
    pub(super) at_ms: UnixMillis,
    pub(super) hop: Hop,
    pub(super) cluster: &'a ClusterName,
    pub(super) online: bool,
    /// How long it took; absent if its beginning was not observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    /// Its index in the notes.
    #[serde(skip)]
    pub(super) noted_at: usize,
}

/// Everything about one connector.
#[derive(Default, Serialize)]
pub(super) struct Story<'a> {
    pub(super) upstream: Option<Upstream<'a>>,
    /// Its name at the hub and the edges.
    #[serde(flatten, serialize_with = "with_nulls")]
    pub(super) hub: Option<&'a NamespacedName>,
    /// In the order noted.
    pub(super) hops: Vec<PassedHop<'a>>,
    /// In the order decided.
    #[serde(serialize_with = "ids")]
    pub(super) actions: Vec<&'a ActionRecord>,
    /// The indexes of the report's problems about it, in the order reported.
    #[serde(skip)]
    pub(super) problems: Vec<usize>,
    /// The shortest unique name.
    #[serde(skip)]
    pub(super) label: String,
}

fn with_nulls<S: Serializer>(
    hub: &Option<&NamespacedName>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let (namespace, name) = (hub.map(NamespacedName::namespace), hub.map(NamespacedName::name));
    serializer.collect_map([("namespace", namespace), ("name", name)])
}

fn ids<S: Serializer>(actions: &[&ActionRecord], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(actions.iter().map(|record| record.decision.action.id))
}

impl<'a> Story<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.hops.is_empty() && self.actions.is_empty() && self.problems.is_empty()
    }

    /// The value of `--connector` that selects it.
    pub(super) fn key(&self) -> Option<&'a NamespacedName> {
        self.upstream.map(|upstream| upstream.key).or(self.hub)
    }

    /// Its full name, e.g. `project-a default/home-lab`.
    pub(super) fn full_name(&self) -> String {
        match (self.upstream, self.hub) {
            (Some(Upstream { cluster, key }), _) => format!("{cluster} {key}"),
            (None, Some(hub)) => hub.to_string(),
            (None, None) => String::new(),
        }
    }
}

/// The events of a period, by connector; serialized, the JSON report.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    pub(super) replay: &'a Replay,
    pub(super) verdict: Verdict<'a>,
    pub(super) actions: Actions<'a>,
    /// Ordered by upstream cluster and name.
    pub(super) connectors: Vec<Story<'a>>,
    /// Entries that belong to no single connector.
    #[serde(skip)]
    pub(super) others: Story<'a>,
    /// The problems; in a report about one connector, only its own and those of a whole cluster.
    #[serde(flatten, serialize_with = "with_views")]
    pub(super) problems: Vec<Span>,
    pub(super) outages: Outages<'a>,
    warnings: &'a [String],
    /// Only for a live run.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<&'a [RequestCounts]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needless_writes: Option<u64>,
    /// The connector that it is restricted to.
    #[serde(skip)]
    pub(super) only: Option<&'a NamespacedName>,
    #[serde(skip)]
    known: HashMap<Place<'a>, BTreeSet<usize>>,
}

/// The position of an object at the hub and the edges, without a cluster. A Gateway leads to the
/// connectors for which it was touched.
type Place<'a> = (Kind, Option<&'a str>, &'a NamespacedName);

/// The actions that a report covers, in the order decided.
#[derive(Default)]
pub(super) struct Actions<'a> {
    pub(super) covered: Vec<&'a ActionRecord>,
    /// Leaves out annotations and preconditions, which make up most of a report's size.
    pub(super) are_bare: bool,
}

impl Serialize for Actions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(self.covered.iter().map(|record| ActionRow::new(record, self.are_bare)))
    }
}

#[derive(Serialize)]
struct ActionRow<'a> {
    at_ms: UnixMillis,
    #[serde(flatten)]
    action: Cow<'a, Action>,
    because: &'a str,
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    finished_at_ms: Option<UnixMillis>,
}

impl<'a> ActionRow<'a> {
    fn new(record: &'a ActionRecord, is_bare: bool) -> Self {
        let mut action = Cow::Borrowed(&record.decision.action);
        if is_bare {
            let action = action.to_mut();
            action.annotations.clear();
            action.precondition = Precondition::default();
        }
        let outcome = record.finished.as_ref().map(|(_, outcome)| outcome);
        Self {
            at_ms: record.decision.at,
            action,
            because: &record.decision.because,
            outcome: outcome.map(Outcome::name),
            error: outcome.and_then(error_of),
            finished_at_ms: record.finished.as_ref().map(|(at, _)| *at),
        }
    }
}

/// The API server's answer to an action that failed.
pub(super) fn error_of(outcome: &Outcome) -> Option<&str> {
    outcome.error().map(|error| &*error.text).filter(|error| !error.is_empty())
}

/// The outages for users for the connectors in the report.
#[derive(Default, Serialize)]
pub(super) struct Outages<'a> {
    pub(super) recorded: Vec<&'a Outage>,
    pub(super) replayed: Vec<&'a Outage>,
}

/// Version 1 of the report has two views of the problems: those that delay a hop, and the others.
fn with_views<S: Serializer>(problems: &[Span], serializer: S) -> Result<S::Ok, S::Error> {
    let (stalls, anomalies): (Vec<_>, _) = problems.iter().partition(|span| span.hop.is_some());
    let problems = problems.iter().collect();
    serializer.collect_map([("problems", problems), ("stalls", stalls), ("anomalies", anomalies)])
}

impl<'a> Report<'a> {
    /// Indexes everything, or `only` one connector.
    pub(super) fn new(replay: &'a Replay, only: Option<&'a NamespacedName>) -> Self {
        let is_live = replay.mode == ReplayMode::Live;
        let mut report = Self {
            replay,
            verdict: Verdict::default(),
            actions: Actions::default(),
            connectors: Vec::new(),
            others: Story::default(),
            problems: Vec::new(),
            outages: Outages::default(),
            warnings: &replay.warnings,
            requests: is_live.then_some(&replay.requests[..]),
            needless_writes: is_live.then(|| replay.needless_writes()),
            only,
            known: HashMap::new(),
        };
        for (hub, (cluster, key)) in &replay.upstreams {
            if only.is_none_or(|only| [hub, key].contains(&only)) {
                report.add_connector(Some(Upstream { cluster, key }), Some(hub));
            }
        }
        for (at, note) in replay.notes.iter().enumerate() {
            report.add_hop(at, note);
        }
        for record in &replay.actions {
            report.add_action(record);
        }
        for span in Span::all(&replay.notes) {
            report.add_span(span);
        }
        report.sort_and_label();
        let covered = |all: &'a [Outage]| all.iter().filter(|o| report.includes(&o.connector));
        let recorded: Vec<_> = covered(&replay.recorded).collect();
        let replayed: Vec<_> = covered(&replay.replayed).collect();
        let stuck = report.connectors.iter().filter(|story| report.is_stuck(story));
        let stuck = stuck.map(|story| story.hub);
        let outages = if replay.mode == ReplayMode::Verify { &recorded } else { &replayed };
        report.verdict = Verdict::new(replay, outages, stuck);
        report.outages = Outages { recorded, replayed };
        report
    }

    /// Adds a connector if it is new; returns its story.
    fn add_connector(
        &mut self,
        upstream: Option<Upstream<'a>>,
        hub: Option<&'a NamespacedName>,
    ) -> usize {
        let at_hub = hub.map(|hub| (Kind::Connector, None, hub));
        let known = at_hub.and_then(|place| self.known.get(&place)?.first().copied());
        // A hub Connector may first appear without labels, or be named twice.
        let is_same = |story: &Story<'_>| {
            story.upstream.is_none() || upstream.is_none() || story.upstream == upstream
        };
        let same = known.filter(|at| is_same(&self.connectors[*at]));
        let at = same.unwrap_or(self.connectors.len());
        if same.is_none() {
            self.connectors.push(Story { hub, ..Story::default() });
        }
        if let (None, Some(place)) = (known, at_hub) {
            self.known.entry(place).or_default().insert(at);
        }
        if let Some(Upstream { cluster, key }) = upstream {
            self.known.entry((Kind::Connector, Some(cluster), key)).or_default().insert(at);
            self.connectors[at].upstream = upstream;
        }
        at
    }

    fn add_hop(&mut self, noted_at: usize, note: &'a Note) {
        let &NoteKind::HopPassed { ref cluster, ref connector, hop, online, after_ms } = &note.kind
        else {
            return;
        };
        let at_ms = note.at;
        let upstream = (hop == Hop::Upstream).then_some(cluster.as_str());
        for of in self.find_or_add(upstream, connector) {
            let passed = PassedHop { at_ms, hop, cluster, online, after_ms, noted_at };
            self.connectors[of].hops.push(passed);
        }
    }

    fn add_action(&mut self, record: &'a ActionRecord) {
        let action = &record.decision.action;
        // By their names at the hub and the edges.
        let about = match action.verb {
            Verb::Mirror | Verb::Nudge => std::slice::from_ref(&action.object),
            Verb::Touch => &action.connectors,
            Verb::Delete => &[],
        };
        let is_of_nobody = about.is_empty() && self.only.is_none();
        if is_of_nobody {
            self.others.actions.push(record);
        }
        let of: Vec<_> = about.iter().flat_map(|key| self.find_or_add(None, key)).collect();
        if is_of_nobody || !of.is_empty() {
            self.actions.covered.push(record);
        }
        for of in of {
            self.connectors[of].actions.push(record);
            if action.verb == Verb::Touch {
                let gateway = (Kind::Gateway, Some(action.cluster.as_str()), &action.object);
                self.known.entry(gateway).or_default().insert(of);
            }
        }
    }

    fn add_span(&mut self, span: Span) {
        let about = self.concerned(&span.about);
        let is_of_cluster = span.about.object.is_none() || span.about.more > 0;
        if self.only.is_some() && about.is_empty() && !is_of_cluster {
            return;
        }
        let at = self.problems.len();
        self.problems.push(span);
        if about.is_empty() && self.only.is_none() {
            self.others.problems.push(at);
        }
        for of in about {
            self.connectors[of].problems.push(at);
        }
    }

    /// The connectors with that name in an upstream cluster, or at the hub and the edges. Adds one if
    /// there is none, unless the report is about another.
    fn find_or_add(
        &mut self,
        cluster: Option<&'a str>,
        key: &'a NamespacedName,
    ) -> BTreeSet<usize> {
        if let Some(found) = self.known.get(&(Kind::Connector, cluster, key)) {
            return found.clone();
        }
        if self.only.is_some_and(|only| only != key) {
            return BTreeSet::new();
        }
        let upstream = cluster.map(|cluster| Upstream { cluster, key });
        BTreeSet::from([self.add_connector(upstream, cluster.is_none().then_some(key))])
    }

    /// The connectors that a problem is about; none if it is about many.
    fn concerned(&self, about: &About) -> BTreeSet<usize> {
        let one = about.kind.zip(about.object.as_ref()).filter(|_| about.more == 0);
        let found = one.and_then(|(kind, object)| {
            let here = self.known.get(&(kind, Some(about.cluster.as_str()), object));
            here.or_else(|| self.known.get(&(kind, None, object)))
        });
        found.cloned().unwrap_or_default()
    }

    fn sort_and_label(&mut self) {
        self.connectors.sort_by_key(|h| (h.upstream.is_none(), h.upstream, h.hub));
        // After sorting, only names at the hub are looked up.
        self.known.clear();
        for (at, story) in self.connectors.iter().enumerate() {
            if let Some(hub) = story.hub {
                self.known.entry((Kind::Connector, None, hub)).or_default().insert(at);
            }
        }
        let mut names = HashMap::new();
        let mut keys = HashMap::new();
        for key in self.connectors.iter().filter_map(Story::key) {
            *names.entry(key.name()).or_insert(0_usize) += 1;
            *keys.entry(key).or_insert(0_usize) += 1;
        }
        for story in &mut self.connectors {
            let Some(key) = story.key() else { continue };
            story.label = match (names.get(key.name()), keys.get(key)) {
                (Some(1), _) => key.name().to_owned(),
                (_, Some(1)) => key.to_string(),
                _ => story.full_name(),
            };
        }
    }

    /// Whether a cluster has that role.
    pub(super) fn has(&self, role: Role) -> bool {
        self.replay.clusters.iter().any(|cluster| cluster.roles.contains(&role))
    }

    /// The first connector of that name at the hub and the edges.
    fn at_hub(&self, hub: &NamespacedName) -> Option<&Story<'a>> {
        self.connectors.get(*self.known.get(&(Kind::Connector, None, hub))?.first()?)
    }

    /// Whether the report covers a connector, given by its name at the hub and the edges.
    pub(super) fn includes(&self, hub: &NamespacedName) -> bool {
        self.only.is_none_or(|only| only == hub) || self.at_hub(hub).is_some()
    }

    /// The label of a connector, given by its name at the hub and the edges.
    pub(super) fn label(&self, hub: &NamespacedName) -> String {
        self.at_hub(hub).map_or_else(|| hub.to_string(), |story| story.label.clone())
    }

    pub(super) fn problems_of(&self, story: &Story<'_>) -> Vec<&Span> {
        story.problems.iter().map(|at| &self.problems[*at]).collect()
    }

    /// Whether a problem still keeps the connector out of sync.
    pub(super) fn is_stuck(&self, story: &Story<'_>) -> bool {
        self.problems_of(story).into_iter().any(Span::is_stuck)
    }
}
