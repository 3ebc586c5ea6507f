//! The phase of one connector, and since when it is in it: the same model wherever the view comes from.
//!
//! A running instance and a log know by the machine's own stalls what is late. A look at the clusters
//! has only just begun, so the times of the last writes tell.

use super::diagnose::Case;
use super::{HopTrace, SnapshotSource};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{Kind, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::Phase;
use crate::core::view::{AnnotationState, ClusterView, EdgeView, WatchState};

/// A phase, and since when the connector is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PhaseSince {
    pub(super) phase: Phase,
    /// `None` where it is not known.
    pub(super) since: Option<UnixMillis>,
    /// It may be so for longer.
    pub(super) at_least: bool,
}

impl Case<'_> {
    pub(super) fn phase(&self) -> PhaseSince {
        let known = |phase, since| PhaseSince { phase, since, at_least: false };
        let now = self.snapshot.view.at_ms;
        match self.connector.phase {
            Phase::Stalled => {
                let stalls = &self.connector.stalls;
                if let Some(began) = self.wait_began()
                    && stalls.iter().all(|stall| stall.hop == Hop::Mirrored)
                {
                    return known(Phase::Waiting, Some(began));
                }
                let late =
                    stalls.iter().map(|stall| stall.late_since_ms.unwrap_or(stall.since_ms)).min();
                known(Phase::Stalled, late)
            }
            phase @ (Phase::Mirroring | Phase::Waiting | Phase::Carrying | Phase::Touching) => {
                let (hop, since) = self.open_since(phase);
                if hop == Hop::Mirrored
                    && let Some(began) = self.wait_began()
                {
                    return known(Phase::Waiting, Some(since.map_or(began, |at| at.max(began))));
                }
                let is_live = self.snapshot.source == SnapshotSource::Live;
                match since.filter(|_| is_live).map(|at| self.late_at(hop, at)) {
                    Some(late_at) if late_at < now => known(Phase::Stalled, Some(late_at)),
                    _ => known(phase, since),
                }
            }
            Phase::Deferred => {
                let since = self.connector.hubs.iter().filter_map(|hub| hub.deferred_since_ms);
                known(Phase::Deferred, since.min())
            }
            phase @ Phase::Unreplicated => known(phase, self.upstream_since()),
            phase @ Phase::Unknown => known(phase, self.unknown_since()),
            phase @ (Phase::Settled | Phase::Offline) => self.settled_since(phase),
            phase => known(phase, None),
        }
    }

    /// When an instance began to wait before it may lead.
    fn wait_began(&self) -> Option<UnixMillis> {
        let wait = self.snapshot.view.lease_wait.as_ref()?;
        Some(UnixMillis(wait.until_ms.0.saturating_sub(wait.wait_ms)))
    }

    /// The hop that a phase waits for, and since when it could have come.
    fn open_since(&self, phase: Phase) -> (Hop, Option<UnixMillis>) {
        match phase {
            Phase::Carrying => {
                let behind = self.connector.edges.iter().filter(|edge| edge.as_hub == Some(false));
                let seen = behind.filter_map(|edge| edge.behind_since_ms).min();
                let mirrored = self.connector.hubs.first().and_then(|hub| self.mirrored_since(hub));
                let is_live = self.snapshot.source == SnapshotSource::Live;
                // A look that has just begun sees the edge behind since then.
                (Hop::Arrived, if is_live { mirrored.or(seen) } else { seen.or(mirrored) })
            }
            Phase::Touching => {
                let edges = self.connector.edges.iter();
                (Hop::Touched, edges.filter_map(|edge| self.edge_since(edge).0).max())
            }
            _ => {
                let hubs = self.connector.hubs.iter();
                let wrong = hubs.filter(|hub| hub.annotation == AnnotationState::Wrong);
                let seen = wrong.filter_map(|hub| hub.wrong_since_ms).max();
                let upstream = self.upstream_since();
                let is_live = self.snapshot.source == SnapshotSource::Live;
                (Hop::Mirrored, if is_live { upstream.or(seen) } else { seen.or(upstream) })
            }
        }
    }

    fn edge_since(&self, edge: &EdgeView) -> (Option<UnixMillis>, bool) {
        let writer = self.writer(&edge.cluster, Kind::Connector, self.hub_key());
        self.since(&edge.cluster, Kind::Connector, edge.changed_at_ms, writer)
    }

    /// Since when every hop is done: since the last of them was.
    fn settled_since(&self, phase: Phase) -> PhaseSince {
        let hops = self.upstream_hop().into_iter().chain(self.mirrored_hops());
        let mut times: Vec<_> =
            hops.filter_map(|hop: HopTrace| Some((hop.since_ms?, hop.at_least))).collect();
        for edge in &self.connector.edges {
            let (since, at_least) = self.edge_since(edge);
            times.extend(since.map(|since| (since, at_least)));
            let announced = edge.gateways.iter().filter_map(|gateway| gateway.announced_at_ms);
            times.extend(announced.map(|at| (at, false)));
        }
        // The latest, and of those of one moment the certain one.
        let last = times.into_iter().max_by_key(|(at, at_least)| (*at, !at_least));
        let (since, at_least) = last.unzip();
        PhaseSince { phase, since, at_least: at_least.unwrap_or(false) }
    }

    /// Since the first watch that it needs stopped telling.
    fn unknown_since(&self) -> Option<UnixMillis> {
        let upstream = self.connector.upstream.as_ref();
        let concerns = |cluster: &&ClusterView| {
            let is_upstream = upstream.is_some_and(|upstream| upstream.cluster == cluster.name);
            let below = [Role::Hub, Role::Edge];
            is_upstream || below.iter().any(|role| cluster.roles.contains(role))
        };
        let clusters = self.snapshot.view.clusters.iter().filter(concerns);
        let lost = clusters.flat_map(|cluster| {
            let is_lost = |kind: &Kind| cluster.watches.get(kind) != Some(&WatchState::Live);
            cluster.unknown_since_ms.iter().filter(move |(kind, _)| is_lost(kind))
        });
        lost.map(|(_, since)| *since).min()
    }
}
