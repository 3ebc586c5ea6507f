//! Why a downstream HTTPRoute is kept: a closed list, each with a word for metrics and a sentence
//! for people. And what there is to show of a route that may be an orphan.

use serde::Serialize;

use super::ids::{ActionId, ClusterName, ObjectKey};
use super::time::UnixMillis;

/// Why a route is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Its labels don't make it the replica of an HTTPRoute.
    NoReplica,
    /// It is being deleted already.
    BeingDeleted,
    /// `deletion-protected=Always`.
    Protected,
    /// Somebody's finalizer is on it.
    Finalizers,
    /// It names no parent.
    NoParents,
    /// A parent is of another kind or group, or elsewhere.
    ForeignParent,
    /// Its uid, resourceVersion or age is not known.
    Anonymous,
    /// Its upstream cluster is not configured.
    ClusterUnknown,
    /// Its upstream cluster went back to an older state: what is missing there may be lost.
    WentBack,
    /// A list that the evidence stands on is not complete, or its watch is lost.
    ListsIncomplete,
    /// Upstream's Gateways were not heard of for too long.
    Stale,
    /// Its namespace is not proved, by uid, to be that of the upstream namespace.
    NamespaceUnproved,
    /// A parent exists.
    ParentExists,
    /// It is younger than the minimum age.
    Young,
    /// It has not been an orphan for the settling time without a break.
    Settling,
    /// So many routes of its upstream cluster are orphans that none of them is deleted.
    ShareExceeded,
    /// As many were deleted in this minute as may be.
    Budget,
}

impl Keep {
    /// Every reason.
    pub const ALL: [Keep; 17] = [
        Keep::NoReplica,
        Keep::BeingDeleted,
        Keep::Protected,
        Keep::Finalizers,
        Keep::NoParents,
        Keep::ForeignParent,
        Keep::Anonymous,
        Keep::ClusterUnknown,
        Keep::WentBack,
        Keep::ListsIncomplete,
        Keep::Stale,
        Keep::NamespaceUnproved,
        Keep::ParentExists,
        Keep::Young,
        Keep::Settling,
        Keep::ShareExceeded,
        Keep::Budget,
    ];

    /// The reason in a word, for labels of metrics and for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Keep::NoReplica => "no_replica",
            Keep::BeingDeleted => "being_deleted",
            Keep::Protected => "protected",
            Keep::Finalizers => "finalizers",
            Keep::NoParents => "no_parents",
            Keep::ForeignParent => "foreign_parent",
            Keep::Anonymous => "anonymous",
            Keep::ClusterUnknown => "cluster_unknown",
            Keep::WentBack => "went_back",
            Keep::ListsIncomplete => "lists_incomplete",
            Keep::Stale => "stale",
            Keep::NamespaceUnproved => "namespace_unproved",
            Keep::ParentExists => "parent_exists",
            Keep::Young => "young",
            Keep::Settling => "settling",
            Keep::ShareExceeded => "share_exceeded",
            Keep::Budget => "budget",
        }
    }

    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Keep::NoReplica => "it is not the replica of an HTTPRoute",
            Keep::BeingDeleted => "it is being deleted",
            Keep::Protected => "it is protected from deletion by its label",
            Keep::Finalizers => "it has a finalizer: somebody else has work to do on it first",
            Keep::NoParents => "it names no parent",
            Keep::ForeignParent => "a parent is not a Gateway of its upstream namespace",
            Keep::Anonymous => "its uid, resourceVersion or age is not known",
            Keep::ClusterUnknown => "its upstream cluster is not configured",
            Keep::WentBack => {
                "its upstream cluster went back to an older state, and what is missing may be lost"
            }
            Keep::ListsIncomplete => "its upstream cluster is not fully listed",
            Keep::Stale => "its upstream cluster was not heard of for too long",
            Keep::NamespaceUnproved => "its namespace is not proved to be that namespace's replica",
            Keep::ParentExists => "a parent exists",
            Keep::Young => "it is too young",
            Keep::Settling => "it is an orphan for too short a time",
            Keep::ShareExceeded => {
                "too many routes of its upstream cluster are orphans: none of them is deleted"
            }
            Keep::Budget => "as many as may be were deleted within a minute",
        }
    }

    /// It may be an orphan: it is one but for this, or it can't be told.
    pub(crate) const fn is_counted(self) -> bool {
        !matches!(self, Keep::ParentExists | Keep::NoReplica)
    }

    /// It is an orphan by the lists, and kept for something else.
    pub(crate) const fn is_absent(self) -> bool {
        matches!(self, Keep::Young | Keep::Settling | Keep::ShareExceeded | Keep::Budget)
    }
}

impl std::fmt::Display for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// How many routes are orphans, or can't be told not to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanCounts {
    /// Kept by nothing but the mode and leadership.
    pub orphans: u64,
    /// The others, by what keeps them; `ParentExists` and `NoReplica`, which are none, are not
    /// among them.
    pub kept: Vec<(Keep, u64)>,
}

impl OrphanCounts {
    /// There is one at least.
    pub fn is_any(&self) -> bool {
        self.orphans > 0 || self.kept.iter().any(|(_, routes)| *routes > 0)
    }
}

/// A route that is an orphan, or can't be told not to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The hub.
    pub cluster: ClusterName,
    /// The route.
    #[serde(flatten)]
    pub route: ObjectKey,
    /// When it was created; `None` when it does not say.
    #[serde(rename = "created_ms", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<UnixMillis>,
    /// Why it is kept, as a word; `None`: by nothing.
    pub kept: Option<Keep>,
    /// The same in words.
    pub kept_because: Option<&'static str>,
    /// What its labels and parents say, where they can be made sense of.
    #[serde(flatten)]
    pub evidence: Option<Evidence>,
    /// The delete under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<ActionId>,
    /// What the last delete came back with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a verdict on a route stands on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The upstream cluster that its labels name.
    pub upstream: String,
    /// The namespace there.
    pub upstream_namespace: String,
    /// The Gateways that its parents name, and whether each exists by the lists; `None` where they
    /// can't tell.
    pub parents: Vec<(String, Option<bool>)>,
    /// The upstream namespace's uid is the one in the name of the route's namespace.
    pub namespace_proved: bool,
    /// When upstream's Gateways were last heard of, while their list is complete and followed.
    #[serde(rename = "heard_ms", skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<UnixMillis>,
    /// Since when it has been an orphan without a break.
    #[serde(rename = "orphan_since_ms", skip_serializing_if = "Option::is_none")]
    pub orphan_since: Option<UnixMillis>,
}
