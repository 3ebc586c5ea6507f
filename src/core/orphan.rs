//! Orphaned routes: a downstream HTTPRoute none of whose parents exists upstream any longer.
//!
//! "Does not exist" is a strong claim. Every step of [`Machine::judge`] that can't be proved keeps
//! the route, and says why.

use std::collections::BTreeSet;

use super::action::{AbsentGateways, AnomalyKind, Noted, Precondition, Verb};
use super::desk::{Aim, Target};
use super::event::Outcome;
use super::flight::{Flight, Landed};
use super::ids::{ActionId, ClusterId, Key, Kind, ResourceVersion, Sym, Uid};
use super::machine::Machine;
use super::mirror::Identity;
use super::objects::{
    Body, DELETION_PROTECTED, GATEWAY_GROUP, Object, ParentRef, UPSTREAM_GROUP, UPSTREAM_KIND,
};
use super::settings::OrphanMode;
use super::time::UnixMillis;
use super::timers::Due;

/// A downstream HTTPRoute.
pub(crate) struct Route {
    uid: Uid,
    rv: ResourceVersion,
    pub(crate) seen: u32,
    created_at: Option<UnixMillis>,
    /// The upstream cluster and namespace, and the Gateways named there; or why there are none.
    parents: Result<Parents, Kept>,
    /// Since when it is an orphan without a break.
    pub(super) orphan_since: Option<UnixMillis>,
    pub(super) flight: Flight,
    told: Option<Kept>,
}

struct Parents {
    cluster: Sym,
    ns: Sym,
    names: BTreeSet<Sym>,
}

/// Why a route is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    NoReplica,
    BeingDeleted,
    Protected,
    NoParents,
    ForeignParent,
    Anonymous,
    ClusterUnknown,
    ListsIncomplete,
    NamespaceUnproved,
    ParentExists,
    Young(UnixMillis),
    Settling(UnixMillis),
    /// By nothing: it is an orphan.
    Orphan,
}

impl Kept {
    fn reason(self) -> &'static str {
        match self {
            Kept::NoReplica => "it is not the replica of an HTTPRoute",
            Kept::BeingDeleted => "it is being deleted",
            Kept::Protected => "it is protected from deletion by its label",
            Kept::NoParents => "it names no parent",
            Kept::ForeignParent => "a parent is not a Gateway of its upstream namespace",
            Kept::Anonymous => "its uid, resourceVersion or age is not known",
            Kept::ClusterUnknown => "its upstream cluster is not configured",
            Kept::ListsIncomplete => "its upstream cluster is not fully listed",
            Kept::NamespaceUnproved => "its namespace is not proved to be that namespace's replica",
            Kept::ParentExists => "a parent exists",
            Kept::Young(_) => "it is too young",
            Kept::Settling(_) => "it is an orphan for too short a time",
            Kept::Orphan => "it is an orphan",
        }
    }

    fn is_same_as(self, other: Kept) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

