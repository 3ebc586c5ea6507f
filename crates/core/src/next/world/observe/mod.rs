//! Takes events over, each into the tables of the tier that owns the object.
//!
//! | event | what it means |
//! |---|---|
//! | list started | absence means nothing until it is finished |
//! | list finished | what it did not bring is gone; absence counts from now on |
//! | listed, applied | the object, unless its version is older |
//! | deleted | the object is gone, and somebody saw it go |
//! | unreadable | the object exists, so nothing of its kind is missing |
//! | watch lost, resumed | what it showed is unknown; nothing was missed |
//! | bookmark | the watch works |
//! | resourceVersion went backwards | what the upstream shows may be old, what it lacks lost |

mod clusters;
mod edge;
mod hub;
mod namespaces;
mod upstream;

use std::sync::Arc;

use super::World;
use super::change::{Change, Report};
use super::cluster::{Cluster, WatchState};
use super::hub::UpstreamRef;
use super::table::{Shown, Sighting};
use crate::contract::error_cause::RequestFailure;
use crate::contract::event::EventKind;
use crate::contract::settings::OrphanMode;
use crate::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::data::name::NamespacedName;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::Object;
use crate::data::time::UnixMillis;
use crate::next::subject::Subject;

/// An event of one cluster, while it is taken over.
struct Observation<'w> {
    world: &'w mut World,
    id: ClusterId,
    now: UnixMillis,
    changes: Vec<Change>,
}

pub(super) fn observe(world: &mut World, event: &EventKind, now: UnixMillis) -> Vec<Change> {
    match event {
        EventKind::ClusterAdded { cluster, roles } => clusters::add(world, cluster, roles, now),
        EventKind::ClusterRemoved { cluster } => clusters::remove(world, cluster, now),
        _ => observe_watch(world, event, now).unwrap_or_default(),
    }
}

fn observe_watch(world: &mut World, event: &EventKind, now: UnixMillis) -> Option<Vec<Change>> {
    let id = world.id_of(watched_cluster(event)?)?;
    let mut observed = Observation { world, id, now, changes: Vec::new() };
    match event {
        EventKind::ListStarted { kind, .. } => observed.on_list_started(*kind),
        EventKind::ListFinished { kind, .. } => observed.on_list_finished(*kind),
        EventKind::WatchLost { kind, .. } => observed.on_watch_lost(*kind),
        EventKind::WatchResumed { kind, .. } => observed.on_watch_resumed(*kind),
        EventKind::Bookmark { kind, .. } => observed.on_sign_of_life(*kind),
        EventKind::ResourceVersionRegressed { .. } => upstream::on_restored(&mut observed),
        EventKind::Listed { object, .. } => observed.on_object(object, Shown::Listed),
        EventKind::Applied { object, .. } => {
            observed.on_object(object, Shown::Watched);
            observed.on_readable(object)
        }
        EventKind::Deleted { object, .. } => {
            observed.on_gone(object.kind(), &name_of(object), true);
            observed.on_readable(object)
        }
        EventKind::Unreadable { kind, object, error, .. } => {
            observed.on_unreadable(*kind, object, error)
        }
        _ => None,
    };
    Some(observed.changes)
}

/// The cluster whose watch an event comes from.
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

fn name_of(object: &Object) -> NamespacedName {
    NamespacedName::new(&object.meta.namespace, &object.meta.name)
}

