//! The orphan rule: may a hub HTTPRoute be deleted because none of its parents exists upstream?
//!
//! "Does not exist" is a strong claim. [`RouteFacts::judge`] keeps a route at the first step that it
//! cannot prove, and says why. What follows from the answer is in `route_case`; how many orphans may be
//! deleted is up to [`budget`](super::budget).

use crate::contract::keep_reason::{
    KeepReason, OrphanCandidate, OrphanCounts, OrphanEvidence, text_with_times,
};
use crate::contract::settings::OrphanSettings;
use crate::data::cluster::{ClusterState, NamespaceIdentity};
use crate::data::ids::{Kind, ResourceVersion, Uid};
use crate::data::interner::{Key, Names};
use crate::data::time::UnixMillis;
use crate::fleet::GoneFacts;
use crate::machine::Machine;
use crate::orphans::route::{ParentGateways, Parents, Route, RouteVerdict};
use crate::upstream::UpstreamState;

/// The rule's answer, and when it may change although nothing happens.
pub(super) type Judgement = (RouteVerdict, Option<UnixMillis>);

const fn kept(reason: KeepReason) -> Judgement {
    (RouteVerdict::Kept(reason), None)
}

/// A hub HTTPRoute and everything that the rule reads about it.
pub(super) struct RouteFacts<'m> {
    pub(super) now: UnixMillis,
    pub(super) settings: &'m OrphanSettings,
    pub(super) names: &'m Names,
    pub(super) key: Key,
    pub(super) route: &'m Route,
    pub(super) hub: &'m ClusterState,
    /// The upstream cluster that the route names, where it is configured.
    pub(super) upstream: Option<(&'m ClusterState, &'m UpstreamState)>,
    /// Where the upstream cluster is no longer configured because its project was deleted.
    pub(super) gone: Option<GoneFacts>,
}

impl RouteFacts<'_> {
    pub(super) fn judge(&self) -> Judgement {
        let (now, settings) = (self.now, self.settings);
        let parents = match &self.route.parents {
            Parents::Gateways(parents) => parents,
            Parents::Kept(reason) => return kept(*reason),
        };
        let Some((cluster, upstream)) = self.upstream else {
            return match self.gone {
                Some(gone) => self.judge_of_deleted_project(&gone),
                None => kept(KeepReason::ClusterUnknown),
            };
        };
        if upstream.share.version_regressed {
            return kept(KeepReason::ResourceVersionRegressed);
        }
        let is_listed = self.hub.is_live(Kind::HttpRoute)
            && cluster.proves_absence(Kind::Gateway)
            && cluster.proves_absence(Kind::Namespace);
        if !is_listed {
            return kept(KeepReason::ListsIncomplete);
        }
        let is_in_place = self.hub.is_hub_namespace(self.key.ns)
            && cluster.is_upstream_namespace(parents.ns)
            && self.is_namespace_proved(cluster, parents);
        if !is_in_place {
            return kept(KeepReason::NamespaceUnproved);
        }
        if now > cluster.last_activity_at().plus(settings.fresh_ms) {
            return kept(KeepReason::Stale);
        }
        if parents.keys().any(|gateway| upstream.gateways.contains_key(&gateway)) {
            return kept(KeepReason::ParentExists);
        }
        self.judge_age(
            self.settling_since(cluster, upstream),
            upstream.share.breaker.state().is_tripped,
        )
    }

    /// The project was deleted, and its control plane proves nothing any more.
    fn judge_of_deleted_project(&self, gone: &GoneFacts) -> Judgement {
        if !self.settings.deleted_projects || !gone.is_deletion_seen {
            return kept(KeepReason::ClusterGone);
        }
        if !self.hub.is_live(Kind::HttpRoute) || !gone.is_source_live {
            return kept(KeepReason::ListsIncomplete);
        }
        if !self.hub.is_hub_namespace(self.key.ns) {
            return kept(KeepReason::NamespaceUnproved);
        }
        let orphan_since = self.route.orphan_since.unwrap_or(self.now);
        let reset_at = gone.breaker.reset_at.unwrap_or_default();
        let since = orphan_since.max(gone.gone_at).max(reset_at);
        self.judge_age(since, gone.breaker.is_tripped)
    }

    /// The last steps: a route is deleted only when it is old, has been an orphan for long enough, and
    /// is not one of too many.
    fn judge_age(&self, settling_since: UnixMillis, is_share_held: bool) -> Judgement {
        let (now, settings) = (self.now, self.settings);
        let Some(created_at) = self.route.created_at else { return kept(KeepReason::Anonymous) };
        if self.route.uid == Uid::Absent || self.route.rv == ResourceVersion::Absent {
            return kept(KeepReason::Anonymous);
        }
        let old_at = created_at.plus(settings.min_age_ms);
        if now < old_at {
            return (RouteVerdict::Kept(KeepReason::Young), Some(old_at));
        }
        let settled_at = settling_since.plus(settings.settle_ms);
        if now < settled_at {
            return (RouteVerdict::Kept(KeepReason::Settling), Some(settled_at));
        }
        if is_share_held {
            return kept(KeepReason::ShareExceeded);
        }
        (RouteVerdict::Orphan, None)
    }

    fn is_namespace_proved(&self, cluster: &ClusterState, parents: &ParentGateways) -> bool {
        let identity = cluster.namespace_identity(self.names, self.key.ns, parents.ns);
        identity == NamespaceIdentity::Agrees
    }

    /// Since when the route is known to be an orphan without interruption: time during which a
    /// watch was not live does not count.
    fn settling_since(&self, cluster: &ClusterState, upstream: &UpstreamState) -> UnixMillis {
        self.route
            .orphan_since
            .unwrap_or(self.now)
            .max(cluster.live_since(Kind::Gateway))
            .max(cluster.live_since(Kind::Namespace))
            .max(upstream.share.breaker.state().reset_at.unwrap_or_default())
    }

    fn keep_text(&self, reason: KeepReason) -> String {
        let since = self.upstream.map(|(cluster, upstream)| self.settling_since(cluster, upstream));
        text_with_times(reason, self.now, self.route.created_at, since, self.settings)
    }

    fn evidence(&self) -> Option<OrphanEvidence> {
        let parents = self.route.parents.gateways()?;
        let text = |sym| self.names.text(sym).to_owned();
        let listed = self.upstream.filter(|(cluster, _)| cluster.is_live(Kind::Gateway));
        let exists = |gateway| Some(listed?.1.gateways.contains_key(&gateway));
        let mut names: Vec<_> =
            parents.keys().map(|gateway| (text(gateway.name), exists(gateway))).collect();
        names.sort_unstable();
        Some(OrphanEvidence {
            upstream: text(parents.cluster),
            upstream_namespace: text(parents.ns),
            parents: names,
            namespace_proved: self
                .upstream
                .is_some_and(|(cluster, _)| self.is_namespace_proved(cluster, parents)),
            last_activity_at: listed.map(|(cluster, _)| cluster.last_activity_at()),
            orphan_since: self.route.orphan_since,
        })
    }
}

