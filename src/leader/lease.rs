//! The Lease over HTTP, in client-go's format, so that throughline and client-go can share one Lease
//! and `kubectl get lease` shows it correctly.

mod format;

use std::sync::Arc;
use std::time::Duration;

use http::Request as HttpRequest;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use super::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use super::group::{GROUP_LABEL, Group};
use crate::client::{self, CallError, ClusterClient, JSON, with_body};
use crate::clock::wall_clock_now;
use crate::core::contract::cause::About;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::data::ids::NamespacedName;
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::data::time::UnixMillis;
use crate::events::Recorder;
use crate::field_owner::field_owner;

pub use format::{RenewTimes, fill, read, read_list};

pub(crate) const LEASES: &str = "leases.coordination.k8s.io";

/// The longest wait for the renewal of a Lease that looks expired.
const RENEWAL_MAX: Duration = Duration::from_secs(10);

/// Whether a Lease was renewed within its duration, by this host's clock. A renewal in the future proves
/// nothing. Clocks differ, so of a Lease that is not fresh only a second read tells whether its holder
/// renews it, after [`renewal_within`].
pub(crate) fn is_fresh(renewed: Option<UnixMillis>, lease_ms: u64, now: UnixMillis) -> bool {
    renewed.is_some_and(|at| at <= now && now.since(at) <= lease_ms)
}

/// The time within which a holder renews its Lease again.
pub(crate) fn renewal_within(lease_ms: u64) -> Duration {
    Duration::from_millis(lease_ms / 3).min(RENEWAL_MAX)
}

/// The Lease of a cluster.
#[derive(Debug)]
pub struct LeaseClient {
    cluster: Arc<ClusterClient>,
    /// `None`: the cluster client's default namespace.
    namespace: Option<String>,
    name: String,
    /// The name of the group of Leases, which is the label's value.
    group: String,
    /// Whether this instance's writes set or remove the label; `None` leaves it unchanged.
    labels: Option<bool>,
    timeout: Duration,
    events: Option<Recorder>,
    /// The Lease as last read or written. Updates keep the fields of other writers.
    object: Value,
}

impl LeaseClient {
    /// The Lease of the shard in `group`. Each request may take `timeout`. An election needs a separate
    /// [`ClusterClient`]: on a connection busy with other requests, renewals would be late. Changes of
    /// leadership are posted to `events`.
    pub fn new(
        cluster: Arc<ClusterClient>,
        namespace: Option<String>,
        group: &Group,
        timeout: Duration,
        events: Option<Recorder>,
    ) -> Self {
        let labels = group.is_shared().then_some(true);
        let name = group.own_lease();
        let group = group.name().to_owned();
        Self { cluster, namespace, name, group, labels, timeout, events, object: Value::Null }
    }

    /// The creation time of the Lease as last read, by the API server's clock.
    pub fn created_at(&self) -> Option<UnixMillis> {
        UnixMillis::parse_rfc3339(self.object["metadata"]["creationTimestamp"].as_str()?)
    }

    /// Sends a request and waits for its response, for at most the time of one request. Also returns the
    /// error, if there is one.
    pub async fn send(
        &mut self,
        request: &LeaseRequest,
    ) -> (LeaseResponse, Option<RequestFailure>) {
        let response = tokio::time::timeout(self.timeout, self.call(request)).await;
        let error = match response.unwrap_or(Err(CallError::TimedOut(self.timeout))) {
            Ok(response) => return (response, None),
            Err(error) => error,
        };
        let verb = match request {
            LeaseRequest::Get => "get",
            LeaseRequest::Create(_) => "create",
            LeaseRequest::Update(..) => "update",
        };
        let text = format!("{verb} of Lease {}: {error}", self.name);
        let why = RequestFailure::new(error.cause(), text);
        let response = match (&error, request) {
            (CallError::Status { code: 409, .. }, _) => LeaseResponse::Conflict,
            // A 404 about the namespace or the API is no evidence about the Lease.
            (_, LeaseRequest::Get | LeaseRequest::Update(..))
                if error.is_absence_of(LEASES, &self.name) =>
            {
                LeaseResponse::NotFound
            }
            _ => LeaseResponse::Failed,
        };
        (response, Some(why))
    }

    /// The Lease, as the subject of a problem.
    pub(crate) fn about(&self) -> About {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let object = Some(NamespacedName::new(namespace, &self.name));
        About { object, ..About::cluster(self.cluster.name()) }
    }

