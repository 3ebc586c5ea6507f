//! The objects that tests create in clusters, and the CRDs and permissions that they need.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::apiserver::assets;
use super::rest::{CONNECTORS, CRDS, GATEWAYS, PROXIES, ROUTES, Resource, Rest};
use super::{SOON, eventually, rights};

pub(crate) const UPSTREAM_STATUS: &str = "networking.datumapis.com/upstream-status";
pub(crate) const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";
pub(crate) const META: &str = "meta.datumapis.com";

/// A Connector's status: online on a node, or offline. The platform keeps the node's details in an
/// offline status, so this does too.
pub(crate) fn status(online: bool, node: u32) -> Value {
    let (ready, reason, message) = if online {
        ("True", "ConnectorReady", "The connector is ready to tunnel traffic.")
    } else {
        ("False", "ConnectorNotReady", "Connector lease has expired. Agent may be offline.")
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-11-21T09:19:32Z", "observedGeneration": 1 })
    };
    json!({
        "conditions": [
            condition("Accepted", "True", "Accepted", "The connector is accepted."),
            condition("Ready", ready, reason, message),
        ],
        "capabilities": [{
            "type": "ConnectTCP",
            "conditions": [condition("Ready", ready, reason, message)],
        }],
        "connectionDetails": {
            "type": "PublicKey",
            "publicKey": {
                "id": node_id(node),
                "discoveryMode": "DNS",
                "homeRelay": "https://relay.example.net./?a=1&b=<2>",
                "addresses": [
                    { "address": format!("192.0.2.{}", node % 250 + 1), "port": 40_000 + node % 20_000 },
                    { "address": format!("2001:db8::{:x}", node % 65_000), "port": 4433 },
                ],
            },
        },
        "leaseRef": { "name": format!("connector-{node}") },
    })
}

/// 64 hexadecimal digits, like the platform's node ids.
pub(crate) fn node_id(node: u32) -> String {
    format!("{node:08x}").repeat(8)
}

pub(crate) fn connector(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "connectorClassName": "iroh", "capabilities": [{ "type": "ConnectTCP" }] },
    })
}

/// Adds the labels that tie a hub object to the upstream object `(namespace, name)`.
pub(crate) fn with_upstream_labels(
    mut object: Value,
    cluster: &str,
    (group, kind): (&str, &str),
    (namespace, name): (&str, &str),
) -> Value {
    object["metadata"]["labels"] = json!({
        format!("{META}/upstream-cluster-name"): format!("cluster-{}", cluster.replace('/', "_")),
        format!("{META}/upstream-group"): group,
        format!("{META}/upstream-kind"): kind,
        format!("{META}/upstream-namespace"): namespace,
        format!("{META}/upstream-name"): name,
    });
    object
}

/// An HTTPProxy with a backend for each of `connectors`, or with one plain backend.
pub(crate) fn proxy(namespace: &str, name: &str, connectors: &[impl AsRef<str>]) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "hostnames": [format!("{name}.example.com")], "rules": rules(connectors) },
    })
}

/// The `spec.rules` of such a proxy.
pub(crate) fn rules<S: AsRef<str>>(connectors: &[S]) -> Value {
    let plain = json!({ "backends": [{ "endpoint": "https://plain.example.com" }] });
    let behind = |name: &S| {
        json!({ "backends": [
            { "endpoint": "http://localhost:8080", "connector": { "name": name.as_ref() } },
        ] })
    };
    if connectors.is_empty() { json!([plain]) } else { connectors.iter().map(behind).collect() }
}

pub(crate) fn gateway(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "gatewayClassName": "edge",
            "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP",
                            "hostname": format!("{name}.example.com") }],
        },
    })
}

/// An HTTPRoute with these Gateways as parents.
pub(crate) fn route(namespace: &str, name: &str, parents: &[&str]) -> Value {
    let parents: Vec<_> = parents.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "parentRefs": parents, "hostnames": [format!("{name}.example.com")] },
    })
}

pub(crate) fn crd(resource: Resource) -> Value {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/apiserver/crds"));
    let folder = if resource == CONNECTORS || resource == PROXIES { own } else { assets().into() };
    let path = folder.join(format!("{}.yaml", resource.plural));
    serde_saphyr::from_str(&fs::read_to_string(&path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Installs a CRD that accepts any object, and waits until it is served.
pub(crate) async fn install_loose(rest: &Rest, resource: Resource, scope: &str) {
    let Resource { group_version, plural, kind } = resource;
    let (group, version) = group_version.split_once('/').unwrap();
    let object = json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, test-only" },
        },
        "spec": {
            "group": group, "scope": scope,
            "names": { "plural": plural, "kind": kind },
            "versions": [{ "name": version, "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    rest.create(CRDS, object).await.unwrap();
    wait_served(rest, resource).await;
}

async fn wait_served(rest: &Rest, resource: Resource) {
    eventually(&format!("{} are served", resource.plural), SOON, async || {
        rest.items(resource).await.map(drop).map_err(|refused| refused.to_string())
    })
    .await;
}

/// Installs all four CRDs, and gives throughline exactly the permissions that these roles need.
pub(crate) async fn install(rest: &Rest, roles: &[&str]) {
    rights::grant(rest, &rights::folders(roles)).await.unwrap();
    install_crds(rest).await;
}

/// The kinds that throughline works with, each by a CRD.
pub(crate) const BY_CRD: [Resource; 4] = [CONNECTORS, PROXIES, GATEWAYS, ROUTES];

/// Installs all four CRDs and waits until they are served.
pub(crate) async fn install_crds(rest: &Rest) {
    for resource in BY_CRD {
        let made = rest.create(CRDS, crd(resource)).await;
        made.unwrap_or_else(|refused| panic!("the CRD of {}: {refused}", resource.kind));
    }
    wait_crds(rest).await;
}

/// Waits until all four are served.
pub(crate) async fn wait_crds(rest: &Rest) {
    for resource in BY_CRD {
        wait_served(rest, resource).await;
    }
    // After new CRDs the API server is busy for a moment: it merges their OpenAPI documents.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// The annotation that a patch writes: a merge patch, or a JSON Patch.
pub(crate) fn written_annotation<'a>(body: &'a Value, key: &str) -> Option<&'a str> {
    let Some(operations) = body.as_array() else { return annotation(body, key) };
    let path = format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"));
    let value = |operation: &'a Value| {
        let at = operation["path"].as_str()?;
        let value = &operation["value"];
        if at == path { value.as_str() } else { value[key].as_str() }
    };
    operations.iter().filter(|operation| operation["op"] == "add").find_map(value)
}

/// Namespace and name.
pub(crate) fn key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}
