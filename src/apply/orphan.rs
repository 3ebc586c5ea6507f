//! Deletes an orphaned route. It reads all evidence for the decision again from the API servers; the
//! delete follows at once, with the uid and resourceVersion just read.
//!
//! ```text
//! GET the route ─► GET the upstream namespace ─► GET each parent ─► backup ─► still leader? ─► DELETE
//!  the one that      200, with the uid that        404 about that    on the
//!  was judged, and   the route's namespace         very Gateway      disk
//!  still an orphan   is named after
//! ```
//!
//! If a route's project was deleted, its namespace and its parents can no longer be read: the project's
//! control plane answers for every name. Instead the root is asked for the Project, and must answer 404
//! about that very name.
//!
//! Any other response proves nothing, and the route stays: a 403, a 404 of the whole API or a time-out
//! is no evidence about a Gateway.

use std::collections::BTreeSet;

use serde::Deserialize;
use tokio::time::timeout;

use crate::client::{CallError, ClusterClient, JSON, get, path};
use crate::clock::millis;
use crate::core::contract::action::{AbsentObjects, AbsentProject, Action};
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::contract::error_cause::{ErrorCause, ErrorClass, RequestFailure};
use crate::core::contract::event::Outcome;
use crate::core::contract::route_origin::origin_of;
use crate::core::data::ids::{ClusterName, Kind, NamespacedName};
use crate::core::data::objects::{Object, WireObject};

use super::patch::{no_object, stored_metadata};
use super::{Applier, METADATA_ONLY, conflict, delete, object_path};

impl Applier {
    pub(super) async fn delete(
        &self,
        action: &Action,
        may_write: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        let cluster = self.cluster(&action.cluster)?;
        let required = &action.precondition;
        let evidence = match (&required.absent, &required.absent_project) {
            (Some(absent), None) => Evidence::Gateways(absent),
            (None, Some(project)) => Evidence::Project(project),
            _ => return Ok(conflict("the delete carries no evidence")),
        };
        let Some(backup) = &self.backup else {
            return Ok(not_backed_up("there is no event log (eventLog.file)"));
        };
        let response = cluster.call(get(&object_path(action), JSON)?, self.timeout).await?;
        let route = match checked_route(action, evidence, &response) {
            Ok(text) => text,
            Err(why) => return Ok(conflict(why)),
        };
        let confirmed = match evidence {
            Evidence::Gateways(absent) => self.confirm_absence(absent).await,
            Evidence::Project(project) => self.confirm_project_absence(&project.cluster).await,
        };
        if let Err(outcome) = confirmed {
            return Ok(outcome);
        }
        let name = action.cluster.as_str();
        // Bounded, so that the proofs don't age: a slow disk prevents the delete.
        match timeout(self.timeout, backup.record(name, &route)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Ok(not_backed_up(&error)),
            Err(_) => return Ok(not_backed_up("the disk is too slow")),
        }
        let ended = self.send_delete(&cluster, action, may_write).await;
        let outcome =
            ended.as_ref().map_or_else(|error| super::outcome(error).name(), Outcome::name);
        let uid = action.precondition.uid.as_deref().unwrap_or_default();
        let _ = timeout(self.timeout, backup.record_end(name, uid, outcome)).await;
        ended
    }

    async fn send_delete(
        &self,
        cluster: &ClusterClient,
        action: &Action,
        may_write: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        if !may_write() {
            return Ok(Outcome::Dropped);
        }
        match cluster.call(delete(action, self.timeout)?, self.timeout).await {
            Ok(answer) if is_answer(&answer) => Ok(Outcome::Applied { resource_version: None }),
            Ok(answer) => Ok(Outcome::Unanswered { error: no_object(&answer).failure() }),
            // The request was not sent, or the API server states that it did not delete the route.
            Err(error @ CallError::NoClient(_)) => Err(error),
            Err(error) if error.code().is_some_and(|code| (400..500).contains(&code)) => Err(error),
            Err(error) => Ok(Outcome::Unanswered { error: error.failure() }),
        }
    }

    /// Asks the root whether the project exists. An error is the outcome of the action.
    async fn confirm_project_absence(&self, project: &ClusterName) -> Result<(), Outcome> {
        let at = format!("project {project}");
        let Some(projects) = &self.projects else {
            return Err(conflict(format!("cannot tell whether {at} exists: no discovery can ask")));
        };
        let answer = timeout(self.timeout, projects.exists(project)).await;
        match answer.unwrap_or(Err(CallError::TimedOut(self.timeout))) {
            Ok(false) => Ok(()),
            Ok(true) => Err(conflict(format!("{at} exists"))),
            Err(error) => Err(inconclusive(&at, &error)),
        }
    }

