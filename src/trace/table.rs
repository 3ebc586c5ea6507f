//! Every connector in one row, the stuck ones first.

use serde::Serialize;

use super::{Cause, HopTrace, Place, Snapshot, State, diagnose};
use crate::core::action::Hop;
use crate::core::ids::{ClusterName, ObjectKey};
use crate::core::phase::Phase;
use crate::core::time::UnixMillis;
use crate::core::view::{Announcement, ConnectorView};

/// One connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its cluster, namespace and name upstream, where they are known.
    pub upstream: Option<Place>,
    /// Its namespace and name at hub and edges.
    pub replica: Option<ObjectKey>,
    /// The hubs that have it.
    pub hubs: Vec<ClusterName>,
    /// The edges that have it.
    pub edges: Vec<ClusterName>,
    /// Whether it is online, as upstream says; else as the first edge does.
    pub online: Option<bool>,
    /// The first hop that is not done.
    pub phase: Phase,
    /// `wrong` and `unknown` are stuck.
    pub state: State,
    /// Since when it waits, or is as it is.
    pub since_ms: Option<UnixMillis>,
    /// Gateways that announce it.
    pub announced: usize,
    /// Gateways that should.
    pub gateways: usize,
    /// Where and why it is stuck.
    pub stuck: Option<Stuck>,
}

/// Where a connector is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stuck {
    /// The first hop that disagrees.
    pub hop: Hop,
    /// Where it should have ended.
    pub cluster: ClusterName,
    /// Why, for programs.
    pub cause: Option<Cause>,
    /// Why.
    pub why: String,
}

/// A row for each connector: the stuck ones first, then what is on its way, each by its name.
pub fn table(snapshot: &Snapshot) -> Vec<Row> {
    let connectors = &snapshot.view.connectors;
    let mut rows: Vec<_> = connectors.iter().map(|c| row(snapshot, c)).collect();
    rows.sort_by_key(|row| row.state);
    rows
}

fn row(snapshot: &Snapshot, connector: &ConnectorView) -> Row {
    let trace = diagnose(snapshot, connector);
    // What nobody references is not stuck.
    let matters =
        |hop: &&HopTrace| hop.state != State::Ok && !hop.cause.is_some_and(Cause::is_idle);
    let first = trace.hops.iter().filter(matters).min_by_key(|hop| (hop.hop, hop.state));
    let state = first.map_or(State::Ok, |hop| hop.state);
    let gateways = connector.edges.iter().flat_map(|edge| &edge.gateways);
    let concerned = gateways.filter(|g| g.announcement != Announcement::NoGateway);
    let said = |g: &&crate::core::view::GatewayView| g.announcement == Announcement::Announced;
    let upstream = connector.upstream.as_ref();
    let stalled = connector.stalls.iter().map(|stall| stall.since_ms).min();
    Row {
        online: upstream
            .filter(|up| up.exists)
            .map(|up| up.online)
            .or_else(|| connector.edges.first().map(|edge| edge.online)),
        since_ms: stalled.or_else(|| trace.hops.first().and_then(|hop| hop.since_ms)),
        upstream: trace.upstream.clone(),
        replica: trace.replica.clone(),
        hubs: connector.hubs.iter().map(|hub| hub.cluster.clone()).collect(),
        edges: connector.edges.iter().map(|edge| edge.cluster.clone()).collect(),
        phase: connector.phase,
        state,
        announced: concerned.clone().filter(said).count(),
        gateways: concerned.count(),
        stuck: first.filter(|hop| hop.state != State::Pending).map(|hop| Stuck {
            hop: hop.hop,
            cluster: hop.cluster.clone(),
            cause: hop.cause,
            why: hop.why.clone(),
        }),
    }
}
