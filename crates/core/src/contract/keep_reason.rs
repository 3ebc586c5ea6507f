//! Why the orphan rule keeps a hub HTTPRoute, and what it reports about routes that may be orphans.

use serde::Serialize;

use crate::contract::settings::OrphanSettings;
use crate::data::closed_list::closed_list;
use crate::data::ids::{ActionId, ClusterName, ObjectKey};
use crate::data::time::UnixMillis;

/// Why a route is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum KeepReason {
    NoReplica,
    BeingDeleted,
    Protected,
    Paused,
    Finalizers,
    NoParents,
    ForeignParent,
    Anonymous,
    ClusterUnknown,
    ClusterGone,
    #[strum(serialize = "went_back")]
    ResourceVersionRegressed,
    ListsIncomplete,
    Stale,
    NamespaceUnproved,
    ParentExists,
    Young,
    Settling,
    ShareExceeded,
    Budget,
}

closed_list!(KeepReason);

impl KeepReason {
    /// The reason in words, for after "kept: ".
    pub const fn text(self) -> &'static str {
        match self {
            KeepReason::NoReplica => "its labels do not name an upstream HTTPRoute",
            KeepReason::BeingDeleted => "it is already being deleted",
            KeepReason::Protected => "its deletion-protected label forbids deletion",
            KeepReason::Paused => "a person has paused it by annotation",
            KeepReason::Finalizers => {
                "it has a finalizer, so another controller has to release it first"
            }
            KeepReason::NoParents => "it names no parent",
            KeepReason::ForeignParent => {
                "it names a parent that is not a Gateway of its upstream namespace"
            }
            KeepReason::Anonymous => "its uid, resourceVersion or creation time is missing",
            KeepReason::ClusterUnknown => "its upstream cluster is not configured",
            KeepReason::ClusterGone => {
                "its upstream project was deleted; it goes only with orphans.deletedProjects, and \
                 only if this instance saw the deletion"
            }
            KeepReason::ResourceVersionRegressed => {
                "its upstream cluster was restored from an older state, so a missing Gateway may \
                 be lost rather than deleted"
            }
            KeepReason::ListsIncomplete => "its upstream cluster or the hub is not fully listed",
            KeepReason::Stale => {
                "the Gateway watch of its upstream cluster has been silent for too long"
            }
            KeepReason::NamespaceUnproved => {
                "its namespace is not proved, by uid, to belong to its upstream namespace"
            }
            KeepReason::ParentExists => "a parent exists",
            KeepReason::Young => "it is too young",
            KeepReason::Settling => "it has not been an orphan for long enough",
            KeepReason::ShareExceeded => {
                "too many routes of its upstream cluster are orphans, so none is deleted"
            }
            KeepReason::Budget => "the limit of deletes per minute is reached",
        }
    }

    /// Whether the route may be an orphan: only this reason speaks against it, or a fact is missing.
    pub(crate) const fn is_counted(self) -> bool {
        !matches!(self, KeepReason::ParentExists | KeepReason::NoReplica)
    }

    /// Whether none of the route's parents exists by the lists, and it is kept all the same.
    pub const fn is_absent(self) -> bool {
        matches!(
            self,
            KeepReason::Young
                | KeepReason::Settling
                | KeepReason::ShareExceeded
                | KeepReason::Budget
        )
    }
}

impl std::fmt::Display for KeepReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// How many routes are orphans, or may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanCounts {
    /// Routes that only the mode or missing leadership keeps.
    pub orphans: u64,
    /// The others by reason, except `ParentExists` and `NoReplica`, which are no orphans.
    pub kept: Vec<(KeepReason, u64)>,
}

impl OrphanCounts {
    pub fn is_any(&self) -> bool {
        self.orphans > 0 || self.kept.iter().any(|(_, routes)| *routes > 0)
    }
}

/// A route that is an orphan, or may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrphanCandidate {
    /// The hub.
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub route: ObjectKey,
    #[serde(rename = "created_ms", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<UnixMillis>,
    /// `None`: nothing speaks against deleting it.
    pub kept: Option<KeepReason>,
    /// The same in words, with numbers where there are any.
    pub kept_because: Option<String>,
    /// What its labels and parentRefs say; `None` where they cannot be used.
    #[serde(flatten)]
    pub evidence: Option<OrphanEvidence>,
    /// The delete in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<ActionId>,
    /// Why the last delete failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl OrphanCandidate {
    /// Whether nothing but the budget keeps it.
    pub fn is_orphan(&self) -> bool {
        matches!(self.kept, None | Some(KeepReason::Budget))
    }
}

/// The facts behind a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrphanEvidence {
    /// The upstream cluster that the route's labels name.
    pub upstream: String,
    pub upstream_namespace: String,
    /// The Gateways that the route names as parents, and whether each exists; `None` while the
    /// upstream Gateways are not fully listed.
    pub parents: Vec<(String, Option<bool>)>,
    /// Whether the uid of the upstream namespace is the one in the name of the route's namespace.
    pub namespace_proved: bool,
    /// The last sign of life of the upstream Gateway watch, while it is live.
    #[serde(rename = "heard_ms", skip_serializing_if = "Option::is_none")]
    pub last_activity_at: Option<UnixMillis>,
    /// Since when the route has been an orphan without interruption.
    #[serde(rename = "orphan_since_ms", skip_serializing_if = "Option::is_none")]
    pub orphan_since: Option<UnixMillis>,
}

/// [`KeepReason::text`] with the times that decide it.
pub(crate) fn text_with_times(
    reason: KeepReason,
    now: UnixMillis,
    created_at: Option<UnixMillis>,
    orphan_since: Option<UnixMillis>,
    settings: &OrphanSettings,
) -> String {
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    let seconds_since = |time: UnixMillis| now.since(time) / 1_000;
    match (reason, created_at, orphan_since) {
        (KeepReason::Young, Some(created_at), _) => format!(
            "created {} s ago, must be at least {} s old",
            seconds_since(created_at),
            seconds(settings.min_age_ms)
        ),
        (KeepReason::Settling, _, Some(since)) => {
            format!(
                "orphaned for {} s, needs {} s",
                seconds_since(since),
                seconds(settings.settle_ms)
            )
        }
        _ => reason.text().to_owned(),
    }
}
