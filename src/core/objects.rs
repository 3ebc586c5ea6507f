//! The slim objects: of a Kubernetes object only the fields that matter here.
//!
//! One Rust type reads all five kinds in a single pass ([`Object`], through `Wire`), whatever the
//! order of an object's members, and writes them back as Kubernetes objects.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::ids::{Kind, ObjectKey};
pub use super::string_map::StringMap;
use super::time::UnixMillis;

/// Annotation on the downstream Connector: the upstream `.status` as compact JSON.
pub const UPSTREAM_STATUS: &str = "networking.datumapis.com/upstream-status";
/// Annotation by which the platform's extension server says that its cache saw a change.
pub const PLATFORM_KEY: &str = "networking.datumapis.com/connector-ready-generation";
/// The prefix of the labels that tie a replica to its upstream object.
pub const META_PREFIX: &str = "meta.datumapis.com/";
/// Label: the upstream cluster, encoded (see [`upstream_cluster_name`]).
pub const UPSTREAM_CLUSTER_NAME: &str = "meta.datumapis.com/upstream-cluster-name";
/// Label: the upstream object's API group.
pub const UPSTREAM_GROUP: &str = "meta.datumapis.com/upstream-group";
/// Label: the upstream object's kind.
pub const UPSTREAM_KIND: &str = "meta.datumapis.com/upstream-kind";
/// Label: the upstream object's name.
pub const UPSTREAM_NAME: &str = "meta.datumapis.com/upstream-name";
/// Label: the upstream object's namespace; on a Namespace it marks a replica namespace.
pub const UPSTREAM_NAMESPACE: &str = "meta.datumapis.com/upstream-namespace";
/// Label: Karmada's protection; the value `Always` forbids deletion.
pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
/// The field manager of every write, as it stands in `managedFields`.
pub const FIELD_MANAGER: &str = "throughline";
/// The API group of Gateway and HTTPRoute.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Reads an `upstream-cluster-name` label: `_` is `/`, one leading `cluster-` is stripped, then
/// one leading `/` (older replicas carry one). `None` when nothing is left.
pub fn upstream_cluster_name(label: &str) -> Option<String> {
    let name = label.replace('_', "/");
    let name = name.strip_prefix("cluster-").unwrap_or(&name);
    let name = name.strip_prefix('/').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Who last wrote which part of an object, of which only writer and time matter here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedFields {
    /// The field manager's name.
    #[serde(default)]
    pub manager: String,
    /// When, by the API server's clock, in whole seconds.
    #[serde(default, with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub time: Option<UnixMillis>,
}

/// `metadata`, slim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The namespace; empty for a Namespace.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// The name; never empty.
    #[serde(default)]
    pub name: Box<str>,
    /// The uid; empty when the source left it out.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub uid: Box<str>,
    /// The resourceVersion; empty when the source left it out.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub resource_version: Box<str>,
    /// When it was created, by the API server's clock.
    #[serde(default, with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<UnixMillis>,
    /// Set when it is being deleted.
    #[serde(default, with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<UnixMillis>,
    /// Labels.
    #[serde(default, skip_serializing_if = "StringMap::is_empty")]
    pub labels: StringMap,
    /// Annotations.
    #[serde(default, skip_serializing_if = "StringMap::is_empty")]
    pub annotations: StringMap,
    /// Who has work to do before the object may go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<Box<str>>,
    /// Writers and times; empty in recordings that leave them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<ManagedFields>,
}

impl Meta {
    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&*self.namespace, &*self.name)
    }

    /// What a replica's labels say of its upstream object: cluster, namespace, name. `None` when
    /// one of the three is missing or empty.
    pub fn upstream(&self) -> Option<(String, &str, &str)> {
        let label = |key| self.labels.get(key).filter(|value| !value.is_empty());
        let cluster = upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)?)?;
        Some((cluster, label(UPSTREAM_NAMESPACE)?, label(UPSTREAM_NAME)?))
    }

    /// When anybody but throughline last wrote the object.
    pub fn others_wrote_at(&self) -> Option<UnixMillis> {
        self.managed_fields
            .iter()
            .filter(|f| f.manager != FIELD_MANAGER)
            .filter_map(|f| f.time)
            .max()
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
    /// Absent means the route's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The parent's name.
    #[serde(default)]
    pub name: String,
}

/// What differs by kind.
#[derive(Clone, Debug)]
pub enum Body {
    /// A Connector.
    Connector {
        /// `.status` as it stands in the source; `None` when absent or `null`.
        status: Option<Box<RawValue>>,
    },
    /// An HTTPProxy.
    HttpProxy {
        /// `spec.rules[].backends[].connector.name`, in order, each once.
        connectors: Vec<Box<str>>,
    },
    /// A Gateway.
    Gateway {
        /// `spec.gatewayClassName`.
        class: Box<str>,
    },
    /// An HTTPRoute.
    HttpRoute {
        /// `spec.parentRefs`.
        parents: Vec<ParentRef>,
    },
    /// A Namespace.
    Namespace,
}

