//! The requests of the checks: reads, access reviews and dry runs, through `kube::Api`. None changes an
//! object.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta};
use serde::de::DeserializeOwned;

use super::permissions::split_resource;
use crate::client::{self, CallError, ClusterClient, Timeouts, kube_client};
use crate::config::Config;
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role};

/// The longest time for an answer.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of objects in a page of a list.
const PAGE_SIZE: u32 = 500;

/// A cluster that is checked.
pub(super) struct Cluster {
    pub(super) client: Arc<ClusterClient>,
    /// Uses the credentials and connections of `client`.
    pub(super) kube: kube::Client,
    /// The source of its connection, for people.
    pub(super) file: String,
    /// Whether it answers and accepts our credentials.
    pub(super) is_reached: bool,
    /// Our user name there, if the API server returns it.
    pub(super) account: Option<Box<str>>,
    /// The resources for which a permission is missing.
    pub(super) denied: Vec<&'static str>,
}

impl Cluster {
    pub(super) fn new(client: Arc<ClusterClient>, file: String) -> Self {
        let timeouts = Timeouts { answer: REQUEST_TIMEOUT, silence: REQUEST_TIMEOUT };
        let (kube, _) = kube_client(client.clone(), timeouts);
        Self { client, kube, file, is_reached: false, account: None, denied: Vec::new() }
    }

    pub(super) fn name(&self) -> &ClusterName {
        self.client.name()
    }

    pub(super) fn has(&self, role: Role) -> bool {
        self.client.roles().contains(&role)
    }

    /// The namespace of the Lease, if this cluster has it.
    pub(super) async fn lease_namespace(&self, config: &Config) -> String {
        match &config.leader_election.lease_namespace {
            Some(namespace) => namespace.clone(),
            None => self.client.default_namespace().await.unwrap_or_else(|_| "default".to_owned()),
        }
    }

    pub(super) fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let (plural, group) = split_resource(kind.resource());
        let (_, version) = kind.api_version().rsplit_once('/').unwrap_or(("", kind.api_version()));
        let gvk = GroupVersionKind::gvk(group, version, kind.as_str());
        Api::all_with(self.kube.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
    }

    /// All objects of a kind.
    ///
    /// # Errors
    /// Why they are not visible.
    pub(super) async fn objects(&self, kind: Kind) -> Result<Vec<DynamicObject>, String> {
        self.all(&self.api(kind), &format!("{kind}s")).await
    }

    /// All objects of a resource that a run does not read.
    ///
    /// # Errors
    /// Why they are not visible.
    pub(super) async fn others(
        &self,
        resource: &str,
        version: &str,
    ) -> Result<Vec<DynamicObject>, String> {
        let (plural, group) = split_resource(resource);
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, ""), plural);
        self.all(&Api::all_with(self.kube.clone(), &resource), plural).await
    }

    async fn all(
        &self,
        api: &Api<DynamicObject>,
        what: &str,
    ) -> Result<Vec<DynamicObject>, String> {
        if !self.is_reached {
            return Err(self.unseen());
        }
        let found = list(api, None).await;
        found.map_err(|error| format!("{what} at {}: {error}", self.name()))
    }

    /// Why nothing of the cluster is visible.
    pub(super) fn unseen(&self) -> String {
        format!("{} was not reached", self.name())
    }

    /// Whether it serves a resource, outside the core group, in this version.
    pub(super) async fn serves(&self, resource: &str, version: &str) -> Result<bool, CallError> {
        let (plural, group) = split_resource(resource);
        let served = self.kube.list_api_group_resources(&format!("{group}/{version}")).await;
        match served.map_err(call_error) {
            Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == plural)),
            Err(CallError::Status { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The error of kube's client over ours.
pub(super) fn call_error(error: kube::Error) -> CallError {
    client::call_error(&error)
}

/// All objects, page by page.
pub(super) async fn list<K>(api: &Api<K>, labels: Option<&str>) -> Result<Vec<K>, CallError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default().limit(PAGE_SIZE);
    params.label_selector = labels.map(str::to_owned);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(call_error)?;
        found.extend(page.items);
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(found);
        }
    }
}

pub(super) fn key(meta: &ObjectMeta) -> NamespacedName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NamespacedName::new(text(&meta.namespace), text(&meta.name))
}

/// A label that exists and is not empty.
pub(super) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    let value = meta.labels.as_ref()?.get(key)?;
    (!value.is_empty()).then_some(value)
}

pub(super) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    Some(meta.annotations.as_ref()?.get(key)?)
}
