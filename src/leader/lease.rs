//! The Lease as it goes over the wire, spelled as client-go spells it, so that both can take turns
//! and `kubectl get lease` reads it right.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Request as HttpRequest;
use serde_json::{Value, json};

use super::election::{Answer, Record, Request};
use crate::client::{self, CallError, Cluster, JSON, with_body};
use crate::clock::wall;
use crate::core::objects::FIELD_MANAGER;
use crate::core::time::UnixMillis;
use crate::events::{Recorder, Reference, Report, Severity};

const LEASES: &str = "leases.coordination.k8s.io";

/// Carries the election's requests out.
pub trait Api: Send {
    /// Asks, and waits for the answer for as long as one try may take. With the reason where the
    /// answer is none.
    fn ask(&mut self, request: &Request) -> impl Future<Output = (Answer, Option<String>)> + Send;

    /// Tells the world, beside the Lease; does not wait.
    fn tell(&self, message: String);
}

/// A Lease of a cluster.
#[derive(Debug)]
pub struct Lease {
    cluster: Arc<Cluster>,
    /// `None`: the namespace that the way to the cluster names.
    namespace: Option<String>,
    name: String,
    timeout: Duration,
    events: Option<Recorder>,
    /// As it was last read or written: what others keep in it is kept.
    object: Value,
}

impl Lease {
    /// A Lease. Each request about it may take `timeout`. Give it a [`Cluster`] of its own: a
    /// connection that others keep busy would make it late. Who leads is told to `events`.
    pub fn new(
        cluster: Arc<Cluster>,
        namespace: Option<String>,
        name: String,
        timeout: Duration,
        events: Option<Recorder>,
    ) -> Self {
        Self { cluster, namespace, name, timeout, events, object: Value::Null }
    }

    async fn call(&mut self, request: &Request) -> Result<Answer, CallError> {
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => {
                let namespace = self.cluster.default_namespace().await?;
                self.namespace.insert(namespace).clone()
            }
        };
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let one = format!("{all}/{}", self.name);
        let manager = format!("fieldManager={FIELD_MANAGER}");
        let request = match request {
            Request::Get => client::get(&one, JSON)?,
            Request::Create(record) => {
                let mut object = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": namespace},
                });
                fill(&mut object, record);
                with_body(HttpRequest::post(format!("{all}?{manager}")), &object)?
            }
            Request::Update(record, version) => {
                // The uid in it matters: without one, a PUT creates a Lease that is gone.
                let mut object = self.object.clone();
                object["metadata"]["resourceVersion"] = json!(version);
                fill(&mut object, record);
                with_body(HttpRequest::put(format!("{one}?{manager}")), &object)?
            }
        };
        let answer = self.cluster.call(request, self.timeout).await?;
        let object: Value = serde_json::from_slice(&answer)
            .map_err(|e| CallError::Unreadable(format!("no Lease: {e}")))?;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        if version.is_empty() {
            return Err(CallError::Unreadable("a Lease without resourceVersion".to_owned()));
        }
        let record = record(&object);
        self.object = object;
        Ok(Answer::Is(record, version))
    }
}

impl Api for Lease {
    async fn ask(&mut self, request: &Request) -> (Answer, Option<String>) {
        let asked = tokio::time::timeout(self.timeout, self.call(request)).await;
        let error = match asked.unwrap_or(Err(CallError::TimedOut(self.timeout))) {
            Ok(answer) => return (answer, None),
            Err(error) => error,
        };
        let verb = match request {
            Request::Get => "get",
            Request::Create(_) => "create",
            Request::Update(..) => "update",
        };
        let remedy = match &error {
            CallError::Status { code: 403, .. } => {
                format!("; grant {verb} on {LEASES} to the ServiceAccount")
            }
            _ => String::new(),
        };
        let why = format!("{verb} of Lease {}: {error}{remedy}", self.name);
        let answer = match (&error, request) {
            (CallError::Status { code: 409, .. }, _) => Answer::Conflict,
            // That of a namespace or an API that is not there says nothing about the Lease.
            (_, Request::Get | Request::Update(..)) if error.is_absence(LEASES, &self.name) => {
                Answer::Missing
            }
            _ => Answer::Failed,
        };
        (answer, Some(why))
    }

