//! Downstream HTTPRoutes: what is remembered of each, and the ways from their upstreams to them.

use std::collections::BTreeSet;

use super::flight::Flight;
use super::ids::{ClusterId, Key, Kind, Names, ResourceVersion, Sym, Uid};
use super::keep::Keep;
use super::machine::Machine;
use super::objects::{
    Body, DELETION_PROTECTED, GATEWAY_GROUP, Object, ParentRef, UPSTREAM_GROUP, UPSTREAM_KIND,
};
use super::time::UnixMillis;
use super::timers::Due;

/// A downstream HTTPRoute.
pub(crate) struct Route {
    pub(super) uid: Uid,
    pub(super) rv: ResourceVersion,
    pub(crate) seen: u32,
    pub(super) created_at: Option<UnixMillis>,
    /// The upstream cluster and namespace, and the Gateways named there; or why there are none.
    pub(super) parents: Result<Parents, Keep>,
    /// Since when it is an orphan without a break.
    pub(super) orphan_since: Option<UnixMillis>,
    pub(super) flight: Flight,
    /// The latest verdict, as it was counted.
    pub(super) verdict: Option<Verdict>,
    /// The latest verdict that was told.
    pub(super) told: Option<Verdict>,
    /// Since when it waits to be deleted.
    pub(super) turn: Option<UnixMillis>,
}

/// The parents of a route, as its labels and parentRefs name them.
pub(crate) struct Parents {
    pub(super) cluster: Sym,
    pub(super) ns: Sym,
    pub(super) names: BTreeSet<Sym>,
}

/// What is thought of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Kept(Keep),
    Orphan,
}

impl Verdict {
    pub(super) const COUNT: usize = Keep::ALL.len() + 1;

    pub(super) const fn index(self) -> usize {
        match self {
            Verdict::Kept(keep) => keep as usize,
            Verdict::Orphan => Keep::ALL.len(),
        }
    }

    /// By the lists none of its parents exists.
    pub(super) const fn is_absent(self) -> bool {
        match self {
            Verdict::Kept(keep) => keep.is_absent(),
            Verdict::Orphan => true,
        }
    }

    pub(super) const fn keep(self) -> Option<Keep> {
        match self {
            Verdict::Kept(keep) => Some(keep),
            Verdict::Orphan => None,
        }
    }
}

/// What a route says of itself: the upstream cluster and namespace, and the Gateways there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The upstream cluster that its labels name.
    pub cluster: String,
    /// The namespace there.
    pub namespace: String,
    /// The Gateways that its parents name; never empty.
    pub gateways: BTreeSet<String>,
}

/// What a route says of itself.
///
/// # Errors
/// Why that alone keeps it, whatever there is upstream.
pub fn claim(object: &Object) -> Result<Claim, Keep> {
    let Body::HttpRoute { parents } = &object.body else { return Err(Keep::NoReplica) };
    let labels = &object.meta.labels;
    let label = |key| labels.get(key).filter(|v| !v.is_empty()).ok_or(Keep::NoReplica);
    let (cluster, namespace, _) = object.meta.upstream().ok_or(Keep::NoReplica)?;
    if label(UPSTREAM_KIND)? != Kind::HttpRoute.as_str() || label(UPSTREAM_GROUP)? != GATEWAY_GROUP
    {
        return Err(Keep::NoReplica);
    }
    if object.meta.deletion_timestamp.is_some() {
        return Err(Keep::BeingDeleted);
    }
    if labels.get(DELETION_PROTECTED) == Some("Always") {
        return Err(Keep::Protected);
    }
    if !object.meta.finalizers.is_empty() {
        return Err(Keep::Finalizers);
    }
    if parents.is_empty() {
        return Err(Keep::NoParents);
    }
    let is_local = |parent: &ParentRef| {
        let or =
            |value: &Option<String>, default: &str| value.as_deref().unwrap_or(default).to_owned();
        let ns = parent.namespace.as_deref().unwrap_or(namespace);
        or(&parent.group, GATEWAY_GROUP) == GATEWAY_GROUP
            && or(&parent.kind, Kind::Gateway.as_str()) == Kind::Gateway.as_str()
            && (ns == namespace || *ns == *object.meta.namespace)
            && !parent.name.is_empty()
    };
    if !parents.iter().all(is_local) {
        return Err(Keep::ForeignParent);
    }
    let gateways = parents.iter().map(|parent| parent.name.clone()).collect();
    Ok(Claim { cluster, namespace: namespace.to_owned(), gateways })
}

fn parents_of(names: &mut Names, object: &Object) -> Result<Parents, Keep> {
    let Claim { cluster, namespace, gateways } = claim(object)?;
    Ok(Parents {
        cluster: names.intern(&cluster),
        ns: names.intern(&namespace),
        names: gateways.iter().map(|name| names.intern(name)).collect(),
    })
}

