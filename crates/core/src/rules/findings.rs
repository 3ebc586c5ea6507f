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

/// The writes of an annotation.
pub(crate) struct Writes<'a> {
    pub(crate) state: &'a WriteState,
    pub(crate) about: About,
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
    /// value. Returns whether one of these is so. A value that changes faster than a write takes needs
    /// nobody.
    pub(crate) fn push_writes(
        &mut self,
        writes: &Writes<'_>,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> bool {
        let failure = writes.state.failure().filter(|failure| {
            let is_lasting = failure.is_repeated() || now >= writes.late_at;
            is_lasting && failure.class != FailureClass::Conflict
        });
        if let Some((failure, since)) = failure.zip(writes.wanted_since) {
            self.push_failure(failure, "patch", &writes.about, since);
            return true;
        }
        self.push_contention(writes, settings, now)
    }

    /// A write failed, and that is a problem.
    pub(crate) fn push_failure(
        &mut self,
        failure: &Failure,
        verb: &str,
        about: &About,
        since: UnixMillis,
    ) {
        let cause = Cause::of_request(failure.error.cause, Request::Write);
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
            last.overwrites() >= settings.contention_count && last.is_recent(quiet_ms, now)
        });
        let Some(contention) = contention else { return false };
        let manager = contention.manager.as_deref().map(|manager| match manager {
            FIELD_MANAGER => "Another throughline".into(),
            manager => manager.into(),
        });
        let facts = Facts { manager, key: Some(writes.key.into()), ..Facts::default() };
        let problem = Problem::new(Cause::Overwritten, writes.about.clone(), contention.last_at());
        self.push(Problem { facts, ..problem });
        self.look_again_at(contention.quiet_at(quiet_ms));
        true
    }
}
