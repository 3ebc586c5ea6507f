//! What is known of a cluster itself: its roles, which of its watches are live, its namespaces.

use serde::{Deserialize, Serialize};

use super::ids::{ClusterName, Kind, Map, Role, Sym, Uid};
use super::time::UnixMillis;

/// Whether what a watch showed can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Watch {
    /// Nothing was ever listed.
    #[default]
    Never,
    /// A list runs; absence means nothing yet.
    Listing,
    /// Listed in full, and followed since.
    Live,
    /// Broken: what it showed is unknown, not empty.
    Lost,
}

/// A namespace as far as it matters.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) uid: Uid,
    /// It holds replicas and is never a source.
    pub(crate) replica: bool,
    pub(crate) seen: u32,
}

/// A configured cluster.
pub(crate) struct Cluster {
    pub(crate) name: ClusterName,
    pub(crate) sym: Sym,
    upstream: bool,
    downstream: bool,
    edge: bool,
    watches: [Watch; 5],
    live_since: [UnixMillis; 5],
    /// When something came last of upstream's Gateways, if only a bookmark.
    heard_at: UnixMillis,
    /// Counts the lists of each kind; objects remember the last that brought them.
    lists: [u32; 5],
    pub(crate) namespaces: Map<Sym, Namespace>,
    /// In a cluster that is both source and replica: what is in each namespace, so that a
    /// namespace that turns out to be the one or the other can be looked at anew.
    pub(crate) members: Map<Sym, std::collections::BTreeSet<(Kind, Sym)>>,
}

impl Cluster {
    pub(crate) fn new(name: ClusterName, sym: Sym, roles: &[Role]) -> Self {
        Self {
            name,
            sym,
            upstream: roles.contains(&Role::Upstream),
            downstream: roles.contains(&Role::Downstream),
            edge: roles.contains(&Role::Edge),
            watches: Default::default(),
            live_since: Default::default(),
            heard_at: UnixMillis(0),
            lists: Default::default(),
            namespaces: Map::default(),
            members: Map::default(),
        }
    }

    pub(crate) fn has(&self, role: Role) -> bool {
        match role {
            Role::Upstream => self.upstream,
            Role::Downstream => self.downstream,
            Role::Edge => self.edge,
        }
    }

    /// Sources and replicas live side by side; only their namespaces tell them apart.
    pub(crate) fn is_combined(&self) -> bool {
        self.upstream && (self.downstream || self.edge)
    }

    pub(crate) fn is_live(&self, kind: Kind) -> bool {
        self.watches[kind.index()] == Watch::Live
            && (!self.is_combined() || self.watches[Kind::Namespace.index()] == Watch::Live)
    }

    /// Since when [`Cluster::is_live`] holds.
    pub(crate) fn live_since(&self, kind: Kind) -> UnixMillis {
        let namespaces = if self.is_combined() {
            self.live_since[Kind::Namespace.index()]
        } else {
            UnixMillis(0)
        };
        self.live_since[kind.index()].max(namespaces)
    }

    /// When something came last of its Gateways.
    pub(crate) fn heard_at(&self) -> UnixMillis {
        self.heard_at
    }

    /// Something of its Gateways came: when something did before.
    pub(crate) fn heard(&mut self, now: UnixMillis) -> UnixMillis {
        std::mem::replace(&mut self.heard_at, now)
    }

    pub(crate) fn watch(&self, kind: Kind) -> Watch {
        self.watches[kind.index()]
    }

    pub(crate) fn set_watch(&mut self, kind: Kind, watch: Watch, now: UnixMillis) {
        self.watches[kind.index()] = watch;
        if kind == Kind::Gateway && watch == Watch::Live {
            self.heard_at = now;
        }
        match watch {
            Watch::Listing => self.lists[kind.index()] += 1,
            Watch::Live => self.live_since[kind.index()] = now,
            Watch::Never | Watch::Lost => {}
        }
    }

    /// The number of the latest list of `kind`.
    pub(crate) fn list(&self, kind: Kind) -> u32 {
        self.lists[kind.index()]
    }

    /// Whether `ns` may hold sources; `None` when that can't be told yet.
    pub(crate) fn is_source_namespace(&self, ns: Sym) -> Option<bool> {
        match self.namespaces.get(&ns) {
            Some(namespace) => Some(!namespace.replica),
            None if self.is_combined() => None,
            None => Some(true),
        }
    }

    /// Whether `ns` may hold replicas, and gateways to touch; `None` when that can't be told yet.
    pub(crate) fn is_replica_namespace(&self, ns: Sym) -> Option<bool> {
        if !self.is_combined() {
            return Some(true);
        }
        self.namespaces.get(&ns).map(|namespace| namespace.replica)
    }
}
