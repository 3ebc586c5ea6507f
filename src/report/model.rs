//! The model of all reports: what a replay found, by connector.

use std::collections::{BTreeSet, HashMap};

use crate::core::contract::action::Verb;
use crate::core::contract::cause::About;
use crate::core::contract::note::{Hop, NoteKind};
use crate::core::data::ids::{Kind, ObjectKey};
use crate::replay::{ActionRecord, Replay, Span};

/// Everything about one connector, as indexes into the replay and the report.
#[derive(Default)]
pub(super) struct Story<'a> {
    pub(super) upstream: Option<(&'a str, &'a ObjectKey)>,
    /// Its name at the hub and the edges.
    pub(super) hub: Option<&'a ObjectKey>,
    /// The notes of the hops that it passed, in the order noted.
    pub(super) hops: Vec<usize>,
    /// In the order decided.
    pub(super) actions: Vec<usize>,
    /// In the order reported.
    pub(super) problems: Vec<usize>,
    /// The shortest name that no other connector has.
    pub(super) label: String,
}

impl<'a> Story<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.hops.is_empty() && self.actions.is_empty() && self.problems.is_empty()
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

/// What happened over a time, by connector.
pub(super) struct Report<'a> {
    pub(super) replay: &'a Replay,
    /// Ordered by upstream cluster and name.
    pub(super) connectors: Vec<Story<'a>>,
    /// What is not tied to one connector.
    pub(super) others: Story<'a>,
    /// What was wrong; of a report about one connector, only with it, or with a whole cluster.
    pub(super) problems: Vec<Span>,
    only: Option<&'a ObjectKey>,
    by_hub: HashMap<&'a ObjectKey, usize>,
    by_upstream: HashMap<(&'a str, &'a ObjectKey), Vec<usize>>,
    /// The connectors for which a Gateway was touched.
    by_gateway: HashMap<(&'a str, &'a ObjectKey), BTreeSet<usize>>,
}

impl<'a> Report<'a> {
    /// Indexes everything, or `only` one connector.
    pub(super) fn new(replay: &'a Replay, only: Option<&'a ObjectKey>) -> Self {
        let mut report = Self {
            replay,
            connectors: Vec::new(),
            others: Story::default(),
            problems: Vec::new(),
            only,
            by_hub: HashMap::new(),
            by_upstream: HashMap::new(),
            by_gateway: HashMap::new(),
        };
        for names in &replay.connectors {
            let upstream = names.upstream.as_ref().map(|(cluster, key)| (cluster.as_str(), key));
            let is_wanted =
                |only| &names.hub == only || upstream.is_some_and(|(_, key)| key == only);
            if only.is_none_or(is_wanted) {
                report.add_connector(upstream, Some(&names.hub));
            }
        }
        report.add_hops();
        report.add_actions();
        for span in Span::all(&replay.notes) {
            report.add_span(span);
        }
        report.sort_and_label();
        report
    }

    /// Adds a connector if it is new; returns its report.
    fn add_connector(
        &mut self,
        upstream: Option<(&'a str, &'a ObjectKey)>,
        hub: Option<&'a ObjectKey>,
    ) -> usize {
        let known = hub.and_then(|hub| self.by_hub.get(hub)).copied();
        // A hub Connector may be seen first without labels, or named twice.
        if let Some(known) = known
            && let Some(story) = self.connectors.get_mut(known)
            && (story.upstream.is_none() || upstream.is_none() || story.upstream == upstream)
        {
            if story.upstream.is_none()
                && let Some(upstream) = upstream
            {
                story.upstream = Some(upstream);
                self.by_upstream.entry(upstream).or_default().push(known);
            }
            return known;
        }
        let at = self.connectors.len();
        if let Some(hub) = hub {
            self.by_hub.entry(hub).or_insert(at);
        }
        if let Some(upstream) = upstream {
            self.by_upstream.entry(upstream).or_default().push(at);
        }
        self.connectors.push(Story { upstream, hub, ..Story::default() });
        at
    }

    fn add_hops(&mut self) {
        for (at, note) in self.replay.notes.iter().enumerate() {
            let NoteKind::HopPassed { cluster, connector, hop, .. } = &note.kind else { continue };
            let upstream = (*hop == Hop::Upstream).then_some((cluster.as_str(), connector));
            for of in self.find_or_add(upstream, connector) {
                self.story(of, |story| story.hops.push(at));
            }
        }
    }