    /// Posts a Kubernetes Event on the Lease, without waiting.
    pub fn post_event(&self, message: String) {
        let (Some(events), Some(object)) = (&self.events, self.reference()) else { return };
        let about = ("Normal", "LeaderElection".to_owned());
        let event = events.event(wall_clock_now(), object, about, &message);
        events.post(self.cluster.name(), &event);
    }

    /// Reads the group's Leases, each with its name, as they are now.
    pub(crate) async fn list_group(
        &mut self,
    ) -> Result<Vec<(String, LeaseRecord)>, RequestFailure> {
        let response = tokio::time::timeout(self.timeout, self.list()).await;
        response.unwrap_or(Err(CallError::TimedOut(self.timeout))).map_err(|error| {
            let text = format!("list of the Leases of group {}: {error}", self.group);
            RequestFailure::new(error.cause(), text)
        })
    }

    /// Whether the Lease, as last read or written, has the label of a group.
    pub(crate) fn is_labelled(&self) -> bool {
        self.object["metadata"]["labels"][GROUP_LABEL].is_string()
    }

    /// Makes the next write remove the label.
    pub(crate) fn take_label_off(&mut self) {
        self.labels = Some(false);
    }

    /// The holder of the Lease, if it is not a throughline, according to the writer of its name.
    pub(crate) fn foreign_holder(&self) -> Option<String> {
        let holder = self.object["spec"]["holderIdentity"].as_str()?;
        let writer = field_owner(&self.object, &["spec", "holderIdentity"])?;
        let is_foreign = writer.manager != FIELD_MANAGER && !holder.is_empty();
        is_foreign.then(|| holder.to_owned())
    }

    /// The path of all Leases in the namespace.
    async fn path(&mut self) -> Result<String, CallError> {
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => {
                let namespace = self.cluster.default_namespace().await?;
                self.namespace.insert(namespace).clone()
            }
        };
        Ok(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"))
    }

    /// Sends a request that is answered with a Lease, and stores the Lease.
    async fn call(&mut self, request: &LeaseRequest) -> Result<LeaseResponse, CallError> {
        let all = self.path().await?;
        let one = format!("{all}/{}", self.name);
        let manager = format!("fieldManager={FIELD_MANAGER}");
        let request = match request {
            LeaseRequest::Get => client::get(&one, JSON)?,
            LeaseRequest::Create(record) => {
                let mut object = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": self.namespace},
                });
                self.fill(&mut object, record);
                with_body(HttpRequest::post(format!("{all}?{manager}")), &object)?
            }
            LeaseRequest::Update(record, version) => {
                // Keep the uid: without it, a PUT would create a Lease that was deleted.
                let mut object = self.object.clone();
                object["metadata"]["resourceVersion"] = json!(version);
                self.fill(&mut object, record);
                with_body(HttpRequest::put(format!("{one}?{manager}")), &object)?
            }
        };
        let response = self.cluster.call(request, self.timeout).await?;
        let (object, record, version) = read(&response)?;
        let is_same = self.object["metadata"]["uid"] == object["metadata"]["uid"];
        self.object = object;
        if !is_same && let (Some(events), Some(lease)) = (&self.events, self.reference()) {
            events.set_lease(self.cluster.name(), lease);
        }
        Ok(LeaseResponse::Current(record, version))
    }

    fn fill(&self, object: &mut Value, record: &LeaseRecord) {
        fill(object, record);
        match self.labels {
            Some(true) => object["metadata"]["labels"][GROUP_LABEL] = json!(self.group),
            Some(false) => {
                if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
                    labels.remove(GROUP_LABEL);
                }
            }
            None => {}
        }
    }

    async fn list(&mut self) -> Result<Vec<(String, LeaseRecord)>, CallError> {
        // Without a resourceVersion, so that the answer includes earlier writes.
        let selector = format!("{}%3D{}", GROUP_LABEL.replace('/', "%2F"), self.group);
        let path = format!("{}?labelSelector={selector}", self.path().await?);
        let answer = self.cluster.call(client::get(&path, JSON)?, self.timeout).await?;
        read_list(&answer)
    }

    /// The Lease as the involved object of an Event.
    fn reference(&self) -> Option<ObjectReference> {
        Some(ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(self.namespace.clone()?),
            name: Some(self.name.clone()),
            uid: self.object["metadata"]["uid"].as_str().map(str::to_owned),
            ..ObjectReference::default()
        })
    }
}
