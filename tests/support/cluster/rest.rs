//! Plain JSON requests to an API server. What it refuses is not asked again, unless it has only just started.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::SOON;
use super::objects::key;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub(crate) group_version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
}

pub(crate) const CONNECTORS: Resource =
    Resource::new("networking.datumapis.com/v1alpha1", "connectors", "Connector");
pub(crate) const PROXIES: Resource =
    Resource::new("networking.datumapis.com/v1alpha", "httpproxies", "HTTPProxy");
pub(crate) const GATEWAYS: Resource =
    Resource::new("gateway.networking.k8s.io/v1", "gateways", "Gateway");
pub(crate) const ROUTES: Resource =
    Resource::new("gateway.networking.k8s.io/v1", "httproutes", "HTTPRoute");
pub(crate) const NAMESPACES: Resource = Resource::new("v1", "namespaces", "Namespace");
pub(crate) const CRDS: Resource = Resource::new(
    "apiextensions.k8s.io/v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
);
pub(crate) const SECRETS: Resource = Resource::new("v1", "secrets", "Secret");
pub(crate) const LEASES: Resource = Resource::new("coordination.k8s.io/v1", "leases", "Lease");
pub(crate) const EVENTS: Resource = Resource::new("v1", "events", "Event");
pub(crate) const CLUSTER_ROLES: Resource =
    Resource::new("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole");
pub(crate) const ROLES: Resource = Resource::new("rbac.authorization.k8s.io/v1", "roles", "Role");
pub(crate) const ROLE_BINDINGS: Resource =
    Resource::new("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding");
pub(crate) const BINDINGS: Resource =
    Resource::new("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding");

impl Resource {
    pub(crate) const fn new(
        group_version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self { group_version, plural, kind }
    }

    /// The path of the collection; of all namespaces if `namespace` is empty.
    pub(crate) fn path(self, namespace: &str) -> String {
        let api = if self.group_version.contains('/') { "apis" } else { "api" };
        let scope =
            if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("/{api}/{}{scope}/{}", self.group_version, self.plural)
    }

    fn object_path(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.path(namespace))
    }
}

/// A request that failed; code 0 if there was no answer.
pub(crate) type RequestError = Box<Status>;
pub(crate) type Answer<T = Value> = Result<T, RequestError>;

fn refused(error: kube::Error) -> RequestError {
    match error {
        kube::Error::Api(status) => status,
        error => Status::failure(&format!("{error:?}"), "").boxed(),
    }
}

/// Whether the API server is ready and yet has not filled its cache of this kind.
fn has_no_watch_cache(refused: &Status) -> bool {
    refused.code == 429 && refused.message.contains("storage is (re)initializing")
}

/// Sends requests as one user.
#[derive(Clone)]
pub(crate) struct Rest(pub(crate) Client);

impl Rest {
    async fn send(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Answer {
        let began = Instant::now();
        loop {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", content_type)
                .body(body.clone())
                .unwrap();
            match self.0.request(request).await.map_err(refused) {
                Err(refused) if has_no_watch_cache(&refused) && began.elapsed() < SOON => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                answer => return answer,
            }
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", Vec::new()).await
    }

    pub(crate) async fn read(&self, resource: Resource, namespace: &str, name: &str) -> Answer {
        self.get(&resource.object_path(namespace, name)).await
    }

    /// The items and the list's resourceVersion.
    pub(crate) async fn list(
        &self,
        resource: Resource,
        namespace: &str,
    ) -> Answer<(Vec<Value>, String)> {
        let mut list = self.get(&resource.path(namespace)).await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let Value::Array(items) = list["items"].take() else { return Ok((Vec::new(), version)) };
        Ok((items, version))
    }

    pub(crate) async fn items(&self, resource: Resource) -> Answer<Vec<Value>> {
        Ok(self.list(resource, "").await?.0)
    }

    /// Creates an object in the namespace that its metadata names.
    pub(crate) async fn create(&self, resource: Resource, mut object: Value) -> Answer {
        object["apiVersion"] = json!(resource.group_version);
        object["kind"] = json!(resource.kind);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = resource.path(namespace);
        self.send("POST", &path, "application/json", object.to_string().into()).await
    }

    /// Creates an object, or changes what this manager applied before.
    pub(crate) async fn apply(
        &self,
        resource: Resource,
        mut object: Value,
        manager: &str,
    ) -> Answer {
        object["apiVersion"] = json!(resource.group_version);
        object["kind"] = json!(resource.kind);
        let (namespace, name) = key(&object);
        let path = resource.object_path(&namespace, &name);
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.send("PATCH", &path, "application/apply-patch+yaml", object.to_string().into()).await
    }

    pub(crate) async fn merge(
        &self,
        resource: Resource,
        (namespace, name): (&str, &str),
        patch: &Value,
    ) -> Answer {
        let path = resource.object_path(namespace, name);
        self.send("PATCH", &path, "application/merge-patch+json", patch.to_string().into()).await
    }

    /// Merges into the status subresource; `null` removes the status.
    pub(crate) async fn merge_status(
        &self,
        resource: Resource,
        (namespace, name): (&str, &str),
        status: &Value,
    ) -> Answer {
        let path = format!("{}/status", resource.object_path(namespace, name));
        let patch = json!({ "status": status }).to_string();
        self.send("PATCH", &path, "application/merge-patch+json", patch.into()).await
    }

    /// Sets one annotation, or removes it.
    pub(crate) async fn annotate(
        &self,
        resource: Resource,
        key: (&str, &str),
        annotation: &str,
        value: Option<&str>,
    ) -> Answer {
        let patch = json!({ "metadata": { "annotations": { annotation: value } } });
        self.merge(resource, key, &patch).await
    }

    pub(crate) async fn delete(&self, resource: Resource, namespace: &str, name: &str) -> Answer {
        let path = resource.object_path(namespace, name);
        self.send("DELETE", &path, "application/json", Vec::new()).await
    }
}

/// Runs `work` for 0 to `count` with a concurrency that an API server copes with. Returns the results in
/// order.
pub(crate) async fn run_concurrently<T, F>(
    count: usize,
    work: impl Fn(usize) -> F,
) -> Answer<Vec<T>>
where
    F: Future<Output = Answer<T>>,
{
    futures::stream::iter((0..count).map(work)).buffered(48).try_collect().await
}
