//! Routes watch events to the tier that owns the object.
//!
//! | event | meaning |
//! |---|---|
//! | list started | until it is finished, absence means nothing |
//! | list finished | objects that it lacks are gone; absence counts from now on |
//! | listed, applied | the object has this state, unless the version is older |
//! | deleted | the object is gone, and its deletion was seen |
//! | unreadable | the object exists, so no object of its kind counts as absent |
//! | watch lost, resumed | its objects are unknown; no event was missed |
//! | bookmark | the watch works |
//! | resourceVersion went backwards | objects that the upstream shows may be old, those that it lacks may be lost |

mod clusters;
mod edge;
mod hub;
mod namespaces;
mod observation;
mod upstream;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::observation::{Observation, ShownObject};
use crate::contract::error_cause::RequestFailure;
use crate::contract::event::EventKind;
use crate::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::data::objects::{Body, Object};
use crate::data::time::UnixMillis;
use crate::world::World;
use crate::world::change::Change;
use crate::world::cluster::{Cluster, WatchState};
use crate::world::table::Shown;

impl World {
    /// Takes one event.
    ///
    /// # Errors
    /// The event is ignored, because its cluster is not in the run.
    pub(crate) fn observe<'e>(
        &mut self,
        event: &'e EventKind,
        now: UnixMillis,
    ) -> Result<Vec<Change>, &'e ClusterName> {
        Ok(match event {
            EventKind::ClusterAdded { cluster, roles } => clusters::add(self, cluster, roles, now),
            EventKind::ClusterRemoved { cluster } => clusters::remove(self, cluster, now),
            _ => {
                let Some(name) = watched_cluster(event) else { return Ok(Vec::new()) };
                let id = self.id_of(name).ok_or(name)?;
                let mut o = Observation { world: self, id, now, changes: Vec::new() };
                o.on_watch_event(event);
                o.changes
            }
        })
    }
}

fn watched_cluster(event: &EventKind) -> Option<&ClusterName> {
    match event {
        EventKind::ListStarted { cluster, .. }
        | EventKind::Listed { cluster, .. }
        | EventKind::ListFinished { cluster, .. }
        | EventKind::Applied { cluster, .. }
        | EventKind::Deleted { cluster, .. }
        | EventKind::Unreadable { cluster, .. }
        | EventKind::WatchLost { cluster, .. }
        | EventKind::WatchResumed { cluster, .. }
        | EventKind::Bookmark { cluster, .. }
        | EventKind::ResourceVersionRegressed { cluster, .. } => Some(cluster),
        _ => None,
    }
}

impl Observation<'_> {
    fn on_watch_event(&mut self, event: &EventKind) {
        match event {
            EventKind::ListStarted { kind, .. } => self.on_list_started(*kind),
            EventKind::ListFinished { kind, .. } => self.on_list_finished(*kind),
            EventKind::WatchLost { kind, error, .. } => self.on_watch_lost(*kind, error),
            EventKind::WatchResumed { kind, .. } => self.on_watch_resumed(*kind),
            EventKind::Bookmark { kind, .. } => self.on_sign_of_life(*kind),
            EventKind::ResourceVersionRegressed { kind, .. } => upstream::on_restored(self, *kind),
            EventKind::Listed { object, .. } => self.on_object(object, Shown::Listed),
            EventKind::Applied { object, .. } => {
                self.on_object(object, Shown::Watched);
                self.on_readable(object);
            }
            EventKind::Deleted { object, .. } => {
                let name = object.meta.key();
                self.on_event_about(object.kind(), &name);
                self.on_gone(object.kind(), &name, true);
                self.on_readable(object);
            }
            EventKind::Unreadable { kind, object, .. } => self.on_unreadable(*kind, object),
            _ => {}
        }
    }

    fn on_list_started(&mut self, kind: Kind) {
        let now = self.now;
        let cluster = self.cluster_mut();
        let known = names(cluster, kind);
        cluster.watches[kind].on_list_started(known, now);
    }

    fn on_list_finished(&mut self, kind: Kind) {
        let now = self.now;
        let watch = &mut self.cluster_mut().watches[kind];
        watch.on_live(now);
        let mut missing = std::mem::take(&mut watch.unlisted);
        if watch.unreadable.iter().any(|object| object.name().is_empty()) {
            // Each may be the one without a readable name; the watch lists again.
            missing.clear();
        }

        self.on_sign_of_life(kind);
        for name in missing {
            self.on_gone(kind, &name, false);
        }
        self.on_current(kind);
    }

    fn on_watch_resumed(&mut self, kind: Kind) {
        let now = self.now;
        let watch = &mut self.cluster_mut().watches[kind];
        if watch.state != WatchState::Lost {
            return;
        }

        watch.on_live(now);
        self.on_sign_of_life(kind);
        self.on_current(kind);
    }

    fn on_watch_lost(&mut self, kind: Kind, error: &RequestFailure) {
        let now = self.now;
        self.cluster_mut().watches[kind].on_lost(now);
        upstream::on_watch_lost(self, kind);
        hub::on_watch_lost(self, kind);
        edge::on_watch_lost(self, kind);
        let name = self.cluster().name.clone();
        let error = error.clone();
        self.changes.push(Change::WatchLost { id: self.id, name, kind, error });
    }

    /// The watch is live. An unreadable object may still be missing from the tables.
    fn on_current(&mut self, kind: Kind) {
        let name = self.cluster().name.clone();
        self.changes.push(Change::ClusterAnswers { id: self.id, name, kind });
        upstream::on_current(self, kind);
        hub::on_current(self, kind);
        edge::on_current(self, kind);
    }

    /// The watch works. Its silence may have kept routes until now.
    fn on_sign_of_life(&mut self, kind: Kind) {
        let now = self.now;
        let fresh_ms = self.world.settings.orphans.fresh_ms;
        let cluster = self.cluster_mut();
        let before = cluster.watches[kind].last_event_at.replace(now);
        let was_silent = before.is_none_or(|at| now > at.plus(fresh_ms));
        if kind == Kind::Gateway && was_silent && cluster.has(Role::Upstream) {
            self.routes_to_this_changed();
        }
    }

    fn on_event_about(&mut self, kind: Kind, name: &NamespacedName) {
        self.on_sign_of_life(kind);
        self.cluster_mut().watches[kind].unlisted.remove(name);
    }
}

