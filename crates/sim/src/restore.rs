//! Restoring an etcd from a backup: objects and resourceVersion go backwards, and watches get no
//! notice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{SimCluster, SimClusters};
use throughline_core::data::ids::{ClusterName, NamespacedName};
use throughline_core::data::objects::Object;
use throughline_core::data::per_kind::PerKind;

/// A backup of one cluster. The default is that of a new one.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    objects: PerKind<BTreeMap<NamespacedName, Arc<Object>>>,
}

impl Default for Backup {
    fn default() -> Self {
        Self { version: 1, objects: PerKind::default() }
    }
}

impl SimClusters {
    /// All objects of the five kinds in the cluster; `None` if there is no such cluster.
    pub fn backup(&self, cluster: &ClusterName) -> Option<Backup> {
        let SimCluster { version, objects, .. } = self.clusters.get(cluster)?;
        Some(Backup { version: version.get(), objects: objects.clone() })
    }

    /// Restores an older state of a cluster. The caller must cut its watches, because API servers
    /// restart.
    pub fn restore(&mut self, name: &ClusterName, backup: &Backup) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let latest = cluster.version.get().max(cluster.undone_until.unwrap_or(0));
        cluster.undone_until = Some(latest);
        cluster.version.set(backup.version);
        cluster.objects = backup.objects.clone();
        if let Some(changes) = self.history_changes {
            cluster.keep_history(changes);
        }
        self.forget_carries(name);
    }
}