/// Watches.
impl Observation<'_> {
    fn on_list_started(&mut self, kind: Kind) -> Option<()> {
        let now = self.now;
        self.cluster_mut()?.watches[kind].on_list_started(now);
        Some(())
    }

    fn on_list_finished(&mut self, kind: Kind) -> Option<()> {
        let now = self.now;
        self.cluster_mut()?.watches[kind].on_live(now);
        self.on_sign_of_life(kind);

        for name in self.cluster()?.not_listed(kind) {
            self.on_gone(kind, &name, false);
        }
        self.on_current(kind)
    }

    fn on_watch_resumed(&mut self, kind: Kind) -> Option<()> {
        let now = self.now;
        let watch = &mut self.cluster_mut()?.watches[kind];
        if watch.state != WatchState::Lost {
            return None;
        }

        watch.on_live(now);
        self.on_sign_of_life(kind);
        self.on_current(kind)
    }

    fn on_watch_lost(&mut self, kind: Kind) -> Option<()> {
        let now = self.now;
        self.cluster_mut()?.watches[kind].on_lost(now);
        edge::on_watch_lost(self, kind);

        if self.cluster()?.is_about(Kind::HttpRoute, kind) {
            self.routes_changed();
        }
        let upstream = self.upstream()?.name.clone();
        if matches!(kind, Kind::Gateway | Kind::Namespace) {
            self.routes_to_this_changed();
        }
        if matches!(kind, Kind::Connector | Kind::Namespace) {
            self.changes.push(Change::EvidenceLost { upstream });
        }
        Some(())
    }

    /// The tables hold every object of the kind, so absence counts.
    fn on_current(&mut self, kind: Kind) -> Option<()> {
        let cluster = self.cluster()?;
        let name = cluster.name.clone();
        let is_of_connectors = cluster.is_about(Kind::Connector, kind);
        let is_of_routes = cluster.is_about(Kind::HttpRoute, kind);
        self.changes.push(Change::ClusterAnswers { id: self.id, name, kind });

        upstream::on_current(self, kind);
        if is_of_connectors {
            self.hub_connectors_changed();
        }
        if is_of_routes {
            self.routes_changed();
        }
        edge::on_current(self, kind)
    }

    /// The watch works. Until now its silence may have been a reason to keep routes.
    fn on_sign_of_life(&mut self, kind: Kind) -> Option<()> {
        let now = self.now;
        let fresh_ms = self.world.reading.orphans.fresh_ms;
        let watch = &mut self.cluster_mut()?.watches[kind];
        let before = watch.last_event_at.replace(now);
        if kind == Kind::Gateway && before.is_none_or(|at| now > at.plus(fresh_ms)) {
            self.routes_to_this_changed();
        }
        Some(())
    }
}

/// Objects of any tier.
impl Observation<'_> {
    fn on_object(&mut self, object: &Arc<Object>, shown: Shown) -> Option<()> {
        let kind = object.kind();
        self.on_sign_of_life(kind);
        if kind == Kind::Namespace {
            return namespaces::on_shown(self, object, shown);
        }

        let name = self.world.shared_name(self.id, kind, name_of(object));
        match kind {
            Kind::Connector => {
                upstream::on_connector(self, &name, object, shown);
                hub::on_connector(self, &name, object, shown);
                edge::on_connector(self, &name, object, shown)
            }
            Kind::Gateway => {
                upstream::on_gateway(self, &name);
                edge::on_gateway(self, &name, object, shown)
            }
            Kind::HttpRoute => hub::on_route(self, &name, object, shown),
            Kind::HttpProxy => edge::on_proxy(self, &name, object, shown),
            Kind::Namespace => None,
        }
    }

    /// The object does not exist any longer. `is_deleted`: the watch showed that it was deleted. It
    /// is not only that a list lacks it.
    fn on_gone(&mut self, kind: Kind, name: &NamespacedName, is_deleted: bool) -> Option<()> {
        self.on_sign_of_life(kind);
        match kind {
            Kind::Namespace => namespaces::on_gone(self, name.name(), is_deleted),
            Kind::Connector => {
                upstream::on_connector_gone(self, name, is_deleted);
                hub::on_connector_gone(self, name);
                edge::on_connector_gone(self, name)
            }
            Kind::Gateway => {
                upstream::on_gateway_gone(self, name);
                edge::on_gateway_gone(self, name)
            }
            Kind::HttpRoute => hub::on_route_gone(self, name),
            Kind::HttpProxy => edge::on_proxy_gone(self, name),
        }
    }

    /// The object exists, and its content cannot be read. What the tables hold of it stays.
    fn on_unreadable(
        &mut self,
        kind: Kind,
        object: &ObjectKey,
        error: &RequestFailure,
    ) -> Option<()> {
        self.on_sign_of_life(kind);
        let name = NamespacedName::from(object);
        let cluster = self.cluster_mut()?;
        cluster.on_unreadable(kind, &name);

        let report = Report::ObjectUnreadable {
            cluster: cluster.name.clone(),
            kind,
            object: object.clone(),
            error: error.clone(),
        };
        self.changes.push(Change::Report(report));
        upstream::on_unreadable(self, kind, &name)
    }

    /// An object that may have been unreadable is not, or is gone.
    fn on_readable(&mut self, object: &Object) -> Option<()> {
        let kind = object.kind();
        let cluster = self.cluster_mut()?;
        let watch = &mut cluster.watches[kind];
        let was_last = !watch.unreadable.is_empty() && watch.on_readable(&name_of(object));
        if was_last && cluster.is_live(kind) {
            self.on_current(kind);
        }
        Some(())
    }
}

