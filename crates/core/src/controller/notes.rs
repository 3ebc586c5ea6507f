//! Notes, oldest first: the hops that connectors complete, and the problems that begin and end.
//!
//! A finder passes all its problems each time. Problems that are new, changed or over become notes.

use std::collections::{BTreeMap, VecDeque};

use crate::circuit_breaker::BreakerKey;
use crate::contract::cause::{Cause, Hop, Problem};
use crate::contract::membership::SourceName;
use crate::contract::note::{Note, NoteKind};
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::rules::findings::Findings;
use crate::subject::Subject;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    ready: VecDeque<Note>,
    /// Of the current step.
    notes: Vec<NoteKind>,
    open: BTreeMap<Finder, Vec<Problem>>,
}

/// The source of a problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finder {
    /// The plan of a subject.
    Subject(Subject),
    Watch(ClusterId, Kind),
    /// The check of whether an object can be read.
    Object(ObjectRef),
    Source(SourceName),
    Breaker(BreakerKey),
    /// One cause that concerns an upstream or an edge as a whole.
    Whole(ClusterName, Cause),
}

impl Notes {
    pub(crate) fn poll(&mut self) -> Option<Note> {
        self.ready.pop_front()
    }

    pub(crate) fn end_step(&mut self, now: UnixMillis) {
        let notes = self.notes.drain(..).map(|kind| Note { at: now, kind });
        self.ready.extend(notes);
    }

    pub(crate) fn add(&mut self, notes: Vec<NoteKind>) {
        self.notes.extend(notes);
    }

    pub(crate) fn hop_passed(
        &mut self,
        cluster: &ClusterName,
        connector: &NamespacedName,
        hop: Hop,
        online: bool,
        after_ms: Option<u64>,
    ) {
        let connector = connector.clone();
        let cluster = cluster.clone();
        self.notes.push(NoteKind::HopPassed { cluster, connector, hop, online, after_ms });
    }

    /// Takes all problems that a finder finds now.
    pub(crate) fn found(&mut self, finder: &Finder, found: impl IntoIterator<Item = Problem>) {
        let mut found: Vec<_> = found.into_iter().collect();
        if found.is_empty() && !self.open.contains_key(finder) {
            return;
        }
        let before = self.open.remove(finder).unwrap_or_default();
        let is_over = |old: &&Problem| !found.iter().any(|new| new.id() == old.id());
        let over = before.iter().filter(is_over).cloned();
        self.notes.extend(over.map(NoteKind::Ended));

        for new in &mut found {
            let old = before.iter().find(|old| old.id() == new.id());
            let likewise = || before.iter().find(|old| is_likewise(old, new));
            if let Some(old) = old.or_else(likewise) {
                new.since = old.since;
            }
            if old != Some(new) {
                self.notes.push(NoteKind::Began(new.clone()));
            }
        }
        if !found.is_empty() {
            self.open.insert(finder.clone(), found);
        }
    }

    /// The same for the findings of a rule. A late problem stays open until it is solved, even if
    /// its time starts again.
    pub(crate) fn found_by_rule(&mut self, subject: &Subject, found: Findings) {
        let is_open = |new: &Problem| self.of_subject(subject).iter().any(|p| p.id() == new.id());
        let mut problems = found.problems;
        problems.extend(found.not_late.into_iter().filter(is_open));
        if found.is_of_edges {
            let open = self.of_subject(subject).iter();
            let others = open.filter(|open| open.cause.info().hop != Some(Hop::Carried));
            problems.extend(others.cloned());
        }
        self.found(&Finder::Subject(subject.clone()), problems);
    }

