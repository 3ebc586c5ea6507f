//! Turns one action into one request, a patch of annotations or a delete, both with preconditions; and
//! the response into one outcome.

mod orphan;
mod patch;

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use crate::client::{CallError, ClusterClient, ProjectRoot, path, with_body};
use crate::clock::millis;
use crate::core::contract::action::{Action, AnnotationBefore, Verb};
use crate::core::contract::error_cause::{ErrorCause, ErrorClass, RequestFailure};
use crate::core::contract::event::Outcome;
use crate::core::data::ids::ClusterName;
use crate::fleet::ClusterTable;
use crate::live_log::DeletedRoutes;
use patch::AnnotationMap;

/// Only the response's metadata is read, so only metadata is requested.
const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Carries out actions, one attempt at a time.
#[derive(Clone, Debug, Default)]
pub struct Applier {
    clusters: ClusterTable,
    timeout: Duration,
    /// Deletes need a backup; `None` allows none.
    backup: Option<DeletedRoutes>,
    /// Deletes for a deleted project need it; `None` allows none.
    projects: Option<Arc<ProjectRoot>>,
}

/// The clusters that an action writes to or asks, as of the decision.
#[derive(Debug)]
pub(crate) struct ActionClusters(Vec<(ClusterName, Option<Weak<ClusterClient>>)>);

impl ActionClusters {
    pub(crate) fn contains(&self, cluster: &ClusterName) -> bool {
        self.0.iter().any(|(name, _)| name == cluster)
    }
}

impl Applier {
    /// Each request takes at most `timeout`. Each route is written to `backup` before it is deleted.
    pub fn new(clusters: ClusterTable, timeout: Duration, backup: Option<DeletedRoutes>) -> Self {
        Self { clusters, timeout, backup, projects: None }
    }

    /// Allows deletes of routes whose project no longer exists according to `projects`.
    pub fn set_projects(&mut self, projects: Arc<ProjectRoot>) {
        self.projects = Some(projects);
    }

    /// Makes one attempt at an action. If it first has to look upstream, or sends a second request, it
    /// calls `may_write` again right before it writes, because time has passed.
    ///
    /// # Errors
    /// [`CallError`], which [`outcome`] turns into an outcome.
    pub async fn apply(
        &self,
        action: &Action,
        may_write: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        if action.verb == Verb::Delete {
            return self.delete(action, may_write).await;
        }
        let cluster = self.cluster(&action.cluster)?;
        if let Some(absent) = &action.precondition.absent {
            if let Err(outcome) = self.confirm_absence(absent).await {
                return Ok(outcome);
            }
            if action.is_leader_only() && !may_write() {
                return Ok(Outcome::Dropped);
            }
        }
        if let Some(before) = &action.precondition.annotation {
            return self.patch_if(&cluster, action, before, may_write).await;
        }
        let request = patch::merge_patch(action, self.timeout)?;
        patch::outcome_of_answer(action, &cluster.call(request, self.timeout).await?)
    }

    /// Patches the object if the annotation still has the value of the decision.
    async fn patch_if(
        &self,
        cluster: &ClusterClient,
        action: &Action,
        before: &AnnotationBefore,
        may_write: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        let maps = match before.no_annotations {
            true => [AnnotationMap::Absent, AnnotationMap::Present],
            false => [AnnotationMap::Present, AnnotationMap::Absent],
        };
        for map in maps {
            let request = patch::json_patch(action, before, map, self.timeout)?;
            match cluster.call(request, self.timeout).await {
                Ok(answer) => return patch::outcome_of_answer(action, &answer),
                Err(error) if !patch::is_failed_test(&error) => return Err(error),
                Err(_) if before.value.is_some() => break,
                // An object without any annotations needs another test.
                Err(_) if !may_write() => return Ok(Outcome::Dropped),
                Err(_) => {}
            }
        }
        Ok(conflict(format!("{} has changed, or the object is another one", before.key)))
    }

    pub(crate) fn clusters(&self, action: &Action) -> ActionClusters {
        let required = &action.precondition;
        let asked = required.absent.as_ref().map(|absent| &absent.cluster);
        let project = required.absent_project.as_ref().map(|project| &project.cluster);
        let names = [&action.cluster].into_iter().chain(asked).chain(project);
        let client = |name| self.clusters.get(name).as_ref().map(Arc::downgrade);
        ActionClusters(names.map(|name| (name.clone(), client(name))).collect())
    }

    /// Whether none of these clusters has left since. A cluster that joined again under the same name
    /// is another cluster: the decision does not apply to it.
    pub(crate) fn are_joined(&self, clusters: &ActionClusters) -> bool {
        let is_joined = |(name, then): &(_, Option<Weak<_>>)| {
            let now = self.clusters.get(name);
            then.as_ref().map(Weak::as_ptr) == now.as_ref().map(Arc::as_ptr)
        };
        clusters.0.iter().all(is_joined)
    }

    pub(crate) fn is_joined(&self, cluster: &ClusterName) -> bool {
        self.clusters.contains(cluster)
    }

    fn cluster(&self, name: &ClusterName) -> Result<Arc<ClusterClient>, CallError> {
        self.clusters
            .get(name)
            .ok_or_else(|| CallError::NoClient(format!("cluster {name} is not configured")))
    }
}

/// The outcome of an action whose attempt failed with `error`.
pub fn outcome(error: &CallError) -> Outcome {
    let failure = error.failure();
    match failure.cause.class() {
        ErrorClass::Never => Outcome::Refused { error: failure },
        ErrorClass::Refetch if failure.cause == ErrorCause::NotFound => Outcome::NotFound,
        ErrorClass::Refetch => Outcome::Conflict { error: failure },
        ErrorClass::Backoff => {
            Outcome::Failed { error: failure, retry_after_ms: error.retry_after().map(millis) }
        }
    }
}

/// The outcome of an action whose precondition does not hold.
fn conflict(text: impl Into<Box<str>>) -> Outcome {
    Outcome::Conflict { error: RequestFailure::new(ErrorCause::Conflict, text) }
}

/// Makes the API server give up a write when this client does. Without it, the write of a client that
/// lost its network may take effect up to a minute later.
fn server_timeout(timeout: Duration) -> String {
    format!("timeout={}ms", timeout.as_millis())
}

fn object_path(action: &Action) -> String {
    format!("{}/{}", path(action.kind, Some(action.object.namespace())), action.object.name())
}

/// The precondition, in the form shared by a patch's metadata and a delete's options.
fn uid_and_version(action: &Action) -> serde_json::Map<String, Value> {
    let required = &action.precondition;
    let fields = [("uid", &required.uid), ("resourceVersion", &required.resource_version)];
    fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), json!(v.as_ref()?)))).collect()
}

fn delete(action: &Action, timeout: Duration) -> Result<Request<Vec<u8>>, CallError> {
    let uri = format!("{}?{}", object_path(action), server_timeout(timeout));
    let preconditions = uid_and_version(action);
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    with_body(Request::delete(uri).header("accept", METADATA_ONLY), &body)
}
