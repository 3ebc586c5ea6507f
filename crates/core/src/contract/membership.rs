//! The clusters in the run: what discovery offers, and which clusters join and leave.

use serde::Serialize;

use crate::contract::error_cause::RequestFailure;
use crate::data::closed_list::closed_list;
use crate::data::ids::{ClusterName, Role};

/// The sources of clusters. Metrics, logs and the configuration use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
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

/// Which offered clusters join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum JoinRule {
    /// Those that a hub Connector or a hub HTTPRoute names. A watch costs the API server memory, so
    /// clusters that nothing needs are not watched.
    #[default]
    Needed,
    /// All of them.
    All,
}

/// The state of an offered cluster. [`OfferStateName`] has the names in the event log.
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
    /// It does not serve requests yet, or no longer. A member stays.
    NotReady,
    /// It is being deleted, but serves requests until it is gone.
    Deleting,
    /// Its connection data cannot be used. A member keeps its connection.
    Broken { error: RequestFailure },
}

/// A request to add or remove a cluster: the machine's third output, beside actions and notes. The
/// shell carries it out, and confirms it by `ClusterAdded` or `ClusterRemoved`. Only these events
/// change the machine's tables. A join that fails is answered with `ClusterRemoved`, too; the
/// machine requests it again while the cluster is offered.
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
    /// Its source reported that it was deleted or is no longer selected.
    Withdrawn,
    /// A complete list of its source lacks it.
    NotListed,
    /// Another cluster has its name: the uid differs.
    Replaced,
    /// It is offered with other roles.
    RolesChanged,
    /// No hub object has named it for ten minutes (`join: needed`).
    NotNeeded,
    /// The configuration file has a cluster of that name, which has precedence.
    NameTaken,
}

/// The state of an offered cluster in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum MemberState {
    /// It is in the run, or about to be.
    Joined,
    /// It is in the run although its source no longer shows it: too many went missing together.
    Held,
    /// It is ready, but nothing names it (`join: needed`).
    Idle,
    NotReady,
    Broken,
    /// Another cluster has its name, from the configuration file or from another source.
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
