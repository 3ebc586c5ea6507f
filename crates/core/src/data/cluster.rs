//! One cluster: its roles, the state of its watches, and its namespaces.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::data::ids::{ClusterName, Kind, Role, Uid};

use crate::data::interner::{Key, Names, Sym};

use crate::data::map::Map;
use crate::data::per_kind::PerKind;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};

/// Whether the machine can trust what a watch shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchState {
    /// No list has begun.
    #[default]
    Never,
    /// A list is in progress; absence means nothing yet.
    Listing,
    /// Fully listed, and followed since.
    Live,
    /// Broken: what it showed is unknown, not absent.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) uid: Uid,
    /// It holds hub or edge objects and never upstream ones, as its name or its label says.
    pub(crate) is_hub: bool,
    /// A person agreed that the hub Connectors in it may lose their status annotation.
    pub(crate) allows_removals: bool,
    pub(crate) listed_in: u32,
}

/// Whether a hub namespace belongs to the upstream namespace that the labels in it name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceIdentity {
    Agrees,
    Disagrees,
    /// The upstream namespace, or its uid, is not known.
    Unknown,
}

#[derive(Clone, Default)]
struct WatchRecord {
    state: WatchState,
    live_since: UnixMillis,
    /// While it is not live: since when; `None` if it never was.
    unknown_since: Option<UnixMillis>,
    /// Counts the lists. Objects remember the last list that contained them.
    lists: u32,
    /// Objects that exist and can't be read. An object without a readable name has an empty key.
    unreadable: BTreeSet<Key>,
}

/// A configured cluster.
pub(crate) struct ClusterState {
    pub(crate) name: ClusterName,
    pub(crate) sym: Sym,
    upstream: bool,
    hub: bool,
    edge: bool,
    watches: PerKind<WatchRecord>,
    /// When the watch of an upstream cluster's Gateways last showed a sign of life; a bookmark
    /// counts.
    last_activity_at: UnixMillis,
    pub(crate) namespaces: Map<Sym, Namespace>,
    /// In a combined cluster: the objects of each namespace, so that they can be evaluated again
    /// once the namespace's tier is known.
    pub(crate) members: Map<Sym, BTreeSet<(Kind, Sym)>>,
}

impl HoldsNames for Namespace {
    fn mark(&self, _: &mut UsedNames) {
        let Self { uid: _, is_hub: _, allows_removals: _, listed_in: _ } = self;
    }
}

impl HoldsNames for WatchRecord {
    fn mark(&self, used: &mut UsedNames) {
        let Self { state: _, live_since: _, unknown_since: _, lists: _, unreadable } = self;
        unreadable.mark(used);
    }
}

impl HoldsNames for ClusterState {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            name: _,
            sym,
            upstream: _,
            hub: _,
            edge: _,
            watches,
            last_activity_at: _,
            namespaces,
            members,
        } = self;
        sym.mark(used);
        watches.values().for_each(|watch| watch.mark(used));
        namespaces.mark(used);
        members.mark(used);
    }
}

impl ClusterState {
    pub(crate) fn new(name: ClusterName, sym: Sym, roles: &[Role]) -> Self {
        Self {
            name,
            sym,
            upstream: roles.contains(&Role::Upstream),
            hub: roles.contains(&Role::Hub),
            edge: roles.contains(&Role::Edge),
            watches: PerKind::default(),
            last_activity_at: UnixMillis(0),
            namespaces: Map::default(),
            members: Map::default(),
        }
    }

    pub(crate) fn has(&self, role: Role) -> bool {
        match role {
            Role::Upstream => self.upstream,
            Role::Hub => self.hub,
            Role::Edge => self.edge,
        }
    }

    /// Whether it holds upstream objects beside hub or edge objects, so that only the namespaces
    /// tell them apart.
    pub(crate) fn is_combined(&self) -> bool {
        self.upstream && (self.hub || self.edge)
    }

    pub(crate) fn is_live(&self, kind: Kind) -> bool {
        let is_live = |kind: Kind| self.watches[kind].state == WatchState::Live;
        is_live(kind) && (!self.is_combined() || is_live(Kind::Namespace))
    }

    /// Since when [`ClusterState::is_live`] holds.
    pub(crate) fn live_since(&self, kind: Kind) -> UnixMillis {
        let since = self.watches[kind].live_since;
        if self.is_combined() { since.max(self.watches[Kind::Namespace].live_since) } else { since }
    }

