//! Hub HTTPRoutes: what the machine remembers about each, and the indexes from upstream to them.

use std::collections::BTreeSet;

use crate::context::WriteTarget;
use crate::contract::keep_reason::KeepReason;
use crate::contract::note::NoteKind;
use crate::data::cluster::ClusterState;
use crate::data::ids::{ClusterId, ClusterName, Kind, ResourceVersion, Uid};
use crate::data::interner::{Key, Names, Sym};
use crate::data::map::{remove_indexed, sorted_keys};
use crate::data::objects::Object;
use crate::data::route_origin::{RouteOrigin, origin_of};
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::flight::Flight;
use crate::machine::Machine;
use crate::timers::Due;
use crate::upstream::UpstreamState;

/// A hub HTTPRoute.
pub(crate) struct Route {
    pub(crate) uid: Uid,
    pub(crate) rv: ResourceVersion,
    pub(crate) listed_in: u32,
    pub(crate) created_at: Option<UnixMillis>,
    pub(crate) parents: Parents,
    /// Since when it has been an orphan without interruption.
    pub(crate) orphan_since: Option<UnixMillis>,
    pub(crate) flight: Flight,
    /// The latest verdict, as it is counted.
    pub(crate) verdict: Option<RouteVerdict>,
    /// The latest verdict that a note reported.
    pub(crate) reported: Option<RouteVerdict>,
}

/// What a route's labels and parentRefs say.
pub(crate) enum Parents {
    /// It names Gateways of its upstream namespace, and the rule has to look for them.
    Gateways(ParentGateways),
    /// It is kept, whatever exists upstream.
    Kept(KeepReason),
}

pub(crate) struct ParentGateways {
    /// The upstream cluster.
    pub(crate) cluster: Sym,
    /// The upstream namespace.
    pub(crate) ns: Sym,
    pub(crate) names: BTreeSet<Sym>,
}

impl HoldsNames for Route {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            uid: _,
            rv: _,
            listed_in: _,
            created_at: _,
            parents,
            orphan_since: _,
            flight: _,
            verdict: _,
            reported: _,
        } = self;
        parents.mark(used);
    }
}

impl HoldsNames for Parents {
    fn mark(&self, used: &mut UsedNames) {
        match self {
            Self::Gateways(gateways) => gateways.mark(used),
            Self::Kept(_) => {}
        }
    }
}

impl HoldsNames for ParentGateways {
    fn mark(&self, used: &mut UsedNames) {
        let Self { cluster, ns, names } = self;
        cluster.mark(used);
        ns.mark(used);
        names.mark(used);
    }
}

impl Parents {
    fn of(names: &mut Names, object: &Object) -> Self {
        match origin_of(object) {
            Ok(RouteOrigin { cluster, namespace, gateways }) => Self::Gateways(ParentGateways {
                cluster: names.intern(&cluster),
                ns: names.intern(&namespace),
                names: gateways.iter().map(|name| names.intern(name)).collect(),
            }),
            Err(reason) => Self::Kept(reason),
        }
    }

    pub(crate) fn gateways(&self) -> Option<&ParentGateways> {
        match self {
            Self::Gateways(gateways) => Some(gateways),
            Self::Kept(_) => None,
        }
    }
}

impl ParentGateways {
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.names.iter().map(|&name| Key { ns: self.ns, name })
    }
}

/// The orphan rule's answer for one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteVerdict {
    Kept(KeepReason),
    Orphan,
}

impl RouteVerdict {
    /// Whether none of the route's parents exists by the lists.
    pub(crate) const fn is_absent(self) -> bool {
        match self {
            RouteVerdict::Kept(reason) => reason.is_absent(),
            RouteVerdict::Orphan => true,
        }
    }

    pub(crate) const fn keep_reason(self) -> Option<KeepReason> {
        match self {
            RouteVerdict::Kept(reason) => Some(reason),
            RouteVerdict::Orphan => None,
        }
    }
}

