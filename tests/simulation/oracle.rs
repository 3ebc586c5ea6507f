//! What must hold at every moment, whatever fails. It reads the API servers' requests and knows nothing
//! of the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Map, Value};
use throughline::core::contract::action::Action;
use throughline::core::data::ids::{ClusterName, NamespacedName};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::shard::Shard;
use throughline::leader::group::Group;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use crate::instance::{CompleteList, Done};
use crate::network::SentWrite;
use crate::orphans::RouteGuard;
use crate::world::{NUDGE, TRIGGER};

/// The bound of removals, and of deletes.
const PER_MINUTE: usize = 10;
/// An instance counts it by its own clock, which is up to 4 % fast.
const MINUTE: Duration = Duration::from_millis(57_600);
/// A Lease lasts so long after it was renewed.
const LEASE: Duration = Duration::from_secs(15);
/// The writes that an instance was at when it was stopped go out within this time after it goes on. Those
/// that were sent before arrive at any time.
const THAWING: Duration = Duration::from_millis(20);
/// No cause lets an instance ask for one object more often than that.
const REQUESTS_MAX: usize = 150;
const REQUESTS_WITHIN: Duration = Duration::from_secs(10);

/// A request to write.
struct Write<'a> {
    at: Instant,
    client: u32,
    cluster: &'a ClusterName,
    is_hub: bool,
    method: &'a str,
    path: &'a str,
    resource: &'a str,
    key: NamespacedName,
    body: Value,
    /// Whether it changed something, or may have.
    executed: bool,
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
    /// Since when each instance stood still, and when it went on.
    stops: BTreeMap<u32, Vec<(Instant, Option<Instant>)>>,
    /// What each upstream Connector has said so far, by its key at the hub.
    said: BTreeMap<NamespacedName, Vec<Value>>,
    /// The latest requests of each instance to write each object.
    requests: BTreeMap<(u32, ClusterName, String), VecDeque<Instant>>,
    /// When an API server carried out the writes of each instance to each object.
    carried_out: BTreeMap<(u32, ClusterName, String), Vec<Instant>>,
    /// When an API server answered each instance's requests for (a page of) a list of a kind, and whether
    /// it gave it.
    listed: BTreeMap<(u32, ClusterName, String), Vec<(Instant, bool)>>,
    latest: BTreeMap<&'static str, VecDeque<Instant>>,
    pub(crate) routes: RouteGuard,
    /// Each trigger value that was written, for each Gateway, and who wrote it first.
    pub(crate) triggers: BTreeMap<(ClusterName, String), BTreeSet<String>>,
    pub(crate) writes: u64,
    pub(crate) last_write: Option<Instant>,
    pub(crate) broken: Vec<String>,
}

impl Oracle {
    pub(crate) fn new(hub: &ClusterName, routes: RouteGuard) -> Self {
        Self { hub: Some(hub.clone()), numbers: vec![1], routes, ..Self::default() }
    }

    /// A request was answered. `exists`: whether its object is there now.
    pub(crate) fn see(&mut self, at: Instant, audited: &AuditedRequest, exists: bool) {
        let &AuditedRequest { ref cluster, client, ref request, code, executed, is_repeat } =
            audited;
        let (path, method) = (request.uri().path(), request.method().as_str());
        let (resource, key) = object_of(path);
        if method == "GET" {
            let asked = (client, cluster.clone(), resource.to_owned(), key);
            self.routes.answered(asked, at, code, exists);
            if !request.uri().query().unwrap_or_default().contains("watch=") {
                let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
                let answers = self.listed.entry((client, cluster.clone(), kind)).or_default();
                answers.push((at, code == 200));
            }
            return;
        }
        let is_hub = self.hub.as_ref() == Some(cluster);
        let body = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        let write =
            Write { at, client, cluster, is_hub, method, path, resource, key, body, executed };
        self.asked(&write);
        if executed || !is_repeat {
            self.judge(&write);
        }
    }

    fn judge(&mut self, write: &Write<'_>) {
        if !write.executed {
            // It was sent needlessly: only by an instance that may write.
            if write.is_hub && is_leader_only(write.resource) {
                self.leader_only(write);
            }
            return;
        }
        if let Some((_, object)) = write.path.split_once("/namespaces/") {
            let key = (write.client, write.cluster.clone(), object.to_owned());
            self.carried_out.entry(key).or_default().push(write.at);
        }
        match (write.resource, write.method) {
            ("leases", _) => return self.lease(write),
            ("events", "POST" | "PATCH") => return,
            ("connectors", "PATCH") if write.is_hub => self.hub_connector(write),
            ("gateways", "PATCH") if !write.is_hub => self.gateway(write),
            ("httproutes", "DELETE") if write.is_hub => {
                self.leader_only(write);
                self.guarded(write);
                self.count(write, "deletes");
                if let Some(wrong) = self.routes.judge(write.at, write.client, &write.key) {
                    self.broke(write, &wrong);
                }
            }
            _ => self.broke(write, "is outside the contract"),
        }
        self.writes += 1;
        self.last_write = Some(write.at);
    }

