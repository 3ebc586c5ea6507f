//! Deleted projects that hub objects still name: they can still serve traffic.
//!
//! The control plane of a deleted project answers for ever, with nothing in it, so nothing there proves
//! anything. What stands in for the uid of its namespace and the absence of its Gateways: this instance
//! saw the Project deleted, the root answers 404 about that very name, and answers so again right
//! before each delete.

use super::MISSING_SHARE;
use super::source::{Offer, Source};
use crate::circuit_breaker::{BreakerChange, BreakerState};
use crate::contract::membership::{LeaveReason, SourceName};
use crate::contract::note::{AnomalyKind, NoteKind};
use crate::contract::settings::OrphanMode;
use crate::data::ids::ClusterName;
use crate::data::interner::Sym;
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::orphans::budget::breaker_limit;
use crate::timers::Due;
use crate::upstream::UpstreamState;
use crate::view::GoneView;

/// What is known of a project that is gone. Kept while hub objects name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoneProject {
    pub(crate) source: SourceName,
    /// The watch showed that it was deleted. It is not only missing from a list, as after a restore
    /// of the root from an older state.
    is_deletion_seen: bool,
    /// Since when a live GET is known to answer 404.
    gone_at: Option<UnixMillis>,
}

/// What the orphan rule reads about a deleted project.
#[derive(Clone, Copy)]
pub(crate) struct GoneFacts {
    pub(crate) source: SourceName,
    pub(crate) gone_at: UnixMillis,
    pub(crate) is_deletion_seen: bool,
    /// The source shows every project now.
    pub(crate) is_source_live: bool,
    /// Of the routes of all deleted projects.
    pub(crate) breaker: BreakerState,
}

impl super::Roster {
    /// What the orphan rule reads, if the upstream is a deleted project.
    pub(crate) fn gone_facts(&self, upstream: &str, breaker: BreakerState) -> Option<GoneFacts> {
        let gone = self.gone.get(upstream)?;
        Some(GoneFacts {
            source: gone.source,
            gone_at: gone.gone_at?,
            is_deletion_seen: gone.is_deletion_seen,
            is_source_live: self.sources.get(&gone.source).is_some_and(Source::is_live),
            breaker,
        })
    }

    /// Whether a live GET proved that the project does not exist.
    pub(crate) fn is_gone(&self, upstream: &str) -> bool {
        self.gone.get(upstream).is_some_and(|gone| gone.gone_at.is_some())
    }

    /// How many projects are gone.
    pub(super) fn gone_count(&self) -> usize {
        self.gone.values().filter(|gone| gone.gone_at.is_some()).count()
    }
}

impl Machine {
    /// A source shows a cluster no longer. Hub objects may still name it.
    pub(super) fn departed(&mut self, source: SourceName, cluster: &ClusterName, offer: &Offer) {
        let is_deletion_seen = offer.missing == Some(LeaveReason::Withdrawn);
        if self.is_referenced(cluster) {
            let gone = GoneProject { source, is_deletion_seen, gone_at: None };
            self.roster.gone.insert(cluster.clone(), gone);
            if offer.is_gone {
                self.project_gone(source, cluster);
            }
        }
    }

    /// A live GET of a name answered 404. That counts for a name that no source shows.
    pub(super) fn project_gone(&mut self, source: SourceName, cluster: &ClusterName) {
        let mut is_offered = false;
        for (name, state) in &mut self.roster.sources {
            let Some(offer) = state.offers.get_mut(cluster) else { continue };
            offer.is_gone = *name == source && offer.missing.is_some();
            is_offered = true;
        }
        self.settle_held(source);
        let is_live = self.roster.sources.get(&source).is_some_and(Source::is_live);
        let is_file =
            self.clusters.id_of(cluster).is_some() && !self.roster.leaving.contains(cluster);
        if is_offered || is_file || !is_live {
            return;
        }
        let now = self.ctx.now;
        let Some((_, upstream)) = self.upstream_named(cluster) else { return };
        let (connectors, routes) = (upstream.named, upstream.share.routes);
        if !upstream.is_referenced() {
            return;
        }
        let unseen = GoneProject { source, is_deletion_seen: false, gone_at: None };
        let gone = self.roster.gone.entry(cluster.clone()).or_insert(unseen);
        if gone.source != source || gone.gone_at.is_some() {
            return;
        }
        gone.gone_at = Some(now);
        self.evaluate_gone(cluster);
        let cluster = cluster.clone();
        self.ctx.note(NoteKind::ClusterGone { cluster, connectors, routes });
    }