impl UpstreamState {
    fn link_route(&mut self, parents: &ParentGateways, id: ClusterId, key: Key) {
        self.share.routes += 1;
        self.routes_by_ns.entry(parents.ns).or_default().insert((id, key));
        for gateway in parents.keys() {
            self.routes_by_parent.entry(gateway).or_default().insert((id, key));
        }
    }

    fn unlink_route(&mut self, parents: &ParentGateways, id: ClusterId, key: Key) {
        self.share.routes -= 1;
        remove_indexed(&mut self.routes_by_ns, &parents.ns, &(id, key));
        for gateway in parents.keys() {
            remove_indexed(&mut self.routes_by_parent, &gateway, &(id, key));
        }
    }
}

impl Machine {
    pub(crate) fn route_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let list = self.cluster(id).map(|cluster| cluster.list(Kind::HttpRoute));
        let (Some(list), Some(hub)) = (list, self.hubs.get_mut(&id)) else {
            return self.impossible_cluster(id, "a route was seen in a cluster that is no hub");
        };
        let (uid, rv) =
            (Uid::new(&object.meta.uid), ResourceVersion::new(&object.meta.resource_version));
        if let Some(old) = hub.routes.get_mut(&key) {
            old.listed_in = list;
            if !listed && old.uid == uid && rv.is_older_than(&old.rv) {
                return;
            }
        }
        let mut route = Route {
            uid,
            rv,
            listed_in: list,
            created_at: object.meta.creation_timestamp,
            parents: Parents::of(&mut self.ctx.names, object),
            orphan_since: None,
            flight: Flight::default(),
            verdict: None,
            reported: None,
        };
        let old = hub.routes.remove(&key);
        if let Some(mut old) = old {
            if old.uid == route.uid {
                route.flight = std::mem::take(&mut old.flight);
                route.flight.object_changed();
                route.orphan_since = old.orphan_since;
                route.reported = old.reported;
            } else {
                self.ctx.withdraw(WriteTarget::Route(id, key));
                self.report_gone(id, key, &old);
            }
            self.unlink_route(id, key, &old);
        }
        if let Some(parents) = route.parents.gateways() {
            let upstream = self.upstreams.entry(parents.cluster).or_default();
            if !upstream.is_referenced() {
                self.ctx.reference_changed(parents.cluster);
            }
            upstream.link_route(parents, id, key);
        }
        if let Some(hub) = self.hubs.get_mut(&id) {
            hub.routes.insert(key, route);
        }
        self.evaluate_route(id, key);
    }

    /// Called for every HTTPRoute that is gone, also in clusters that are no hub.
    pub(crate) fn route_gone(&mut self, id: ClusterId, key: Key) {
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        hub.orphans.remove(&key);
        if let Some(route) = hub.routes.remove(&key) {
            self.ctx.timers.clear(Due::Route(id, key));
            self.ctx.withdraw(WriteTarget::Route(id, key));
            self.report_gone(id, key, &route);
            self.unlink_route(id, key, &route);
        }
    }

    /// Whoever remembers a verdict on it can forget it.
    fn report_gone(&mut self, id: ClusterId, key: Key, route: &Route) {
        if route.reported.is_some()
            && let Some(cluster) = self.cluster(id).map(|cluster| cluster.name.clone())
        {
            let route = self.ctx.names.object_key(key);
            self.ctx.note(NoteKind::OrphanGone { cluster, route });
        }
    }

    /// Removes a route, which its hub no longer holds, from every other table.
    pub(crate) fn unlink_route(&mut self, id: ClusterId, key: Key, route: &Route) {
        if let Some(verdict) = route.verdict {
            self.orphan_totals.verdicts.remove(verdict);
        }
        if let Some(parents) = route.parents.gateways()
            && let Some(upstream) = self.upstreams.get_mut(&parents.cluster)
        {
            upstream.unlink_route(parents, id, key);
            if !upstream.is_referenced() {
                self.ctx.reference_changed(parents.cluster);
            }
            // First, so that a breaker that is tripped is evaluated without it.
            upstream.share.schedule_check(parents.cluster, &mut self.ctx);
            upstream.share.breaker.forget(&(id, key));
            if self.orphan_totals.deleted_projects.forget(&(id, key)) {
                self.ctx.timers.no_later(Due::GoneShare, self.ctx.now);
            }
            self.drop_unused_upstream(parents.cluster);
        }
    }

    pub(crate) fn upstream_gateway_seen(&mut self, id: ClusterId, key: Key) {
        self.gateway_activity(id);
        let cluster = self.cluster(id).map(|cluster| (cluster.sym, cluster.list(Kind::Gateway)));
        if let Some((sym, list)) = cluster
            && let Some(upstream) = self.upstreams.get_mut(&sym)
        {
            if upstream.gateways.insert(key, list).is_none() {
                self.evaluate_routes_to(sym, key);
            }
        } else {
            self.impossible_cluster(id, "an upstream Gateway was seen in a cluster without tables");
        }
    }

    /// Called for every Gateway that is gone, also in clusters that are not upstream.
    pub(crate) fn upstream_gateway_gone(&mut self, id: ClusterId, key: Key) {
        self.gateway_activity(id);
        let Some(sym) = self.cluster(id).map(|cluster| cluster.sym) else { return };
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        if upstream.gateways.remove(&key).is_some() {
            self.evaluate_routes_to(sym, key);
        }
    }

    fn evaluate_routes_to(&mut self, upstream: Sym, gateway: Key) {
        let upstream = self.upstreams.get(&upstream);
        let routes = upstream.and_then(|upstream| upstream.routes_by_parent.get(&gateway)).cloned();
        for (hub, key) in routes.unwrap_or_default() {
            self.evaluate_route(hub, key);
        }
    }

    /// The Gateway watch of a cluster showed a sign of life; a bookmark counts.
    pub(crate) fn gateway_activity(&mut self, id: ClusterId) {
        let now = self.ctx.now;
        let cluster = self.clusters.get_mut(id);
        let Some(before) = cluster.map(|cluster| cluster.record_activity(now)) else {
            return self.impossible_cluster(id, "a Gateway event came for a cluster without state");
        };
        if now > before.plus(self.ctx.settings.orphans.fresh_ms) {
            // Until now the silence was a reason to keep them.
            self.evaluate_upstream_routes(id);
        }
    }

    fn evaluate_upstream_routes(&mut self, id: ClusterId) {
        if let Some(sym) = self.cluster(id).map(|cluster| cluster.sym) {
            self.evaluate_routes_naming(sym);
        }
    }

    /// Evaluates every route that names the upstream cluster, whether it is configured or not.
    pub(crate) fn evaluate_routes_naming(&mut self, upstream: Sym) {
        let Some(upstream) = self.upstreams.get(&upstream) else { return };
        for (hub, key) in upstream.hub_routes() {
            self.evaluate_route(hub, key);
        }
    }

    /// What a lost watch showed is no longer evidence.
    pub(crate) fn route_watch_lost(&mut self, id: ClusterId, kind: Kind) {
        if matches!(kind, Kind::Gateway | Kind::Namespace) {
            self.evaluate_upstream_routes(id);
        }
        let is_combined = self.cluster(id).is_some_and(ClusterState::is_combined);
        if kind == Kind::HttpRoute || (kind == Kind::Namespace && is_combined) {
            self.routes_listed(id);
        }
    }

    /// Evaluates every route of a cluster, if it is a hub.
    pub(crate) fn routes_listed(&mut self, id: ClusterId) {
        let Some(hub) = self.hubs.get(&id) else { return };
        for key in sorted_keys(&hub.routes) {
            self.evaluate_route(id, key);
        }
    }

    pub(super) fn impossible_cluster(&mut self, id: ClusterId, detail: &str) {
        let cluster = self.cluster(id).map(|cluster| cluster.name.clone());
        self.ctx.impossible(&cluster.unwrap_or_else(|| ClusterName::from("")), detail.to_owned());
    }
}
