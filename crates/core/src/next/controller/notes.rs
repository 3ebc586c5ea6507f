//! Reports that ask for no write, oldest first.

use std::collections::VecDeque;

use crate::contract::action::Verb;
use crate::contract::note::{Anomaly, AnomalyKind, Hop, Note, NoteKind};
use crate::contract::settings::MirrorSettings;
use crate::data::ids::ClusterName;
use crate::data::name::NamespacedName;
use crate::data::objects::FIELD_MANAGER;
use crate::data::time::UnixMillis;
use crate::next::write_state::Contention;

#[derive(Default)]
pub(crate) struct Notes {
    now: UnixMillis,
    notes: VecDeque<Note>,
    /// What this moment says of many objects at once.
    summaries: Vec<NoteKind>,
}

impl Notes {
    pub(crate) fn set_now(&mut self, now: UnixMillis) {
        self.now = now;
    }

    pub(crate) fn poll(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    pub(crate) fn push(&mut self, kind: NoteKind) {
        self.notes.push_back(Note { at: self.now, kind });
    }

    /// Says something of many objects, after all that this moment says of each of them.
    pub(crate) fn push_summary(&mut self, kind: NoteKind) {
        self.summaries.push(kind);
    }

    pub(crate) fn end_moment(&mut self) {
        let summaries = std::mem::take(&mut self.summaries);
        self.extend(summaries);
    }

    pub(crate) fn extend(&mut self, kinds: impl IntoIterator<Item = NoteKind>) {
        kinds.into_iter().for_each(|kind| self.push(kind));
    }

    pub(crate) fn hop_passed(
        &mut self,
        cluster: &ClusterName,
        connector: &NamespacedName,
        hop: Hop,
        online: bool,
        after_ms: Option<u64>,
    ) {
        let (cluster, connector) = (cluster.clone(), connector.key());
        self.push(NoteKind::HopPassed { cluster, connector, hop, online, after_ms });
    }

    pub(crate) fn anomaly(
        &mut self,
        anomaly: AnomalyKind,
        cluster: &ClusterName,
        object: Option<&NamespacedName>,
        detail: String,
    ) {
        let object = object.map(NamespacedName::key);
        let (cluster, manager) = (cluster.clone(), None);
        self.push(NoteKind::Anomaly(Anomaly { anomaly, cluster, object, detail, manager }));
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
        let manager = contention.manager.as_deref();
        let (who, by) = match manager {
            Some(FIELD_MANAGER) => ("another throughline", String::new()),
            Some(manager) => ("another writer", format!("; field manager {manager}")),
            None => ("another writer", String::new()),
        };
        let detail = format!(
            "{who} keeps changing {annotation} ({overwrites} times so far{by}); next write in {pause_ms} ms"
        );
        self.push(NoteKind::Anomaly(Anomaly {
            anomaly: AnomalyKind::Contention,
            cluster: cluster.clone(),
            object: Some(object.key()),
            detail,
            manager: manager.map(Box::from),
        }));
    }
}