impl Machine {
    /// How many routes are orphans, or may be.
    pub fn orphan_counts(&self) -> OrphanCounts {
        let counts = &self.orphan_totals.verdicts;
        let reasons = KeepReason::ALL.into_iter().filter(|reason| reason.is_counted());
        OrphanCounts {
            orphans: counts.get(RouteVerdict::Orphan),
            kept: reasons.map(|reason| (reason, counts.get(RouteVerdict::Kept(reason)))).collect(),
        }
    }

    /// The routes that are orphans, or may be, sorted by hub, namespace and name. Judges every route:
    /// costs O(all routes).
    pub fn candidates(&self) -> Vec<OrphanCandidate> {
        let mut candidates = Vec::new();
        for (&id, hub) in &self.hubs {
            let Some(hub_cluster) = self.cluster(id) else {
                debug_assert!(false, "hub {} has no cluster", id.0);
                continue;
            };
            for (&key, route) in &hub.routes {
                let parents = route.parents.gateways();
                let upstream = parents.and_then(|parents| self.upstreams.get(&parents.cluster));
                let facts = RouteFacts {
                    now: self.ctx.now,
                    settings: &self.ctx.settings.orphans,
                    names: &self.ctx.names,
                    key,
                    route,
                    hub: hub_cluster,
                    upstream: upstream.and_then(|state| Some((self.cluster(state.id?)?, state))),
                    gone: parents.and_then(|parents| {
                        let breaker = self.orphan_totals.deleted_projects.state();
                        self.roster.gone_facts(self.ctx.names.text(parents.cluster), breaker)
                    }),
                };
                let verdict = match (facts.judge().0, route.verdict) {
                    (
                        RouteVerdict::Orphan,
                        Some(waiting @ RouteVerdict::Kept(KeepReason::Budget)),
                    ) => waiting,
                    (judged, _) => judged,
                };
                let kept = verdict.keep_reason();
                if kept.is_some_and(|reason| !reason.is_counted()) {
                    continue;
                }
                candidates.push(OrphanCandidate {
                    cluster: hub_cluster.name.clone(),
                    route: self.ctx.names.object_key(key),
                    created_at: route.created_at,
                    kept,
                    kept_because: kept.map(|reason| facts.keep_text(reason)),
                    evidence: facts.evidence(),
                    in_flight: route.flight.action(),
                    error: route.flight.error().map(ToString::to_string),
                });
            }
        }
        candidates.sort_unstable_by(|a, b| (&a.cluster, &a.route).cmp(&(&b.cluster, &b.route)));
        candidates
    }
}
