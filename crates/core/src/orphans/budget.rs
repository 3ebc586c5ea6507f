//! The limit on deletes: none in an upstream cluster where too large a share of the routes are orphans.
//!
//! A cluster in which many routes become orphans at once has more likely lost its Gateways than its
//! tenants. So all changes of one moment are counted first ([`Due::Share`]), and only then is anything
//! deleted ([`Due::Deletes`]).

use crate::circuit_breaker::{BreakerChange, BreakerLimit, CircuitBreaker};
use crate::context::Context;
use crate::contract::keep_reason::KeepReason;
use crate::contract::note::{AnomalyKind, NoteKind};
use crate::contract::settings::{OrphanMode, OrphanSettings};
use crate::data::ids::{ClusterId, Kind};
use crate::data::interner::{Key, Sym};
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::machine::Machine;
use crate::orphans::route::RouteVerdict;
use crate::timers::Due;

/// How many routes have each verdict.
#[derive(Default)]
pub(crate) struct VerdictCounts {
    orphans: u64,
    kept: [u64; KeepReason::ALL.len()],
}

impl VerdictCounts {
    pub(crate) const fn get(&self, verdict: RouteVerdict) -> u64 {
        match verdict {
            RouteVerdict::Orphan => self.orphans,
            RouteVerdict::Kept(reason) => self.kept[reason as usize],
        }
    }

    const fn get_mut(&mut self, verdict: RouteVerdict) -> &mut u64 {
        match verdict {
            RouteVerdict::Orphan => &mut self.orphans,
            RouteVerdict::Kept(reason) => &mut self.kept[reason as usize],
        }
    }

    pub(crate) const fn add(&mut self, verdict: RouteVerdict) {
        *self.get_mut(verdict) += 1;
    }

    pub(crate) const fn remove(&mut self, verdict: RouteVerdict) {
        *self.get_mut(verdict) -= 1;
    }
}

/// A hub's route.
pub(crate) type RouteAt = (ClusterId, Key);

/// How many of an upstream cluster's routes are orphans.
#[derive(Default)]
pub(crate) struct OrphanShare {
    /// Routes that name the cluster.
    pub(crate) routes: u64,
    /// Counts those of them none of whose parents exists, whatever their age.
    pub(crate) breaker: CircuitBreaker<RouteAt>,
    /// The cluster was restored from an older state: its Gateways may be lost rather than deleted.
    pub(crate) version_regressed: bool,
}

impl HoldsNames for OrphanShare {
    fn mark(&self, used: &mut UsedNames) {
        let Self { routes: _, breaker, version_regressed: _ } = self;
        breaker.mark(used);
    }
}

/// What is counted over the routes of all upstreams.
#[derive(Default)]
pub(crate) struct OrphanTotals {
    pub(crate) verdicts: VerdictCounts,
    /// Counts the routes of all deleted projects among those of all hubs: of the routes of one such
    /// project, all are orphans.
    pub(crate) deleted_projects: CircuitBreaker<RouteAt>,
}

impl HoldsNames for OrphanTotals {
    fn mark(&self, used: &mut UsedNames) {
        let Self { verdicts: _, deleted_projects } = self;
        deleted_projects.mark(used);
    }
}

/// The share applies to populations of more than `share_from`.
pub(crate) fn breaker_limit(settings: &OrphanSettings) -> BreakerLimit {
    BreakerLimit::of_share(settings.max_share, u64::from(settings.share_from) + 1)
}

impl OrphanShare {
    /// The cluster is no longer configured; another one may take its name.
    pub(crate) fn forget_state(&mut self) {
        self.version_regressed = false;
    }

    /// Has the share evaluated once every change of this moment is counted.
    pub(crate) fn schedule_check(&self, upstream: Sym, ctx: &mut Context) {
        if !self.breaker.is_idle() {
            ctx.timers.no_later(Due::Share(upstream), ctx.now);
        }
    }
}

impl Machine {
    /// Holds the deletes of an upstream cluster while too many of its routes are orphans.
    pub(crate) fn evaluate_orphan_share(&mut self, sym: Sym) {
        let now = self.ctx.now;
        let limit = breaker_limit(&self.ctx.settings.orphans);
        // An upstream may be gone by now that no route names any longer.
        let Some(id) = self.upstreams.get(&sym).map(|upstream| upstream.id) else { return };
        // Deletes stay held while the evidence is out of sight.
        let may_reset = self.is_orphan_evidence_current(id);
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        let share = &mut upstream.share;
        let change = share.breaker.update(share.routes, limit, may_reset, now);
        let (orphans, routes) = (share.breaker.entries().count() as u64, share.routes);
        let Some(change) = change else { return };

        let cluster = self.ctx.names.text(sym).into();
        let held = change == BreakerChange::Tripped;
        let settings = &self.ctx.settings.orphans;
        if held && settings.mode == OrphanMode::Delete {
            let detail = format!(
                "{orphans} of its {routes} routes at the hub are orphans, more than {}; none is \
                 deleted until there are fewer, or limits.maxShare is raised",
                settings.max_share
            );
            self.ctx.anomaly(AnomalyKind::TooManyOrphans, &cluster, None, detail);
        }
        self.ctx.note(NoteKind::DeletesHeld { cluster, held, orphans, routes });
        self.evaluate_routes_naming(sym);
        self.drop_unused_upstream(sym);
    }

    fn is_orphan_evidence_current(&self, upstream: Option<ClusterId>) -> bool {
        let Some(cluster) = upstream.and_then(|id| self.cluster(id)) else { return true };
        let fresh_until = cluster.last_activity_at().plus(self.ctx.settings.orphans.fresh_ms);
        let mut hubs = self.hubs.keys().filter_map(|id| self.cluster(*id));
        cluster.proves_absence(Kind::Gateway)
            && cluster.proves_absence(Kind::Namespace)
            && self.ctx.now <= fresh_until
            && hubs.all(|hub| hub.is_live(Kind::HttpRoute))
    }

    /// The resourceVersions of a cluster are lower than before: it was restored from an older state.
    pub(crate) fn cluster_version_regressed(&mut self, id: ClusterId) {
        let Some((sym, name)) = self.cluster(id).map(|c| (c.sym, c.name.clone())) else {
            return self.impossible_cluster(id, "a resourceVersion regressed without a cluster");
        };
        // Hubs and edges are not concerned.
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        upstream.restored(self.ctx.now);
        let hub_connectors = upstream.hub_connectors();
        let was_regressed = std::mem::replace(&mut upstream.share.version_regressed, true);
        self.evaluate_hub_connectors(hub_connectors);
        if was_regressed {
            return;
        }
        let settle_s = self.ctx.settings.mirror.restored_settle_ms / 1_000;
        let detail = format!(
            "its resourceVersions are lower than before, as after a restore from an older state; \
             until throughline is restarted, none of its orphans is deleted and no annotation is \
             removed because a Connector is missing; a status is mirrored once its Connector \
             changes, or after {settle_s} s"
        );
        self.ctx.anomaly(AnomalyKind::ResourceVersionRegressed, &name, None, detail);
        self.evaluate_routes_naming(sym);
    }
}
