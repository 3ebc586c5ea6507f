//! What must hold at every moment, whatever fails. It reads the API servers' requests and knows nothing
//! of the machine.

mod own_account;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;
use throughline::core::data::ids::{ClusterName, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use crate::world::TRIGGER;

const NUDGE: &str = "networking.datumapis.com/upstream-status-nudge";
/// The bounds of "no single mistake harms many".
const REMOVALS_PER_MINUTE: usize = 10;
const DELETES_PER_MINUTE: usize = 10;
/// An instance counts it by its own clock, which is up to 4 % fast.
const MINUTE: Duration = Duration::from_millis(57_600);
/// A Lease lasts so long after it was renewed.
const LEASE: Duration = Duration::from_secs(15);
/// The writes that an instance was at when it was stopped go out within this time after it goes on.
const THAWING: Duration = Duration::from_millis(20);
/// No cause lets an instance ask for one object more often than that.
const REQUESTS_MAX: usize = 150;
const REQUESTS_WITHIN: Duration = Duration::from_secs(10);

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

/// A Lease.
#[derive(Default)]
struct LeaseHistory {
    /// Who holds the Lease, and the number of this tenure.
    holder: Option<(String, u64)>,
    /// The tenure in which each instance last acquired the Lease.
    tenures: BTreeMap<u32, u64>,
    /// The latest tenure in which something was written.
    written_in: u64,
    /// When each instance's latest renewal was stored.
    renewed: BTreeMap<u32, Instant>,
}

#[derive(Default)]
pub(crate) struct Oracle {
    hub: Option<ClusterName>,
    leases: BTreeMap<String, LeaseHistory>,
    /// The Lease by which each instance elects, and how many shards it knows of.
    elects_by: BTreeMap<u32, (String, u16)>,
    /// The numbers of shards that may lead, one after the other, and which of them wrote last.
    pub(crate) numbers: Vec<u16>,
    number: usize,
    /// The Lease whose holders write each object, since this number of shards.
    keepers: BTreeMap<String, (u16, String)>,
    /// When each instance went on after it stood still.
    thawed: BTreeMap<u32, Vec<Instant>>,
    /// What each upstream Connector has said so far, by its key at the hub.
    said: BTreeMap<ObjectKey, Vec<Value>>,
    /// The latest requests of each instance to write each object.
    requests: BTreeMap<(u32, ClusterName, String), VecDeque<Instant>>,
    /// When an API server carried out the writes of each instance to each object.
    carried_out: BTreeMap<(u32, ClusterName, String), Vec<Instant>>,
    /// When an API server answered each instance's requests for (a page of) a list of a kind, and whether
    /// it gave it.
    listed: BTreeMap<(u32, ClusterName, String), Vec<(Instant, bool)>>,
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
        Self { hub: Some(hub.clone()), numbers: vec![1], ..Self::default() }
    }

    /// Looks at a request that an API server answered.
    pub(crate) fn see(&mut self, audited: &AuditedRequest) {
        let AuditedRequest { cluster, client, request, .. } = audited;
        let (at, client, method) = (Instant::now(), *client, request.method().as_str());
        if method == "GET" {
            return self.read(audited);
        }
        let (path, is_hub) = (request.uri().path(), self.hub.as_ref() == Some(cluster));
        let body = &serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        let write = Write { at, client, cluster, is_hub, method, path, body };
        self.asked(&write);
        match audited.executed {
            true => self.judge(&write),
            false if audited.is_repeat => {}
            false => self.tried(&write),
        }
    }

    /// A write that changed nothing was sent needlessly: only by an instance that may write.
    pub(crate) fn tried(&mut self, write: &Write<'_>) {
        if write.is_hub && is_leader_only(write.path) {
            self.leader_only(write, false);
        }
    }

    pub(crate) fn judge(&mut self, write: &Write<'_>) {
        if let Some((_, object)) = write.path.split_once("/namespaces/") {
            let key = (write.client, write.cluster.clone(), object.to_owned());
            self.carried_out.entry(key).or_default().push(write.at);
        }
        let parts: Vec<_> = write.path.split('/').collect();
        let resource = resource(&parts);
        match (resource, write.method) {
            ("leases", _) => return self.lease(write),
            ("events", "POST" | "PATCH") => return,
            ("connectors", "PATCH") if write.is_hub => self.hub_connector(write),
            ("gateways", "PATCH") if !write.is_hub => self.gateway(write),
            ("httproutes", "DELETE") if write.is_hub => {
                self.leader_only(write, true);
                self.guarded(write);
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

    /// An instance asks to write an object, with or without success.
    pub(crate) fn asked(&mut self, write: &Write<'_>) {
        let Write { client, cluster, path, .. } = *write;
        let key = (client, cluster.clone(), path.to_owned());
        let times = self.requests.entry(key).or_default();
        if count_within(times, write.at, REQUESTS_WITHIN) == REQUESTS_MAX + 1 {
            let seconds = REQUESTS_WITHIN.as_secs();
            self.broken.push(format!(
                "instance {client}: more than {REQUESTS_MAX} requests for {path} in {cluster} in {seconds} s"
            ));
        }
    }

    /// An upstream Connector says this from now on.
    pub(crate) fn upstream_says(&mut self, at_hub: &ObjectKey, status: &Value) {
        let said = self.said.entry(at_hub.clone()).or_default();
        if said.last() != Some(status) {
            said.push(status.clone());
        }
    }

    fn lease(&mut self, write: &Write<'_>) {
        let created = write.body["metadata"]["name"].as_str().filter(|_| write.method == "POST");
        let name = created.or(write.path.rsplit('/').next()).unwrap_or_default();
        let holder = write.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let shard = holder.rsplit_once('/').and_then(|(_, shard)| shard.split_once("-of-"));
        let (index, of) = shard.unwrap_or(("0", "1"));
        let of: u16 = of.parse().unwrap_or_default();
        let own = match index {
            "0" => "throughline".to_owned(),
            index => format!("throughline-{index}-of-{of}"),
        };
        let is_known = self.numbers.contains(&of) && name == own;
        if !holder.is_empty() {
            if !is_known {
                return self.broke(write, "is another Lease");
            }
            self.elects_by.insert(write.client, (own, of));
        }
        let lease = self.leases.entry(name.to_owned()).or_default();
        if holder.is_empty() {
            lease.holder = None;
        } else if lease.holder.as_ref().is_none_or(|(is, _)| is != holder) {
            let tenure = lease.tenures.values().max().copied().unwrap_or_default() + 1;
            lease.holder = Some((holder.to_owned(), tenure));
            lease.tenures.insert(write.client, tenure);
        }
        // One who releases the Lease has no write under way any more.
        match holder.is_empty() {
            true => _ = lease.renewed.remove(&write.client),
            false => _ = lease.renewed.insert(write.client, write.at),
        }
    }

    /// Somebody else wrote the Lease.
    pub(crate) fn lease_edited(&mut self) {
        self.leases.values_mut().for_each(|lease| lease.holder = None);
    }

    /// Each object is written by the holders of one Lease, and one number of shards after the other.
    fn kept(&mut self, write: &Write<'_>) {
        let Some((lease, of)) = self.elects_by.get(&write.client).cloned() else { return };
        let keeper = self.keepers.entry(write.path.to_owned()).or_insert((of, lease.clone()));
        if keeper.0 != of {
            *keeper = (of, lease.clone());
        }
        if keeper.1 != lease {
            let how = format!("is written by {lease}, and before by {}", keeper.1);
            return self.broke(write, &how);
        }
        match self.numbers.iter().skip(self.number).position(|number| *number == of) {
            Some(later) => self.number += later,
            None => self.broke(write, "after another number of shards wrote"),
        }
    }

    fn stood_still(&self, client: u32, at: Instant) -> bool {
        self.thawed.get(&client).into_iter().flatten().any(|thawed| within(*thawed, at))
    }

    /// An instance goes on that stood still.
    pub(crate) fn thawed(&mut self, client: u32, at: Instant) {
        self.thawed.entry(client).or_default().push(at);
    }

    /// Once an instance has written in its tenure, none writes in an earlier one.
    fn leader_only(&mut self, write: &Write<'_>, has_changed: bool) {
        // Where it was stopped between its look at the gate and its write, it can't know. The version that
        // the write names is what protects the object then.
        if self.stood_still(write.client, write.at) {
            return;
        }
        if has_changed {
            self.kept(write);
        }
        let name = self.elects_by.get(&write.client).map_or("throughline", |(lease, _)| lease);
        let lease = self.leases.entry(name.to_owned()).or_default();
        let Some(&tenure) = lease.tenures.get(&write.client) else {
            return self.broke(write, "without ever having held the Lease");
        };
        let is_late = tenure < lease.written_in;
        let has_lapsed = lease.renewed.get(&write.client).is_none_or(|at| write.at - *at > LEASE);
        if has_changed {
            lease.written_in = lease.written_in.max(tenure);
        }
        if is_late {
            self.broke(write, "after another instance led and wrote");
        }
        if has_lapsed {
            self.broke(write, "after its Lease expired or was released");
        }
    }

    /// Each write names the object and what it replaces, so that it is refused once that has changed
    /// (docs/explanation/security.md).
    fn guarded(&mut self, write: &Write<'_>) {
        let body = write.body;
        let is_guarded = match body.as_array() {
            Some(operations) => {
                let tests = |path: &str| {
                    let at = |op: &Value| op["path"].as_str().unwrap_or_default().starts_with(path);
                    operations.iter().any(|op| op["op"] == "test" && at(op))
                };
                tests("/metadata/uid") && tests("/metadata/annotations")
            }
            None => {
                let is_delete = write.method == "DELETE";
                let names = &body[if is_delete { "preconditions" } else { "metadata" }];
                names["uid"].is_string() && names["resourceVersion"].is_string()
            }
        };
        if !is_guarded {
            self.broke(write, "does not name what it replaces");
        }
    }

    fn hub_connector(&mut self, write: &Write<'_>) {
        self.leader_only(write, true);
        let Some(annotations) = annotations(write.body) else {
            return self.broke(write, "is outside the contract");
        };
        self.guarded(write);
        if annotations.keys().any(|key| key != UPSTREAM_STATUS && key != NUDGE) {
            self.broke(write, "writes another annotation");
        }
        match annotations.get(UPSTREAM_STATUS) {
            Some(Value::Null) => {
                self.count(write, false);
                if self.said(write).is_some() {
                    self.broke(write, "removes what an upstream Connector says");
                }
            }
            Some(Value::String(text)) => {
                let status = serde_json::from_str::<Value>(text).ok();
                let mut said = self.said(write).into_iter().flatten();
                if !said.any(|said| Some(said) == status.as_ref()) {
                    self.broke(write, "mirrors what upstream never said");
                }
            }
            _ => {}
        }
    }

    /// What the upstream Connector of this hub Connector has said.
    fn said(&self, write: &Write<'_>) -> Option<&Vec<Value>> {
        let [.., "namespaces", namespace, _, name] = write.path.split('/').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        self.said.get(&ObjectKey::new(namespace, name))
    }

    fn gateway(&mut self, write: &Write<'_>) {
        let Some(annotations) = annotations(write.body) else {
            return self.broke(write, "is outside the contract");
        };
        self.guarded(write);
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
        let count = count_within(times, write.at, MINUTE);
        if count > most {
            let how = format!("is one of {count} {what} within a minute");
            self.broke(write, &how);
        }
    }
}

/// Whether this is the same moment: events of one moment are handled one after the other.
fn within(earlier: Instant, later: Instant) -> bool {
    later.checked_duration_since(earlier).is_some_and(|time| time < THAWING)
}

/// Adds one that happens now. Returns how many there were within this time.
fn count_within(times: &mut VecDeque<Instant>, now: Instant, within: Duration) -> usize {
    times.push_back(now);
    while times.front().is_some_and(|at| now - *at > within) {
        times.pop_front();
    }
    times.len()
}

/// Whether only the leader may write this object of the hub.
fn is_leader_only(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    matches!(resource(&parts), "connectors" | "httproutes")
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
