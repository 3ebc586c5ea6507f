//! Reduced objects: metadata, and the fields of each kind.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::data::ids::{Kind, NamespacedName, Uid};
use crate::data::objects::keys::{
    FIELD_MANAGER, PAUSED, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE,
    is_karmadas_key, upstream_cluster_name,
};
use crate::data::objects::liveness_fields::LivenessFields;
use crate::data::objects::optional::{null_as_empty, optional_time};
use crate::data::string_map::StringMap;
use crate::data::time::UnixMillis;

/// An entry of `managedFields`: a writer and the time of its last write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedFields {
    #[serde(default, deserialize_with = "null_as_empty")]
    pub manager: String,
    /// By the API server's clock, in whole seconds.
    #[serde(default, with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub time: Option<UnixMillis>,
    /// Of a Connector: the owned fields that determine its liveness. `None` in a recording without
    /// them.
    #[serde(default, rename = "fieldsV1", skip_serializing_if = "Option::is_none")]
    pub fields: Option<LivenessFields>,
}

/// The reduced `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Empty for a Namespace.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// Never empty.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub name: Box<str>,
    /// Empty if the input had none.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "str::is_empty")]
    pub uid: Box<str>,
    /// Empty if the input had none.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "str::is_empty")]
    pub resource_version: Box<str>,
    /// By the API server's clock.
    #[serde(default, with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<UnixMillis>,
    /// Set while the object is being deleted.
    #[serde(default, with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<UnixMillis>,
    #[serde(default, skip_serializing_if = "StringMap::is_empty")]
    pub labels: StringMap,
    #[serde(default, skip_serializing_if = "StringMap::is_empty")]
    pub annotations: StringMap,
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<Box<str>>,
    /// Empty in a recording without them.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<ManagedFields>,
}

impl Meta {
    pub fn key(&self) -> NamespacedName {
        NamespacedName::new(&*self.namespace, &*self.name)
    }

    /// Whether Karmada carries the object to edges: it has a label or an annotation of Karmada's.
    pub fn is_karmadas(&self) -> bool {
        let mut keys = self.labels.iter().chain(self.annotations.iter()).map(|(key, _)| key);
        keys.any(is_karmadas_key)
    }

    /// Whether an operator has paused the object, so that nothing is written to it.
    pub fn is_paused(&self) -> bool {
        self.annotations.get(PAUSED) == Some("true")
    }

    /// The upstream object that a hub object's labels name: cluster, namespace, name.
    ///
    /// # Errors
    /// The first of these labels that is missing or empty.
    pub fn upstream(&self) -> Result<(String, &str, &str), &'static str> {
        let label = |key| self.labels.get(key).filter(|value| !value.is_empty()).ok_or(key);
        let cluster = upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)?);
        let cluster = cluster.ok_or(UPSTREAM_CLUSTER_NAME)?;
        Ok((cluster, label(UPSTREAM_NAMESPACE)?, label(UPSTREAM_NAME)?))
    }

    /// Whether a Namespace holds hub or edge objects rather than upstream ones. Besides the label,
    /// its name, `ns-` and a uid, shows this: a name cannot be removed by mistake.
    pub fn is_hub_namespace(&self) -> bool {
        self.labels.get(UPSTREAM_NAMESPACE).is_some() || Uid::names_hub_namespace(&self.name)
    }

    /// When another writer of the fields that determine liveness last wrote the object. A writer of
    /// a label alone does not count. If the fields are not known, every writer counts.
    pub fn others_wrote_at(&self) -> Option<UnixMillis> {
        self.managed_fields
            .iter()
            .filter(|f| f.manager != FIELD_MANAGER)
            .filter(|f| f.fields.is_none_or(LivenessFields::any))
            .filter_map(|f| f.time)
            .max()
    }

    /// The field manager of the writer that changed a value of ours. `is_present`: the value still
    /// exists. Another throughline has our own field manager. A writer that removed the value may
    /// have left no trace.
    pub fn overwritten_by(&self, is_present: bool) -> Option<&str> {
        let others = self.managed_fields.iter().filter(|f| f.manager != FIELD_MANAGER);
        let last = others.filter(|f| f.time.is_some()).max_by_key(|f| f.time);
        let ours = self.we_wrote_at().filter(|_| is_present);
        if ours > last.and_then(|last| last.time) {
            return Some(FIELD_MANAGER);
        }
        Some(last?.manager.as_str()).filter(|manager| !manager.is_empty())
    }

    /// When throughline last wrote the object.
    pub fn we_wrote_at(&self) -> Option<UnixMillis> {
        self.managed_fields
            .iter()
            .filter(|f| f.manager == FIELD_MANAGER)
            .filter_map(|f| f.time)
            .max()
    }
}

