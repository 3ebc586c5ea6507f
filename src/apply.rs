//! One action → one request: a merge patch of annotations, or a delete, with preconditions. And
//! what came back → one outcome.

mod orphan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{CallError, Class, Cluster, path, with_body};
use crate::clock::millis;
use crate::core::action::{Action, Verb};
use crate::core::event::Outcome;
use crate::core::ids::ClusterName;
use crate::core::objects::FIELD_MANAGER;

/// Only metadata is read of an answer, so only metadata is asked for.
const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The way to the clusters that are written to.
#[derive(Clone, Debug, Default)]
pub struct Apply {
    clusters: BTreeMap<ClusterName, Arc<Cluster>>,
    timeout: Duration,
}

impl Apply {
    /// Writes to `clusters`; each try of each request takes at most `timeout`.
    pub fn new(clusters: BTreeMap<ClusterName, Arc<Cluster>>, timeout: Duration) -> Self {
        Self { clusters, timeout }
    }

    /// Carries an action out, in one try. `may` is asked once more right before a delete is sent,
    /// since its proofs take a while.
    ///
    /// # Errors
    /// [`CallError`], sorted by its [`Class`].
    pub async fn carry_out(
        &self,
        action: &Action,
        may: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        if action.verb == Verb::Delete {
            return self.delete(action, may).await;
        }
        let cluster = self.cluster(&action.cluster)?;
        let answer = cluster.call(patch(action, self.timeout)?, self.timeout).await?;
        let resource_version = meta(&answer).resource_version;
        if resource_version.is_some() && resource_version == action.precondition.resource_version {
            return Ok(Outcome::Unchanged);
        }
        Ok(Outcome::Applied { resource_version, deleted: None })
    }

    fn cluster(&self, name: &ClusterName) -> Result<&Arc<Cluster>, CallError> {
        self.clusters
            .get(name)
            .ok_or_else(|| CallError::NoClient(format!("cluster {name} is not configured")))
    }
}

/// The outcome that an error is, once it is not tried again.
pub fn outcome(error: &CallError) -> Outcome {
    let text = error.to_string();
    match error.class() {
        Class::Never => Outcome::Refused { error: text },
        Class::Refetch if error.code() == 404 => Outcome::NotFound,
        Class::Refetch => Outcome::Conflict { error: text },
        Class::Backoff => {
            Outcome::Failed { error: text, retry_after_ms: error.retry_after().map(millis) }
        }
    }
}

/// Asks the API server to give up a write when we do. Without it, one whose client vanished with the
/// network may land up to a minute later.
fn server_timeout(timeout: Duration) -> String {
    format!("timeout={}ms", timeout.as_millis())
}

fn object_path(action: &Action) -> String {
    format!("{}/{}", path(action.kind, Some(&action.object.namespace)), action.object.name)
}

/// The precondition, as a patch's metadata and as a delete's options spell it.
fn uid_and_version(action: &Action) -> serde_json::Map<String, Value> {
    let must = &action.precondition;
    let fields = [("uid", &must.uid), ("resourceVersion", &must.resource_version)];
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

/// What is read of an answer's metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The metadata of an answer, as far as it tells it.
fn meta(answer: &[u8]) -> Meta {
    #[derive(Deserialize)]
    struct Answer {
        metadata: Meta,
    }
    serde_json::from_slice::<Answer>(answer).map(|answer| answer.metadata).unwrap_or_default()
}
