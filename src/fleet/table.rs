//! The clusters of a run, for everyone who only asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::client::ClusterClient;
use crate::core::data::ids::ClusterName;

/// The clusters that are joined now, by name. Clones share the table; only `Fleet`
/// changes the one of a run.
#[derive(Clone, Default)]
pub struct ClusterTable(Arc<RwLock<BTreeMap<ClusterName, Arc<ClusterClient>>>>);

impl ClusterTable {
    /// `None` for a cluster that never joined, or has left.
    pub fn get(&self, name: &ClusterName) -> Option<Arc<ClusterClient>> {
        self.read(|clusters| clusters.get(name).cloned())
    }

    /// Whether the cluster is joined.
    pub fn contains(&self, name: &ClusterName) -> bool {
        self.read(|clusters| clusters.contains_key(name))
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<ClusterClient>> {
        self.read(|clusters| clusters.values().cloned().collect())
    }

    pub(super) fn insert(&self, cluster: Arc<ClusterClient>) {
        let name = cluster.name().clone();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name, cluster);
    }

    pub(super) fn remove(&self, name: &ClusterName) -> Option<Arc<ClusterClient>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    fn read<T>(&self, of: impl FnOnce(&BTreeMap<ClusterName, Arc<ClusterClient>>) -> T) -> T {
        of(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FromIterator<(ClusterName, Arc<ClusterClient>)> for ClusterTable {
    fn from_iter<I: IntoIterator<Item = (ClusterName, Arc<ClusterClient>)>>(clusters: I) -> Self {
        Self(Arc::new(RwLock::new(clusters.into_iter().collect())))
    }
}

impl<const N: usize> From<[(ClusterName, Arc<ClusterClient>); N]> for ClusterTable {
    fn from(clusters: [(ClusterName, Arc<ClusterClient>); N]) -> Self {
        clusters.into_iter().collect()
    }
}

impl fmt::Debug for ClusterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|clusters| f.debug_set().entries(clusters.keys()).finish())
    }
}
