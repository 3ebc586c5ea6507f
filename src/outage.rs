//! What users saw: spans of time in which a gateway's Envoy was programmed with something else
//! than what upstream said of a connector.
use crate::core::ids::{ClusterName, ObjectKey};
use crate::core::time::UnixMillis;

/// One span, of one connector at one edge, over all its gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The edge.
    pub edge: ClusterName,
    /// The connector as it is called there.
    pub connector: ObjectKey,
    /// What was wrong.
    pub kind: OutageKind,
    /// When upstream came to say something else than Envoy was programmed with.
    pub from: UnixMillis,
    /// When the first of its gateways was right again; `None` if none ever was.
    pub first_right: Option<UnixMillis>,
    /// When the last of its gateways was right again; `None` if one never was.
    pub until: Option<UnixMillis>,
    /// How many of its gateways were wrong.
    pub gateways: usize,
    /// It only ended because of the platform's own key, which Envoy Gateway is known not to heed.
    pub by_platform_key: bool,
}

/// What was wrong.
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