    /// Since when a watch that was live is not.
    pub(crate) fn unknown_since(&self, kind: Kind) -> Option<UnixMillis> {
        self.watches[kind].unknown_since
    }

    /// Whether a list of `kind` was ever complete.
    pub(crate) fn was_listed(&self, kind: Kind) -> bool {
        self.watches[kind].live_since > UnixMillis(0)
    }

    pub(crate) fn last_activity_at(&self) -> UnixMillis {
        self.last_activity_at
    }

    /// Records a sign of life of the Gateway watch; returns the time of the one before.
    pub(crate) fn record_activity(&mut self, now: UnixMillis) -> UnixMillis {
        std::mem::replace(&mut self.last_activity_at, now)
    }

    pub(crate) fn watch(&self, kind: Kind) -> WatchState {
        self.watches[kind].state
    }

    pub(crate) fn set_watch(&mut self, kind: Kind, state: WatchState, now: UnixMillis) {
        let watch = &mut self.watches[kind];
        let was_live = std::mem::replace(&mut watch.state, state) == WatchState::Live;
        match state {
            WatchState::Live => watch.unknown_since = None,
            _ if was_live => watch.unknown_since = Some(now),
            _ => {}
        }
        match state {
            WatchState::Listing => {
                watch.lists += 1;
                watch.unreadable.clear();
            }
            WatchState::Live => watch.live_since = now,
            WatchState::Never | WatchState::Lost => {}
        }
        if kind == Kind::Gateway && state == WatchState::Live {
            self.last_activity_at = now;
        }
    }

    pub(crate) fn set_unreadable(&mut self, kind: Kind, key: Key) {
        self.watches[kind].unreadable.insert(key);
    }

    /// Returns whether it was the last one of its kind that could not be read.
    pub(crate) fn set_readable(&mut self, kind: Kind, key: Key) -> bool {
        let unreadable = &mut self.watches[kind].unreadable;
        !unreadable.is_empty() && unreadable.remove(&key) && unreadable.is_empty()
    }

    /// How many objects of a kind exist that can't be read.
    pub(crate) fn unreadable(&self, kind: Kind) -> usize {
        self.watches[kind].unreadable.len()
    }

    /// Whether an object of `kind` that is not in the tables does not exist.
    pub(crate) fn proves_absence(&self, kind: Kind) -> bool {
        self.is_live(kind) && self.watches[kind].unreadable.is_empty()
    }

    /// The number of the latest list of `kind`.
    pub(crate) fn list(&self, kind: Kind) -> u32 {
        self.watches[kind].lists
    }

    /// Whether `ns` may hold upstream objects; `false` also while that is unknown.
    pub(crate) fn is_upstream_namespace(&self, ns: Sym) -> bool {
        self.namespaces.get(&ns).map_or(!self.is_combined(), |namespace| !namespace.is_hub)
    }

    /// Whether a person agreed that hub Connectors in `ns` may lose their status annotation.
    pub(crate) fn allows_removals(&self, ns: Sym) -> bool {
        self.namespaces.get(&ns).is_some_and(|namespace| namespace.allows_removals)
    }

    /// Whether `ns` may hold hub Connectors and Gateways to touch; `false` also while that is unknown.
    pub(crate) fn is_hub_namespace(&self, ns: Sym) -> bool {
        !self.is_combined() || self.namespaces.get(&ns).is_some_and(|namespace| namespace.is_hub)
    }

    /// Whether `hub_ns` is the hub's namespace for `upstream_ns` of this cluster. Its name is
    /// `ns-<uid of the upstream namespace>`.
    pub(crate) fn namespace_identity(
        &self,
        names: &Names,
        hub_ns: Sym,
        upstream_ns: Sym,
    ) -> NamespaceIdentity {
        let uid = self.namespaces.get(&upstream_ns).and_then(|namespace| namespace.uid.text());
        match (uid, names.text(hub_ns).strip_prefix("ns-")) {
            (None, _) => NamespaceIdentity::Unknown,
            (Some(uid), Some(suffix)) if suffix == uid => NamespaceIdentity::Agrees,
            (Some(_), _) => NamespaceIdentity::Disagrees,
        }
    }
}
