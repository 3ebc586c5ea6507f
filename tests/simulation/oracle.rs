//! What must hold at every moment, whatever fails. It reads the API servers' requests and knows nothing
//! of the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;
use throughline::core::data::ids::ClusterName;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use crate::world::TRIGGER;

const NUDGE: &str = "networking.datumapis.com/upstream-status-nudge";
/// The bounds of "no single mistake harms many".
const REMOVALS_PER_MINUTE: usize = 10;
const DELETES_PER_MINUTE: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// A write that changed something, or may have.
#[derive(Clone, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) at: Instant,
    pub(crate) client: u32,
    pub(crate) cluster: &'a ClusterName,
    pub(crate) is_hub: bool,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a Value,
}

#[derive(Default)]
pub(crate) struct Oracle {
    hub: Option<ClusterName>,
    /// Who holds the Lease, and the number of this tenure.
    holder: Option<(String, u64)>,
    /// The tenure in which each instance last acquired the Lease.
    tenures: BTreeMap<u32, u64>,
    /// The latest tenure in which something was written.
    written_in: u64,
    removals: VecDeque<Instant>,
    deletes: VecDeque<Instant>,
    /// Each trigger value that was written, for each Gateway, and who wrote it first.
    triggers: BTreeMap<(ClusterName, String), BTreeSet<String>>,
    pub(crate) writes: u64,
    pub(crate) last_write: Option<Instant>,
    pub(crate) broken: Vec<String>,
}

impl Oracle {
    pub(crate) fn new(hub: &ClusterName) -> Self {
        Self { hub: Some(hub.clone()), ..Self::default() }
    }

    /// Looks at a request that an API server answered.
    pub(crate) fn see(&mut self, audited: &AuditedRequest) {
        let method = audited.request.method().as_str();
        if method == "GET" || !audited.executed {
            return;
        }
        let body = serde_json::from_slice(audited.request.body()).unwrap_or(Value::Null);
        let write = Write {
            at: Instant::now(),
            client: audited.client,
            cluster: &audited.cluster,
            is_hub: self.hub.as_ref() == Some(&audited.cluster),
            method,
            path: audited.request.uri().path(),
            body: &body,
        };
        self.judge(&write);
    }

    pub(crate) fn judge(&mut self, write: &Write<'_>) {
        let parts: Vec<_> = write.path.split('/').collect();
        let resource = resource(&parts);
        match (resource, write.method) {
            ("leases", _) => return self.lease(write),
            ("events", "POST" | "PATCH") => return,
            ("connectors", "PATCH") if write.is_hub => self.hub_connector(write),
            ("gateways", "PATCH") if !write.is_hub => self.gateway(write),
            ("httproutes", "DELETE") if write.is_hub => {
                self.leader_only(write);
                self.count(write, true);
            }
            _ => self.broke(write, "is outside the contract"),
        }
        self.writes += 1;
        self.last_write = Some(write.at);
    }

    fn broke(&mut self, write: &Write<'_>, how: &str) {
        let Write { client, method, path, body, cluster, .. } = write;
        self.broken.push(format!("instance {client}: {method} {path} in {cluster} {how}: {body}"));
    }

    fn lease(&mut self, write: &Write<'_>) {
        let holder = write.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if holder.is_empty() {
            self.holder = None;
        } else if self.holder.as_ref().is_none_or(|(is, _)| is != holder) {
            let tenure = self.tenures.values().max().copied().unwrap_or_default() + 1;
            self.holder = Some((holder.to_owned(), tenure));
            self.tenures.insert(write.client, tenure);
        }
    }

    /// Somebody else wrote the Lease.
    pub(crate) fn lease_edited(&mut self) {
        self.holder = None;
    }

    /// Once an instance has written in its tenure, none writes in an earlier one.
    fn leader_only(&mut self, write: &Write<'_>) {
        let Some(&tenure) = self.tenures.get(&write.client) else {
            return self.broke(write, "without ever having held the Lease");
        };
        if tenure < self.written_in {
            self.broke(write, "after another instance led and wrote");
        }
        self.written_in = self.written_in.max(tenure);
    }

