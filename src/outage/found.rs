//! An outage as it was found.

use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;

/// One outage of one connector at one edge, over all its gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub edge: ClusterName,
    /// Its name at the edge.
    pub connector: ObjectKey,
    pub kind: OutageKind,
    /// When upstream reported a state other than the one Envoy was programmed with.
    pub from: UnixMillis,
    /// When the first of the wrong gateways recovered; `None` if none did.
    pub first_recovered: Option<UnixMillis>,
    /// When the last of the wrong gateways recovered; `None` if one did not.
    pub until: Option<UnixMillis>,
    /// How many gateways were wrong.
    pub gateways: usize,
    /// It counts as over only because the platform's own key was written, which Envoy Gateway is
    /// known to ignore.
    pub by_platform_key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageKind {
    /// Up upstream, programmed offline: users got 503.
    Offline,
    /// Up upstream on one node, programmed to another: users got 503 or a timeout.
    OtherNode,
    /// Down upstream, programmed online: users got a dead tunnel.
    StaleOnline,
}
