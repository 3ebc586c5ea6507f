//! Deleted projects that hub objects still name: they can still serve traffic.
//!
//! The control plane of a deleted project answers for ever, with nothing in it, so nothing there
//! proves anything. What stands in for the uid of its namespace and the absence of its Gateways:
//! this instance saw the Project deleted, the root answers 404 about that very name, and answers so
//! again right before each delete.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{MISSING_SHARE, Offer, Source};
use super::{Facts, Roster};
use crate::contract::membership::{LeaveReason, SourceName};
use crate::contract::note::NoteKind;
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;
use crate::next::rules::orphan::DeletedProject;
use crate::next::world::World;

/// Clusters that hub objects name, and that their source does not show any more.
#[derive(Default)]
pub(super) struct Departed {
    clusters: BTreeMap<ClusterName, Departure>,
    /// Deleted projects whose routes are to be planned again.
    affected: BTreeSet<ClusterName>,
}

#[derive(Clone, Copy)]
struct Departure {
    source: SourceName,
    /// The watch showed that it was deleted. It is not only missing from a list, as after a restore
    /// of the root from an older state.
    is_deletion_seen: bool,
    /// Since when a live GET of its name is known to answer 404.
    gone_at: Option<UnixMillis>,
}

impl Departed {
    /// The deleted projects, and since when they are known to be gone.
    fn gone(&self) -> impl Iterator<Item = (&ClusterName, UnixMillis)> {
        self.clusters.iter().filter_map(|(name, departure)| Some((name, departure.gone_at?)))
    }

    fn is_deletion_seen(&self, cluster: &ClusterName) -> bool {
        self.clusters.get(cluster).is_some_and(|departure| departure.is_deletion_seen)
    }

    /// Returns whether that is news.
    fn on_gone(&mut self, source: SourceName, cluster: &ClusterName, now: UnixMillis) -> bool {
        let unseen = Departure { source, is_deletion_seen: false, gone_at: None };
        let departure = self.clusters.entry(cluster.clone()).or_insert(unseen);
        if departure.source != source || departure.gone_at.is_some() {
            return false;
        }

        departure.gone_at = Some(now);
        self.affected.insert(cluster.clone());
        true
    }

    /// Returns whether it was a deleted project.
    fn forget(&mut self, cluster: &ClusterName) -> bool {
        let departure = self.clusters.remove(cluster);
        let was_gone = departure.is_some_and(|departure| departure.gone_at.is_some());
        if was_gone {
            self.affected.insert(cluster.clone());
        }
        was_gone
    }

    /// A list began, is complete, broke or goes on: that decides about the routes of deleted projects.
    pub(super) fn on_evidence_changed(&mut self) {
        let gone: Vec<_> = self.gone().map(|(name, _)| name.clone()).collect();
        self.affected.extend(gone);
    }

    pub(super) fn take_affected(&mut self) -> BTreeSet<ClusterName> {
        std::mem::take(&mut self.affected)
    }
}

impl Roster {
    /// What the orphan rule reads of an upstream; `None` if that is no deleted project.
    pub(crate) fn deleted_project(&self, upstream: &ClusterName) -> Option<DeletedProject> {
        let departure = self.departed.clusters.get(upstream)?;
        Some(DeletedProject {
            source: departure.source,
            at: departure.gone_at?,
            is_deletion_seen: departure.is_deletion_seen,
            is_source_live: self.sources.get(&departure.source).is_some_and(Source::is_live),
        })
    }

    /// The deleted projects that hub objects name, and since when they are known to be gone.
    pub(crate) fn deleted_projects(&self) -> impl Iterator<Item = (&ClusterName, UnixMillis)> {
        self.departed.gone()
    }

    /// Upstreams that hub objects name, that no source offers and that are not in the configuration
    /// file: they may be projects that were deleted while nobody looked. A live GET has to tell
    /// ([`ClusterGone`](crate::contract::event::EventKind::ClusterGone)); only reports follow from
    /// it, because nobody saw the deletion. Sorted.
    ///
    /// None, unless every source shows all its clusters and one of them is a Milo root, and where they
    /// are more than one and more than a third of the upstreams that hub objects name: rather another
    /// root than so many deletions.
    pub(crate) fn unknown_upstreams(&self, world: &World) -> Vec<ClusterName> {
        if !self.sources.contains_key(&SourceName::Milo) || !self.are_sources_live() {
            return Vec::new();
        }

        let named = world.hub_counts.iter().filter(|(_, counts)| counts.is_referenced());
        let named: Vec<_> = named.map(|(name, _)| name).collect();
        let unknown = named.iter().filter(|name| !world.ids.contains_key(**name));
        let unknown: Vec<_> = unknown.filter(|name| !self.is_offered(name)).collect();
        let is_unseen = |name: &&&&ClusterName| !self.departed.is_deletion_seen(name);
        let unseen = unknown.iter().filter(is_unseen).count() as u64;
        if unseen > 1 && MISSING_SHARE.is_exceeded(unseen, named.len() as u64) {
            return Vec::new();
        }

        let asked = unknown.into_iter().filter(|name| self.deleted_project(name).is_none());
        asked.map(|name| (*name).clone()).collect()
    }

    /// A live GET of a name answered 404. That counts for a name that no source shows.
    pub(super) fn on_gone(&mut self, source: SourceName, cluster: &ClusterName, facts: &Facts<'_>) {
        if let Some(source) = self.sources.get_mut(&source) {
            source.on_gone(cluster);
        }
        self.settle_held(source, facts);
        self.record_gone(source, cluster, facts);
    }

    /// A source does not show a cluster any more. Hub objects may still name it.
    pub(super) fn on_departed(
        &mut self,
        source: SourceName,
        cluster: &ClusterName,
        offer: &Offer,
        facts: &Facts<'_>,
    ) {
        if !facts.is_referenced(cluster) {
            return;
        }

        let is_deletion_seen = offer.missing == Some(LeaveReason::Withdrawn);
        let departure = Departure { source, is_deletion_seen, gone_at: None };
        self.departed.clusters.insert(cluster.clone(), departure);
        if offer.is_gone {
            self.record_gone(source, cluster, facts);
        }
    }

    /// The name answers 404. Where a source shows it, or this run follows it, that says nothing.
    fn record_gone(&mut self, source: SourceName, cluster: &ClusterName, facts: &Facts<'_>) {
        let is_live = self.sources.get(&source).is_some_and(Source::is_live);
        let is_there = self.is_offered(cluster) || self.members.is_followed(cluster, facts.world);
        let counts = facts.world.counts_of(cluster);
        if !is_live || is_there || !counts.is_referenced() {
            return;
        }

        if self.departed.on_gone(source, cluster, facts.now) {
            self.notes.push(NoteKind::ClusterGone {
                cluster: cluster.clone(),
                connectors: counts.connectors,
                routes: counts.routes,
            });
        }
    }

    /// The cluster is shown or followed again, or no hub object names it any more.
    pub(super) fn on_shown_again(&mut self, cluster: &ClusterName) {
        if self.departed.forget(cluster) {
            let cluster = cluster.clone();
            self.notes.push(NoteKind::ClusterGone { cluster, connectors: 0, routes: 0 });
        }
    }
}
