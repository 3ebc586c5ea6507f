//! Actions: the writes that the machine asks for, each to one object.

use serde::{Deserialize, Serialize};

use crate::contract::membership::SourceName;
use crate::data::closed_list::closed_list;
use crate::data::ids::{ActionId, ClusterName, Kind, ObjectKey};
use crate::data::time::UnixMillis;

/// One write to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Outcomes refer to it.
    pub id: ActionId,
    #[serde(rename = "type")]
    pub verb: Verb,
    pub cluster: ClusterName,
    pub kind: Kind,
    #[serde(flatten)]
    pub object: ObjectKey,
    /// The annotations to merge-patch; `None` removes the key. Empty for a delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "annotation_map")]
    pub annotations: Vec<(String, Option<String>)>,
    #[serde(default)]
    pub precondition: Precondition,
    /// The connectors that it is about, at most [`Action::CONNECTORS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connectors: Vec<ObjectKey>,
}

impl Action {
    pub const CONNECTORS_MAX: usize = 16;

    /// Every instance may touch, because each edge must heal even without a leader.
    pub fn is_leader_only(&self) -> bool {
        self.verb != Verb::Touch
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Verb {
    /// Write or remove the status annotation of a hub Connector.
    Mirror,
    /// Change the nudge annotation of a hub Connector, so that the carrier tries again.
    Nudge,
    /// Write the trigger annotation of an edge Gateway, so that Envoy Gateway translates again.
    Touch,
    /// Delete an orphaned hub HTTPRoute.
    Delete,
}

closed_list!(Verb);

/// What must still be true of an object when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    /// The object was not replaced by another of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The object has not changed since the decision (leader-only actions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// One annotation has not changed since the decision. It stands instead of `resource_version`
    /// where others change the object faster than a write to it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<Box<AnnotationBefore>>,
    /// None of these objects exists upstream; checked live, just before the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<AbsentObjects>,
    /// The upstream cluster does not exist any longer; checked live, just before the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_project: Option<AbsentProject>,
}

/// The annotation that a decision was made on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnotationBefore {
    pub key: String,
    /// As the watch showed it, to the byte; `None` where the object had no such annotation.
    pub value: Option<String>,
    /// The object had no annotations at all. A hint: it saves a request.
    #[serde(default, rename = "noAnnotations", skip_serializing_if = "std::ops::Not::not")]
    pub no_annotations: bool,
}

/// The upstream objects whose absence justifies a write: the Gateways of a route that is deleted, the
/// Connector of a status annotation that is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentObjects {
    /// The upstream cluster.
    pub cluster: ClusterName,
    /// The upstream namespace.
    pub namespace: String,
    /// The uid that the upstream namespace must have: the one in the name of the hub namespace.
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
    /// Where it was discovered.
    pub source: SourceName,
    pub cluster: ClusterName,
}

/// What `kind` was before it was written down.
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
    /// Not in the event log: it changes only when the action is sent.
    pub urgency: Urgency,
    pub because: String,
}

impl Decision {
    /// Whether both are the same line of an event log, which does not have the urgency.
    pub fn is_logged_as(&self, other: &Self) -> bool {
        (self.at, &self.action, &self.because) == (other.at, &other.action, &other.because)
    }
}

/// The order in which actions leave while many wait: the first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It changes where requests go: a mirror of liveness, the first touch of a change.
    Routing,
    /// It repeats a touch, in case a cache was late.
    Confirmation,
    /// It asks the carrier to try again.
    Nudge,
    /// It mirrors what routes nothing, such as an address.
    Deferrable,
    /// It deletes.
    Delete,
}

impl Urgency {
    /// The urgency of an action of which only the verb is known.
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
