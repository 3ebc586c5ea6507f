//! What the watches show, handed on by kind and role: to whom an object matters, what its absence
//! from a finished list means, and what stands on a namespace.

use std::collections::BTreeSet;

use super::cluster::Namespace;
use super::ids::{ClusterId, Key, Kind, Role, Sym, Uid};
use super::machine::Machine;
use super::objects::{Object, UPSTREAM_NAMESPACE};
use super::settings::OrphanMode;

impl Machine {
    fn has(&self, id: ClusterId, role: Role) -> bool {
        self.cluster(id).is_some_and(|c| c.has(role))
    }

    pub(super) fn object_seen(&mut self, id: ClusterId, object: &Object, listed: bool) {
        let kind = object.kind();
        let key = self.desk.names.key(&object.meta.namespace, &object.meta.name);
        if kind == Kind::Namespace {
            self.namespace_seen(id, key.name, object);
            return;
        }
        if let Some(Some(cluster)) = self.clusters.get_mut(usize::from(id.0))
            && cluster.is_combined()
        {
            cluster.members.entry(key.ns).or_default().insert((kind, key.name));
        }
        let orphans = self.desk.settings.orphans.mode != OrphanMode::Off;
        match kind {
            Kind::Connector => {
                if self.has(id, Role::Upstream) {
                    self.source_seen(id, key, object, listed);
                }
                if self.has(id, Role::Downstream) {
                    self.replica_seen(id, key, object, listed);
                }
                if self.has(id, Role::Edge) {
                    self.edge_connector_seen(id, key, object, listed);
                }
            }
            Kind::Gateway => {
                if orphans && self.has(id, Role::Upstream) {
                    self.upstream_gateway_seen(id, key);
                }
                if self.has(id, Role::Edge) {
                    self.gateway_seen(id, key, object, listed);
                }
            }
            Kind::HttpRoute if orphans && self.has(id, Role::Downstream) => {
                self.route_seen(id, key, object, listed);
            }
            Kind::HttpProxy if self.has(id, Role::Edge) => {
                self.proxy_seen(id, key, object, listed);
            }
            Kind::HttpRoute | Kind::HttpProxy | Kind::Namespace => {}
        }
    }

    pub(super) fn object_gone(&mut self, id: ClusterId, kind: Kind, key: Key) {
        if kind == Kind::Namespace {
            if let Some(Some(cluster)) = self.clusters.get_mut(usize::from(id.0)) {
                cluster.namespaces.remove(&key.name);
            }
            self.namespace_changed(id, key.name);
            return;
        }
        if let Some(Some(cluster)) = self.clusters.get_mut(usize::from(id.0))
            && let Some(members) = cluster.members.get_mut(&key.ns)
        {
            members.remove(&(kind, key.name));
            if members.is_empty() {
                cluster.members.remove(&key.ns);
            }
        }
        match kind {
            Kind::Connector => {
                self.source_gone(id, key);
                self.replica_gone(id, key);
                self.edge_connector_gone(id, key);
            }
            Kind::Gateway => {
                self.upstream_gateway_gone(id, key);
                self.gateway_gone(id, key);
            }
            Kind::HttpRoute => self.route_gone(id, key),
            Kind::HttpProxy => self.proxy_gone(id, key),
            Kind::Namespace => {}
        }
    }

    fn namespace_seen(&mut self, id: ClusterId, name: Sym, object: &Object) {
        let Some(Some(cluster)) = self.clusters.get_mut(usize::from(id.0)) else { return };
        let namespace = Namespace {
            uid: Uid::new(&object.meta.uid),
            replica: object.meta.labels.get(UPSTREAM_NAMESPACE).is_some(),
            seen: cluster.list(Kind::Namespace),
        };
        let (uid, replica) = (namespace.uid.clone(), namespace.replica);
        let old = cluster.namespaces.insert(name, namespace);
        if old.is_none_or(|old| old.uid != uid || old.replica != replica) {
            self.namespace_changed(id, name);
        }
    }

    /// A namespace became known, or is not what it was: what stands on it is looked at again.
    fn namespace_changed(&mut self, id: ClusterId, ns: Sym) {
        self.look_again_at_sources_of(id, ns);
        let members =
            self.cluster(id).and_then(|c| c.members.get(&ns).cloned()).unwrap_or_default();
        for (kind, name) in members {
            let key = Key { ns, name };
            match kind {
                Kind::Connector => {
                    self.evaluate_replicas_of(id, key);
                    self.evaluate_replica(id, key);
                }
                Kind::Gateway => self.evaluate_gateway(id, key),
                Kind::HttpRoute => self.evaluate_route(id, key),
                Kind::HttpProxy | Kind::Namespace => {}
            }
        }
    }

    pub(super) fn list_finished(&mut self, id: ClusterId, kind: Kind) {
        for key in self.not_in_the_list(id, kind) {
            self.object_gone(id, kind, key);
        }
        self.view_is_whole(id, kind);
    }

    /// What is known of a kind in a cluster is all there is of it.
    pub(super) fn view_is_whole(&mut self, id: ClusterId, kind: Kind) {
        let Some(cluster) = self.cluster(id) else { return };
        let (upstream, combined) = (cluster.has(Role::Upstream), cluster.is_combined());
        let all = combined && kind == Kind::Namespace;
        if upstream && (matches!(kind, Kind::Connector | Kind::Gateway | Kind::Namespace)) {
            self.upstream_listed(id, kind == Kind::Connector || all);
        }
        if kind == Kind::Connector || all {
            self.hub_listed(id);
        }
        if kind == Kind::HttpRoute || all {
            self.routes_listed(id);
        }
        self.edge_listed(id, kind);
    }

    /// What a finished list did not bring again.
    fn not_in_the_list(&self, id: ClusterId, kind: Kind) -> Vec<Key> {
        let Some(cluster) = self.cluster(id) else { return Vec::new() };
        let list = cluster.list(kind);
        let mut gone = BTreeSet::new();
        match kind {
            Kind::Namespace => {
                // A namespace has no namespace; only the name counts.
                let old = cluster.namespaces.iter().filter(|(_, n)| n.seen != list);
                gone.extend(old.map(|(&name, _)| Key { ns: name, name }));
            }
            Kind::Connector | Kind::Gateway | Kind::HttpRoute | Kind::HttpProxy => {
                if let Some(upstream) = self.upstreams.get(&cluster.sym) {
                    upstream.not_in_the_list(kind, list, &mut gone);
                }
                if let Some(hub) = self.hubs.get(&id) {
                    hub.not_in_the_list(kind, list, &mut gone);
                }
                if let Some(edge) = self.edges.get(&id) {
                    edge.not_in_the_list(kind, list, &mut gone);
                }
            }
        }
        gone.into_iter().collect()
    }
}
