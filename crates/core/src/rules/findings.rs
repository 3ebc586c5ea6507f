//! What a rule finds: the problems of its subject.

use crate::contract::cause::{About, Cause, Facts, Problem};
use crate::contract::settings::MirrorSettings;
use crate::data::objects::FIELD_MANAGER;
use crate::data::time::UnixMillis;
use crate::write_state::{Failure, FailureClass, WriteState};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<Problem>,
    /// Not problems yet, but problems if they last.
    pub(crate) not_late: Vec<Problem>,
    /// Only the hop to the edges could be judged, so all other open problems stay.
    pub(crate) is_of_edges: bool,
    /// When the findings change without a further event.
    pub(crate) next_at: Option<UnixMillis>,
}

/// The writes of an annotation.
pub(crate) struct Writes<'a> {
    pub(crate) state: &'a WriteState,
    pub(crate) about: About,
    pub(crate) key: &'a str,
    /// When the write became necessary; `None` while nothing is to be written.
    pub(crate) wanted_since: Option<UnixMillis>,
    /// From then on the write is late, and one failure is enough for a problem.
    pub(crate) late_at: UnixMillis,
}

impl Findings {
    pub(crate) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(crate) fn requeue_at(&mut self, at: UnixMillis) {
        self.next_at = self.next_at.into_iter().chain([at]).min();
    }

    /// Adds a problem that counts only once it has lasted until `late_at`.
    pub(crate) fn push_late(&mut self, problem: Problem, late_at: UnixMillis, now: UnixMillis) {
        if now < late_at {
            self.requeue_at(late_at);
            self.not_late.push(problem);
        } else {
            self.push(problem);
        }
    }

    /// Adds a problem if two writes in a row failed, if a late write failed, or if another writer
    /// keeps changing the value. Returns whether it did. Conflicts with an object that changes
    /// faster than a write takes are no problem.
    pub(crate) fn push_writes(
        &mut self,
        writes: &Writes<'_>,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> bool {
        let failure = writes.state.failure().filter(|failure| {
            let is_lasting = failure.is_repeated || now >= writes.late_at;
            is_lasting && failure.class != FailureClass::Conflict
        });
        if let Some((failure, since)) = failure.zip(writes.wanted_since) {
            self.push_failure(failure, "patch", &writes.about, since);
            return true;
        }
        self.push_contention(writes, settings, now)
    }

    pub(crate) fn push_failure(
        &mut self,
        failure: &Failure,
        verb: &str,
        about: &About,
        since: UnixMillis,
    ) {
        let cause = Cause::of_write(failure.error.cause);
        let problem = Problem::new(cause, about.clone(), since);
        let mut facts = Facts::of_refusal(&failure.error);
        facts.verb.get_or_insert(verb.into());
        self.push(Problem { facts, ..problem });
    }

    fn push_contention(
        &mut self,
        writes: &Writes<'_>,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> bool {
        let quiet_ms = settings.contention_quiet_ms;
        let contention = writes.state.contention().filter(|last| {
            last.overwrites >= settings.contention_count && last.is_recent(quiet_ms, now)
        });
        let Some(contention) = contention else { return false };
        let manager = contention.manager.as_deref().map(|manager| match manager {
            FIELD_MANAGER => "Another throughline".into(),
            manager => manager.into(),
        });
        let facts = Facts { manager, key: Some(writes.key.into()), ..Facts::default() };
        let problem = Problem::new(Cause::Overwritten, writes.about.clone(), contention.last_at);
        self.push(Problem { facts, ..problem });
        self.requeue_at(contention.quiet_at(quiet_ms));
        true
    }
}
