//! One cluster as its watches show it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::edge_tables::EdgeTables;
use super::hub::{HubConnector, Route};
use super::table::Table;
use super::upstream::UpstreamConnector;
use crate::data::ids::{ClusterName, Kind, NamespacedName, Role, Uid};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::{ALLOW_REMOVALS, Meta};
use crate::data::per_kind::PerKind;
use crate::data::time::UnixMillis;
use crate::subject::{Subject, Target};

/// The state of one watch.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) state: WatchState,
    /// Since when the watch is live, or when it last became live; `None` if no list was ever
    /// complete.
    pub(crate) listed_since: Option<UnixMillis>,
    /// Since when its objects are unknown.
    pub(crate) unknown_since: Option<UnixMillis>,
    /// Objects in the tables that the current list has not shown yet.
    pub(crate) unlisted: BTreeSet<NamespacedName>,
    /// Objects that exist but cannot be read. While there are any, no object of the kind counts as
    /// absent.
    pub(crate) unreadable: BTreeSet<NamespacedName>,
    /// When an event, which may be a bookmark, last showed that the watch works.
    pub(crate) last_event_at: Option<UnixMillis>,
}

/// Whether what a watch shows can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchState {
    /// No list has begun.
    #[default]
    Never,
    /// A list is in progress. Absence means nothing yet.
    Listing,
    /// The list is complete, and the watch has shown every change since.
    Live,
    /// Broken: its objects are unknown, not absent.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// It holds hub or edge objects, never upstream ones.
    pub(crate) is_hub: bool,
    /// An operator allowed any number of removals in it, by annotation.
    pub(crate) allows_removals: bool,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) name: ClusterName,
    pub(crate) roles: Vec<Role>,
    pub(crate) watches: PerKind<Watch>,
    pub(crate) namespaces: Table<Namespace>,
    /// When it was last seen to be restored from an older state.
    pub(crate) restored_at: Option<UnixMillis>,
    pub(crate) upstream_connectors: Table<UpstreamConnector>,
    pub(crate) upstream_gateways: BTreeSet<NamespacedName>,
    pub(crate) hub_connectors: Table<HubConnector>,
    pub(crate) routes: Table<Route>,
    pub(crate) edge: EdgeTables,
}

impl Watch {
    pub(crate) fn live_since(&self) -> Option<UnixMillis> {
        self.listed_since.filter(|_| self.state == WatchState::Live)
    }

    /// `known`: the objects in the tables.
    pub(crate) fn on_list_started(&mut self, known: BTreeSet<NamespacedName>, now: UnixMillis) {
        self.leave_live(WatchState::Listing, now);
        self.unlisted = known;
        self.unreadable.clear();
    }

    pub(crate) fn on_lost(&mut self, now: UnixMillis) {
        self.leave_live(WatchState::Lost, now);
    }

    /// The list is complete, or the watch resumed.
    pub(crate) fn on_live(&mut self, now: UnixMillis) {
        self.state = WatchState::Live;
        self.listed_since = Some(now);
        self.unknown_since = None;
    }

    fn leave_live(&mut self, state: WatchState, now: UnixMillis) {
        if self.state == WatchState::Live {
            self.unknown_since = Some(now);
        }
        self.state = state;
    }
}

impl Namespace {
    pub(crate) fn new(meta: &Meta) -> Self {
        let allows_removals = meta.annotations.get(ALLOW_REMOVALS) == Some("true");
        Self { is_hub: meta.is_hub_namespace(), allows_removals }
    }
}

impl Cluster {
    pub(crate) fn new(id: ClusterId, name: ClusterName, roles: &[Role]) -> Self {
        Self {
            id,
            name,
            roles: roles.to_vec(),
            watches: PerKind::default(),
            namespaces: Table::default(),
            restored_at: None,
            upstream_connectors: Table::default(),
            upstream_gateways: BTreeSet::new(),
            hub_connectors: Table::sorted(),
            routes: Table::sorted(),
            edge: EdgeTables { gateways: Table::sorted(), ..EdgeTables::default() },
        }
    }

    /// The number of known hub and edge objects.
    pub(crate) fn objects(&self) -> usize {
        let hub = self.hub_connectors.len() + self.routes.len();
        let Self { edge, .. } = self;
        hub + edge.connectors.len() + edge.proxies.len() + edge.gateways.len()
    }

