//! Actions: the writes that the machine decides, each to one object.

use serde::{Deserialize, Serialize};

use crate::contract::membership::SourceName;
use crate::data::closed_list::closed_list;
use crate::data::ids::{ActionId, ClusterName, Kind, NamespacedName};
use crate::data::time::UnixMillis;

/// One write to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Referred to by the outcome.
    pub id: ActionId,
    #[serde(rename = "type")]
    pub verb: Verb,
    pub cluster: ClusterName,
    pub kind: Kind,
    #[serde(flatten)]
    pub object: NamespacedName,
    /// The annotations to merge-patch; `None` removes the key. Empty for a delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "annotation_map")]
    pub annotations: Vec<(String, Option<String>)>,
    #[serde(default)]
    pub precondition: Precondition,
    /// The connectors that the action is about, at most [`Action::CONNECTORS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connectors: Vec<NamespacedName>,
}

impl Action {
    pub const CONNECTORS_MAX: usize = 16;

    /// Touches are not: each edge must recover even without a leader.
    pub fn is_leader_only(&self) -> bool {
        self.verb != Verb::Touch
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Verb {
    /// Writes or removes the status annotation of a hub Connector.
    Mirror,
    /// Changes the nudge annotation of a hub Connector, so that the carrier tries again.
    Nudge,
    /// Writes the trigger annotation of an edge Gateway, so that Envoy Gateway translates it again.
    Touch,
    /// Deletes an orphaned hub HTTPRoute.
    Delete,
}

closed_list!(Verb);

/// What the API server must still show for the write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    /// The object was not replaced by another of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The object has not changed since the decision (leader-only actions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// One annotation has not changed since the decision. Replaces `resource_version` if others
    /// change the object faster than a write takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<Box<AnnotationBefore>>,
    /// None of these objects exists upstream; checked live, just before the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<AbsentObjects>,
    /// The upstream cluster no longer exists; checked live, just before the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_project: Option<AbsentProject>,
}

/// The annotation on which the decision was based.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnotationBefore {
    pub key: String,
    /// The exact text that the watch showed; `None` if the object had no such annotation.
    pub value: Option<String>,
    /// The object had no annotations at all. A hint that saves a request.
    #[serde(default, rename = "noAnnotations", skip_serializing_if = "std::ops::Not::not")]
    pub no_annotations: bool,
}

/// The upstream objects whose absence justifies a write: the Gateways of a route to delete, or the
/// Connector of a status annotation to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentObjects {
    /// The upstream cluster.
    pub cluster: ClusterName,
    /// The upstream namespace.
    pub namespace: String,
    /// The uid that the upstream namespace must have, taken from the name of the hub namespace.
    #[serde(default, rename = "namespaceUid", skip_serializing_if = "Option::is_none")]
    pub namespace_uid: Option<String>,
    /// The namespace itself was deleted, so none with that uid may exist.
    #[serde(default, rename = "namespaceDeleted", skip_serializing_if = "std::ops::Not::not")]
    pub namespace_deleted: bool,
    #[serde(default = "gateway", skip_serializing_if = "is_gateway")]
    pub kind: Kind,
    pub names: Vec<String>,
}

/// The project whose absence justifies the delete of a route that names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentProject {
    /// The source that discovered it.
    pub source: SourceName,
    pub cluster: ClusterName,
}

/// The kind in logs from before `kind` was recorded.
fn gateway() -> Kind {
    Kind::Gateway
}

fn is_gateway(kind: &Kind) -> bool {
    *kind == Kind::Gateway
}

/// An action, and the reason for it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at: UnixMillis,
    pub action: Action,
    /// Not in the event log: it only affects when the action is sent.
    pub urgency: Urgency,
    pub because: String,
}

impl Decision {
    /// Whether both have the same line in an event log, which omits the urgency.
    pub fn is_logged_as(&self, other: &Self) -> bool {
        (self.at, &self.action, &self.because) == (other.at, &other.action, &other.because)
    }
}

/// The order in which waiting actions are sent: the first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It changes routing: a mirror of liveness, the first touch after a change.
    Routing,
    /// It repeats a touch, in case a cache was late.
    Confirmation,
    /// It makes the carrier try again.
    Nudge,
    /// It mirrors a change that does not affect routing, such as an address.
    Deferrable,
    Delete,
}

impl Urgency {
    /// The urgency of an action, derived from its verb alone.
    pub fn of(verb: Verb) -> Self {
        match verb {
            Verb::Mirror | Verb::Touch => Self::Routing,
            Verb::Nudge => Self::Nudge,
            Verb::Delete => Self::Delete,
        }
    }
}

/// Written as `{"key": "value" | null}`, in the order given.
mod annotation_map {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    type Annotations = Vec<(String, Option<String>)>;

    pub(crate) fn serialize<S: Serializer>(v: &Annotations, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(v.iter().map(|(k, v)| (k, v)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Annotations, D::Error> {
        Ok(BTreeMap::<String, Option<String>>::deserialize(d)?.into_iter().collect())
    }
}
