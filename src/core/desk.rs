//! What every rule needs beside its own tables: time, names, timers, and the way out for actions.

use std::collections::VecDeque;

use super::action::{Action, Anomaly, AnomalyKind, Decision, Note, Noted, Precondition, Verb};
use super::announcement::TargetKey;
use super::ids::{ActionId, ClusterId, ClusterName, Key, Kind, Map, Names, ObjectKey};
use super::settings::Settings;
use super::time::UnixMillis;
use super::timers::{Due, Timers};

/// What an action in flight was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A replica, mirrored or nudged.
    Replica(ClusterId, Key),
    /// A gateway, or a class of gateways.
    Touch(ClusterId, TargetKey),
    /// A route.
    Route(ClusterId, Key),
}

/// What every rule needs beside its own tables.
pub(crate) struct Desk {
    pub(crate) settings: Settings,
    pub(crate) now: UnixMillis,
    pub(crate) names: Names,
    pub(crate) leader: bool,
    pub(crate) timers: Timers,
    pub(super) actions: VecDeque<Decision>,
    pub(super) notes: VecDeque<Note>,
    pub(super) last_id: u64,
    pub(super) in_flight: Map<ActionId, Target>,
}

/// The object of an action: where it is, and what must still hold.
pub(crate) struct Aim {
    pub(crate) target: Target,
    pub(crate) cluster: ClusterName,
    pub(crate) kind: Kind,
    pub(crate) object: ObjectKey,
    pub(crate) precondition: Precondition,
    pub(crate) connectors: Vec<ObjectKey>,
}

impl Desk {
    /// Emits an action; it is in flight from now on.
    pub(crate) fn submit(
        &mut self,
        aim: Aim,
        verb: Verb,
        annotations: Vec<(String, Option<String>)>,
        because: String,
    ) -> ActionId {
        self.last_id += 1;
        let id = ActionId(self.last_id);
        self.in_flight.insert(id, aim.target);
        self.timers
            .no_later(Due::Flight(id), self.now.plus(self.settings.retry.outcome_timeout_ms));
        let Aim { cluster, kind, object, precondition, connectors, .. } = aim;
        let action =
            Action { id, verb, cluster, kind, object, annotations, precondition, connectors };
        self.actions.push_back(Decision { at: self.now, action, because });
        id
    }

    pub(crate) fn note(&mut self, what: Noted) {
        self.notes.push_back(Note { at: self.now, what });
    }

    pub(crate) fn anomaly(
        &mut self,
        anomaly: AnomalyKind,
        cluster: &ClusterName,
        object: Option<Key>,
        detail: String,
    ) {
        let object = object.map(|key| self.names.object_key(key));
        self.note(Noted::Anomaly(Anomaly { anomaly, cluster: cluster.clone(), object, detail }));
    }
}
