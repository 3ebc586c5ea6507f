//! Every connector in one row, the stuck ones first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::diagnose::Case;
use super::phase::PhaseSince;
use super::{HopCause, HopState, HopTrace, Snapshot, UpstreamRef, diagnose};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::Phase;
use crate::core::view::{AnnouncementState, ConnectorView, EdgeView, GatewayView};

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
    /// Since when it is in this phase, where that is known.
    pub since_ms: Option<UnixMillis>,
    /// It may have been in it for longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// How many gateways announce what their edge has.
    pub announced: usize,
    /// Those gateways announce something else than upstream says now, or that is not known.
    pub stale: bool,
    /// How many gateways should announce it.
    pub gateways: usize,
    /// At an edge that has gateways, a watch is not live.
    pub gateways_unknown: bool,
    /// Set where the state is wrong.
    pub stuck: Option<StuckHop>,
    /// Set where the state is unknown.
    pub unknown: Option<StuckHop>,
}

/// The first hop that disagrees, or cannot be compared.
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

impl StatusRow {
    /// Whether a person has to look: it is wrong, or nobody can tell.
    pub fn needs_a_look(&self) -> bool {
        self.stuck.is_some() || self.unknown.is_some()
    }
}

/// How many rows there are of each sort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCounts {
    pub connectors: usize,
    pub stuck: usize,
    /// They cannot be compared, so they may be right.
    pub unknown: usize,
    pub pending: usize,
    pub deferred: usize,
    /// By phase, without those that do not occur.
    pub phases: BTreeMap<Phase, usize>,
}

impl StatusCounts {
    pub fn of(rows: &[StatusRow]) -> Self {
        let mut counts = Self { connectors: rows.len(), ..Self::default() };
        for row in rows {
            counts.stuck += usize::from(row.stuck.is_some());
            counts.unknown += usize::from(row.unknown.is_some());
            counts.pending += usize::from(row.state == HopState::Pending);
            counts.deferred += usize::from(row.state == HopState::Deferred);
            *counts.phases.entry(row.phase).or_default() += 1;
        }
        counts
    }

    pub(super) fn of_phase(&self, phase: Phase) -> usize {
        self.phases.get(&phase).copied().unwrap_or(0)
    }
}

/// One row for each connector: stuck ones first, then unknown and pending ones, each by name.
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
    let is_unknown = |g: &GatewayView| g.announcement == AnnouncementState::Unknown;
    let upstream = connector.upstream.as_ref();
    let hop = |of: HopState| {
        first.filter(|hop| hop.state == of).map(|hop| StuckHop {
            hop: hop.hop,
            cluster: hop.cluster.clone(),
            cause: hop.cause,
            why: hop.why.clone(),
            next_attempt_ms: hop.next_attempt_ms,
        })
    };
    let PhaseSince { phase, since, at_least } = Case { snapshot, connector }.phase();
    StatusRow {
        online: upstream
            .filter(|up| up.exists)
            .map(|up| up.online)
            .or_else(|| connector.edges.first().map(|edge| edge.online)),
        since_ms: since,
        at_least,
        upstream: trace.upstream.clone(),
        hub_key: trace.hub_key.clone(),
        hubs: connector.hubs.iter().map(|hub| hub.cluster.clone()).collect(),
        edges: connector.edges.iter().map(|edge| edge.cluster.clone()).collect(),
        phase,
        state,
        announced: existing.clone().filter(announces).count(),
        stale: connector.edges.iter().any(|edge| {
            edge.gateways.iter().any(|g| announces(&g))
                && !says_the_truth(connector, edge, &trace.hops)
        }),
        gateways_unknown: existing.clone().any(is_unknown),
        gateways: existing.count(),
        stuck: hop(HopState::Wrong),
        unknown: hop(HopState::Unknown),
    }
}

/// Whether an edge is known to have the liveness that upstream has now. Without a hub, the edge's own
/// is all that there is to announce.
fn says_the_truth(connector: &ConnectorView, edge: &EdgeView, hops: &[HopTrace]) -> bool {
    let is_unknown = |hop: &HopTrace| {
        let concerns = hop.hop < Hop::Arrived || hop.cluster == edge.cluster;
        concerns && hop.hop < Hop::Touched && hop.state == HopState::Unknown
    };
    if hops.iter().any(is_unknown) {
        return false;
    }
    match &connector.upstream {
        Some(up) => {
            let online = up.exists && up.online;
            edge.online == online && (!online || edge.node == up.node)
        }
        None => connector.hubs.is_empty(),
    }
}
