//! Kubernetes objects on the wire, and their conversion to reduced ones.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::data::ids::Kind;
use crate::data::objects::object::{Body, Meta, Object, ParentRef};
use crate::data::objects::optional::null_as_empty;

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectError {
    NoMetadata,
    /// Harmless: the object is skipped.
    UnknownKind(String),
    /// A field that throughline reads has another type.
    Unreadable {
        kind: Kind,
        error: String,
    },
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMetadata => f.write_str("the object has no metadata.name"),
            Self::UnknownKind(kind) => write!(f, "throughline does not use kind {kind:?}"),
            Self::Unreadable { kind, error } => write!(f, "{kind}: {error}"),
        }
    }
}

impl std::error::Error for ObjectError {}

/// An object on the wire. The fields of one kind are read once the kind is known, which may come
/// last: a field of the same name may have another type in another kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireObject {
    api_version: Option<Box<str>>,
    #[serde(default, deserialize_with = "null_as_empty")]
    kind: Box<str>,
    metadata: Option<Meta>,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
struct HttpProxySpec {
    rules: Option<Vec<Rule>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpRouteSpec {
    parent_refs: Option<Vec<ParentRef>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewaySpec {
    gateway_class_name: Option<Box<str>>,
}

#[derive(Deserialize)]
struct GatewayStatus {
    listeners: Option<Vec<Listener>>,
}

#[derive(Deserialize)]
struct Listener {
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(default, rename = "type", deserialize_with = "null_as_empty")]
    condition_type: Box<str>,
    #[serde(default, deserialize_with = "null_as_empty")]
    status: Box<str>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    backends: Option<Vec<Backend>>,
}

#[derive(Debug, Deserialize)]
struct Backend {
    connector: Option<ConnectorRef>,
}

#[derive(Debug, Deserialize)]
struct ConnectorRef {
    #[serde(default, deserialize_with = "null_as_empty")]
    name: Box<str>,
}

impl WireObject {
    /// Whether it has no other `apiVersion` and `kind` than these.
    pub fn is_named(&self, kind: Kind) -> bool {
        self.api_version.as_deref().is_none_or(|version| version == kind.api_version())
            && (self.kind.is_empty() || *self.kind == *kind.as_str())
    }

    /// Converts to an object of a kind that is known from the request: in lists of built-in kinds,
    /// the items do not contain theirs.
    ///
    /// # Errors
    /// The object has no name, or a field that throughline reads has another type.
    pub fn into_object_of(self, kind: Kind) -> Result<Object, ObjectError> {
        let meta = self.metadata.filter(|m| !m.name.is_empty());
        let mut meta = meta.ok_or(ObjectError::NoMetadata)?;
        if kind != Kind::Connector {
            meta.managed_fields.iter_mut().for_each(|entry| entry.fields = None);
        }
        let spec = self.spec.as_deref();
        let body = match kind {
            Kind::Connector => Body::Connector { status: self.status },
            Kind::HttpProxy => {
                let rules = read_spec::<HttpProxySpec>(kind, spec)?.rules;
                let backends = rules.into_iter().flatten().flat_map(|r| r.backends);
                let mut connectors: Vec<Box<str>> = Vec::new();
                for name in backends.flatten().filter_map(|b| b.connector).map(|c| c.name) {
                    if !name.is_empty() && !connectors.contains(&name) {
                        connectors.push(name);
                    }
                }
                Body::HttpProxy { connectors }
            }
            Kind::Gateway => {
                let class = read_spec::<GatewaySpec>(kind, spec)?.gateway_class_name;
                let is_programmed = self.status.as_deref().is_some_and(is_programmed);
                Body::Gateway { class: class.unwrap_or_default(), is_programmed }
            }
            Kind::HttpRoute => {
                let parents = read_spec::<HttpRouteSpec>(kind, spec)?.parent_refs;
                Body::HttpRoute { parents: parents.unwrap_or_default() }
            }
            Kind::Namespace => Body::Namespace,
        };
        Ok(Object { meta, body })
    }
}

/// Whether one of a Gateway's listeners is programmed. An unexpected status counts as not
/// programmed, so that the Gateway stays readable.
fn is_programmed(status: &RawValue) -> bool {
    let status = serde_json::from_str::<Option<GatewayStatus>>(status.get());
    let listeners = status.ok().flatten().and_then(|status| status.listeners);
    let conditions = listeners.into_iter().flatten().filter_map(|listener| listener.conditions);
    conditions
        .flatten()
        .any(|condition| &*condition.condition_type == "Programmed" && &*condition.status == "True")
}

fn read_spec<'a, T>(kind: Kind, spec: Option<&'a RawValue>) -> Result<T, ObjectError>
where
    T: Default + Deserialize<'a>,
{
    let Some(spec) = spec else { return Ok(T::default()) };
    let spec = serde_json::from_str::<Option<T>>(spec.get());
    let unreadable = |error: serde_json::Error| {
        let error = format!("spec: {error}");
        ObjectError::Unreadable { kind, error }
    };
    Ok(spec.map_err(unreadable)?.unwrap_or_default())
}