/// What everybody needs.
impl Observation<'_> {
    fn cluster(&self) -> Option<&Cluster> {
        self.world.clusters.get(&self.id)
    }

    fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        self.world.clusters.get_mut(&self.id)
    }

    /// The cluster, if it has the role.
    fn tier(&mut self, role: Role) -> Option<&mut Cluster> {
        self.cluster_mut().filter(|cluster| cluster.has(role))
    }

    fn upstream(&self) -> Option<&Cluster> {
        self.cluster().filter(|cluster| cluster.has(Role::Upstream))
    }

    /// Whether routes and the Gateways that they name are kept.
    fn has_orphans(&self) -> bool {
        self.world.reading.orphans.mode != OrphanMode::Off
    }

    /// An upstream object of this name, for the links to it.
    fn upstream_ref(&self, name: &NamespacedName) -> Option<UpstreamRef> {
        let cluster = self.upstream()?.name.clone();
        Some(UpstreamRef { cluster, name: name.clone() })
    }

    fn object(&self, kind: Kind, name: &NamespacedName) -> ObjectRef {
        ObjectRef { cluster: self.id, kind, name: name.clone() }
    }

    fn sighting(&self, object: &Object, shown: Shown) -> Option<Sighting<()>> {
        let list = self.cluster()?.watch(object.kind()).lists;
        Some(Sighting::new(&object.meta, shown, list, ()))
    }

    fn changed(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.changes.extend(subjects.into_iter().map(Change::Changed));
    }

    fn hub_connectors_changed(&mut self) -> Option<()> {
        let cluster = self.cluster()?;
        let names = cluster.hub_connectors.keys();
        let subjects: Vec<_> = names.map(|name| cluster.hub_connector(name)).collect();
        self.changed(subjects);
        Some(())
    }

    fn routes_changed(&mut self) -> Option<()> {
        let cluster = self.cluster()?;
        let subjects: Vec<_> = cluster.routes.keys().map(|name| cluster.route(name)).collect();
        self.changed(subjects);
        Some(())
    }

    /// Evidence about every route that names this upstream changed.
    fn routes_to_this_changed(&mut self) -> Option<()> {
        let name = &self.upstream()?.name;
        let subjects: Vec<_> =
            self.world.routes_naming(name).cloned().map(Subject::Route).collect();
        self.changed(subjects);
        Some(())
    }
}