impl Machine {
    pub(crate) fn route_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let list = self.cluster(id).map_or(0, |c| c.list(Kind::HttpRoute));
        let parents = parents_of(&mut self.desk.names, object);
        let (uid, rv) =
            (Uid::new(&object.meta.uid), ResourceVersion::new(&object.meta.resource_version));
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        let old = hub.routes.get_mut(&key);
        if let Some(old) = old {
            old.seen = list;
            if !listed && old.uid == uid && rv.is_older_than(&old.rv) {
                return;
            }
        }
        let mut route = Route {
            uid,
            rv,
            seen: list,
            created_at: object.meta.creation_timestamp,
            parents,
            orphan_since: None,
            flight: Flight::default(),
            verdict: None,
            told: None,
            turn: None,
        };
        if let Some(mut old) = hub.routes.remove(&key) {
            if old.uid == route.uid {
                (route.flight, route.told) = (std::mem::take(&mut old.flight), old.told);
                route.orphan_since = old.orphan_since;
                route.turn = old.turn.take();
                route.flight.seen();
            }
            self.unlink_route(id, key, &old);
        }
        if let Ok(parents) = &route.parents {
            let upstream = self.upstreams.entry(parents.cluster).or_default();
            upstream.share.routes += 1;
            upstream.routes_by_ns.entry(parents.ns).or_default().insert((id, key));
            for &name in &parents.names {
                let gateway = Key { ns: parents.ns, name };
                upstream.routes_by_parent.entry(gateway).or_default().insert((id, key));
            }
        }
        if let Some(hub) = self.hubs.get_mut(&id) {
            hub.routes.insert(key, route);
        }
        self.evaluate_route(id, key);
    }

    pub(crate) fn route_gone(&mut self, id: ClusterId, key: Key) {
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        hub.orphans.remove(&key);
        let Some(route) = hub.routes.remove(&key) else { return };
        self.desk.timers.clear(Due::Route(id, key));
        self.unlink_route(id, key, &route);
    }

    /// Takes a route that is no longer in its hub's table out of every other one.
    pub(crate) fn unlink_route(&mut self, id: ClusterId, key: Key, route: &Route) {
        self.budget.forget(route.turn, id, key);
        if let Some(verdict) = route.verdict {
            self.budget.counts[verdict.index()] -= 1;
        }
        let Ok(parents) = &route.parents else { return };
        let Some(upstream) = self.upstreams.get_mut(&parents.cluster) else { return };
        upstream.share.routes -= 1;
        upstream.share.orphans -= u64::from(route.verdict.is_some_and(Verdict::is_absent));
        if let Some(routes) = upstream.routes_by_ns.get_mut(&parents.ns) {
            routes.remove(&(id, key));
            if routes.is_empty() {
                upstream.routes_by_ns.remove(&parents.ns);
            }
        }
        for &name in &parents.names {
            let gateway = Key { ns: parents.ns, name };
            if let Some(routes) = upstream.routes_by_parent.get_mut(&gateway) {
                routes.remove(&(id, key));
                if routes.is_empty() {
                    upstream.routes_by_parent.remove(&gateway);
                }
            }
        }
        self.share_changed(parents.cluster);
    }

    pub(crate) fn upstream_gateway_seen(&mut self, id: ClusterId, key: Key) {
        self.gateways_heard(id);
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        if upstream.gateways.insert(key, cluster.list(Kind::Gateway)).is_none() {
            self.evaluate_routes_of(id, key);
        }
    }

    pub(crate) fn upstream_gateway_gone(&mut self, id: ClusterId, key: Key) {
        self.gateways_heard(id);
        let Some(sym) = self.cluster(id).map(|c| c.sym) else { return };
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        if upstream.gateways.remove(&key).is_some() {
            self.evaluate_routes_of(id, key);
        }
    }

    fn evaluate_routes_of(&mut self, id: ClusterId, gateway: Key) {
        let upstream = self.cluster(id).and_then(|c| self.upstreams.get(&c.sym));
        let routes = upstream.and_then(|u| u.routes_by_parent.get(&gateway)).cloned();
        for (hub, key) in routes.unwrap_or_default() {
            self.evaluate_route(hub, key);
        }
    }

    /// Something came of upstream's Gateways, if only a bookmark: what is known of them is fresh.
    pub(crate) fn gateways_heard(&mut self, id: ClusterId) {
        let now = self.desk.now;
        let Some(Some(cluster)) = self.clusters.get_mut(usize::from(id.0)) else { return };
        let before = cluster.heard(now);
        if now > before.plus(self.desk.settings.orphans.fresh_ms) {
            self.evaluate_upstream_routes(id);
        }
    }

    /// Looks again at every route that names the upstream cluster.
    pub(crate) fn evaluate_upstream_routes(&mut self, id: ClusterId) {
        let Some(sym) = self.cluster(id).map(|c| c.sym) else { return };
        self.evaluate_routes_naming(sym);
    }

    pub(crate) fn evaluate_routes_naming(&mut self, upstream: Sym) {
        let Some(upstream) = self.upstreams.get(&upstream) else { return };
        let routes: BTreeSet<_> = upstream.routes_by_ns.values().flatten().copied().collect();
        for (hub, key) in routes {
            self.evaluate_route(hub, key);
        }
    }

    /// What was seen by a watch that broke is no evidence any longer.
    pub(crate) fn route_watch_lost(&mut self, id: ClusterId, kind: Kind) {
        let namespaces = kind == Kind::Namespace;
        if kind == Kind::Gateway || namespaces {
            self.evaluate_upstream_routes(id);
        }
        let combined = self.cluster(id).is_some_and(super::cluster::Cluster::is_combined);
        if kind == Kind::HttpRoute || (namespaces && combined) {
            self.routes_listed(id);
        }
    }

    pub(crate) fn routes_listed(&mut self, id: ClusterId) {
        let Some(hub) = self.hubs.get(&id) else { return };
        let mut keys: Vec<_> = hub.routes.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.evaluate_route(id, key);
        }
    }

    pub(super) fn route_mut(&mut self, id: ClusterId, key: Key) -> Option<&mut Route> {
        self.hubs.get_mut(&id)?.routes.get_mut(&key)
    }
}