    fn hub_connector(&mut self, write: &Write<'_>) {
        self.leader_only(write);
        let Some(annotations) = annotations(write.body) else {
            return self.broke(write, "is outside the contract");
        };
        if annotations.keys().any(|key| key != UPSTREAM_STATUS && key != NUDGE) {
            self.broke(write, "writes another annotation");
        }
        if annotations.get(UPSTREAM_STATUS).is_some_and(Value::is_null) {
            self.count(write, false);
        }
    }

    fn gateway(&mut self, write: &Write<'_>) {
        let Some(annotations) = annotations(write.body) else {
            return self.broke(write, "is outside the contract");
        };
        if annotations.keys().any(|key| key != TRIGGER) {
            self.broke(write, "writes another annotation");
        }
        let value = annotations.get(TRIGGER).and_then(Value::as_str).unwrap_or_default();
        if value.split('-').count() != 3 {
            self.broke(write, "writes no trigger");
        }
    }

    /// A trigger was stored that was not there before: by the change, not by a request for it.
    pub(crate) fn trigger_stored(&mut self, cluster: &ClusterName, uid: &str, value: &str) {
        let values = self.triggers.entry((cluster.clone(), uid.to_owned())).or_default();
        if !values.insert(value.to_owned()) {
            self.broken.push(format!("{cluster}: {uid} has the trigger {value} again"));
        }
    }

    /// A Gateway's history is lost.
    pub(crate) fn forget_gateway(&mut self, edge: &ClusterName, uid: &str) {
        self.triggers.remove(&(edge.clone(), uid.to_owned()));
    }

    /// An edge was restored from a backup.
    pub(crate) fn forget_edge(&mut self, edge: &ClusterName) {
        self.triggers.retain(|(of, _), _| of != edge);
    }

    fn count(&mut self, write: &Write<'_>, is_delete: bool) {
        let (times, most, what) = match is_delete {
            true => (&mut self.deletes, DELETES_PER_MINUTE, "deletes"),
            false => (&mut self.removals, REMOVALS_PER_MINUTE, "removals"),
        };
        times.push_back(write.at);
        while times.front().is_some_and(|at| write.at.duration_since(*at) > MINUTE) {
            times.pop_front();
        }
        if times.len() > most {
            let how = format!("is one of {} {what} within a minute", times.len());
            self.broke(write, &how);
        }
    }
}

fn resource<'a>(parts: &[&'a str]) -> &'a str {
    let at = parts.iter().position(|part| *part == "namespaces");
    at.and_then(|at| parts.get(at + 2)).copied().unwrap_or_default()
}

