//! Who cannot know that a cluster was restored: a watch from before the restore that begins again once the
//! new history has grown past the old one. Its resourceVersion looks as good as any, no list shows a lower
//! one, and what the new history did until then is never seen. No client of Kubernetes can tell; etcd's
//! `--bump-revision` is there against it, and docs/explanation/orphans.md says what follows. A person who
//! restores a cluster without it restarts such an instance, and so does the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use throughline::core::data::ids::ClusterName;
use throughline_sim::SimClusters;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

const TWO_LEASES: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Histories {
    restored_at: BTreeMap<ClusterName, Instant>,
    /// When each instance last listed a kind.
    listed_at: BTreeMap<(u32, ClusterName, String), Instant>,
    /// The instances that missed a restore.
    pub(crate) deceived: BTreeSet<u32>,
}

impl Histories {
    pub(crate) fn restored(&mut self, cluster: &ClusterName) {
        self.restored_at.insert(cluster.clone(), Instant::now());
    }

    /// A hub that goes back to the same state again and again hides its leader's renewals: somebody
    /// "restores, to the byte, a record that its holder wrote earlier" (docs/explanation/leadership.md).
    pub(crate) fn was_restored_lately(&self, cluster: &ClusterName) -> bool {
        self.restored_at.get(cluster).is_some_and(|at| at.elapsed() < TWO_LEASES)
    }

    pub(crate) fn see(&mut self, audited: &AuditedRequest, clusters: &Mutex<SimClusters>) {
        let AuditedRequest { cluster, client, request, code, .. } = audited;
        let query = request.uri().query().unwrap_or_default();
        let has = |part: &str| query.split('&').any(|pair| pair == part);
        if request.method() != "GET" || *code != 200 || has("limit=1") {
            return;
        }
        let kind = (*client, cluster.clone(), request.uri().path().to_owned());
        if !has("watch=true") {
            self.listed_at.insert(kind, Instant::now());
            return;
        }
        let Some(restored_at) = self.restored_at.get(cluster) else { return };
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|from| from.parse().ok()).unwrap_or_default();
        let is_old = self.listed_at.get(&kind).is_none_or(|listed| listed <= restored_at);
        if is_old && from <= clusters.lock().unwrap().version(cluster) {
            self.deceived.insert(*client);
        }
    }
}