    fn wrong(&mut self, client: u32, what: &str) {
        self.broken.push(format!("instance {client}: {what}"));
    }

    fn broke(&mut self, write: &Write<'_>, how: &str) {
        let Write { client, method, path, body, cluster, .. } = write;
        self.wrong(*client, &format!("{method} {path} in {cluster} {how}: {body}"));
    }

    /// An instance asks to write an object, with or without success.
    fn asked(&mut self, write: &Write<'_>) {
        let Write { client, cluster, path, .. } = *write;
        let key = (client, cluster.clone(), path.to_owned());
        let times = self.requests.entry(key).or_default();
        if count_within(times, write.at, REQUESTS_WITHIN) == REQUESTS_MAX + 1 {
            let seconds = REQUESTS_WITHIN.as_secs();
            let times = format!("more than {REQUESTS_MAX} requests in {seconds} s");
            self.wrong(client, &format!("{times} for {path} in {cluster}"));
        }
    }

    pub(crate) fn upstream_says(&mut self, at_hub: &NamespacedName, status: &Value) {
        let said = self.said.entry(at_hub.clone()).or_default();
        if said.last() != Some(status) {
            said.push(status.clone());
        }
    }

    fn lease(&mut self, write: &Write<'_>) {
        let created = write.body["metadata"]["name"].as_str().filter(|_| write.method == "POST");
        let name = created.unwrap_or(write.key.name());
        let holder = write.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let shard = holder.rsplit_once('/').and_then(|(_, shard)| shard.split_once("-of-"));
        let (index, of) = shard.unwrap_or(("0", "1"));
        let number = |text: &str| text.parse::<u16>().unwrap_or_default();
        let (index, of) = (number(index), number(of));
        let own = Group::new("throughline", Shard { index, of }).own_lease();
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
        let mut stops = self.stops.get(&client).into_iter().flatten();
        stops.any(|(since, until)| *since <= at && until.is_none_or(|until| at < until + THAWING))
    }

    pub(crate) fn frozen(&mut self, client: u32, at: Instant) {
        self.stops.entry(client).or_default().push((at, None));
    }

    pub(crate) fn thawed(&mut self, client: u32, at: Instant) {
        for (_, until) in self.stops.entry(client).or_default() {
            until.get_or_insert(at);
        }
    }

