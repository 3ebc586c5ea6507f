//! An action of a what-if lands in the world.

use crate::core::action::{AbsentGateways, Action, Verb};
use crate::core::event::Outcome;
use crate::core::ids::{Kind, ObjectKey};
use crate::world::{ApiError, OURS, Preconditions, World};

/// One action, as the executor and an API server would carry it out.
pub(super) fn carry_out(world: &mut World, action: &Action) -> Outcome {
    let preconditions = Preconditions {
        uid: action.precondition.uid.clone(),
        resource_version: action.precondition.resource_version.clone(),
    };
    let result = if action.verb == Verb::Delete {
        let absent = action.precondition.absent.as_ref();
        if let Some(AbsentGateways { cluster, namespace, namespace_uid: Some(uid), .. }) = absent {
            let found = world.get(cluster, Kind::Namespace, &ObjectKey::new("", namespace));
            if found.is_none_or(|namespace| *namespace.meta.uid != **uid) {
                let error = format!("the namespace {namespace} is not the one it was");
                return Outcome::Conflict { error };
            }
        }
        let alive = absent.and_then(|a| {
            let key = |name: &String| ObjectKey::new(&a.namespace, name);
            a.names.iter().find(|name| world.get(&a.cluster, Kind::Gateway, &key(name)).is_some())
        });
        if let Some(name) = alive {
            let error = format!("the parent {name} exists after all");
            return Outcome::Conflict { error };
        }
        world.delete(&action.cluster, action.kind, &action.object, &preconditions).map(|()| None)
    } else {
        world
            .patch(
                &action.cluster,
                action.kind,
                &action.object,
                &action.annotations,
                &preconditions,
                OURS,
            )
            .map(|(rv, changed)| changed.then_some(rv))
    };
    match result {
        Ok(None) if action.verb != Verb::Delete => Outcome::Unchanged,
        Ok(resource_version) => Outcome::Applied { resource_version, deleted: None },
        Err(ApiError::NotFound) => Outcome::NotFound,
        Err(ApiError::Conflict(error)) => Outcome::Conflict { error },
        Err(ApiError::Invalid(error)) => Outcome::Refused { error },
        Err(error @ ApiError::Unreachable) => {
            Outcome::Failed { error: error.to_string(), retry_after_ms: None }
        }
    }
}
