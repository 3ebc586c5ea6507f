//! Deleted projects that hub objects still name: their routes may still serve traffic.
//!
//! The control plane of a deleted project continues to answer, without any objects, so it proves
//! nothing. In place of a namespace uid and absent Gateways, three facts prove the deletion: this
//! instance saw the Project deleted, the root answers 404 for its name, and does so again right
//! before each delete.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::membership::SourceName;
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;

/// Clusters that hub objects name, but that their source no longer shows.
#[derive(Default)]
pub(super) struct Departed {
    clusters: BTreeMap<ClusterName, Departure>,
    /// Deleted projects whose routes are to be planned again.
    affected: BTreeSet<ClusterName>,
}

#[derive(Clone, Copy)]
pub(super) struct Departure {
    pub(super) source: SourceName,
    /// The watch showed the deletion. A list that lacks the Project is not enough: the root may
    /// have been restored from an older state.
    pub(super) is_deletion_seen: bool,
    /// When a live GET of its name first answered 404.
    pub(super) gone_at: Option<UnixMillis>,
}

impl Departed {
    pub(super) fn get(&self, cluster: &ClusterName) -> Option<Departure> {
        self.clusters.get(cluster).copied()
    }

    /// The deleted projects.
    pub(super) fn gone(&self) -> impl Iterator<Item = &ClusterName> {
        let gone = self.clusters.iter().filter(|(_, departure)| departure.gone_at.is_some());
        gone.map(|(name, _)| name)
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

    /// The cluster is offered or in the run again, or no hub object names it any more.
    pub(super) fn forget(&mut self, cluster: &ClusterName) {
        let departure = self.clusters.remove(cluster);
        if departure.is_some_and(|departure| departure.gone_at.is_some()) {
            self.affected.insert(cluster.clone());
        }
    }

    /// A list started or finished, or the watch was lost or resumed.
    pub(super) fn on_evidence_changed(&mut self) {
        let gone: Vec<_> = self.gone().cloned().collect();
        self.affected.extend(gone);
    }

    pub(super) fn take_affected(&mut self) -> BTreeSet<ClusterName> {
        std::mem::take(&mut self.affected)
    }
}