    /// Once an instance has written in its tenure, none writes in an earlier one.
    fn leader_only(&mut self, write: &Write<'_>) {
        // Where it was stopped between its look at the gate and its write, it can't know. The version that
        // the write names is what protects the object then.
        if self.stood_still(write.client, write.at) {
            return;
        }
        if write.executed {
            self.kept(write);
        }
        let name = self.elects_by.get(&write.client).map_or("throughline", |(lease, _)| lease);
        let lease = self.leases.entry(name.to_owned()).or_default();
        let Some(&tenure) = lease.tenures.get(&write.client) else {
            return self.broke(write, "without ever having held the Lease");
        };
        let is_late = tenure < lease.written_in;
        let has_lapsed = lease.renewed.get(&write.client).is_none_or(|at| write.at - *at > LEASE);
        if write.executed {
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
        let body = &write.body;
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
        self.leader_only(write);
        let Some(annotations) = annotations(&write.body) else {
            return self.broke(write, "is outside the contract");
        };
        self.guarded(write);
        if annotations.keys().any(|key| key != UPSTREAM_STATUS && key != NUDGE) {
            self.broke(write, "writes another annotation");
        }
        match annotations.get(UPSTREAM_STATUS) {
            Some(Value::Null) => {
                self.count(write, "removals");
                if self.said.contains_key(&write.key) {
                    self.broke(write, "removes what an upstream Connector says");
                }
            }
            Some(Value::String(text)) => {
                let status = serde_json::from_str::<Value>(text).ok();
                let mut said = self.said.get(&write.key).into_iter().flatten();
                if !said.any(|said| Some(said) == status.as_ref()) {
                    self.broke(write, "mirrors what upstream never said");
                }
            }
            _ => {}
        }
    }

    fn gateway(&mut self, write: &Write<'_>) {
        let Some(annotations) = annotations(&write.body) else {
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

    fn count(&mut self, write: &Write<'_>, what: &'static str) {
        let count = count_within(self.latest.entry(what).or_default(), write.at, MINUTE);
        if count > PER_MINUTE {
            let how = format!("is one of {count} {what} within a minute");
            self.broke(write, &how);
        }
    }

    // What an instance says of itself, against what the API servers and the network saw.

    /// An instance takes an action for carried out.
    pub(crate) fn done(&mut self, client: u32, done: &Done) {
        let Done { decided, ended, action } = done;
        let Action { verb, cluster, kind, object, .. } = action;
        let path = format!("{}/{}/{}", object.namespace(), kind.plural(), object.name());
        let times = self.carried_out.get(&(client, cluster.clone(), path));
        if !times.into_iter().flatten().any(|at| (decided..=ended).contains(&at)) {
            let what = format!("takes its {} of {object} in {cluster}", verb.as_str());
            self.wrong(client, &format!("{what} for carried out, which it was not"));
        }
    }

    /// An instance carried out a newer action for the same object, and never says what came of this one.
    pub(crate) fn forgotten(&mut self, client: u32, action: &Action) {
        let Action { verb, cluster, object, .. } = action;
        let what = format!("its {} of {object} in {cluster}", verb.as_str());
        self.wrong(client, &format!("{what} has no outcome, and a newer one has"));
    }

    /// An instance takes a list for complete: the last page that it asked for was given.
    pub(crate) fn complete(&mut self, client: u32, list: &CompleteList) {
        let CompleteList { at, cluster, kind } = list;
        let key = (client, cluster.clone(), kind.plural().to_owned());
        let answers = self.listed.get(&key).into_iter().flatten();
        let last = answers.rev().find(|(answered, _)| answered <= at);
        if !last.is_some_and(|(_, is_given)| *is_given) {
            let what = format!("takes a list of {kind} in {cluster} for complete");
            self.wrong(client, &format!("{what}, and did not get its last page"));
        }
    }

    /// A write to the hub leaves an instance: its gate is open, so its own event log must not say that it
    /// does not lead.
    pub(crate) fn sent(&mut self, write: &SentWrite, leadership: &[(Instant, bool)]) {
        let SentWrite { at, client, path, .. } = write;
        if self.stood_still(*client, *at) || !is_leader_only(object_of(path).0) {
            return;
        }
        let before = leadership.iter().rev().find(|(since, _)| since <= at);
        let leads = before.is_some_and(|(since, leads)| *leads || within(*since, *at));
        // A gate opens, and the event follows.
        let leads_now = leadership.iter().any(|(since, leads)| *leads && within(*at, *since));
        if !leads && !leads_now {
            let what = format!("sends a write of {path} and does not lead, as it knows itself");
            self.wrong(*client, &what);
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

/// Whether only the leader may write such objects of the hub.
fn is_leader_only(resource: &str) -> bool {
    matches!(resource, "connectors" | "httproutes")
}

/// The resource and the object that a path names; what it does not name is empty.
pub(crate) fn object_of(path: &str) -> (&str, NamespacedName) {
    // A project's control plane behind its Milo.
    let path = path.split_once("/control-plane").map_or(path, |(_, path)| path);
    match path.split('/').skip_while(|part| *part != "namespaces").collect::<Vec<_>>()[..] {
        [_, name] => ("namespaces", NamespacedName::new("", name)),
        [_, namespace, resource] => (resource, NamespacedName::new(namespace, "")),
        [_, namespace, resource, name, ..] => (resource, NamespacedName::new(namespace, name)),
        _ => ("", NamespacedName::new("", "")),
    }
}

/// The annotations that a patch writes; `None` if it changes anything else.
fn annotations(body: &Value) -> Option<Map<String, Value>> {
    if let Some(operations) = body.as_array() {
        return json_patch(operations);
    }
    let patch = body.as_object()?;
    let metadata = patch.get("metadata")?.as_object()?;
    let allowed = ["annotations", "uid", "resourceVersion"];
    let is_contract =
        patch.len() == 1 && metadata.keys().all(|key| allowed.contains(&key.as_str()));
    metadata.get("annotations").filter(|_| is_contract)?.as_object().cloned()
}

fn json_patch(operations: &[Value]) -> Option<Map<String, Value>> {
    let mut written = Map::new();
    for operation in operations.iter().filter(|operation| operation["op"] != "test") {
        let path = operation["path"].as_str()?.strip_prefix("/metadata/annotations")?;
        match path.strip_prefix('/') {
            None => written.extend(operation["value"].as_object()?.clone()),
            Some(key) => {
                written.insert(key.replace("~1", "/"), operation["value"].clone());
            }
        }
    }
    Some(written)
}