/// One of an HTTPRoute's `spec.parentRefs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Absent means `gateway.networking.k8s.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Absent means `Gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Absent means the route's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub name: String,
}

/// The fields of one kind.
#[derive(Clone, Debug)]
pub enum Body {
    Connector {
        /// `.status`, verbatim; `None` if absent or `null`.
        status: Option<Box<RawValue>>,
    },
    HttpProxy {
        /// `spec.rules[].backends[].connector.name`, in order, without duplicates.
        connectors: Vec<Box<str>>,
    },
    Gateway {
        /// `spec.gatewayClassName`.
        class: Box<str>,
        /// One of `status.listeners` has `Programmed: True`. The Gateway's own condition of that
        /// type is about addresses and Envoy's replicas, and all Gateways of a merged class lose it
        /// together.
        is_programmed: bool,
    },
    HttpRoute {
        /// `spec.parentRefs`.
        parents: Vec<ParentRef>,
    },
    Namespace,
}

/// A reduced Kubernetes object of one of the watched kinds.
#[derive(Clone, Debug)]
pub struct Object {
    pub meta: Meta,
    pub body: Body,
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::Connector { .. } => Kind::Connector,
            Body::HttpProxy { .. } => Kind::HttpProxy,
            Body::Gateway { .. } => Kind::Gateway,
            Body::HttpRoute { .. } => Kind::HttpRoute,
            Body::Namespace => Kind::Namespace,
        }
    }

    /// A Connector's `.status` as JSON text; `None` for other kinds.
    pub fn status(&self) -> Option<&str> {
        match &self.body {
            Body::Connector { status } => status.as_ref().map(|s| s.get()),
            _ => None,
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let kind = self.kind();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", kind.api_version())?;
        map.serialize_entry("kind", kind.as_str())?;
        map.serialize_entry("metadata", &self.meta)?;
        match &self.body {
            Body::Connector { status: Some(status) } => map.serialize_entry("status", status)?,
            Body::HttpProxy { connectors } => {
                let backend =
                    |name| serde_json::json!({"backends": [{"connector": {"name": name}}]});
                let rules: Vec<_> = connectors.iter().map(backend).collect();
                map.serialize_entry("spec", &serde_json::json!({ "rules": rules }))?;
            }
            Body::Gateway { class, is_programmed } => {
                map.serialize_entry("spec", &serde_json::json!({ "gatewayClassName": class }))?;
                if *is_programmed {
                    let condition = serde_json::json!({"type": "Programmed", "status": "True"});
                    let listener = serde_json::json!({ "conditions": [condition] });
                    map.serialize_entry("status", &serde_json::json!({ "listeners": [listener] }))?;
                }
            }
            Body::HttpRoute { parents } => {
                map.serialize_entry("spec", &serde_json::json!({ "parentRefs": parents }))?;
            }
            Body::Connector { status: None } | Body::Namespace => {}
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_namespace_is_known_by_its_name_or_its_label() {
        let is_hub = |name: &str, is_labelled: bool| {
            let label = (UPSTREAM_NAMESPACE, "default");
            let labels = is_labelled.then_some(label).into_iter().collect();
            Meta { name: name.into(), labels, ..Meta::default() }.is_hub_namespace()
        };
        let uid = "d21638c0-24ac-5767-8067-f82929dc4121";
        assert!(is_hub(&format!("ns-{uid}"), false) && is_hub("team", true));
        for name in ["team", "ns-", "ns-team", uid, &format!("ns-{uid}0"), &format!("ns-{uid}-0")] {
            assert!(!is_hub(name, false), "{name}");
        }
    }
}
