//! Reports that ask for no write, oldest first.

use std::collections::VecDeque;

use super::problems::{Finder, Problems};
use crate::cause::Problem;
use crate::contract::action::Verb;
use crate::contract::note::{Anomaly, AnomalyKind, Hop, Note, NoteKind, Stall};
use crate::contract::settings::MirrorSettings;
use crate::data::ids::ClusterName;
use crate::data::name::NamespacedName;
use crate::data::objects::FIELD_MANAGER;
use crate::data::time::UnixMillis;
use crate::world::change::Report;
use crate::write_state::Contention;

#[derive(Default)]
pub(crate) struct Notes {
    ready: VecDeque<Note>,
    /// Of this moment.
    notes: Vec<NoteKind>,
    /// What this moment says of many objects at once. It comes after what is said of each.
    summaries: Vec<NoteKind>,
    problems: Problems,
}

impl Notes {
    pub(crate) fn poll(&mut self) -> Option<Note> {
        self.ready.pop_front()
    }

    pub(crate) fn end_moment(&mut self, now: UnixMillis) {
        let kinds = self.notes.drain(..).chain(self.summaries.drain(..));
        self.ready.extend(kinds.map(|kind| Note { at: now, kind }));
    }

    /// All that a finder finds wrong now.
    pub(crate) fn found(&mut self, finder: &Finder, problems: Vec<Problem>) {
        let kinds = self.problems.found(finder, problems);
        self.notes.extend(kinds);
    }

    /// Nothing is wrong any longer with what is gone.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(&Finder) -> bool) {
        let kinds = self.problems.forget(is_gone);
        self.notes.extend(kinds);
    }

    pub(crate) fn problems(&self) -> &Problems {
        &self.problems
    }

    pub(crate) fn push(&mut self, kind: NoteKind) {
        self.notes.push(kind);
    }

    pub(crate) fn push_summary(&mut self, kind: NoteKind) {
        self.summaries.push(kind);
    }

    pub(crate) fn extend(&mut self, kinds: impl IntoIterator<Item = NoteKind>) {
        self.notes.extend(kinds);
    }

    pub(crate) fn stall_ended(&mut self, stall: Option<Box<Stall>>) {
        self.notes.extend(stall.map(|stall| NoteKind::StallEnded(*stall)));
    }

    pub(crate) fn hop_passed(
        &mut self,
        cluster: &ClusterName,
        connector: &NamespacedName,
        hop: Hop,
        online: bool,
        after_ms: Option<u64>,
    ) {
        let connector = connector.key();
        let cluster = cluster.clone();
        self.push(NoteKind::HopPassed { cluster, connector, hop, online, after_ms });
    }

    pub(crate) fn anomaly(
        &mut self,
        kind: AnomalyKind,
        cluster: &ClusterName,
        object: Option<&NamespacedName>,
        detail: String,
    ) {
        self.push(NoteKind::Anomaly(anomaly(kind, cluster, object, detail)));
    }

    /// What is reported of what the watches show, before any rule looks at it.
    pub(crate) fn report(&mut self, report: &Report, settings: &MirrorSettings) {
        match report {
            Report::UpstreamSays { cluster, connector, is_online } => {
                self.hop_passed(cluster, connector, Hop::Upstream, *is_online, None);
            }
            Report::StatusUnreadable { cluster, connector } => {
                let detail = "the status of a Connector can't be read: it is nested more than \
                              128 levels deep, or has a number that is too large; the hub's \
                              annotation stays as it is";
                let kind = AnomalyKind::Undecodable;
                self.anomaly(kind, cluster, Some(connector), detail.to_owned());
            }
            Report::ObjectUnreadable { cluster, kind, object, error } => {
                let name = NamespacedName::from(object);
                let detail = format!(
                    "a {kind} can't be read, so no {kind} counts as missing there: {error}"
                );
                self.anomaly(AnomalyKind::Undecodable, cluster, Some(&name), detail);
            }
            Report::Restored { cluster } => {
                let settle_s = settings.restored_settle_ms / 1_000;
                let detail = format!(
                    "its resourceVersions are lower than before, as after a restore from an older \
                     state; until throughline is restarted, none of its orphans is deleted and no \
                     annotation is removed because a Connector is missing; a status is mirrored \
                     once its Connector changes, or after {settle_s} s"
                );
                self.anomaly(AnomalyKind::ResourceVersionRegressed, cluster, None, detail);
            }
        }
    }

    /// Reports a write that the API server refuses. `next` says what follows.
    pub(crate) fn refused(
        &mut self,
        cluster: &ClusterName,
        object: &NamespacedName,
        verb: Verb,
        error: &str,
        next: &str,
    ) {
        let verb = verb.as_str();
        let detail = format!("{verb} refused: {error}; fix the permission or webhook; {next}");
        self.anomaly(AnomalyKind::Refused, cluster, Some(object), detail);
    }

    /// Reports a contention when it becomes one, and then ever more rarely while it goes on.
    pub(crate) fn contention(
        &mut self,
        cluster: &ClusterName,
        object: &NamespacedName,
        annotation: &str,
        contention: &Contention,
        pause_ms: u64,
        settings: &MirrorSettings,
    ) {
        let overwrites = contention.overwrites();
        if !settings.is_contention_reported(overwrites) {
            return;
        }
        let manager = contention.manager.clone();
        let (who, by) = match manager.as_deref() {
            Some(FIELD_MANAGER) => ("another throughline", String::new()),
            Some(manager) => ("another writer", format!("; field manager {manager}")),
            None => ("another writer", String::new()),
        };

        let detail = format!(
            "{who} keeps changing {annotation} ({overwrites} times so far{by}); next write in \
             {pause_ms} ms"
        );
        let anomaly = anomaly(AnomalyKind::Contention, cluster, Some(object), detail);
        self.push(NoteKind::Anomaly(Anomaly { manager, ..anomaly }));
    }
}

pub(super) fn anomaly(
    anomaly: AnomalyKind,
    cluster: &ClusterName,
    object: Option<&NamespacedName>,
    detail: String,
) -> Anomaly {
    let object = object.map(NamespacedName::key);
    Anomaly { anomaly, cluster: cluster.clone(), object, detail, manager: None }
}
