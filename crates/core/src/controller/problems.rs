//! What is wrong now. Whoever finds problems says each time all that it finds; what is new, changed or
//! over becomes a note.

use std::collections::BTreeMap;

use crate::cause::{Cause, Problem};
use crate::contract::note::NoteKind;
use crate::data::ids::{ClusterName, Kind};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::subject::Subject;

/// Who finds problems.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finder {
    /// The plan of a subject.
    Subject(Subject),
    Watch(ClusterId, Kind),
    /// The look at an object, whether it can be read.
    Object(ObjectRef),
    /// One cause of an upstream, an edge or a source of clusters as a whole.
    Whole(ClusterName, Cause),
}

#[derive(Debug, Default)]
pub(crate) struct Problems {
    open: BTreeMap<Finder, Vec<Problem>>,
}

impl Problems {
    /// Takes over all that a finder finds now, and returns what that changes.
    pub(crate) fn found(&mut self, finder: &Finder, mut found: Vec<Problem>) -> Vec<NoteKind> {
        if found.is_empty() && !self.open.contains_key(finder) {
            return Vec::new();
        }
        let before = self.open.remove(finder).unwrap_or_default();
        let is_over = |old: &&Problem| !found.iter().any(|new| new.is_same(old));
        let over = before.iter().filter(is_over).cloned();
        let mut notes: Vec<_> = over.map(NoteKind::Ended).collect();

        for new in &mut found {
            let old = before.iter().find(|old| old.is_same(new));
            let late = || before.iter().find(|old| is_late_likewise(old, new));
            if let Some(old) = old.or_else(late) {
                new.since = old.since;
            }
            if old != Some(new) {
                notes.push(NoteKind::Began(new.clone()));
            }
        }
        if !found.is_empty() {
            self.open.insert(finder.clone(), found);
        }
        notes
    }

    /// Nobody finds anything there any longer.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(&Finder) -> bool) -> Vec<NoteKind> {
        let gone = self.open.extract_if(.., |finder, _| is_gone(finder));
        gone.flat_map(|(_, problems)| problems.into_iter().map(NoteKind::Ended)).collect()
    }

    /// The subjects of which something in this cluster is wrong.
    pub(crate) fn subjects_in(&self, cluster: &ClusterName) -> Vec<Subject> {
        let is_there = |problems: &[Problem]| problems.iter().any(|p| p.about.cluster == *cluster);
        let subjects = self.open.iter().filter_map(|(finder, problems)| match finder {
            Finder::Subject(subject) if is_there(problems) => Some(subject.clone()),
            _ => None,
        });
        subjects.collect()
    }
}

/// A hop that is late for another cause than before is as late as before.
fn is_late_likewise(old: &Problem, new: &Problem) -> bool {
    let hop = |problem: &Problem| problem.cause.info().hop;
    old.about.cluster == new.about.cluster && hop(old).is_some() && hop(old) == hop(new)
}

impl Finder {
    pub(crate) fn is_of(&self, cluster: ClusterId) -> bool {
        match self {
            Self::Subject(subject) => subject.cluster() == cluster,
            Self::Watch(of, _) => *of == cluster,
            Self::Object(at) => at.cluster == cluster,
            Self::Whole(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::About;
    use crate::data::time::UnixMillis;

    fn problem(cause: Cause, since: u64) -> Problem {
        Problem::new(cause, About::cluster(&"hub".into()), UnixMillis(since))
    }

    #[test]
    fn what_is_new_changed_or_over_is_noted() {
        let finder = Finder::Watch(ClusterId(1), Kind::Connector);
        let mut problems = Problems::default();
        let late = problem(Cause::NotMirrored, 1);
        assert_eq!(problems.found(&finder, vec![late.clone()]), [NoteKind::Began(late.clone())]);
        assert_eq!(problems.found(&finder, vec![problem(Cause::NotMirrored, 7)]), []);

        let mut known = late.clone();
        known.facts.part = 3;
        assert_eq!(problems.found(&finder, vec![known.clone()]), [NoteKind::Began(known.clone())]);

        let other = problem(Cause::NotReplicated, 9);
        let notes = problems.found(&finder, vec![other]);
        let as_late = problem(Cause::NotReplicated, 1);
        assert_eq!(notes, [NoteKind::Ended(known), NoteKind::Began(as_late.clone())]);

        assert_eq!(problems.found(&finder, Vec::new()), [NoteKind::Ended(as_late)]);
        assert_eq!(problems.found(&finder, Vec::new()), []);
    }

    #[test]
    fn what_is_gone_ends() {
        let finder = |id| Finder::Watch(ClusterId(id), Kind::Connector);
        let mut problems = Problems::default();
        let lost = problem(Cause::ClusterUnavailable, 1);
        for id in [1, 2] {
            problems.found(&finder(id), vec![lost.clone()]);
        }
        let ended = problems.forget(|finder| finder.is_of(ClusterId(1)));
        assert_eq!(ended, [NoteKind::Ended(lost)]);
        assert_eq!(problems.forget(|_| true).len(), 1, "the other one is still there");
    }
}