    fn tell(&self, message: String) {
        let (Some(events), Some(namespace)) = (&self.events, self.namespace.clone()) else {
            return;
        };
        let text =
            |member: &str| self.object["metadata"][member].as_str().unwrap_or_default().to_owned();
        let about = Reference {
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            namespace,
            name: self.name.clone(),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        };
        let (severity, reason) = (Severity::Normal, "LeaderElection");
        events.record(self.cluster.name(), Report { at: wall(), about, severity, reason, message });
    }
}

/// What a Lease says.
fn record(object: &Value) -> Record {
    let spec = &object["spec"];
    let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| spec[name].as_u64().unwrap_or_default();
    Record {
        holder: text("holderIdentity"),
        lease_ms: number("leaseDurationSeconds").saturating_mul(1000),
        transitions: u32::try_from(number("leaseTransitions")).unwrap_or(u32::MAX),
        renewed: text("renewTime"),
    }
}

/// Writes the record into a Lease, and leaves the rest of it as it is.
fn fill(object: &mut Value, record: &Record) {
    let had = object["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let is_renewal = !record.holder.is_empty() && had == record.holder;
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let spec = &mut object["spec"];
    if !is_renewal || !spec["acquireTime"].is_string() {
        spec["acquireTime"] = json!(record.renewed);
    }
    spec["holderIdentity"] = json!(record.holder);
    // Whole seconds; others had better wait too long than too short.
    spec["leaseDurationSeconds"] = json!(record.lease_ms.div_ceil(1000));
    spec["leaseTransitions"] = json!(record.transitions.min(i32::MAX.unsigned_abs()));
    spec["renewTime"] = json!(record.renewed);
}

fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Gives times that were never given before, as a Lease spells them.
#[derive(Debug, Default)]
pub struct RenewTimes {
    last_micros: u64,
}

impl RenewTimes {
    /// The wall clock's time, or a microsecond after the last one: RFC 3339, microseconds, UTC.
    pub fn another(&mut self) -> String {
        self.last_micros = now_micros().max(self.last_micros + 1);
        spelled(self.last_micros)
    }
}

fn spelled(micros: u64) -> String {
    let millis = UnixMillis(micros / 1000).to_string();
    format!("{}{:03}Z", millis.trim_end_matches('Z'), micros % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_the_api_server_spells_them_and_never_come_twice() {
        assert_eq!(spelled(1_795_252_772_865_007), "2026-11-21T09:19:32.865007Z");
        let mut times = RenewTimes { last_micros: u64::MAX / 2 };
        let ahead = spelled(u64::MAX / 2 + 1);
        assert_eq!((times.another(), times.another() != ahead), (ahead, true));
    }

    #[test]
    fn a_renewal_keeps_what_others_keep_in_the_lease() {
        let mut lease = json!({
            "metadata": {"uid": "u", "labels": {"team": "a"}},
            "spec": {"holderIdentity": "me", "acquireTime": "then", "renewTime": "then",
                "leaseDurationSeconds": 15, "leaseTransitions": 2, "strategy": "OldestEmulationVersion"},
        });
        let was = record(&lease);
        assert_eq!((was.holder.as_str(), was.lease_ms, was.transitions), ("me", 15_000, 2));
        fill(&mut lease, &Record { renewed: "now".into(), lease_ms: 14_500, ..was.clone() });
        let spec = json!({"holderIdentity": "me", "acquireTime": "then", "renewTime": "now",
            "leaseDurationSeconds": 15, "leaseTransitions": 2, "strategy": "OldestEmulationVersion"});
        assert_eq!((&lease["spec"], &lease["metadata"]["labels"]["team"]), (&spec, &json!("a")));
        fill(&mut lease, &Record { holder: "you".into(), renewed: "later".into(), ..was });
        assert_eq!(lease["spec"]["acquireTime"], "later");
    }

    #[test]
    fn a_lease_without_a_spec_is_nobodys_and_not_released() {
        let mut lease = json!({"metadata": {}});
        let empty = record(&lease);
        assert!(empty.holder.is_empty() && !empty.is_released());
        fill(&mut lease, &Record { holder: "me".into(), ..empty });
        assert_eq!(lease["spec"]["holderIdentity"], "me");
    }
}
