//! Every connector in one row, the stuck ones first.

use serde::Serialize;

use super::{HopCause, HopState, HopTrace, Snapshot, UpstreamRef, diagnose};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::Phase;
use crate::core::view::{AnnouncementState, ConnectorView, GatewayView};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusRow {
    pub upstream: Option<UpstreamRef>,
    /// Its namespace and name at the hub and the edges.
    #[serde(rename = "replica")]
    pub hub_key: Option<ObjectKey>,
    /// The hubs that have it.
    pub hubs: Vec<ClusterName>,
    /// The edges that have it.
    pub edges: Vec<ClusterName>,
    /// As upstream says; where that is not known, as the first edge says.
    pub online: Option<bool>,
    /// The first hop that is not done.
    pub phase: Phase,
    pub state: HopState,
    /// Since when the connector waits, or is as it is.
    pub since_ms: Option<UnixMillis>,
    /// How many gateways announce it.
    pub announced: usize,
    /// How many gateways should announce it.
    pub gateways: usize,
    /// Set where the state is wrong or unknown.
    pub stuck: Option<StuckHop>,
}

/// The first hop that disagrees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StuckHop {
    pub hop: Hop,
    /// The cluster in which the hop ends.
    pub cluster: ClusterName,
    pub cause: Option<HopCause>,
    pub why: String,
    /// Set when a write failed: when the next attempt is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<UnixMillis>,
}

/// One row for each connector: stuck ones first, then pending ones, each by name.
pub fn status_rows(snapshot: &Snapshot) -> Vec<StatusRow> {
    let connectors = &snapshot.view.connectors;
    let mut rows: Vec<_> = connectors.iter().map(|c| row(snapshot, c)).collect();
    rows.sort_by_key(|row| row.state);
    rows
}

fn row(snapshot: &Snapshot, connector: &ConnectorView) -> StatusRow {
    let trace = diagnose(snapshot, connector);
    // A connector that nobody references is not stuck.
    let matters =
        |hop: &&HopTrace| hop.state != HopState::Ok && !hop.cause.is_some_and(HopCause::is_idle);
    let first = trace.hops.iter().filter(matters).min_by_key(|hop| hop.order());
    let state = first.map_or(HopState::Ok, |hop| hop.state);
    let gateways = connector.edges.iter().flat_map(|edge| &edge.gateways);
    let existing = gateways.filter(|g| g.announcement != AnnouncementState::NoGateway);
    let announces = |g: &&GatewayView| g.announcement == AnnouncementState::Announced;
    let upstream = connector.upstream.as_ref();
    let stalled = connector.stalls.iter().map(|stall| stall.since_ms).min();
    StatusRow {
        online: upstream
            .filter(|up| up.exists)
            .map(|up| up.online)
            .or_else(|| connector.edges.first().map(|edge| edge.online)),
        since_ms: stalled.or_else(|| trace.hops.first().and_then(|hop| hop.since_ms)),
        upstream: trace.upstream.clone(),
        hub_key: trace.hub_key.clone(),
        hubs: connector.hubs.iter().map(|hub| hub.cluster.clone()).collect(),
        edges: connector.edges.iter().map(|edge| edge.cluster.clone()).collect(),
        phase: connector.phase,
        state,
        announced: existing.clone().filter(announces).count(),
        gateways: existing.count(),
        stuck: first.filter(|hop| hop.state < HopState::Pending).map(|hop| StuckHop {
            hop: hop.hop,
            cluster: hop.cluster.clone(),
            cause: hop.cause,
            why: hop.why.clone(),
            next_attempt_ms: hop.next_attempt_ms,
        }),
    }
}
