//! What the requests show: the trace, and the oracle that reads it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use crate::histories::Histories;
use crate::oracle::Oracle;
use crate::orphans::RouteGuard;
use crate::world::TRIGGER;

/// What the requests show.
pub(crate) struct Ledger {
    pub(crate) oracle: Oracle,
    pub(crate) trace: String,
    pub(crate) started: Instant,
    /// The triggers that were stored.
    pub(crate) touches: u64,
    /// The trigger of each Gateway, as last seen after a request.
    pub(crate) triggers: BTreeMap<(ClusterName, ObjectKey), String>,
    /// The trigger of each Gateway before that one.
    pub(crate) earlier_triggers: BTreeMap<(ClusterName, ObjectKey), String>,
    pub(crate) routes: RouteGuard,
    pub(crate) histories: Histories,
}

impl Ledger {
    pub(crate) fn line(&mut self, text: &str) {
        let ms = self.started.elapsed().as_millis();
        self.trace.push_str(&format!("{ms:>7} {text}\n"));
    }

    /// Somebody overwrote a Gateway's trigger, and its number with it: an instance that starts now can't
    /// know what was written before.
    pub(crate) fn forget_trigger(&mut self, edge: &ClusterName, gateway: &ObjectKey, uid: &str) {
        self.triggers.remove(&(edge.clone(), gateway.clone()));
        self.oracle.forget_gateway(edge, uid);
    }

    /// The edge's objects have another history: what was written before does not count.
    pub(crate) fn forget_edge(&mut self, edge: &ClusterName) {
        self.triggers.retain(|(of, _), _| of != edge);
        self.oracle.forget_edge(edge);
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
        self.oracle.see(audited);
        self.oracle.broken.extend(self.routes.see(audited, clusters));
        self.histories.see(audited, clusters);
        let parts: Vec<_> = request.uri().path().split('/').collect();
        if let [.., "namespaces", namespace, "gateways", name] = parts[..]
            && *executed
            && request.method() == "PATCH"
        {
            let key = ObjectKey::new(namespace, name);
            let stored = clusters.lock().unwrap().get(cluster, Kind::Gateway, &key).cloned();
            let Some(stored) = stored else { return };
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
