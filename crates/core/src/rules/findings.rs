//! What a rule finds wrong with its subject.

use crate::contract::cause::{About, Cause, Facts, Problem, Request};
use crate::contract::settings::MirrorSettings;
use crate::data::objects::FIELD_MANAGER;
use crate::data::time::UnixMillis;
use crate::write_state::{Failure, FailureClass, WriteState};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<Problem>,
    /// What is a problem if it lasts.
    pub(crate) not_late: Vec<Problem>,
    /// When that changes although nothing happens.
    pub(crate) next_at: Option<UnixMillis>,
}

/// The writes to one object.
pub(crate) struct Writes<'a> {
    pub(crate) state: &'a WriteState,
    pub(crate) verb: &'static str,
    /// The annotation that they write.
    pub(crate) key: &'a str,
    /// Since when something is to be written; `None` while nothing is.
    pub(crate) wanted_since: Option<UnixMillis>,
    /// When it is late, so that one failure is enough.
    pub(crate) late_at: UnixMillis,
}

impl Findings {
    pub(crate) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(crate) fn look_again_at(&mut self, at: UnixMillis) {
        self.next_at = self.next_at.into_iter().chain([at]).min();
    }

    /// Something that is a problem once it has lasted until `late_at`.
    pub(crate) fn push_late(&mut self, problem: Problem, late_at: UnixMillis, now: UnixMillis) {
        if now < late_at {
            self.look_again_at(late_at);
            self.not_late.push(problem);
        } else {
            self.push(problem);
        }
    }

    /// Two writes in a row failed, or the last one of what is late, or another writer keeps changing the
    /// value. Returns whether one of these is so.
    pub(crate) fn push_writes(
        &mut self,
        writes: &Writes<'_>,
        about: &About,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> bool {
        let (failure, conflict) = match writes.state.failure() {
            Some(failure) if failure.class == FailureClass::Conflict => (None, Some(failure)),
            failure => (failure, None),
        };
        let is_lasting = |failure: &&Failure| failure.is_repeated() || now >= writes.late_at;
        // A value that changes faster than a write takes needs nobody. A delete that meets a conflict again
        // and again is contradicted by the live look before it.
        let is_contradicted = |it: &&Failure| it.is_repeated() && writes.verb == "delete";
        self.push_failure(failure.filter(is_lasting), writes, about)
            || self.push_contention(writes, about, settings, now)
            || self.push_failure(conflict.filter(is_contradicted), writes, about)
    }

    fn push_failure(
        &mut self,
        failure: Option<&Failure>,
        writes: &Writes<'_>,
        about: &About,
    ) -> bool {
        let Some((failure, since)) = failure.zip(writes.wanted_since) else { return false };
        let cause = Cause::of_request(failure.error.cause, Request::Write);
        let problem = Problem::new(cause, about.clone(), since);
        let mut facts = Facts::of_refusal(&failure.error);
        facts.verb.get_or_insert(writes.verb.into());
        self.push(Problem { facts, ..problem });
        true
    }

    fn push_contention(
        &mut self,
        writes: &Writes<'_>,
        about: &About,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> bool {
        let is_lasting = |overwrites: u32| overwrites >= settings.contention_count;
        let contention = writes.state.contention().filter(|last| is_lasting(last.overwrites()));
        let quiet_ms = settings.contention_quiet_ms;
        let Some(contention) = contention.filter(|last| last.is_recent(quiet_ms, now)) else {
            return false;
        };
        let manager = contention.manager.as_deref().map(|manager| match manager {
            FIELD_MANAGER => "Another throughline".into(),
            manager => manager.into(),
        });
        let facts = Facts { manager, key: Some(writes.key.into()), ..Facts::default() };
        let problem = Problem::new(Cause::Overwritten, about.clone(), contention.last_at());
        self.push(Problem { facts, ..problem });
        self.look_again_at(contention.quiet_at(quiet_ms));
        true
    }
}