/// A slim Kubernetes object of one of the five kinds.
#[derive(Clone, Debug)]
pub struct Object {
    /// `metadata`.
    pub meta: Meta,
    /// What differs by kind.
    pub body: Body,
}

impl Object {
    /// The object's kind.
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::Connector { .. } => Kind::Connector,
            Body::HttpProxy { .. } => Kind::HttpProxy,
            Body::Gateway { .. } => Kind::Gateway,
            Body::HttpRoute { .. } => Kind::HttpRoute,
            Body::Namespace => Kind::Namespace,
        }
    }

    /// A Connector's `.status` as text; `None` for other kinds too.
    pub fn status(&self) -> Option<&str> {
        match &self.body {
            Body::Connector { status } => status.as_ref().map(|s| s.get()),
            _ => None,
        }
    }
}

/// Why an object can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// `metadata` or `metadata.name` is missing.
    #[error("the object has no metadata.name")]
    NoMetadata,
    /// Not one of the five kinds; harmless.
    #[error("kind {0:?} means nothing to throughline")]
    UnknownKind(String),
}

/// An object as it stands on the wire: the fields of all five kinds side by side, so that one
/// pass reads any of them before `kind` is known.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wire {
    #[serde(default)]
    api_version: Option<Box<str>>,
    #[serde(default)]
    kind: Box<str>,
    metadata: Option<Meta>,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    rules: Option<Vec<Rule>>,
    #[serde(default)]
    parent_refs: Option<Vec<ParentRef>>,
    #[serde(default)]
    gateway_class_name: Option<Box<str>>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    #[serde(default)]
    backends: Option<Vec<Backend>>,
}

#[derive(Debug, Deserialize)]
struct Backend {
    #[serde(default)]
    connector: Option<ConnectorRef>,
}

#[derive(Debug, Deserialize)]
struct ConnectorRef {
    #[serde(default)]
    name: Box<str>,
}

impl Wire {
    /// The object, whose kind is known from where it was asked for: items of the lists of
    /// built-in kinds do not name theirs.
    ///
    /// # Errors
    /// It has no name.
    pub fn into_object_of(mut self, kind: Kind) -> Result<Object, ObjectError> {
        (self.kind, self.api_version) = (kind.as_str().into(), None);
        self.try_into()
    }
}

impl TryFrom<Wire> for Object {
    type Error = ObjectError;

    fn try_from(wire: Wire) -> Result<Self, ObjectError> {
        // The same kind name under another group is another kind (Istio has a Gateway, too).
        let group = |v: &str| v.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let kind = Kind::parse(&wire.kind)
            .filter(|k| {
                wire.api_version.as_deref().is_none_or(|v| group(v) == group(k.api_version()))
            })
            .ok_or_else(|| match &wire.api_version {
                Some(version) => ObjectError::UnknownKind(format!("{version} {}", wire.kind)),
                None => ObjectError::UnknownKind(wire.kind.to_string()),
            })?;
        let meta = wire.metadata.filter(|m| !m.name.is_empty()).ok_or(ObjectError::NoMetadata)?;
        let spec = wire.spec.unwrap_or_default();
        let body = match kind {
            Kind::Connector => Body::Connector { status: wire.status },
            Kind::HttpProxy => {
                let mut connectors: Vec<Box<str>> = Vec::new();
                let backends =
                    spec.rules.into_iter().flatten().flat_map(|r| r.backends.unwrap_or_default());
                for name in backends.filter_map(|b| b.connector).map(|c| c.name) {
                    if !name.is_empty() && !connectors.contains(&name) {
                        connectors.push(name);
                    }
                }
                Body::HttpProxy { connectors }
            }
            Kind::Gateway => Body::Gateway { class: spec.gateway_class_name.unwrap_or_default() },
            Kind::HttpRoute => Body::HttpRoute { parents: spec.parent_refs.unwrap_or_default() },
            Kind::Namespace => Body::Namespace,
        };
        Ok(Object { meta, body })
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
            Body::Gateway { class } => {
                map.serialize_entry("spec", &serde_json::json!({ "gatewayClassName": class }))?;
            }
            Body::HttpRoute { parents } => {
                map.serialize_entry("spec", &serde_json::json!({ "parentRefs": parents }))?;
            }
            Body::Connector { status: None } | Body::Namespace => {}
        }
        map.end()
    }
}

/// RFC 3339 text, `null` or absent. A time that can't be read counts as absent: where throughline
/// looks at times, a missing one always means "do not act on it".
mod optional_time {
    use super::{Deserialize, Deserializer, Serializer, UnixMillis};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<UnixMillis>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<UnixMillis>, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(text.and_then(|t| UnixMillis::parse_rfc3339(&t)))
    }
}
