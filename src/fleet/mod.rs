//! The clusters of a run, which join and leave while it runs.
//!
//! A `Fleet` starts the watches of a cluster that joins and cancels those of one that leaves. Each join
//! begins a *membership* with a new client, which the cluster's watches attach to their events. Events of
//! a cancelled watch may still be on the bus when its cluster has left, or has joined again under the
//! same name; the client identifies them.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::{ClusterClient, ConnectionSpec, Connections};
use crate::config::{ClusterConfig, Config, WatchConstants};
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::environment::here;
use crate::metrics::Metrics;
use crate::watch::{WatchMessage, WatchShared, WatchTask};

pub use table::ClusterTable;

/// A cluster that is about to join.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: ClusterName,
    pub(crate) roles: Vec<Role>,
    pub(crate) connection: ConnectionSpec,
    pub(crate) origin: Origin,
}

/// The origin of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The configuration file.
    Configured,
    Discovered,
}

impl From<&ClusterConfig> for Member {
    fn from(config: &ClusterConfig) -> Self {
        Self {
            name: config.name.clone(),
            roles: config.roles.clone(),
            connection: config.connection(),
            origin: Origin::Configured,
        }
    }
}

/// A cluster while it is in the run.
struct JoinedCluster {
    origin: Origin,
    watches: JoinSet<()>,
}

type KindsOf = Box<dyn Fn(&[Role]) -> Vec<Kind> + Send>;

/// The arguments for the watches of clusters that join.
struct Watching {
    kinds: KindsOf,
    shared: Arc<WatchShared>,
}

/// The clusters of a run, and their watches.
pub(crate) struct Fleet {
    table: ClusterTable,
    joined: BTreeMap<ClusterName, JoinedCluster>,
    /// `None` until the watches are started.
    watching: Option<Watching>,
    constants: WatchConstants,
    connections: Connections,
    metrics: Arc<Metrics>,
}

impl Fleet {
    /// The clusters of the configuration, without connections or watches.
    pub(crate) fn new(config: &Config, metrics: &Arc<Metrics>) -> Self {
        let mut fleet = Self {
            table: ClusterTable::default(),
            joined: BTreeMap::new(),
            watching: None,
            constants: config.constants.watch.clone(),
            connections: Connections::default(),
            metrics: metrics.clone(),
        };
        for cluster in &config.clusters {
            fleet.join(cluster.into());
        }
        fleet
    }

    /// The joined clusters, for readers.
    pub(crate) fn table(&self) -> &ClusterTable {
        &self.table
    }

    /// Starts a watch for each of the kinds that `kinds` returns for a cluster's roles, in each cluster
    /// that has joined or will join. They send to `bus`.
    pub(crate) fn start_watches(
        &mut self,
        kinds: impl Fn(&[Role]) -> Vec<Kind> + Send + 'static,
        bus: mpsc::Sender<WatchMessage>,
    ) {
        let shared = Arc::new(WatchShared::new(self.constants.clone(), bus));
        self.watching = Some(Watching { kinds: Box::new(kinds), shared });
        self.tell_size();
        for cluster in self.table.all() {
            self.watch(&cluster);
        }
    }

    fn tell_size(&self) {
        self.metrics.set_clusters(self.joined.len());
        if let Some(watching) = &self.watching {
            watching.shared.set_clusters(self.joined.len());
        }
    }

    /// The watches of the joined clusters.
    pub(crate) fn watched_kinds(&self) -> BTreeSet<(ClusterName, Kind)> {
        let Some(watching) = &self.watching else { return BTreeSet::new() };
        let of = |c: Arc<ClusterClient>| {
            let kinds = (watching.kinds)(c.roles()).into_iter();
            kinds.map(move |kind| (c.name().clone(), kind)).collect::<Vec<_>>()
        };
        self.table.all().into_iter().flat_map(of).collect()
    }

    /// Adds a cluster, and starts its watches if those of the others have started. A cluster of the
    /// same name must have left.
    pub(crate) fn join(&mut self, member: Member) -> Arc<ClusterClient> {
        let Member { name, roles, connection, origin } = member;
        let joined = JoinedCluster { origin, watches: JoinSet::new() };
        self.joined.insert(name.clone(), joined);
        self.tell_size();
        let connections = &self.connections;
        let metrics = self.metrics.clone();
        let cluster = ClusterClient::new(name, roles, connection, connections, metrics);
        let cluster = Arc::new(cluster);
        if origin == Origin::Discovered {
            self.metrics.set_discovered(cluster.name());
        }
        self.table.insert(cluster.clone());
        self.watch(&cluster);
        cluster
    }

    fn watch(&mut self, cluster: &Arc<ClusterClient>) {
        let Some(Watching { kinds, shared }) = &self.watching else { return };
        let Some(joined) = self.joined.get_mut(cluster.name()) else { return };
        debug_assert!(joined.watches.is_empty(), "{} is watched twice", cluster.name());
        for kind in kinds(cluster.roles()) {
            let watch = WatchTask::new(cluster.clone(), kind, shared.clone(), &self.metrics);
            joined.watches.spawn(here(watch.run()));
        }
    }

    /// Removes a cluster: cancels its watches and ignores their earlier events. Returns whether it was
    /// joined.
    pub(crate) fn leave(&mut self, name: &ClusterName) -> bool {
        self.table.remove(name);
        let was_joined = self.joined.remove(name).is_some();
        if was_joined {
            self.tell_size();
        }
        was_joined
    }

    /// Gives a joined cluster other credentials or another address. Its watches and state remain if the
    /// address does.
    pub(crate) fn replace(&mut self, name: &ClusterName, connection: ConnectionSpec) {
        if let Some(cluster) = self.table.get(name) {
            cluster.replace(connection);
        }
    }

    /// The origin of a cluster; `None` if it is not joined.
    pub(crate) fn origin(&self, name: &ClusterName) -> Option<Origin> {
        self.joined.get(name).map(|joined| joined.origin)
    }

    pub(crate) fn len(&self) -> usize {
        self.joined.len()
    }

    /// The joined clusters of the configuration file.
    pub(crate) fn configured(&self) -> Vec<Arc<ClusterClient>> {
        let mut clusters = self.table.all();
        clusters.retain(|cluster| self.origin(cluster.name()) == Some(Origin::Configured));
        clusters
    }

    /// Connections that clusters share.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether the message's membership is still current.
    pub(crate) fn is_current(&self, message: &WatchMessage) -> bool {
        let current = self.table.get(message.cluster.name());
        current.is_some_and(|cluster| Arc::ptr_eq(&cluster, &message.cluster))
    }

    /// Cancels all watches.
    pub(crate) fn stop(&mut self) {
        for joined in self.joined.values_mut() {
            joined.watches.abort_all();
        }
        self.watching = None;
    }
}
