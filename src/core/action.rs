//! What leaves the machine: actions, imperative, each about one object; and notes, which tell.

use serde::{Deserialize, Serialize};

use super::ids::{ActionId, ClusterName, Kind, ObjectKey};
use super::keep::Keep;
use super::time::UnixMillis;

/// One write to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Its number; outcomes refer to it.
    pub id: ActionId,
    /// What to do.
    #[serde(rename = "type")]
    pub verb: Verb,
    /// In which cluster.
    pub cluster: ClusterName,
    /// To an object of which kind.
    pub kind: Kind,
    /// The object's namespace and name.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// The annotations to merge-patch; `None` removes the key. Empty for a delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "annotation_map")]
    pub annotations: Vec<(String, Option<String>)>,
    /// What must still hold when it lands.
    #[serde(default)]
    pub precondition: Precondition,
    /// The connectors it is about, at most [`Action::CONNECTORS_MAX`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connectors: Vec<ObjectKey>,
}

impl Action {
    /// How many connectors an action names.
    pub const CONNECTORS_MAX: usize = 16;

    /// Only the leader may carry it out.
    pub fn is_leader_only(&self) -> bool {
        self.verb != Verb::Touch
    }
}

/// The kinds of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Write (or remove) the upstream status annotation of a downstream Connector.
    Mirror,
    /// Change the nudge annotation of a downstream Connector, so that the carrier tries again.
    Nudge,
    /// Write the trigger annotation of an edge Gateway, so that Envoy Gateway translates anew.
    Touch,
    /// Delete an orphaned downstream HTTPRoute.
    Delete,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Verb; 4] = [Verb::Mirror, Verb::Nudge, Verb::Touch, Verb::Delete];

    /// The verb as the event log spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Mirror => "mirror",
            Verb::Nudge => "nudge",
            Verb::Touch => "touch",
            Verb::Delete => "delete",
        }
    }
}

/// What must still hold of an object when an action lands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    /// The object is still that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The object was not written since the decision (leader-only actions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// None of these exists: checked live, just before a delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<AbsentGateways>,
}

/// Gateways whose absence a delete stands on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentGateways {
    /// The upstream cluster.
    pub cluster: ClusterName,
    /// The upstream namespace.
    pub namespace: String,
    /// The uid that it must have: the one in the name of the replica's namespace.
    #[serde(default, rename = "namespaceUid", skip_serializing_if = "Option::is_none")]
    pub namespace_uid: Option<String>,
    /// The Gateways' names.
    pub names: Vec<String>,
}

/// An action and why it was decided, as a person understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When it was decided.
    pub at: UnixMillis,
    /// What to do.
    pub action: Action,
    /// Why.
    pub because: String,
}

/// One hop of a connector's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hop {
    /// Its status changed upstream.
    Upstream,
    /// The hub's annotation means what upstream's status says.
    Mirrored,
    /// The edge's copy of the annotation means what the hub's does.
    Arrived,
    /// Every gateway concerned at that edge announces it.
    Touched,
}

impl Hop {
    /// The hops in their order.
    pub const ALL: [Hop; 4] = [Hop::Upstream, Hop::Mirrored, Hop::Arrived, Hop::Touched];

    /// The hop as reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Hop::Upstream => "upstream",
            Hop::Mirrored => "mirrored",
            Hop::Arrived => "arrived",
            Hop::Touched => "touched",
        }
    }
}

/// Something to tell, which asks for no write. Notes are in the order in which they came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// When.
    #[serde(rename = "at_ms")]
    pub at: UnixMillis,
    /// What.
    #[serde(flatten)]
    pub what: Noted,
}

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Noted {
    /// A connector passed a hop.
    HopPassed {
        /// The cluster in which the hop ends.
        cluster: ClusterName,
        /// The connector as it is called there.
        connector: ObjectKey,
        /// Which hop.
        hop: Hop,
        /// The liveness that passed.
        online: bool,
        /// How long the hop took, as this machine saw it: `Mirrored` since upstream's status
        /// changed, `Arrived` since the hub's annotation was right, `Touched` since it arrived.
        /// `None` where the beginning was not seen: it came with a list, or it was not a change
        /// of upstream's but another writer's.
        #[serde(skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// A hop did not come in time.
    Stalled(Stall),
    /// A stall is over.
    StallEnded(Stall),
    /// Something that can't be made sense of, or that a person should look at.
    Anomaly(Anomaly),
    /// A route that is an orphan by all evidence, or would be but for one reason.
    Orphan {
        /// The hub.
        cluster: ClusterName,
        /// The route.
        route: ObjectKey,
        /// Why it is kept; `None` when nothing but the mode and leadership keeps it.
        kept: Option<Keep>,
    },
    /// So many routes of an upstream cluster are orphans that none of them is deleted; or that is
    /// over.
    DeletesHeld {
        /// The upstream cluster.
        cluster: ClusterName,
        /// They are held; `false`: no longer.
        held: bool,
        /// Its routes that are orphans.
        orphans: u64,
        /// All its routes.
        routes: u64,
    },
}

/// A hop that did not come in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// The cluster in which the hop should have ended.
    pub cluster: ClusterName,
    /// The connector as it is called there.
    pub connector: ObjectKey,
    /// The hop that is missing.
    pub hop: Hop,
    /// Since when it is waited for.
    #[serde(rename = "since_ms")]
    pub since: UnixMillis,
    /// Why, as far as can be seen.
    pub reason: String,
}

/// Something a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// What kind, in one word of the field: see [`AnomalyKind`].
    pub anomaly: AnomalyKind,
    /// The cluster.
    pub cluster: ClusterName,
    /// The object, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// What was seen, and what was done about it.
    pub detail: String,
}

/// The kinds of anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyKind {
    /// Another writer keeps changing what throughline writes.
    Contention,
    /// A status too large for the annotation limit was reduced, or could not be written.
    OversizedStatus,
    /// A status or an annotation that is not JSON.
    Undecodable,
    /// A replica whose labels and namespace disagree, or two replicas of one object.
    Identity,
    /// An event about a cluster that was never added.
    UnknownCluster,
    /// A write was refused for good; it is tried again only rarely.
    Refused,
    /// An outcome for an action that is not in flight.
    UnknownAction,
    /// So many routes of an upstream cluster are orphans that none of them is deleted.
    TooManyOrphans,
    /// A cluster's resourceVersions are lower than they were: it was restored from an older state.
    WentBack,
}

impl AnomalyKind {
    /// The kind as reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            AnomalyKind::Contention => "contention",
            AnomalyKind::OversizedStatus => "oversized_status",
            AnomalyKind::Undecodable => "undecodable",
            AnomalyKind::Identity => "identity",
            AnomalyKind::UnknownCluster => "unknown_cluster",
            AnomalyKind::Refused => "refused",
            AnomalyKind::UnknownAction => "unknown_action",
            AnomalyKind::TooManyOrphans => "too_many_orphans",
            AnomalyKind::WentBack => "went_back",
        }
    }
}

/// `{"key": "value" | null}` in the order given.
mod annotation_map {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    type Annotations = Vec<(String, Option<String>)>;

    pub(super) fn serialize<S: Serializer>(v: &Annotations, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(v.iter().map(|(k, v)| (k, v)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Annotations, D::Error> {
        Ok(BTreeMap::<String, Option<String>>::deserialize(d)?.into_iter().collect())
    }
}
