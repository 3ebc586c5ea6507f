//! An object of any kind, for kube's libraries. An object with undecodable metadata still counts if it
//! has a name; with `DynamicObject` it would end the whole list.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Clone)]
pub(crate) struct AnyObject {
    /// Only name, namespace, uid and resourceVersion if the rest can't be decoded.
    metadata: ObjectMeta,
    is_metadata_whole: bool,
    /// The whole object.
    pub(crate) value: Value,
}

impl AnyObject {
    /// # Errors
    /// The metadata can't be decoded. The error quotes none of it: it may be a Secret's.
    pub(crate) fn metadata(&self) -> Result<&ObjectMeta, String> {
        self.is_metadata_whole
            .then_some(&self.metadata)
            .ok_or_else(|| "its metadata cannot be decoded".to_owned())
    }
}

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let decoded = ObjectMeta::deserialize(&value["metadata"]);
        let is_metadata_whole = decoded.is_ok();
        let text = |key: &str| value["metadata"][key].as_str().map(str::to_owned);
        let metadata = decoded.unwrap_or_else(|_| ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        });
        if metadata.name.is_none() {
            return Err(D::Error::custom("an object without a name"));
        }
        Ok(Self { metadata, is_metadata_whole, value })
    }
}

/// Omits the content, which may be a Secret's.
impl fmt::Debug for AnyObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyObject").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl Resource for AnyObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        (&resource.kind).into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        (&resource.group).into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        (&resource.version).into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        (&resource.plural).into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
