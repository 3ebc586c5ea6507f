//! An outage as it was found.

use std::collections::BTreeMap;

use super::{GatewayOutage, OutageTracker};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;

/// One outage of one connector at one edge, over all its gateways.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Outage {
    pub edge: ClusterName,
    /// Its name at the edge.
    #[serde(flatten)]
    pub connector: ObjectKey,
    pub kind: OutageKind,
    /// When upstream reported a state other than the one Envoy was programmed with.
    #[serde(rename = "from_ms")]
    pub from: UnixMillis,
    /// When the first of the wrong gateways recovered; `None` if none did.
    #[serde(rename = "first_right_ms")]
    pub first_recovered: Option<UnixMillis>,
    /// When the last of the wrong gateways recovered; `None` if one did not.
    #[serde(rename = "until_ms")]
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

impl OutageTracker {
    /// The outages by their beginning; one that is still open has no end.
    pub fn finish(mut self) -> Vec<Outage> {
        for (cluster, edge) in std::mem::take(&mut self.edges) {
            self.end_all_of(&cluster, edge, None);
        }
        let mut grouped: BTreeMap<_, Vec<GatewayOutage>> = BTreeMap::new();
        for outage in self.ended {
            let connector = outage.connector.key();
            let key = (outage.from, outage.edge.clone(), connector, outage.kind);
            grouped.entry(key).or_default().push(outage);
        }
        let outage = |((from, edge, connector, kind), gateways): (_, Vec<GatewayOutage>)| Outage {
            edge,
            connector,
            kind,
            from,
            first_recovered: gateways.iter().filter_map(|g| g.until).min(),
            // `None` is less than any time: one gateway that never recovers keeps the outage open.
            until: gateways
                .iter()
                .map(|g| g.until)
                .min()
                .flatten()
                .and(gateways.iter().filter_map(|g| g.until).max()),
            gateways: gateways.len(),
            by_platform_key: gateways.iter().any(|g| g.by_platform_key),
        };
        grouped.into_iter().map(outage).collect()
    }
}