impl TryFrom<WireObject> for Object {
    type Error = ObjectError;

    fn try_from(wire: WireObject) -> Result<Self, ObjectError> {
        // The same kind name in another group is another kind: Istio has a Gateway, too.
        let group = |v: &str| v.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let kind = Kind::parse(&wire.kind)
            .filter(|k| {
                wire.api_version.as_deref().is_none_or(|v| group(v) == group(k.api_version()))
            })
            .ok_or_else(|| match &wire.api_version {
                Some(version) => ObjectError::UnknownKind(format!("{version} {}", wire.kind)),
                None => ObjectError::UnknownKind(wire.kind.to_string()),
            })?;
        wire.into_object_of(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Object, String> {
        let wire: WireObject = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Object::try_from(wire).map_err(|error| error.to_string())
    }

    #[test]
    fn a_field_that_only_another_kind_has_may_be_anything() {
        let connector = r#"{"kind":"Connector","metadata":{"name":"c"},
            "spec":{"rules":{},"parentRefs":1,"gatewayClassName":[]},"status":{}}"#;
        assert_eq!(read(connector).unwrap().status(), Some("{}"));
        let proxy = r#"{"kind":"HTTPProxy","metadata":{"name":"p"},"spec":{"rules":{}}}"#;
        let error = read(proxy).unwrap_err();
        assert!(error.starts_with("HTTPProxy: spec: invalid type: map"), "{error}");
    }

    #[test]
    fn null_leaves_a_field_empty_as_in_go() {
        let object = r#"{"kind":"Gateway","metadata":{"name":"g","namespace":null,"uid":null,
            "resourceVersion":null,"labels":null,"annotations":{"a":null},"finalizers":null,
            "managedFields":null,"creationTimestamp":null},"spec":null,"status":null}"#;
        let object = read(object).unwrap();
        assert_eq!(object.meta.annotations.get("a"), Some(""));
        assert_eq!((&*object.meta.uid, object.meta.finalizers.len()), ("", 0));
        let proxy = r#"{"kind":"HTTPProxy","metadata":{"name":"p"},"spec":{"rules":[
            {"backends":null},{"backends":[{"connector":null},{"connector":{"name":null}},
            {"connector":{"name":"c"}}]}]}}"#;
        let Body::HttpProxy { connectors } = read(proxy).unwrap().body else { panic!() };
        assert_eq!(connectors, ["c".into()]);
    }

    #[test]
    fn a_gateway_is_programmed_if_one_of_its_listeners_is() {
        let programmed = |status: &str| {
            let gateway =
                format!(r#"{{"kind":"Gateway","metadata":{{"name":"g"}},"status":{status}}}"#);
            let gateway = read(&gateway).unwrap();
            let again = read(&serde_json::to_string(&gateway).unwrap()).unwrap();
            let [one, two] = [&gateway, &again].map(|gateway| match gateway.body {
                Body::Gateway { is_programmed, .. } => is_programmed,
                _ => panic!("{gateway:?}"),
            });
            assert_eq!(one, two, "{status}");
            one
        };
        let condition = |kind: &str, status: &str| {
            format!(r#"{{"conditions":[{{"type":"{kind}","status":"{status}"}}]}}"#)
        };
        let [yes, no] = ["True", "False"].map(|status| condition("Programmed", status));
        assert!(programmed(&format!(r#"{{"listeners":[{no},{yes}]}}"#)));
        for status in [
            "null".to_owned(),
            "[]".to_owned(),
            r#"{"listeners":null}"#.to_owned(),
            r#"{"listeners":7}"#.to_owned(),
            r#"{"listeners":[{"conditions":null}]}"#.to_owned(),
            yes,
            format!(r#"{{"listeners":[{no}]}}"#),
            format!(r#"{{"listeners":[{}]}}"#, condition("Accepted", "True")),
        ] {
            assert!(!programmed(&status), "{status}");
        }
    }
}
