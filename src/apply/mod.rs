//! Turns one action into one request, a merge patch of annotations or a delete, both with
//! preconditions; and the response into one outcome.

mod orphan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{CallError, ClusterClient, ErrorClass, path, with_body};
use crate::clock::millis;
use crate::core::contract::action::{Action, Verb};
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::event::Outcome;
use crate::core::data::ids::ClusterName;
use crate::core::data::objects::FIELD_MANAGER;
use crate::live_log::DeletedRoutes;

/// Only the response's metadata is read, so only metadata is requested.
const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Carries out actions, one attempt at a time.
#[derive(Clone, Debug, Default)]
pub struct Applier {
    clusters: BTreeMap<ClusterName, Arc<ClusterClient>>,
    timeout: Duration,
    /// Without one, nothing is deleted.
    backup: Option<DeletedRoutes>,
}

impl Applier {
    /// Each request takes at most `timeout`.
    pub fn new(clusters: BTreeMap<ClusterName, Arc<ClusterClient>>, timeout: Duration) -> Self {
        Self { clusters, timeout, backup: None }
    }

    /// Allows deletes: each route is written to `backup` first.
    #[must_use]
    pub fn with_backup(self, backup: DeletedRoutes) -> Self {
        Self { backup: Some(backup), ..self }
    }

    /// Makes one attempt at an action. Calls `may_write` again right before it sends a delete,
    /// because the checks before a delete take a while.
    ///
    /// # Errors
    /// [`CallError`], which [`outcome`] turns into an outcome once there are no more attempts.
    pub async fn apply(
        &self,
        action: &Action,
        may_write: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        if action.verb == Verb::Delete {
            return self.delete(action, may_write).await;
        }
        let cluster = self.cluster(&action.cluster)?;
        let response = cluster.call(patch(action, self.timeout)?, self.timeout).await?;
        let resource_version = response_metadata(&response).resource_version;
        if resource_version.is_some() && resource_version == action.precondition.resource_version {
            return Ok(Outcome::Unchanged);
        }
        Ok(Outcome::Applied { resource_version, deleted: None })
    }

    fn cluster(&self, name: &ClusterName) -> Result<&Arc<ClusterClient>, CallError> {
        self.clusters
            .get(name)
            .ok_or_else(|| CallError::NoClient(format!("cluster {name} is not configured")))
    }
}

/// The outcome of an action whose last attempt failed with `error`.
pub fn outcome(error: &CallError) -> Outcome {
    let failure = error.failure();
    match error.class() {
        ErrorClass::Never => Outcome::Refused { error: failure },
        ErrorClass::Refetch if failure.cause == ErrorCause::NotFound => Outcome::NotFound,
        ErrorClass::Refetch => Outcome::Conflict { error: failure },
        ErrorClass::Backoff => {
            Outcome::Failed { error: failure, retry_after_ms: error.retry_after().map(millis) }
        }
    }
}

/// Makes the API server give up a write when this client does. Without it, the write of a client
/// that lost its network may take effect up to a minute later.
fn server_timeout(timeout: Duration) -> String {
    format!("timeout={}ms", timeout.as_millis())
}

fn object_path(action: &Action) -> String {
    format!("{}/{}", path(action.kind, Some(&action.object.namespace)), action.object.name)
}

/// The precondition, in the form that a patch's metadata and a delete's options share.
fn uid_and_version(action: &Action) -> serde_json::Map<String, Value> {
    let required = &action.precondition;
    let fields = [("uid", &required.uid), ("resourceVersion", &required.resource_version)];
    fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), json!(v.as_ref()?)))).collect()
}

fn patch(action: &Action, timeout: Duration) -> Result<Request<Vec<u8>>, CallError> {
    let mut metadata = uid_and_version(action);
    let annotations = action.annotations.iter().map(|(k, v)| (k.clone(), json!(v)));
    metadata.insert("annotations".to_owned(), Value::Object(annotations.collect()));
    let uri = object_path(action);
    let uri = format!("{uri}?fieldManager={FIELD_MANAGER}&{}", server_timeout(timeout));
    let request = Request::patch(uri)
        .header("content-type", "application/merge-patch+json")
        .header("accept", METADATA_ONLY);
    with_body(request, &json!({ "metadata": metadata }))
}

fn delete(action: &Action, timeout: Duration) -> Result<Request<Vec<u8>>, CallError> {
    let uri = format!("{}?{}", object_path(action), server_timeout(timeout));
    let preconditions = uid_and_version(action);
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    with_body(Request::delete(uri).header("accept", METADATA_ONLY), &body)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseMetadata {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The metadata of a response; empty where it has none.
fn response_metadata(body: &[u8]) -> ResponseMetadata {
    #[derive(Deserialize)]
    struct Response {
        metadata: ResponseMetadata,
    }
    serde_json::from_slice::<Response>(body).map(|response| response.metadata).unwrap_or_default()
}