/// The annotations that a patch writes; `None` if it changes anything else.
fn annotations(body: &Value) -> Option<BTreeMap<String, Value>> {
    if let Some(operations) = body.as_array() {
        return json_patch(operations);
    }
    let patch = body.as_object()?;
    let metadata = patch.get("metadata")?.as_object()?;
    let is_allowed =
        |key: &String| matches!(key.as_str(), "annotations" | "uid" | "resourceVersion");
    let is_contract = patch.keys().all(|key| key == "metadata") && metadata.keys().all(is_allowed);
    let annotations = metadata.get("annotations").filter(|_| is_contract)?.as_object()?;
    Some(annotations.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn json_patch(operations: &[Value]) -> Option<BTreeMap<String, Value>> {
    let mut written = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation["op"] != "test") {
        let path = operation["path"].as_str()?.strip_prefix("/metadata/annotations")?;
        match path.strip_prefix('/') {
            None => written.extend(operation["value"].as_object()?.clone()),
            Some(key) => {
                let key = key.replace("~1", "/").replace("~0", "~");
                drop(written.insert(key, operation["value"].clone()));
            }
        }
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HUB_CONNECTOR: &str = "/apis/networking.datumapis.com/v1alpha1/namespaces/n/connectors/c";
    const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/gateways/g";
    const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/httproutes/r";
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/throughline";

    struct Trace(Oracle);

    impl Trace {
        fn new() -> Self {
            Self(Oracle::new(&ClusterName::from("hub")))
        }

        fn write(mut self, client: u32, method: &str, path: &str, body: &Value) -> Self {
            let is_hub = path != GATEWAY;
            let cluster = &ClusterName::from(if is_hub { "hub" } else { "edge" });
            let at = Instant::now();
            self.0.judge(&Write { at, client, cluster, is_hub, method, path, body });
            self
        }

        fn holds_lease(self, client: u32) -> Self {
            let body = json!({ "spec": { "holderIdentity": format!("instance-{client}") } });
            self.write(client, "PUT", LEASE, &body)
        }

        fn mirrors(self, client: u32, value: Value) -> Self {
            let body = json!({ "metadata": { "annotations": { UPSTREAM_STATUS: value } } });
            self.write(client, "PATCH", HUB_CONNECTOR, &body)
        }

        #[track_caller]
        fn assert_right(self) -> Self {
            assert_eq!(self.0.broken, Vec::<String>::new());
            self
        }

        #[track_caller]
        fn assert_broken(self, how: &str) {
            assert_eq!(self.0.broken.len(), 1, "{:?}", self.0.broken);
            assert!(self.0.broken[0].contains(how), "{:?}", self.0.broken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_mirror_without_the_lease_is_rejected() {
        Trace::new().mirrors(1, json!("{}")).assert_broken("without ever having held the Lease");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_after_another_instance_led_and_wrote_is_rejected() {
        let trace = Trace::new().holds_lease(1).mirrors(1, json!("{}")).holds_lease(1);
        let trace =
            trace.mirrors(1, json!("1")).holds_lease(2).mirrors(2, json!("2")).assert_right();
        trace.mirrors(1, json!("3")).assert_broken("after another instance led and wrote");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_outside_the_contract_are_rejected() {
        let leads = || Trace::new().holds_lease(1);
        let annotated = |key: &str| json!({ "metadata": { "annotations": { key: "x" } } });
        leads()
            .write(1, "PATCH", HUB_CONNECTOR, &annotated("karmada.io/x"))
            .assert_broken("another annotation");
        leads()
            .write(1, "PATCH", HUB_CONNECTOR, &json!({ "spec": {} }))
            .assert_broken("outside the contract");
        leads()
            .write(1, "DELETE", HUB_CONNECTOR, &Value::Null)
            .assert_broken("outside the contract");
        leads().write(1, "POST", ROUTE, &json!({})).assert_broken("outside the contract");
        let escaped = "/metadata/annotations/networking.datumapis.com~1other";
        let operations = json!([{ "op": "add", "path": escaped, "value": "x" }]);
        leads().write(1, "PATCH", HUB_CONNECTOR, &operations).assert_broken("another annotation");
        leads().write(1, "PATCH", GATEWAY, &annotated(TRIGGER)).assert_broken("writes no trigger");
        let trigger = json!({ "metadata": { "annotations": { TRIGGER: "0-1-0" } } });
        Trace::new().write(7, "PATCH", GATEWAY, &trigger).assert_right();
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_ten_removals_or_deletes_a_minute_are_rejected() {
        let mut trace = Trace::new().holds_lease(1);
        for _ in 0..10 {
            trace = trace.mirrors(1, Value::Null).write(1, "DELETE", ROUTE, &Value::Null);
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        for _ in 0..10 {
            trace = trace.mirrors(1, Value::Null).write(1, "DELETE", ROUTE, &Value::Null);
        }
        let Trace(mut oracle) = trace.assert_right();
        let body = Value::Null;
        let cluster = &ClusterName::from("hub");
        let at = Instant::now();
        oracle.judge(&Write {
            at,
            client: 1,
            cluster,
            is_hub: true,
            method: "DELETE",
            path: ROUTE,
            body: &body,
        });
        assert_eq!(oracle.broken.len(), 1, "{:?}", oracle.broken);
        Trace(Oracle { broken: Vec::new(), ..oracle })
            .mirrors(1, Value::Null)
            .assert_broken("11 removals within a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_that_comes_back_is_rejected() {
        let mut oracle = Oracle::new(&ClusterName::from("hub"));
        let edge = ClusterName::from("edge");
        for (gateway, value) in [("g", "1-1-0"), ("g", "1-2-1"), ("h", "1-1-0")] {
            oracle.trigger_stored(&edge, gateway, value);
        }
        assert_eq!(oracle.broken, Vec::<String>::new());
        oracle.trigger_stored(&edge, "g", "1-1-0");
        assert_eq!(oracle.broken.len(), 1);
    }
}