fn parents_of(names: &mut super::ids::Names, object: &Object) -> Result<Parents, Kept> {
    let Body::HttpRoute { parents } = &object.body else { return Err(Kept::NoReplica) };
    let labels = &object.meta.labels;
    let label = |key| labels.get(key).filter(|v| !v.is_empty()).ok_or(Kept::NoReplica);
    let (cluster, namespace, _) = object.meta.upstream().ok_or(Kept::NoReplica)?;
    if label(UPSTREAM_KIND)? != Kind::HttpRoute.as_str() || label(UPSTREAM_GROUP)? != GATEWAY_GROUP
    {
        return Err(Kept::NoReplica);
    }
    if object.meta.deletion_timestamp.is_some() {
        return Err(Kept::BeingDeleted);
    }
    if labels.get(DELETION_PROTECTED) == Some("Always") {
        return Err(Kept::Protected);
    }
    if parents.is_empty() {
        return Err(Kept::NoParents);
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
        return Err(Kept::ForeignParent);
    }
    Ok(Parents {
        cluster: names.intern(&cluster),
        ns: names.intern(namespace),
        names: parents.iter().map(|p| names.intern(&p.name)).collect(),
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
            told: None,
        };
        if let Some(old) = hub.routes.remove(&key) {
            self.unlink_route(id, key, &old);
            if old.uid == route.uid {
                (route.flight, route.told) = (old.flight, old.told);
                route.orphan_since = old.orphan_since;
                route.flight.seen();
            }
        }
        if let Ok(parents) = &route.parents {
            let upstream = self.upstreams.entry(parents.cluster).or_default();
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

    pub(crate) fn unlink_route(&mut self, id: ClusterId, key: Key, route: &Route) {
        let Ok(parents) = &route.parents else { return };
        let Some(upstream) = self.upstreams.get_mut(&parents.cluster) else { return };
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
    }

    pub(crate) fn upstream_gateway_seen(&mut self, id: ClusterId, key: Key) {
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        if upstream.gateways.insert(key, cluster.list(Kind::Gateway)).is_none() {
            self.evaluate_routes_of(id, key);
        }
    }

    pub(crate) fn upstream_gateway_gone(&mut self, id: ClusterId, key: Key) {
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

    pub(crate) fn routes_listed(&mut self, id: ClusterId) {
        let Some(hub) = self.hubs.get(&id) else { return };
        let mut keys: Vec<_> = hub.routes.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.evaluate_route(id, key);
        }
    }

    /// The rule and all its evidence.
    fn judge(&self, id: ClusterId, key: Key, route: &Route) -> Kept {
        let parents = match &route.parents {
            Ok(parents) => parents,
            Err(kept) => return *kept,
        };
        let now = self.desk.now;
        let hub = self.cluster(id);
        let Some(upstream) = self.upstreams.get(&parents.cluster) else {
            return Kept::ClusterUnknown;
        };
        let Some(cluster) = upstream.id.and_then(|id| self.cluster(id)) else {
            return Kept::ClusterUnknown;
        };
        let listed = hub.is_some_and(|c| c.is_live(Kind::HttpRoute))
            && cluster.is_live(Kind::Gateway)
            && cluster.is_live(Kind::Namespace);
        if !listed {
            return Kept::ListsIncomplete;
        }
        let in_place = hub.and_then(|c| c.is_replica_namespace(key.ns)) == Some(true)
            && cluster.is_source_namespace(parents.ns) == Some(true)
            && self.identity(cluster, key.ns, parents.ns) == Identity::Agrees;
        if !in_place {
            return Kept::NamespaceUnproved;
        }
        let ns = parents.ns;
        if parents.names.iter().any(|&name| upstream.gateways.contains_key(&Key { ns, name })) {
            return Kept::ParentExists;
        }
        let Some(created_at) = route.created_at else { return Kept::Anonymous };
        if route.uid == Uid::Absent || route.rv == ResourceVersion::Absent {
            return Kept::Anonymous;
        }
        let settings = &self.desk.settings.orphans;
        let old_at = created_at.plus(settings.min_age_ms);
        if now < old_at {
            return Kept::Young(old_at);
        }
        // What was not watched was not seen to be an orphan without a break.
        let watched_since =
            [cluster.live_since(Kind::Gateway), cluster.live_since(Kind::Namespace)];
        let since =
            watched_since.into_iter().fold(route.orphan_since.unwrap_or(now), UnixMillis::max);
        let settled_at = since.plus(settings.settle_ms);
        if now < settled_at { Kept::Settling(settled_at) } else { Kept::Orphan }
    }

    pub(crate) fn evaluate_route(&mut self, id: ClusterId, key: Key) {
        let now = self.desk.now;
        let due = Due::Route(id, key);
        self.desk.timers.clear(due);
        let Some(route) = self.hubs.get(&id).and_then(|h| h.routes.get(&key)) else { return };
        let mut verdict = self.judge(id, key, route);
        let absent = matches!(verdict, Kept::Young(_) | Kept::Settling(_) | Kept::Orphan);
        let was_absent = route.orphan_since.is_some();
        if absent && !was_absent {
            if let Some(route) = self.route_mut(id, key) {
                route.orphan_since = Some(now);
            }
            let route = self.hubs.get(&id).and_then(|h| h.routes.get(&key));
            verdict = route.map_or(verdict, |route| self.judge(id, key, route));
        }
        let Some(route) = self.route_mut(id, key) else { return };
        if !absent {
            route.orphan_since = None;
        }
        let is_free = route.flight.is_free(now);
        let (in_flight, not_before) = (route.flight.in_flight.is_some(), route.flight.not_before);
        let told = route.told.is_some_and(|t| t.is_same_as(verdict));
        // Told: orphans, and what was one or would be but for its age. Not: every route there is.
        let tell = !told && (absent || was_absent);
        if tell || !absent {
            route.told = absent.then_some(verdict);
        }
        if tell && let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
            let route = self.desk.names.object_key(key);
            let kept = (verdict != Kept::Orphan).then(|| verdict.reason().to_owned());
            self.desk.note(Noted::Orphan { cluster, route, kept_because: kept });
        }
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        if verdict == Kept::Orphan {
            hub.orphans.insert(key);
        } else {
            hub.orphans.remove(&key);
        }
        match verdict {
            Kept::Young(at) | Kept::Settling(at) => self.desk.timers.no_later(due, at),
            Kept::Orphan
                if self.desk.settings.orphans.mode == OrphanMode::Delete && self.desk.leader =>
            {
                if is_free {
                    self.delete_route(id, key);
                } else if !in_flight {
                    self.desk.timers.no_later(due, not_before);
                }
            }
            _ => {}
        }
    }

    fn route_mut(&mut self, id: ClusterId, key: Key) -> Option<&mut Route> {
        self.hubs.get_mut(&id)?.routes.get_mut(&key)
    }

    fn delete_route(&mut self, id: ClusterId, key: Key) {
        let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) else { return };
        let Some(route) = self.hubs.get(&id).and_then(|h| h.routes.get(&key)) else { return };
        let Ok(parents) = &route.parents else { return };
        let names: Vec<_> = {
            let mut names: Vec<_> =
                parents.names.iter().map(|&n| self.desk.names.text(n).to_owned()).collect();
            names.sort_unstable();
            names
        };
        let upstream = self.desk.names.text(parents.cluster).to_owned();
        let namespace = self.desk.names.text(parents.ns).to_owned();
        let because = format!(
            "none of its parents ({}) exists in {namespace} of {upstream}, whose Gateways are \
             fully listed",
            names.join(", ")
        );
        let aim = Aim {
            target: Target::Route(id, key),
            cluster,
            kind: Kind::HttpRoute,
            object: self.desk.names.object_key(key),
            precondition: Precondition {
                uid: route.uid.text(),
                resource_version: route.rv.text(),
                absent: Some(AbsentGateways {
                    cluster: upstream.as_str().into(),
                    namespace,
                    names,
                }),
            },
            connectors: Vec::new(),
        };
        let action = self.desk.submit(aim, Verb::Delete, Vec::new(), because);
        if let Some(route) = self.route_mut(id, key) {
            route.flight.launch(action);
        }
    }

    pub(crate) fn route_deleted(
        &mut self,
        id: ClusterId,
        key: Key,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.desk.now;
        let retry = self.desk.settings.retry;
        let Some(route) = self.route_mut(id, key) else { return };
        if route.flight.in_flight != Some(action) {
            return;
        }
        match route.flight.land(now, outcome, &retry) {
            // Its going is seen by the watch; until then it is not deleted again.
            Landed::Yes => route.flight.pause_until(now.plus(retry.outcome_timeout_ms)),
            Landed::No => {}
            Landed::Refused => {
                let error = route.flight.error.clone().unwrap_or_default();
                if let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
                    let detail = format!(
                        "the API server refuses the delete: {error}; it is tried again in {} s",
                        retry.refused_ms / 1000
                    );
                    self.desk.anomaly(AnomalyKind::Refused, &cluster, Some(key), detail);
                }
            }
        }
        self.evaluate_route(id, key);
    }
}
