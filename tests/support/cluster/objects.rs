//! The objects that tests put into clusters, and the CRDs and rights that make room for them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::apiserver::{THROUGHLINE, assets};
use super::rest::{
    BINDINGS, CLUSTER_ROLES, CONNECTORS, CRDS, GATEWAYS, PROXIES, ROUTES, Refused, Resource, Rest,
};
use super::{SOON, ensure, eventually};

pub(crate) const UPSTREAM_STATUS: &str = "networking.datumapis.com/upstream-status";
pub(crate) const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";
pub(crate) const META: &str = "meta.datumapis.com";

/// A Connector's status in one of its two forms: online on a node, or offline (its node is still
/// told then, as the platform does).
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

/// 64 hexadecimal digits, as the platform's are.
pub(crate) fn node_id(node: u32) -> String {
    format!("{node:08x}").repeat(8)
}

pub(crate) fn connector(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "connectorClassName": "iroh", "capabilities": [{ "type": "ConnectTCP" }] },
    })
}

/// Makes an object the replica of `(namespace, name)` of an upstream cluster.
pub(crate) fn replica_of(
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

/// An HTTPProxy with a backend behind each of `connectors`, or a plain one when there are none.
pub(crate) fn proxy(namespace: &str, name: &str, connectors: &[&str]) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "hostnames": [format!("{name}.example.com")], "rules": rules(connectors) },
    })
}

/// The rules of such a proxy.
pub(crate) fn rules(connectors: &[&str]) -> Value {
    let plain = json!({ "backends": [{ "endpoint": "https://plain.example.com" }] });
    let behind = |name: &&str| {
        json!({ "backends": [
            { "endpoint": "http://localhost:8080", "connector": { "name": name } },
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

/// An HTTPRoute whose parents are these Gateways.
pub(crate) fn route(namespace: &str, name: &str, parents: &[&str]) -> Value {
    let parents: Vec<_> = parents.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "parentRefs": parents, "hostnames": [format!("{name}.example.com")] },
    })
}

/// The CRD of a kind.
pub(crate) fn crd(resource: Resource) -> Value {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/apiserver/crds"));
    let folder = if resource == CONNECTORS || resource == PROXIES { own } else { assets().into() };
    let path = folder.join(format!("{}.yaml", resource.plural));
    serde_saphyr::from_str(&fs::read_to_string(&path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Installs a CRD and waits until its objects can be listed.
pub(crate) async fn install_crd(rest: &Rest, resource: Resource) {
    let made = rest.create(CRDS, crd(resource)).await;
    made.unwrap_or_else(|refused| panic!("the CRD of {}: {refused}", resource.kind));
    wait_served(rest, resource).await;
}

async fn wait_served(rest: &Rest, resource: Resource) {
    eventually(&format!("{} are served", resource.plural), SOON, async || {
        rest.items(resource).await.map(drop).map_err(|refused| refused.to_string())
    })
    .await;
}

/// All four CRDs, and for throughline exactly the rights that it needs.
pub(crate) async fn install(rest: &Rest) {
    let all = [CONNECTORS, PROXIES, GATEWAYS, ROUTES];
    for resource in all {
        let made = rest.create(CRDS, crd(resource)).await;
        made.unwrap_or_else(|refused| panic!("the CRD of {}: {refused}", resource.kind));
    }
    grant(rest).await.unwrap();
    for resource in all {
        wait_served(rest, resource).await;
    }
    // CRDs that settle make API servers busy for a moment: the merged OpenAPI document.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

const RBAC: &str = "rbac.authorization.k8s.io";
/// The role for the election, apart from the others: it can be taken away alone.
const ELECTION: &str = "throughline-election";
/// The same for Events.
const EVENTS: &str = "throughline-events";

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}

/// What throughline needs, and not more.
pub(crate) async fn grant(rest: &Rest) -> Result<(), Refused> {
    let read = ["get", "list", "watch"];
    let platform = "networking.datumapis.com";
    let gateway_api = "gateway.networking.k8s.io";
    let rules = json!([
        rule(&[platform], &["connectors", "httpproxies"], &read),
        rule(&[gateway_api], &["gateways", "httproutes"], &read),
        rule(&[""], &["namespaces"], &read),
        rule(&[platform], &["connectors"], &["patch"]),
        rule(&[gateway_api], &["gateways"], &["patch"]),
        rule(&[gateway_api], &["httproutes"], &["delete"]),
    ]);
    give(rest, THROUGHLINE, rules).await?;
    grant_events(rest).await?;
    grant_election(rest).await
}

/// What the election needs, and not more.
pub(crate) async fn grant_election(rest: &Rest) -> Result<(), Refused> {
    let rules = json!([rule(&["coordination.k8s.io"], &["leases"], &["get", "create", "update"]),]);
    give(rest, ELECTION, rules).await
}

/// What Events need, and not more.
pub(crate) async fn grant_events(rest: &Rest) -> Result<(), Refused> {
    give(rest, EVENTS, json!([rule(&[""], &["events"], &["create", "patch"])])).await
}

/// Takes the rights on Events away.
pub(crate) async fn revoke_events(rest: &Rest) -> Result<(), Refused> {
    rest.delete(BINDINGS, "", EVENTS).await?;
    rest.delete(CLUSTER_ROLES, "", EVENTS).await.map(drop)
}

async fn give(rest: &Rest, name: &str, rules: Value) -> Result<(), Refused> {
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    rest.create(CLUSTER_ROLES, role).await?;
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": THROUGHLINE }],
    });
    rest.create(BINDINGS, binding).await.map(drop)
}

/// Takes all rights away again: every request of throughline's is a 403 then.
pub(crate) async fn revoke(rest: &Rest) -> Result<(), Refused> {
    rest.delete(BINDINGS, "", THROUGHLINE).await?;
    rest.delete(CLUSTER_ROLES, "", THROUGHLINE).await?;
    revoke_events(rest).await?;
    revoke_election(rest).await
}

/// The same, of those that the election needs.
pub(crate) async fn revoke_election(rest: &Rest) -> Result<(), Refused> {
    rest.delete(BINDINGS, "", ELECTION).await?;
    rest.delete(CLUSTER_ROLES, "", ELECTION).await.map(drop)
}

/// `ensure`, said of an object's annotation.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// Namespace and name.
pub(crate) fn key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// As an error for `eventually`.
pub(crate) fn same(what: &str, found: &Value, wanted: &Value) -> Result<(), String> {
    ensure(found == wanted, || format!("{what}: {found} instead of {wanted}"))
}
