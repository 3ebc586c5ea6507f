//! The Lease over HTTP, in client-go's format, so that instances of both can share one Lease and
//! `kubectl get lease` shows it correctly.

mod format;

use std::sync::Arc;
use std::time::Duration;

use http::Request as HttpRequest;
use k8s_openapi::api::core::v1::ObjectReference;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::debug;

use super::election::{LeaseRequest, LeaseResponse};
use super::handover::{FOLLOWS, Follows, HAND_OVER_TO, UNSEEN, Unseen};
use crate::client::{self, CallError, ClusterClient, JSON, with_body};
use crate::clock::wall_clock_now;
use crate::core::contract::cause::About;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::data::ids::ObjectKey;
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::data::time::UnixMillis;
use crate::events::Recorder;
use crate::field_owner::field_owner;

pub use format::{RenewTimes, fill, read};

const LEASES: &str = "leases.coordination.k8s.io";

/// Sends the election's requests.
pub trait LeaseApi: Send {
    /// Sends a request and waits for its response, for as long as one request may take. The text
    /// says why it failed, where it did.
    fn send(
        &mut self,
        request: &LeaseRequest,
    ) -> impl Future<Output = (LeaseResponse, Option<RequestFailure>)> + Send;

    /// The Lease, as the subject of a problem.
    fn about(&self) -> About;

    /// Posts a Kubernetes Event on the Lease, without waiting.
    fn post_event(&self, message: String);

    /// What this instance says in the Lease from now on, when it holds it.
    fn set_remarks(&mut self, unseen: &Unseen, follows: &Follows);

    /// What the Lease says that its holder does not see; `None` where it says nothing.
    fn holder_unseen(&self) -> Option<Unseen>;

    /// What the Lease says that its holder follows; `None` where it says nothing.
    fn holder_follows(&self) -> Option<Follows>;

    /// Asks the holder for leadership. A question that is lost is asked again later.
    fn ask(&mut self, identity: &str) -> impl Future<Output = ()> + Send;

    /// The instance that asked for leadership since the last call.
    fn take_question(&mut self) -> Option<String>;

    /// Who holds the Lease and is no throughline, by who wrote its name.
    fn foreign_holder(&self) -> Option<String> {
        None
    }
}

/// The Lease of a cluster.
#[derive(Debug)]
pub struct LeaseClient {
    cluster: Arc<ClusterClient>,
    /// `None`: the cluster client's default namespace.
    namespace: Option<String>,
    name: String,
    timeout: Duration,
    events: Option<Recorder>,
    /// The Lease as last read or written. Updates keep the fields that others set.
    object: Value,
    /// What this instance does not see, and what it follows.
    remarks: (Unseen, Follows),
    /// Who asked for leadership.
    question: Option<String>,
}

impl LeaseClient {
    /// Each request may take `timeout`. Give it a [`ClusterClient`] of its own: on a connection that
    /// others keep busy, renewals would be late. Changes of leadership are posted to `events`.
    pub fn new(
        cluster: Arc<ClusterClient>,
        namespace: Option<String>,
        name: String,
        timeout: Duration,
        events: Option<Recorder>,
    ) -> Self {
        Self {
            cluster,
            namespace,
            name,
            timeout,
            events,
            object: Value::Null,
            remarks: Default::default(),
            question: None,
        }
    }

    /// When the Lease that was last read was created, by the API server's clock.
    pub fn created_at(&self) -> Option<UnixMillis> {
        UnixMillis::parse_rfc3339(self.object["metadata"]["creationTimestamp"].as_str()?)
    }

    async fn call(&mut self, request: &LeaseRequest) -> Result<LeaseResponse, CallError> {
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
            LeaseRequest::Get => client::get(&one, JSON)?,
            LeaseRequest::Create(record) => {
                let mut object = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": namespace},
                });
                fill(&mut object, record, &self.remarks);
                with_body(HttpRequest::post(format!("{all}?{manager}")), &object)?
            }
            LeaseRequest::Update(record, version) => {
                // Keep the uid: without it, a PUT would create a Lease that was deleted.
                let mut object = self.object.clone();
                object["metadata"]["resourceVersion"] = json!(version);
                fill(&mut object, record, &self.remarks);
                with_body(HttpRequest::put(format!("{one}?{manager}")), &object)?
            }
        };
        self.exchange(request).await
    }

    /// Sends a request that a Lease answers, and remembers that.
    async fn exchange(
        &mut self,
        request: HttpRequest<Vec<u8>>,
    ) -> Result<LeaseResponse, CallError> {
        let response = self.cluster.call(request, self.timeout).await?;
        let (object, record, version) = read(&response)?;
        let is_same = self.object["metadata"]["uid"] == object["metadata"]["uid"];
        let question = object["metadata"]["annotations"][HAND_OVER_TO].as_str();
        self.question = question.map(str::to_owned).or(self.question.take());
        self.object = object;
        if !is_same && let (Some(events), Some(lease)) = (&self.events, self.reference()) {
            events.set_lease(self.cluster.name(), lease);
        }
        Ok(LeaseResponse::Current(record, version))
    }
}

impl LeaseClient {
    fn read_remark<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let text = self.object["metadata"]["annotations"][key].as_str()?;
        serde_json::from_str(text).ok()
    }

    /// The Lease as an Event names it.
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

impl LeaseApi for LeaseClient {
    async fn send(&mut self, request: &LeaseRequest) -> (LeaseResponse, Option<RequestFailure>) {
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
            // A 404 about the namespace or the API says nothing about the Lease.
            (_, LeaseRequest::Get | LeaseRequest::Update(..))
                if error.is_absence(LEASES, &self.name) =>
            {
                LeaseResponse::NotFound
            }
            _ => LeaseResponse::Failed,
        };
        (response, Some(why))
    }

    fn about(&self) -> About {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let object = Some(ObjectKey::new(namespace, &self.name));
        About { object, ..About::cluster(self.cluster.name()) }
    }

    fn post_event(&self, message: String) {
        let (Some(events), Some(object)) = (&self.events, self.reference()) else { return };
        let about = ("Normal", "LeaderElection".to_owned());
        let event = events.event(wall_clock_now(), object, about, &message);
        events.post(self.cluster.name(), &event);
    }

    fn set_remarks(&mut self, unseen: &Unseen, follows: &Follows) {
        self.remarks = (unseen.clone(), follows.clone());
    }

    fn holder_unseen(&self) -> Option<Unseen> {
        self.read_remark(UNSEEN)
    }

    fn holder_follows(&self) -> Option<Follows> {
        self.read_remark(FOLLOWS)
    }

    async fn ask(&mut self, identity: &str) {
        let Some(namespace) = self.namespace.clone() else { return };
        let mut object = self.object.clone();
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        object["metadata"]["annotations"][HAND_OVER_TO] = json!(identity);
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", self.name);
        let uri = format!("{path}?fieldManager={FIELD_MANAGER}");
        let Ok(request) = with_body(HttpRequest::put(uri), &object) else { return };
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            // The next attempt reads the Lease again, whatever became of this one.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "could not ask the leader to hand over"),
            Err(_) => debug!("could not ask the leader to hand over in time"),
        }
        self.question = None;
    }

    fn take_question(&mut self) -> Option<String> {
        self.question.take()
    }

    fn foreign_holder(&self) -> Option<String> {
        let holder = self.object["spec"]["holderIdentity"].as_str()?;
        let writer = field_owner(&self.object, &["spec", "holderIdentity"])?;
        let is_foreign = writer.manager != FIELD_MANAGER && !holder.is_empty();
        is_foreign.then(|| holder.to_owned())
    }
}
