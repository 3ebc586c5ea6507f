//! The clusters of a run, for readers.

use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;

use crate::client::ClusterClient;
use crate::core::data::ids::ClusterName;

/// A power of two. Only the loop writes, and readers hold a shard only to clone an `Arc`.
const SHARDS: usize = 4;

/// The joined clusters, by name. Clones share the table; only `Fleet` changes the table of a run.
///
/// No method returns a guard or calls back, so no caller can hold a shard across an await or lock a
/// second one.
#[derive(Clone)]
pub struct ClusterTable(Arc<DashMap<ClusterName, Arc<ClusterClient>>>);

impl ClusterTable {
    /// `None` for a cluster that never joined, or has left.
    pub fn get(&self, name: &ClusterName) -> Option<Arc<ClusterClient>> {
        self.0.get(name).map(|entry| entry.value().clone())
    }

    pub fn contains(&self, name: &ClusterName) -> bool {
        self.0.contains_key(name)
    }

    /// All clusters, sorted by name because the order of the shards must not affect any output.
    pub(crate) fn all(&self) -> Vec<Arc<ClusterClient>> {
        let mut clusters: Vec<_> = self.0.iter().map(|entry| entry.value().clone()).collect();
        clusters.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        clusters
    }

    pub(super) fn insert(&self, cluster: Arc<ClusterClient>) {
        self.0.insert(cluster.name().clone(), cluster);
    }

    pub(super) fn remove(&self, name: &ClusterName) {
        self.0.remove(name);
    }
}

impl Default for ClusterTable {
    fn default() -> Self {
        Self(Arc::new(DashMap::with_shard_amount(SHARDS)))
    }
}

impl FromIterator<Arc<ClusterClient>> for ClusterTable {
    fn from_iter<I: IntoIterator<Item = Arc<ClusterClient>>>(clusters: I) -> Self {
        let table = Self::default();
        clusters.into_iter().for_each(|cluster| table.insert(cluster));
        table
    }
}

impl fmt::Debug for ClusterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clusters = self.all();
        f.debug_set().entries(clusters.iter().map(|cluster| cluster.name())).finish()
    }
}
