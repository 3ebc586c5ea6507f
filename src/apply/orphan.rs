//! The delete of an orphan: everything that it stands on is asked for once more, live, and then the
//! delete follows at once, with the uid and resourceVersion that were proved.
//!
//! ```text
//! GET the route ─► GET the upstream namespace ─► GET each parent ─► may we still? ─► DELETE
//!  the one that      200, with the uid that        404 about that
//!  was judged, and   the route's namespace         very Gateway
//!  still an orphan   is named after
//! ```
//!
//! Whatever is answered otherwise is no proof, and the route stays. A 403, a 404 of the whole API, a
//! time-out say nothing about a Gateway.

use crate::client::{CallError, Class, JSON, get, path};
use crate::clock::millis;
use crate::core::action::{AbsentGateways, Action};
use crate::core::event::Outcome;
use crate::core::ids::Kind;
use crate::core::objects::{Object, Wire};
use crate::core::route::claim;

use super::{Apply, METADATA_ONLY, delete, meta, object_path};

/// Why nothing was deleted.
type Unproved = Outcome;

impl Apply {
    pub(super) async fn delete(
        &self,
        action: &Action,
        may: impl Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        let cluster = self.cluster(&action.cluster)?;
        let Some(absent) = &action.precondition.absent else {
            return Ok(conflict("the delete names no evidence"));
        };
        let answer = cluster.call(get(&object_path(action), JSON)?, self.timeout).await?;
        let route = match route(action, absent, &answer) {
            Ok(text) => text,
            Err(why) => return Ok(conflict(why)),
        };
        if let Err(unproved) = self.prove(absent).await {
            return Ok(unproved);
        }
        if !may() {
            return Ok(Outcome::Dropped);
        }
        match cluster.call(delete(action, self.timeout)?, self.timeout).await {
            Ok(_) => Ok(Outcome::Applied { resource_version: None, deleted: Some(route) }),
            // It did not reach the API server, or the API server says that it did not do it.
            Err(error @ CallError::NoClient(_)) => Err(error),
            Err(error) if (400..500).contains(&error.code()) => Err(error),
            Err(error) => {
                Ok(Outcome::Unanswered { error: error.to_string(), deleted: Some(route) })
            }
        }
    }

    /// Asks upstream for the namespace and for each Gateway.
    async fn prove(&self, absent: &AbsentGateways) -> Result<(), Unproved> {
        let AbsentGateways { cluster: name, namespace, namespace_uid, names } = absent;
        let failed =
            |error: CallError| Outcome::Failed { error: error.to_string(), retry_after_ms: None };
        let cluster = self.cluster(name).map_err(failed)?;
        let at = format!("Namespace {namespace} in {name}");
        let uri = format!("{}/{namespace}", path(Kind::Namespace, None));
        let found = cluster.call(get(&uri, METADATA_ONLY).map_err(failed)?, self.timeout).await;
        let found = found.map_err(|error| unproved(&at, &error))?;
        let uid = meta(&found).uid;
        if uid.is_none() || uid != *namespace_uid || names.is_empty() {
            return Err(conflict(format!("{at} is another one than the route's labels mean")));
        }
        for gateway in names {
            let at = format!("Gateway {namespace}/{gateway} in {name}");
            let uri = format!("{}/{gateway}", path(Kind::Gateway, Some(namespace)));
            match cluster.call(get(&uri, METADATA_ONLY).map_err(failed)?, self.timeout).await {
                Ok(_) => return Err(conflict(format!("{at} exists"))),
                Err(error) if error.is_absence_of(Kind::Gateway, gateway) => {}
                Err(error) => return Err(unproved(&at, &error)),
            }
        }
        Ok(())
    }
}

fn conflict(error: impl Into<String>) -> Outcome {
    Outcome::Conflict { error: error.into() }
}

/// An answer that proves nothing: the delete waits, and is decided anew.
fn unproved(at: &str, error: &CallError) -> Unproved {
    let text = format!("whether {at} exists can't be told: {error}");
    if error.class() == Class::Backoff {
        return Outcome::Failed { error: text, retry_after_ms: error.retry_after().map(millis) };
    }
    conflict(text)
}

/// The route's text, if it is the one that was judged and is still what it was judged to be.
fn route(action: &Action, absent: &AbsentGateways, answer: &[u8]) -> Result<Box<str>, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("the route can't be read: {error}");
    let text = std::str::from_utf8(answer).map_err(|error| unreadable(&error))?;
    let wire: Wire = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let object: Object = wire.try_into().map_err(|error| unreadable(&error))?;
    let must = &action.precondition;
    let is_same = |must: &Option<String>, is: &str| must.as_deref().is_some_and(|must| must == is);
    if !is_same(&must.uid, &object.meta.uid) {
        return Err("the route is another one of that name".to_owned());
    }
    if !is_same(&must.resource_version, &object.meta.resource_version) {
        return Err("the route was changed meanwhile".to_owned());
    }
    let claim = claim(&object).map_err(|keep| format!("the route is kept: {keep}"))?;
    let is_about = claim.cluster == absent.cluster.as_str()
        && claim.namespace == absent.namespace
        && claim.gateways.iter().eq(absent.names.iter().collect::<std::collections::BTreeSet<_>>());
    if !is_about {
        return Err(
            "the route's labels or parents are others than those that were judged".to_owned()
        );
    }
    Ok(text.trim_ascii().into())
}
