//! Which clusters a run follows: what discovery offers, and who joins and leaves because of it.

use serde::Serialize;

use crate::contract::error_cause::RequestFailure;
use crate::data::closed_list::closed_list;
use crate::data::ids::{ClusterName, Role};

/// Where clusters are discovered. Metrics, logs and the configuration use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "camelCase", const_into_str)]
pub enum SourceName {
    /// The Project objects at the root of a Milo API server, or the ProjectControlPlanes beside it.
    Milo,
    /// Kubeconfigs in Secrets.
    KubeconfigSecrets,
    /// Kubeconfig files in a directory.
    KubeconfigDir,
}

/// Which of the clusters that a source offers are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum JoinRule {
    /// Those that a hub Connector or a hub HTTPRoute names. A watch costs an API server memory, so
    /// one that nothing needs is not opened.
    #[default]
    Needed,
    /// Every one.
    All,
}

/// What a source says about a cluster. [`OfferStateName`] holds the names that the event log uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[derive(strum::EnumDiscriminants)]
#[strum_discriminants(
    name(OfferStateName),
    doc = "The names of an offer's states in version 1 of the event log.",
    derive(Hash, PartialOrd, Ord),
    derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames),
    strum(serialize_all = "snake_case", const_into_str)
)]
pub enum OfferState {
    /// It serves requests.
    Ready,
    /// It does not yet, or not any longer. One that has joined stays.
    NotReady,
    /// It is being deleted, and serves requests until it is gone.
    Deleting,
    /// No connection can be made of it. One that has joined keeps the connection that it has.
    Broken { error: RequestFailure },
}

/// Who joins or leaves: the machine's third output, beside actions and notes. The shell carries it
/// out, and says so with the events `ClusterAdded` and `ClusterRemoved`, which are what changes the
/// machine's tables. A join that it can't carry out is answered with `ClusterRemoved`,
/// too: the machine asks again while the cluster is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "membership", rename_all = "snake_case")]
pub enum Membership {
    /// Open its watches, with the connection that the source offers under this name.
    Join { source: SourceName, cluster: ClusterName, roles: Vec<Role> },
    /// Close its watches.
    Leave { cluster: ClusterName, reason: LeaveReason },
}

/// Why a cluster leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum LeaveReason {
    /// Its source said that it was deleted, or is no longer meant for this program.
    Withdrawn,
    /// A complete list of its source does not contain it.
    NotListed,
    /// Another cluster has its name now: the uid differs.
    Replaced,
    /// It is offered with other roles.
    RolesChanged,
    /// No hub object has named it for ten minutes (`join: needed`).
    NotNeeded,
    /// The configuration file has a cluster of that name, which counts.
    NameTaken,
}

/// What became of an offered cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum MemberState {
    /// It is followed, or about to be.
    Joined,
    /// It is followed although its source no longer shows it: too many were missing at once.
    Held,
    /// It could be followed, but nothing names it (`join: needed`).
    Idle,
    NotReady,
    Broken,
    /// Another cluster has its name: one of the configuration file, or of another source.
    NameTaken,
    /// It was deleted, but hub objects still name it.
    Gone,
}

closed_list!(SourceName, JoinRule, OfferStateName, LeaveReason, MemberState);

/// How many clusters of a source are in a state. States without any are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MembershipCount {
    pub source: SourceName,
    pub state: MemberState,
    pub clusters: usize,
}

impl std::fmt::Display for SourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