impl Observation<'_> {
    fn on_object(&mut self, object: &Arc<Object>, shown: Shown) {
        let kind = object.kind();
        let name = self.shared_name(object.meta.key());
        self.on_event_about(kind, &name);

        let shown = ShownObject { name, object, shown };
        if kind == Kind::Namespace {
            return namespaces::on_shown(self, &shown);
        }
        for role in self.tiers_of(shown.name.namespace()) {
            match (role, &object.body) {
                (Role::Upstream, Body::Connector { .. }) => upstream::on_connector(self, &shown),
                (Role::Upstream, Body::Gateway { .. }) => upstream::on_gateway(self, &shown.name),
                (Role::Hub, Body::Connector { .. }) => hub::on_connector(self, &shown),
                (Role::Hub, Body::HttpRoute { .. }) => hub::on_route(self, &shown),
                (Role::Edge, Body::Connector { .. }) => edge::on_connector(self, &shown),
                (Role::Edge, Body::HttpProxy { connectors }) => {
                    edge::on_proxy(self, &shown, connectors);
                }
                (Role::Edge, Body::Gateway { class, is_programmed }) => {
                    edge::on_gateway(self, &shown, class, *is_programmed);
                }
                _ => {}
            }
        }
    }

    /// The object no longer exists. `is_deleted`: the watch showed its deletion; a list that lacks
    /// it is not enough.
    fn on_gone(&mut self, kind: Kind, name: &NamespacedName, is_deleted: bool) {
        if kind == Kind::Namespace {
            return namespaces::on_gone(self, name, is_deleted);
        }
        for role in self.tiers_of(name.namespace()) {
            match (role, kind) {
                (Role::Upstream, Kind::Connector) => {
                    upstream::on_connector_gone(self, name, is_deleted);
                }
                (Role::Upstream, Kind::Gateway) => upstream::on_gateway_gone(self, name),
                (Role::Hub, Kind::Connector) => hub::on_connector_gone(self, name),
                (Role::Hub, Kind::HttpRoute) => hub::on_route_gone(self, name),
                (Role::Edge, Kind::Connector) => edge::on_connector_gone(self, name, is_deleted),
                (Role::Edge, Kind::HttpProxy) => edge::on_proxy_gone(self, name),
                (Role::Edge, Kind::Gateway) => edge::on_gateway_gone(self, name),
                _ => {}
            }
        }
    }

    /// The tiers of the cluster for which this instance keeps the namespace, upstream first.
    fn tiers_of(&self, namespace: &str) -> impl Iterator<Item = Role> + use<> {
        let world = &self.world;
        let cluster = self.cluster();
        let is_kept = |role: &Role| cluster.has(*role) && world.keeps(*role, cluster, namespace);
        Role::ALL.map(|role| Some(role).filter(is_kept)).into_iter().flatten()
    }

    /// The object exists, but its content cannot be read. Its row stays as it is.
    fn on_unreadable(&mut self, kind: Kind, name: &NamespacedName) {
        self.on_event_about(kind, name);
        let cluster = self.cluster_mut();
        cluster.watches[kind].unreadable.insert(name.clone());
        let at = cluster.object(kind, name);
        self.changes.push(Change::Unreadable { at });
        upstream::on_unreadable(self, kind, name);
    }

    /// An object that may have been unreadable is readable, or is gone.
    fn on_readable(&mut self, object: &Object) {
        let kind = object.kind();
        let unreadable = &mut self.cluster_mut().watches[kind].unreadable;
        if unreadable.is_empty() {
            return;
        }
        let name = object.meta.key();
        let was_unreadable = unreadable.remove(&name);
        if was_unreadable {
            let at = self.cluster().object(kind, &name);
            self.changes.push(Change::Readable { at });
        }
        if was_unreadable && self.cluster().shows_absence(kind) {
            self.on_current(kind);
        }
    }
}

/// The names of all objects of the kind, in any tier.
fn names(cluster: &Cluster, kind: Kind) -> BTreeSet<NamespacedName> {
    let Cluster { upstream_connectors, hub_connectors, edge, .. } = cluster;
    match kind {
        Kind::Namespace => cluster.namespaces.keys().cloned().collect(),
        Kind::Connector => {
            let connectors = upstream_connectors.keys().chain(hub_connectors.keys());
            connectors.chain(edge.connectors.keys()).cloned().collect()
        }
        Kind::Gateway => {
            cluster.upstream_gateways.iter().chain(edge.gateways.keys()).cloned().collect()
        }
        Kind::HttpRoute => cluster.routes.keys().cloned().collect(),
        Kind::HttpProxy => edge.proxies.keys().cloned().collect(),
    }
}
