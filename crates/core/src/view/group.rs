//! Problems of one cause in one cluster, with their texts.

use serde::{Deserialize, Serialize};

use super::involved_object::InvolvedObject;
use crate::contract::cause::{Cause, ProblemId, Severity};
use crate::data::ids::{ClusterName, NamespacedName};
use crate::data::time::UnixMillis;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    pub cause: Cause,
    pub severity: Severity,
    pub cluster: ClusterName,
    pub since_ms: UnixMillis,
    /// How many objects, or kinds of a cluster, have the problem.
    pub count: usize,
    /// The first few of them.
    pub objects: Vec<NamespacedName>,
    pub message: String,
    pub error: Option<String>,
    pub remedy: String,
    /// The objects of its Kubernetes Events: each object if they are few, otherwise only the first.
    #[serde(skip)]
    pub places: Vec<Place>,
    #[serde(skip)]
    pub ended_at: Option<UnixMillis>,
}

/// An object for a Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub id: ProblemId,
    /// `None` if the subject is no object, or does not exist.
    pub object: Option<InvolvedObject>,
    pub message: String,
    pub remedy: String,
}