impl World {
    /// The name with the text that a table already holds: this cluster's, or a hub's.
    fn shared_name(&self, id: ClusterId, kind: Kind, name: NamespacedName) -> NamespacedName {
        let here = self.clusters.get(&id).and_then(|cluster| cluster.key(kind, &name));
        let at_hub = || match kind {
            Kind::Connector => self.hubs().find_map(|hub| hub.hub_connectors.key(&name)),
            _ => None,
        };
        here.or_else(at_hub).cloned().unwrap_or(name)
    }

    /// The same for an upstream object that a hub object names.
    fn shared_ref(&self, named: UpstreamRef) -> UpstreamRef {
        if let Some((link, _)) = self.links.get_key_value(&named) {
            return link.clone();
        }
        let upstream = self.upstream_named(&named.cluster);
        let name = upstream.and_then(|upstream| upstream.upstream_connectors.key(&named.name));
        let cluster = self.hub_counts.get_key_value(&named.cluster).map(|(cluster, _)| cluster);
        UpstreamRef {
            name: name.unwrap_or(&named.name).clone(),
            cluster: cluster.unwrap_or(&named.cluster).clone(),
        }
    }
}

impl Cluster {
    fn hub_connector(&self, name: &NamespacedName) -> Subject {
        Subject::HubConnector(self.object(Kind::Connector, name))
    }

    fn route(&self, name: &NamespacedName) -> Subject {
        Subject::Route(self.object(Kind::HttpRoute, name))
    }

    /// Whether what a watch of `kind` shows decides about objects of kind `of`.
    fn is_about(&self, of: Kind, kind: Kind) -> bool {
        kind == of || (kind == Kind::Namespace && self.is_combined())
    }

    /// A key that a table of this cluster holds.
    fn key(&self, kind: Kind, name: &NamespacedName) -> Option<&NamespacedName> {
        match kind {
            Kind::Connector => self
                .hub_connectors
                .key(name)
                .or_else(|| self.edge.connectors.key(name))
                .or_else(|| self.upstream_connectors.key(name)),
            Kind::Gateway | Kind::HttpProxy => {
                self.edge.proxies.key(name).or_else(|| self.edge.gateways.key(name))
            }
            Kind::HttpRoute | Kind::Namespace => None,
        }
    }

    fn on_unreadable(&mut self, kind: Kind, name: &NamespacedName) {
        let list = self.watches[kind].lists;
        self.watches[kind].unreadable.insert(name.clone());
        match kind {
            Kind::Namespace => self.namespaces.on_listed_unreadable(name.name(), list),
            Kind::Connector => {
                self.upstream_connectors.on_listed_unreadable(name, list);
                self.hub_connectors.on_listed_unreadable(name, list);
                self.edge.connectors.on_listed_unreadable(name, list);
            }
            Kind::Gateway => {
                self.upstream_gateways.on_listed_unreadable(name, list);
                self.edge.gateways.on_listed_unreadable(name, list);
            }
            Kind::HttpRoute => self.routes.on_listed_unreadable(name, list),
            Kind::HttpProxy => self.edge.proxies.on_listed_unreadable(name, list),
        }
    }

    /// What the finished list did not bring, in any tier.
    fn not_listed(&self, kind: Kind) -> Vec<NamespacedName> {
        let list = self.watch(kind).lists;
        let mut missing = match kind {
            Kind::Namespace => {
                let names = self.namespaces.not_listed_in(list);
                names.iter().map(|name| NamespacedName::new("", name)).collect()
            }
            Kind::Connector => [
                self.upstream_connectors.not_listed_in(list),
                self.hub_connectors.not_listed_in(list),
                self.edge.connectors.not_listed_in(list),
            ]
            .concat(),
            Kind::Gateway => {
                let upstream = self.upstream_gateways.not_listed_in(list);
                [upstream, self.edge.gateways.not_listed_in(list)].concat()
            }
            Kind::HttpRoute => self.routes.not_listed_in(list),
            Kind::HttpProxy => self.edge.proxies.not_listed_in(list),
        };
        missing.sort_unstable();
        missing.dedup();
        missing
    }
}
