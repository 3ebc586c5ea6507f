//! Hands what the watches show to the tiers: by kind of object and role of the cluster. And what a
//! finished list says by leaving an object out.

use std::collections::BTreeSet;

use super::clusters::Place;
use super::contract::error_cause::RequestFailure;
use super::contract::event::EventKind;
use super::contract::note::AnomalyKind;
use super::contract::settings::OrphanMode;
use super::data::cluster::{Namespace, WatchState};
use super::data::ids::{ClusterId, Kind, ObjectKey, Role, Uid};
use super::data::interner::{Key, Sym};
use super::data::map::remove_indexed;
use super::data::objects::{ALLOW_REMOVALS, Object};
use super::machine::Machine;

impl Machine {
    /// Takes an event of a cluster that is in the table.
    pub(crate) fn cluster_event(&mut self, id: ClusterId, kind: &EventKind) {
        match kind {
            EventKind::ListStarted { kind, .. } => self.set_watch(id, *kind, WatchState::Listing),
            EventKind::ListFinished { kind, .. } => {
                self.set_watch(id, *kind, WatchState::Live);
                self.list_finished(id, *kind);
            }
            EventKind::WatchLost { kind, .. } => {
                self.set_watch(id, *kind, WatchState::Lost);
                self.edge_watch_lost(id, *kind);
                self.route_watch_lost(id, *kind);
                self.removal_evidence_lost(id, *kind);
            }
            EventKind::WatchResumed { kind, .. } => {
                if self.cluster(id).is_some_and(|c| c.watch(*kind) == WatchState::Lost) {
                    self.set_watch(id, *kind, WatchState::Live);
                    self.kind_is_current(id, *kind);
                }
            }
            EventKind::Bookmark { kind, .. } => {
                if *kind == Kind::Gateway {
                    self.gateway_activity(id);
                }
            }
            EventKind::ResourceVersionRegressed { .. } => self.cluster_version_regressed(id),
            EventKind::Listed { object, .. } => self.object_seen(id, object, true),
            EventKind::Applied { object, .. } => {
                self.object_seen(id, object, false);
                self.object_readable(id, object);
            }
            EventKind::Deleted { object, .. } => {
                let key = self.ctx.names.key(&object.meta.namespace, &object.meta.name);
                self.object_gone(id, object.kind(), key, true);
                self.object_readable(id, object);
            }
            EventKind::Unreadable { kind, object, error, .. } => {
                self.object_unreadable(id, *kind, object, error);
            }
            EventKind::ClusterAdded { .. }
            | EventKind::ClusterRemoved { .. }
            | EventKind::LeadershipPending { .. }
            | EventKind::LeadershipAcquired
            | EventKind::LeadershipLost
            | EventKind::ActionFinished { .. }
            | EventKind::DiscoveryStarted { .. }
            | EventKind::ClusterOffered { .. }
            | EventKind::ClusterWithdrawn { .. }
            | EventKind::DiscoveryFinished { .. }
            | EventKind::DiscoveryLost { .. }
            | EventKind::DiscoveryResumed { .. }
            | EventKind::ClusterGone { .. }
            | EventKind::TimedOut
            | EventKind::RecordingEnded => {
                debug_assert!(false, "{kind:?} is not of a known cluster");
            }
        }
    }

    fn object_seen(&mut self, id: ClusterId, object: &Object, is_listed: bool) {
        let kind = object.kind();
        let key = self.ctx.names.key(&object.meta.namespace, &object.meta.name);
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        if kind == Kind::Namespace {
            self.namespace_seen(id, key.name, object);
            return;
        }
        if cluster.is_combined() {
            cluster.members.entry(key.ns).or_default().insert((kind, key.name));
        }
        let [upstream, hub, edge] =
            [Role::Upstream, Role::Hub, Role::Edge].map(|role| cluster.has(role));
        let orphans = self.ctx.settings.orphans.mode != OrphanMode::Off;
        let at = Place { cluster: id, key };
        match kind {
            Kind::Connector => {
                if upstream {
                    self.upstream_connector_seen(at, object, is_listed);
                }
                if hub {
                    self.hub_connector_seen(at, object, is_listed);
                }
                if edge {
                    self.edge_connector_seen(id, key, object, is_listed);
                }
            }
            Kind::Gateway => {
                if orphans && upstream {
                    self.upstream_gateway_seen(id, key);
                }
                if edge {
                    self.gateway_seen(id, key, object, is_listed);
                }
            }
            Kind::HttpRoute if orphans && hub => self.route_seen(id, key, object, is_listed),
            Kind::HttpProxy if edge => self.proxy_seen(id, key, object, is_listed),
            Kind::HttpRoute | Kind::HttpProxy | Kind::Namespace => {}
        }
    }

    /// An object exists whose content can't be read. What the tables hold of it stays as it was.
    fn object_unreadable(
        &mut self,
        id: ClusterId,
        kind: Kind,
        object: &ObjectKey,
        error: &RequestFailure,
    ) {
        let key = self.ctx.names.key(&object.namespace, &object.name);
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        cluster.set_unreadable(kind, key);
        let (name, list) = (cluster.name.clone(), cluster.list(kind));
        if kind == Kind::Namespace
            && let Some(namespace) = cluster.namespaces.get_mut(&key.name)
        {
            namespace.listed_in = list;
        }
        let (upstream, sym) = (cluster.has(Role::Upstream), cluster.sym);
        if upstream && kind == Kind::Gateway {
            self.upstream_gateway_seen(id, key);
        }
        if upstream && kind == Kind::Connector {
            self.upstream_connector_unreadable(Place { cluster: id, key });
        }
        if let Some(hub) = self.hubs.get_mut(&id) {
            hub.listed_again(kind, key, list);
        }
        if let Some(edge) = self.edges.get_mut(&id) {
            edge.listed_again(kind, key, list);
        }
        let detail =
            format!("a {kind} can't be read, so no {kind} counts as missing there: {error}");
        self.ctx.anomaly(AnomalyKind::Undecodable, &name, Some(key), detail);
        if upstream && matches!(kind, Kind::Gateway | Kind::Namespace) {
            self.evaluate_routes_naming(sym);
        }
    }

