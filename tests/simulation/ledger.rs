//! What the requests show: the trace, and the oracle that reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use strum::VariantArray;
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use crate::oracle::{Oracle, object_of};
use crate::world::TRIGGER;

pub(crate) struct Ledger {
    pub(crate) oracle: Oracle,
    pub(crate) trace: String,
    pub(crate) started: Instant,
    /// The triggers that were stored.
    pub(crate) touches: u64,
    /// The trigger of each Gateway, as last seen after a request.
    pub(crate) triggers: BTreeMap<(ClusterName, NamespacedName), String>,
    /// The trigger of each Gateway before that one.
    pub(crate) earlier_triggers: BTreeMap<(ClusterName, NamespacedName), String>,
    pub(crate) histories: Histories,
}

impl Ledger {
    pub(crate) fn line(&mut self, text: &str) {
        let ms = self.started.elapsed().as_millis();
        self.trace.push_str(&format!("{ms:>7} {text}\n"));
    }

    /// Somebody overwrote a Gateway's trigger, and its number with it: an instance that starts now can't
    /// know what was written before.
    pub(crate) fn forget_trigger(
        &mut self,
        edge: &ClusterName,
        gateway: &NamespacedName,
        uid: &str,
    ) {
        self.triggers.remove(&(edge.clone(), gateway.clone()));
        self.oracle.triggers.remove(&(edge.clone(), uid.to_owned()));
    }

    /// The edge's objects have another history: what was written before does not count.
    pub(crate) fn forget_edge(&mut self, edge: &ClusterName) {
        self.triggers.retain(|(of, _), _| of != edge);
        self.oracle.triggers.retain(|(of, _), _| of != edge);
    }

    pub(crate) fn see(&mut self, audited: &AuditedRequest, clusters: &Mutex<SimClusters>) {
        let AuditedRequest { cluster, client, request, code, executed, .. } = audited;
        let body = String::from_utf8_lossy(request.body());
        let executed_text = if *executed { "" } else { " (not executed)" };
        self.line(&format!(
            "{client} {cluster} {} {} {code}{executed_text} {body}",
            request.method(),
            request.uri()
        ));
        let (resource, key) = object_of(request.uri().path());
        let kind = Kind::VARIANTS.iter().find(|kind| kind.plural() == resource);
        let object = |kind: &Kind| clusters.lock().unwrap().get(cluster, *kind, &key).cloned();
        let stored = kind.and_then(object);
        self.oracle.see(Instant::now(), audited, stored.is_some());
        self.histories.see(audited, clusters);
        if let Some(stored) = stored.filter(|_| *executed && resource == "gateways")
            && request.method() == "PATCH"
        {
            let value = stored.meta.annotations.get(TRIGGER).unwrap_or_default();
            let at = (cluster.clone(), key);
            let before = self.triggers.insert(at.clone(), value.to_owned());
            if before.as_deref() != Some(value) {
                self.touches += 1;
                self.earlier_triggers.extend(before.map(|before| (at, before)));
                self.oracle.trigger_stored(cluster, &stored.meta.uid, value);
            }
        }
    }
}

const TWO_LEASES: Duration = Duration::from_secs(30);

/// Who cannot know that a cluster was restored: a watch from before the restore that begins again once the
/// new history has grown past the old one. Its resourceVersion looks as good as any, no list shows a lower
/// one, and what the new history did until then is never seen. No client of Kubernetes can tell; etcd's
/// `--bump-revision` is there against it, and docs/explanation/orphans.md says what follows. A person who
/// restores a cluster without it restarts such an instance, and so does the simulation.
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