    /// The subjects of the rules in its hub and edge, in no defined order.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = Subject> {
        let targets = self.targets().into_iter().map(Subject::Target);
        let hub_connectors = self.hub_connectors.keys().map(|name| self.hub_connector(name));
        let routes = self.routes.keys().map(|name| self.route(name));
        hub_connectors.chain(routes).chain(targets)
    }

    pub(super) fn hub_connector(&self, name: &NamespacedName) -> Subject {
        Subject::HubConnector(self.object(Kind::Connector, name))
    }

    pub(super) fn route(&self, name: &NamespacedName) -> Subject {
        Subject::Route(self.object(Kind::HttpRoute, name))
    }

    /// Every target of the edge.
    pub(super) fn targets(&self) -> Vec<Target> {
        let EdgeTables { is_by_class, classes, gateways, .. } = &self.edge;
        if *is_by_class {
            return classes.keys().map(|class| Target::Class(self.id, class.clone())).collect();
        }
        let at = |name| Target::Gateway(self.object(Kind::Gateway, name));
        gateways.iter().map(|(name, _)| at(name)).collect()
    }

    /// The target that announces the connectors of a Gateway; `None` if the Gateway does not exist,
    /// or if another shard touches the edge.
    pub(crate) fn target_of(&self, gateway: &NamespacedName) -> Option<Target> {
        if self.edge.is_touched_elsewhere {
            return None;
        }
        let class = &self.edge.gateways.seen(gateway)?.class;
        Some(match self.edge.is_by_class {
            true => Target::Class(self.id, class.clone()),
            false => Target::Gateway(self.object(Kind::Gateway, gateway)),
        })
    }

    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// It holds upstream objects and others, so the tier of an object follows from its namespace.
    pub(crate) fn is_combined(&self) -> bool {
        self.has(Role::Upstream) && (self.has(Role::Hub) || self.has(Role::Edge))
    }

    pub(crate) fn object(&self, kind: Kind, name: &NamespacedName) -> ObjectRef {
        ObjectRef { cluster: self.id, kind, name: name.clone() }
    }

    pub(crate) fn watch(&self, kind: Kind) -> &Watch {
        &self.watches[kind]
    }

    pub(crate) fn is_live(&self, kind: Kind) -> bool {
        self.live_since(kind).is_some()
    }

    /// Since when the watch shows every object of the kind; `None` while it does not.
    pub(crate) fn live_since(&self, kind: Kind) -> Option<UnixMillis> {
        self.since(kind, Watch::live_since)
    }

    /// Like [`Cluster::live_since`], but also for a watch that is not live any more.
    pub(crate) fn listed_since(&self, kind: Kind) -> Option<UnixMillis> {
        self.since(kind, |watch| watch.listed_since)
    }

    /// A cluster with every role needs its namespaces to tell upstream and hub objects apart.
    fn since(&self, kind: Kind, of: fn(&Watch) -> Option<UnixMillis>) -> Option<UnixMillis> {
        let since = of(self.watch(kind))?;
        if !self.is_combined() {
            return Some(since);
        }
        Some(since.max(of(self.watch(Kind::Namespace))?))
    }

    /// Since when the watches show every object of all these kinds.
    pub(crate) fn all_live_since(&self, kinds: &[Kind]) -> Option<UnixMillis> {
        let since: Option<Vec<_>> = kinds.iter().map(|kind| self.live_since(*kind)).collect();
        since?.into_iter().max()
    }

    /// Whether an object of the kind that is not in the tables is absent.
    pub(crate) fn shows_absence(&self, kind: Kind) -> bool {
        self.is_live(kind) && self.watch(kind).unreadable.is_empty()
    }

    /// Whether the watch has had no event for this long.
    pub(crate) fn is_silent(&self, kind: Kind, max_age_ms: u64, now: UnixMillis) -> bool {
        self.watch(kind).last_event_at.is_none_or(|at| now > at.plus(max_age_ms))
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.seen(&NamespacedName::new("", name))
    }

    /// `None` if the namespace is unknown or came without a uid.
    pub(crate) fn namespace_uid(&self, name: &str) -> Option<&Uid> {
        let uid = &self.namespaces.get(&NamespacedName::new("", name))?.uid;
        Some(uid).filter(|uid| **uid != Uid::Absent)
    }

    /// Whether the namespace may hold hub and edge objects; false if that is unknown.
    pub(crate) fn is_hub_namespace(&self, name: &str) -> bool {
        !self.is_combined() || self.namespace(name).is_some_and(|namespace| namespace.is_hub)
    }

    /// Whether the namespace may hold upstream objects; false if that is unknown.
    pub(crate) fn is_upstream_namespace(&self, name: &str) -> bool {
        self.namespace(name).map_or(!self.is_combined(), |namespace| !namespace.is_hub)
    }

    pub(crate) fn allows_removals(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some_and(|namespace| namespace.allows_removals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_remembers_when_it_was_last_live() {
        let mut watch = Watch::default();
        watch.on_list_started(BTreeSet::new(), UnixMillis(1));
        watch.on_lost(UnixMillis(2));
        assert_eq!(watch.listed_since, None, "no list was ever complete");

        watch.on_live(UnixMillis(3));
        watch.on_lost(UnixMillis(5));
        watch.on_list_started(BTreeSet::new(), UnixMillis(6));
        assert_eq!(watch.live_since(), None);
        assert_eq!(watch.listed_since, Some(UnixMillis(3)));
        assert_eq!(watch.unknown_since, Some(UnixMillis(5)));

        watch.on_live(UnixMillis(9));
        assert_eq!(watch.live_since(), Some(UnixMillis(9)));
        assert_eq!(watch.unknown_since, None);
    }
}