    fn add_actions(&mut self) {
        for (at, record) in self.replay.actions.iter().enumerate() {
            let action = &record.decision.action;
            let about = connectors_of(record);
            if about.is_empty() && self.only.is_none() {
                self.others.actions.push(at);
            }
            for connector in about {
                for of in self.find_or_add(None, connector) {
                    self.story(of, |story| story.actions.push(at));
                    if action.verb == Verb::Touch {
                        let gateway = (action.cluster.as_str(), &action.object);
                        self.by_gateway.entry(gateway).or_default().insert(of);
                    }
                }
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
            self.story(of, |story| story.problems.push(at));
        }
    }

    fn story(&mut self, at: usize, change: impl FnOnce(&mut Story<'a>)) {
        if let Some(story) = self.connectors.get_mut(at) {
            change(story);
        }
    }

    /// The connectors of that name upstream, or at the hub and the edges. Adds one if there is none
    /// yet, unless the report is about another.
    fn find_or_add(
        &mut self,
        upstream: Option<(&'a str, &'a ObjectKey)>,
        connector: &'a ObjectKey,
    ) -> Vec<usize> {
        let known = match upstream {
            Some(upstream) => self.by_upstream.get(&upstream).cloned(),
            None => self.by_hub.get(connector).map(|at| vec![*at]),
        };
        match known {
            Some(found) => found,
            None if self.only.is_some_and(|only| only != connector) => Vec::new(),
            None if upstream.is_some() => vec![self.add_connector(upstream, None)],
            None => vec![self.add_connector(None, Some(connector))],
        }
    }

    /// The connectors that a problem is about; none where it is about many.
    fn concerned(&self, about: &About) -> Vec<usize> {
        let Some(object) = about.object.as_ref().filter(|_| about.more == 0) else {
            return Vec::new();
        };
        let at = (about.cluster.as_str(), object);
        match about.kind {
            Some(Kind::Connector) => {
                let at_hub = || self.by_hub.get(object).map(|at| vec![*at]);
                self.by_upstream.get(&at).cloned().or_else(at_hub).unwrap_or_default()
            }
            Some(Kind::Gateway) => {
                self.by_gateway.get(&at).into_iter().flatten().copied().collect()
            }
            _ => Vec::new(),
        }
    }

    fn sort_and_label(&mut self) {
        self.connectors.sort_by_key(|h| (h.upstream.is_none(), h.upstream, h.hub));
        // Nothing is looked up by the others once all is sorted.
        self.by_upstream.clear();
        self.by_gateway.clear();
        self.by_hub.clear();
        for (at, story) in self.connectors.iter().enumerate() {
            if let Some(hub) = story.hub {
                self.by_hub.entry(hub).or_insert(at);
            }
        }
        let (mut names, mut keys) = (HashMap::new(), HashMap::new());
        for key in self.connectors.iter().filter_map(Story::key) {
            *names.entry(&key.name).or_insert(0_usize) += 1;
            *keys.entry(key).or_insert(0_usize) += 1;
        }
        for story in &mut self.connectors {
            let Some(key) = story.key() else { continue };
            story.label = match (names.get(&key.name), keys.get(key)) {
                (Some(1), _) => key.name.clone(),
                (_, Some(1)) => key.to_string(),
                _ => story.full_name(),
            };
        }
    }

    /// Whether the report covers a connector, given by its name at the hub and the edges.
    pub(super) fn includes(&self, hub: &ObjectKey) -> bool {
        self.only.is_none_or(|only| only == hub) || self.by_hub.contains_key(hub)
    }

    /// The label of a connector, given by its name at the hub and the edges.
    pub(super) fn label(&self, hub: &ObjectKey) -> String {
        match self.by_hub.get(hub).and_then(|at| self.connectors.get(*at)) {
            Some(story) => story.label.clone(),
            None => hub.to_string(),
        }
    }

    /// The actions that the report covers, in the order decided.
    pub(super) fn actions(&self) -> impl Iterator<Item = &'a ActionRecord> {
        let is_covered = |record: &&ActionRecord| {
            self.only.is_none() || connectors_of(record).iter().any(|key| self.includes(key))
        };
        self.replay.actions.iter().filter(is_covered)
    }

    pub(super) fn actions_of(&self, story: &Story<'_>) -> Vec<&'a ActionRecord> {
        story.actions.iter().filter_map(|at| self.replay.actions.get(*at)).collect()
    }

    pub(super) fn problems_of(&self, story: &Story<'_>) -> Vec<&Span> {
        story.problems.iter().filter_map(|at| self.problems.get(*at)).collect()
    }
}

/// The connectors that an action is about, by their names at the hub and the edges.
fn connectors_of(record: &ActionRecord) -> &[ObjectKey] {
    let action = &record.decision.action;
    match action.verb {
        Verb::Mirror | Verb::Nudge => std::slice::from_ref(&action.object),
        Verb::Touch => &action.connectors,
        Verb::Delete => &[],
    }
}