    /// Reads the upstream namespace and each object. An error is the outcome of the action.
    pub(super) async fn confirm_absence(&self, absent: &AbsentObjects) -> Result<(), Outcome> {
        let AbsentObjects { cluster: name, namespace, namespace_uid, kind, names, .. } = absent;
        let failed =
            |error: CallError| Outcome::Failed { error: error.failure(), retry_after_ms: None };
        let cluster = self.cluster(name).map_err(failed)?;
        let at = format!("Namespace {namespace} in {name}");
        let uri = format!("{}/{namespace}", path(Kind::Namespace, None));
        let found = cluster.call(get(&uri, METADATA_ONLY).map_err(failed)?, self.timeout).await;
        if absent.namespace_deleted {
            return match found {
                Ok(found) if uid_of(&found).is_none_or(|uid| Some(uid) == *namespace_uid) => {
                    Err(conflict(format!("{at} exists")))
                }
                Ok(_) => Ok(()),
                Err(error) if error.is_absence_of(Kind::Namespace.resource(), namespace) => Ok(()),
                Err(error) => Err(inconclusive(&at, &error)),
            };
        }
        let found = found.map_err(|error| inconclusive(&at, &error))?;
        let uid = uid_of(&found);
        if uid.is_none() || uid != *namespace_uid || names.is_empty() {
            return Err(conflict(format!(
                "{at} is not the namespace that the hub object was copied from"
            )));
        }
        for object in names {
            let at = format!("{kind} {namespace}/{object} in {name}");
            let uri = format!("{}/{object}", path(*kind, Some(namespace)));
            match cluster.call(get(&uri, METADATA_ONLY).map_err(failed)?, self.timeout).await {
                Ok(_) => return Err(conflict(format!("{at} exists"))),
                Err(error) if error.is_absence_of(kind.resource(), object) => {}
                Err(error) => return Err(inconclusive(&at, &error)),
            }
        }
        Ok(())
    }
}

/// The justification of a delete.
#[derive(Clone, Copy)]
enum Evidence<'a> {
    /// The route's parents don't exist.
    Gateways(&'a AbsentObjects),
    /// The project that owned the route does not exist.
    Project(&'a AbsentProject),
}

/// The uid of the object in an answer; `None` if there is no such object in it.
fn uid_of(answer: &[u8]) -> Option<String> {
    stored_metadata(answer).ok()?.uid
}

/// Whether this is an API server's answer to a delete: a Status, or the object.
fn is_answer(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        kind: String,
        #[serde(default)]
        status: serde_json::Value,
    }
    serde_json::from_slice::<Answer>(body)
        .is_ok_and(|answer| answer.kind != "Status" || answer.status == "Success")
}

/// The outcome if the backup failed. The machine decides again after a pause.
fn not_backed_up(why: &str) -> Outcome {
    let text = format!("nothing is deleted, because the route cannot be written down first: {why}");
    Outcome::Failed { error: RequestFailure::new(ErrorCause::Other, text), retry_after_ms: None }
}

/// The outcome of a response that proves nothing: no delete, and the machine decides again.
fn inconclusive(at: &str, error: &CallError) -> Outcome {
    let text = format!("cannot tell whether {at} exists: {error}");
    let failure = RequestFailure::new(error.cause(), text);
    if failure.cause.class() == ErrorClass::Backoff {
        return Outcome::Failed { error: failure, retry_after_ms: error.retry_after().map(millis) };
    }
    Outcome::Conflict { error: failure }
}

/// The route's JSON text, if it is still the route of the decision, with the same labels and parents.
/// An error states the difference.
fn checked_route(
    action: &Action,
    evidence: Evidence<'_>,
    response: &[u8],
) -> Result<Box<str>, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("cannot read the route: {error}");
    let text = std::str::from_utf8(response).map_err(|error| unreadable(&error))?;
    let wire: WireObject = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let object: Object = wire.try_into().map_err(|error| unreadable(&error))?;
    let required = &action.precondition;
    if required.uid.as_deref() != Some(&object.meta.uid) {
        return Err("another route has this name now".to_owned());
    }
    if required.resource_version.as_deref() != Some(&object.meta.resource_version) {
        return Err("the route has changed since it was judged".to_owned());
    }
    let origin = origin_of(&object).map_err(|cause| {
        let about = About::object(&action.cluster, action.kind, action.object.clone());
        let cause = cause.unwrap_or(Cause::RouteNotOrphaned);
        format!("the route must stay: {}", cause.sentence(&about, &Facts::default()))
    })?;
    let is_as_judged = match evidence {
        Evidence::Gateways(absent) => {
            let names: BTreeSet<_> = absent.names.iter().map(String::as_str).collect();
            origin.cluster == absent.cluster
                && *origin.namespace == *absent.namespace
                && origin.gateways.iter().map(NamespacedName::name).eq(names)
        }
        Evidence::Project(project) => origin.cluster == project.cluster,
    };
    if !is_as_judged {
        return Err("the route's labels or parents are not those that were judged".to_owned());
    }
    Ok(text.trim_ascii().into())
}