    /// Ends the problems of such finders: they are gone, or their state is unknown.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(&Finder) -> bool) {
        let gone = self.open.extract_if(.., |finder, _| is_gone(finder));
        self.notes.extend(gone.flat_map(|(_, problems)| problems).map(NoteKind::Ended));
    }

    /// The open problems of a finder.
    pub(crate) fn of(&self, finder: &Finder) -> &[Problem] {
        self.open.get(finder).map_or(&[], Vec::as_slice)
    }

    /// The open problems of upstreams and edges as a whole.
    pub(crate) fn of_wholes(&self) -> impl Iterator<Item = &Problem> {
        let wholes = self.open.iter().rev().take_while(|(f, _)| matches!(f, Finder::Whole(..)));
        wholes.flat_map(|(_, problems)| problems)
    }

    /// The first of these problems of an upstream as a whole.
    pub(crate) fn of_whole(&self, upstream: &ClusterName, causes: &[Cause]) -> Option<&Problem> {
        let of = |cause: &Cause| self.of(&Finder::Whole(upstream.clone(), *cause)).first();
        causes.iter().find_map(of)
    }

    pub(crate) fn of_subject(&self, subject: &Subject) -> &[Problem] {
        self.of(&Finder::Subject(subject.clone()))
    }

    /// The subjects that have a problem in this cluster.
    pub(crate) fn subjects_in(&self, cluster: &ClusterName) -> Vec<Subject> {
        let is_there = |problems: &[Problem]| problems.iter().any(|p| p.about.cluster == *cluster);
        let subjects = self.open.iter().filter_map(|(finder, problems)| match finder {
            Finder::Subject(subject) if is_there(problems) => Some(subject.clone()),
            _ => None,
        });
        subjects.collect()
    }
}

/// A late hop whose cause changes keeps its start.
fn is_likewise(old: &Problem, new: &Problem) -> bool {
    let late_hop = |problem: &Problem| {
        let info = problem.cause.info();
        info.hop.filter(|_| info.state.is_some())
    };
    let is_as_late = late_hop(old).is_some() && late_hop(old) == late_hop(new);
    old.about.cluster == new.about.cluster && is_as_late
}

impl Finder {
    pub(crate) fn is_of(&self, cluster: ClusterId) -> bool {
        match self {
            Self::Subject(subject) => subject.cluster() == cluster,
            Self::Watch(of, _) => *of == cluster,
            Self::Object(at) => at.cluster == cluster,
            Self::Source(_) | Self::Breaker(_) | Self::Whole(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::cause::About;

    fn problem(cause: Cause, since: u64) -> Problem {
        Problem::new(cause, About::cluster(&"hub".into()), UnixMillis(since))
    }

    #[test]
    fn what_is_new_changed_or_over_is_noted() {
        let finder = Finder::Watch(ClusterId(1), Kind::Connector);
        let mut notes = Notes::default();
        let mut found = |problems| {
            notes.found(&finder, problems);
            std::mem::take(&mut notes.notes)
        };
        let late = problem(Cause::NotMirrored, 1);
        assert_eq!(found(vec![late.clone()]), [NoteKind::Began(late.clone())]);
        assert_eq!(found(vec![problem(Cause::NotMirrored, 7)]), []);

        let mut known = late.clone();
        known.facts.part = 3;
        assert_eq!(found(vec![known.clone()]), [NoteKind::Began(known.clone())]);

        let as_late = problem(Cause::NotReplicated, 1);
        assert_eq!(
            found(vec![problem(Cause::NotReplicated, 9)]),
            [NoteKind::Ended(known), NoteKind::Began(as_late.clone())]
        );
        assert_eq!(found(Vec::new()), [NoteKind::Ended(as_late)]);
        assert_eq!(found(Vec::new()), []);

        // It lasts while another object becomes the first of those that it is about.
        let held = |name: &str, since| {
            let first = NamespacedName::new("ns", name);
            let about = About::object(&"up".into(), Kind::Connector, first);
            let about = About { whole: Some("up".into()), ..about };
            Problem::new(Cause::RemovalsHeld, about, UnixMillis(since))
        };
        found(vec![held("a", 1)]);
        assert_eq!(found(vec![held("b", 9)]), [NoteKind::Began(held("b", 1))]);
        assert_eq!(found(Vec::new()), [NoteKind::Ended(held("b", 1))]);

        // A problem that delays nothing does not pass its start on.
        found(vec![problem(Cause::StatusTooLarge, 1)]);
        let both = vec![problem(Cause::StatusTooLarge, 2), problem(Cause::NotMirrored, 2)];
        assert_eq!(found(both), [NoteKind::Began(problem(Cause::NotMirrored, 2))]);
    }
}