    /// An object that may have been unreadable is not, or is gone: once none is left, absence counts.
    fn object_readable(&mut self, id: ClusterId, object: &Object) {
        let kind = object.kind();
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        let Some(key) = self.ctx.names.find(&object.meta.namespace, &object.meta.name) else {
            return;
        };
        if cluster.set_readable(kind, key) && cluster.is_live(kind) {
            self.kind_is_current(id, kind);
        }
    }

    /// An object does not exist any longer: the watch showed that it was deleted, or a list did not
    /// bring it again.
    fn object_gone(&mut self, id: ClusterId, kind: Kind, key: Key, is_deleted: bool) {
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        if kind == Kind::Namespace {
            let old = cluster.namespaces.remove(&key.name);
            if let Some(old) = old.filter(|_| is_deleted) {
                self.upstream_namespace_deleted(id, key.name, &old.uid);
            }
            self.namespace_changed(id, key.name);
            return;
        }
        remove_indexed(&mut cluster.members, &key.ns, &(kind, key.name));
        let at = Place { cluster: id, key };
        match kind {
            Kind::Connector => {
                self.upstream_connector_gone(at, is_deleted);
                self.hub_connector_gone(at);
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
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        let namespace = Namespace {
            uid: Uid::new(&object.meta.uid),
            is_hub: object.meta.is_hub_namespace(),
            allows_removals: object.meta.annotations.get(ALLOW_REMOVALS) == Some("true"),
            listed_in: cluster.list(Kind::Namespace),
        };
        let (uid, is_hub) = (namespace.uid.clone(), namespace.is_hub);
        let allows_removals = namespace.allows_removals;
        let old = cluster.namespaces.insert(name, namespace);
        let allowed_removals = old.as_ref().is_some_and(|old| old.allows_removals);
        if old.is_none_or(|old| old.uid != uid || old.is_hub != is_hub) {
            self.upstream_namespace_shown(id, name, &uid);
            self.namespace_changed(id, name);
        }
        if allowed_removals != allows_removals {
            self.evaluate_removals_in(id, name);
        }
    }

    /// A namespace became known, or changed its uid or its tier: all that depends on it is
    /// evaluated.
    fn namespace_changed(&mut self, id: ClusterId, ns: Sym) {
        self.evaluate_namespace(id, ns);
        let members =
            self.cluster(id).and_then(|c| c.members.get(&ns).cloned()).unwrap_or_default();
        for (kind, name) in members {
            let key = Key { ns, name };
            match kind {
                Kind::Connector => {
                    self.evaluate_hub_connectors_of(Place { cluster: id, key });
                    self.evaluate_hub_connector(Place { cluster: id, key });
                }
                Kind::Gateway => self.evaluate_gateway(id, key),
                Kind::HttpRoute => self.evaluate_route(id, key),
                Kind::HttpProxy | Kind::Namespace => {}
            }
        }
    }

    fn list_finished(&mut self, id: ClusterId, kind: Kind) {
        for key in self.missing_from_list(id, kind) {
            self.object_gone(id, kind, key, false);
        }
        self.kind_is_current(id, kind);
    }

    /// The tables now hold every object of a kind in a cluster.
    fn kind_is_current(&mut self, id: ClusterId, kind: Kind) {
        let Some(cluster) = self.cluster(id) else { return };
        let upstream = cluster.has(Role::Upstream);
        // In a combined cluster the namespaces say which tier an object belongs to.
        let every_kind = cluster.is_combined() && kind == Kind::Namespace;
        if upstream && matches!(kind, Kind::Connector | Kind::Gateway | Kind::Namespace) {
            self.upstream_listed(id, kind == Kind::Connector || every_kind);
        }
        if kind == Kind::Connector || every_kind {
            self.hub_listed(id);
        }
        if kind == Kind::HttpRoute || every_kind {
            self.routes_listed(id);
        }
        self.edge_listed(id, kind);
        self.release_unreached(id);
    }

    /// The objects that a finished list did not bring again.
    fn missing_from_list(&self, id: ClusterId, kind: Kind) -> BTreeSet<Key> {
        let mut missing = BTreeSet::new();
        let Some(cluster) = self.cluster(id) else { return missing };
        let list = cluster.list(kind);
        if kind == Kind::Namespace {
            // A Namespace has no namespace of its own; only the name counts.
            let old = cluster.namespaces.iter().filter(|(_, n)| n.listed_in != list);
            missing.extend(old.map(|(&name, _)| Key { ns: name, name }));
            return missing;
        }
        if let Some(upstream) = self.upstreams.get(&cluster.sym) {
            upstream.missing_from_list(kind, list, &mut missing);
        }
        if let Some(hub) = self.hubs.get(&id) {
            hub.missing_from_list(kind, list, &mut missing);
        }
        if let Some(edge) = self.edges.get(&id) {
            edge.missing_from_list(kind, list, &mut missing);
        }
        missing
    }
}
