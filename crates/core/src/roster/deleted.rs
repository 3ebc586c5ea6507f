//! Deleted projects that hub objects still name: they can still serve traffic.
//!
//! The control plane of a deleted project answers for ever, with nothing in it, so nothing there
//! proves anything. What stands in for the uid of its namespace and the absence of its Gateways:
//! this instance saw the Project deleted, the root answers 404 about that very name, and answers so
//! again right before each delete.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::membership::SourceName;
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;

/// Clusters that hub objects name, and that their source does not show any more.
#[derive(Default)]
pub(super) struct Departed {
    clusters: BTreeMap<ClusterName, Departure>,
    /// Deleted projects whose routes are to be planned again.
    affected: BTreeSet<ClusterName>,
}

#[derive(Clone, Copy)]
pub(super) struct Departure {
    pub(super) source: SourceName,
    /// The watch showed that it was deleted. It is not only missing from a list, as after a restore
    /// of the root from an older state.
    pub(super) is_deletion_seen: bool,
    /// Since when a live GET of its name is known to answer 404.
    pub(super) gone_at: Option<UnixMillis>,
}

impl Departed {
    pub(super) fn get(&self, cluster: &ClusterName) -> Option<Departure> {
        self.clusters.get(cluster).copied()
    }

    /// The deleted projects, and since when they are known to be gone.
    pub(super) fn gone(&self) -> impl Iterator<Item = (&ClusterName, UnixMillis)> {
        self.clusters.iter().filter_map(|(name, departure)| Some((name, departure.gone_at?)))
    }

    pub(super) fn on_left(
        &mut self,
        source: SourceName,
        cluster: &ClusterName,
        is_deletion_seen: bool,
    ) {
        let departure = Departure { source, is_deletion_seen, gone_at: None };
        self.clusters.insert(cluster.clone(), departure);
    }

    pub(super) fn on_gone(&mut self, source: SourceName, cluster: &ClusterName, now: UnixMillis) {
        let unseen = Departure { source, is_deletion_seen: false, gone_at: None };
        let departure = self.clusters.entry(cluster.clone()).or_insert(unseen);
        if departure.source == source && departure.gone_at.is_none() {
            departure.gone_at = Some(now);
            self.affected.insert(cluster.clone());
        }
    }

    pub(super) fn forget(&mut self, cluster: &ClusterName) {
        let departure = self.clusters.remove(cluster);
        if departure.is_some_and(|departure| departure.gone_at.is_some()) {
            self.affected.insert(cluster.clone());
        }
    }

    /// A list began, is complete, broke or goes on.
    pub(super) fn on_evidence_changed(&mut self) {
        let gone: Vec<_> = self.gone().map(|(name, _)| name.clone()).collect();
        self.affected.extend(gone);
    }

    pub(super) fn take_affected(&mut self) -> BTreeSet<ClusterName> {
        std::mem::take(&mut self.affected)
    }
}