    /// The cluster is shown or followed again, or no hub object names it any longer.
    pub(super) fn not_gone(&mut self, cluster: &ClusterName) {
        let gone = self.roster.gone.remove(cluster);
        if gone.is_some_and(|gone| gone.gone_at.is_some()) {
            self.evaluate_gone(cluster);
            self.ctx.timers.no_later(Due::GoneShare, self.ctx.now);
            let cluster = cluster.clone();
            self.ctx.note(NoteKind::ClusterGone { cluster, connectors: 0, routes: 0 });
        }
    }

    fn evaluate_gone(&mut self, cluster: &ClusterName) {
        if let Some((sym, _)) = self.upstream_named(cluster) {
            self.evaluate_routes_naming(sym);
        }
    }

    /// Evaluates the routes of every deleted project.
    pub(super) fn evaluate_gone_routes(&mut self) {
        let gone: Vec<_> = self.roster.gone.keys().cloned().collect();
        for cluster in gone {
            self.evaluate_gone(&cluster);
        }
    }

    /// Holds the deletes of all deleted projects while too many of the hubs' routes are theirs.
    pub(crate) fn evaluate_gone_share(&mut self) {
        let routes = self.hubs.values().map(|hub| hub.routes.len() as u64).sum();
        let limit = breaker_limit(&self.ctx.settings.orphans);
        // Deletes stay held while the evidence is out of sight.
        let may_reset = self.roster.sources.values().all(Source::is_live);
        let breaker = &mut self.orphan_totals.deleted_projects;
        let change = breaker.update(routes, limit, may_reset, self.ctx.now);
        let orphans = breaker.entries().count();
        let Some(change) = change else { return };

        let hub = self.hubs.keys().next().and_then(|id| self.cluster(*id));
        let hub = hub.map_or_else(|| ClusterName::from(""), |hub| hub.name.clone());
        let settings = &self.ctx.settings.orphans;
        if change == BreakerChange::Tripped && settings.mode == OrphanMode::Delete {
            let detail = format!(
                "{orphans} of the {routes} routes at the hub are of deleted projects, more than {}; \
                 none of them is deleted until there are fewer, or limits.maxShare is raised",
                settings.max_share
            );
            self.ctx.anomaly(AnomalyKind::TooManyOrphans, &hub, None, detail);
        }
        self.evaluate_gone_routes();
    }

    /// The deleted projects that hub objects name, with the number of those objects.
    pub(crate) fn gone_projects(&self) -> Vec<GoneView> {
        let gone = self.roster.gone.iter().filter_map(|(cluster, gone)| {
            let (_, upstream) = self.upstream_named(cluster)?;
            Some(GoneView {
                cluster: cluster.clone(),
                since_ms: gone.gone_at?,
                connectors: upstream.named,
                routes: upstream.share.routes,
            })
        });
        gone.collect()
    }

    /// Upstreams that hub objects name, that no source offers and that are not in the configuration
    /// file, while every source shows all its clusters and one of them is a Milo root: they may be
    /// projects that were deleted while nobody looked. A live GET has to tell
    /// ([`ClusterGone`](crate::contract::event::EventKind::ClusterGone)); only reports follow from
    /// it, because nobody saw the deletion. None, where they are more than one and more than a third of
    /// the upstreams that hub objects name: rather another root than so many deletions. Sorted; costs
    /// O(upstreams).
    pub fn unknown_upstreams(&self) -> Vec<ClusterName> {
        let sources = &self.roster.sources;
        if !sources.contains_key(&SourceName::Milo) || !sources.values().all(Source::is_live) {
            return Vec::new();
        }
        let is_named = |(_, upstream): &(&Sym, &UpstreamState)| upstream.is_referenced();
        let (mut named, mut missing, mut unknown) = (0_u64, 0_u64, Vec::new());
        for (sym, upstream) in self.upstreams.iter().filter(is_named) {
            named += 1;
            let name = self.ctx.names.text(*sym);
            if upstream.id.is_some() || sources.values().any(|s| s.offers.contains_key(name)) {
                continue;
            }
            let gone = self.roster.gone.get(name);
            missing += u64::from(gone.is_none_or(|gone| !gone.is_deletion_seen));
            if !self.roster.is_gone(name) {
                unknown.push(ClusterName::from(name));
            }
        }
        if missing > 1 && MISSING_SHARE.is_exceeded(missing, named) {
            return Vec::new();
        }
        unknown.sort_unstable();
        unknown
    }
}
