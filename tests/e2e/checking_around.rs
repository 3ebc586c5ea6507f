//! `throughline check` of what surrounds throughline: the Lease, Envoy Gateway, the carrier, other
//! writers.

use serde_json::{Value, json};

use crate::checking::{
    ConfigFile, ENVOY_PROXIES, check_only_rules, default_namespace, envoy_gateway, install_loose,
    run,
};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS};
use crate::cluster::rest::{CONNECTORS, GATEWAYS, LEASES, Rest};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::{SOON, eventually};
use crate::karmada::{POLICIES, RESOURCE_BINDINGS};

/// The Lease is forbidden, has no namespace, is held by another program, or has expired. The checks
/// never change it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_lease_that_cannot_be_used_or_is_held_is_reported() {
    let testbed = Testbed::start(Topology::One).await;
    let rest = testbed.hub().rest();
    default_namespace(rest).await;
    let config = ConfigFile::new(&testbed, &json!({}));
    config.grant(&testbed, |_| false, &[]).await;
    let found = config.check(&["--wait", "30s"]).await;
    found.assert_finds("passed", "leader election", "can be used (create", "");
    assert_eq!(
        rest.items(LEASES)
            .await
            .unwrap()
            .iter()
            .filter(|l| l["metadata"]["name"] == "throughline")
            .count(),
        0
    );
    let nowhere = ["--set", "leaderElection.leaseNamespace=nowhere"];
    let found = config.check(&nowhere).await;
    found.assert_finds("failed", "leader election", "cannot be used", "create namespace nowhere");

    let now = || throughline::clock::wall_clock_now().to_string().replace('Z', "000Z");
    let lease = |holder: &str, renewed: String| {
        json!({ "metadata": { "namespace": "default", "name": "throughline" }, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed } })
    };
    rest.create(LEASES, lease("scheduler-1", now())).await.unwrap();
    let before = rest.read(LEASES, "default", "throughline").await.unwrap();
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "leader election",
        "scheduler-1 holds it",
        "leaderElection.leaseName",
    );
    found.assert_finds("passed", "leader election", "can be used (update", "");
    let after = rest.read(LEASES, "default", "throughline").await.unwrap();
    assert_eq!(before, after, "a dry run changes nothing");

    // A throughline held it and was killed.
    let path = format!("{}?fieldManager=throughline", LEASES.path("default"));
    rest.delete(LEASES, "default", "throughline").await.unwrap();
    let mut left = lease("pod-1", "2026-01-01T00:00:00.000000Z".to_owned());
    (left["apiVersion"], left["kind"]) = (LEASES.group_version.into(), "Lease".into());
    post(rest, &path, &left).await;
    let found = config.check(&[]).await;
    found.assert_finds("warning", "leader election", "does not renew it", "by itself");

    config.grant(&testbed, |need| need.resource.starts_with("leases."), &[]).await;
    eventually("the forbidden Lease is reported", SOON, async || {
        let found = config.check(&[]).await;
        found.finds("skipped", "leader election", "the Lease cannot be checked", "")?;
        let what = "may not create, get and update leases.coordination.k8s.io in default";
        found.finds("failed", "cluster all", what, "no leader is elected, and nothing is mirrored")
    })
    .await;
}

async fn post(rest: &Rest, path: &str, object: &Value) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    rest.0.request_text(request).await.unwrap();
}

/// Envoy Gateway, the carrier and other writers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_wrong_key_merged_gateways_a_stuck_carrier_and_other_writers_are_reported() {
    let testbed = Testbed::start(Topology::Three).await;
    let config = ConfigFile::new(&testbed, &json!({}));
    config.grant(&testbed, |_| false, &check_only_rules()).await;
    let (hub, edge) = (testbed.hub().rest(), testbed.edge().rest());
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "Envoy Gateway at edge",
        "no Envoy Gateway found",
        "right cluster",
    );
    let fleet = Fleet::seed(&testbed, Spec { gateways: 2, ..Spec::of(3) }).await;

    envoy_gateway(edge, true).await;
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "Envoy Gateway at edge",
        "the 6 gateways of GatewayClass edge are merged",
        "touch.edgeScopes.edge",
    );
    let found = config.check(&["--scope", "gateway-class"]).await;
    found.assert_finds("passed", "Envoy Gateway at edge", "gatewayClass fits: 6 gateways", "");
    let spec = json!({ "spec": { "mergeGateways": false } });
    edge.merge(ENVOY_PROXIES, ("default", "shared"), &spec).await.unwrap();
    let found = config.check(&["--scope", "gateway-class"]).await;
    found.assert_finds(
        "failed",
        "Envoy Gateway at edge",
        "GatewayClass edge is not merged",
        "mergeGateways in its EnvoyProxy",
    );
    let found = config.check(&["--set", "touch.key=example.com/liveness"]).await;
    found.assert_finds(
        "failed",
        "Envoy Gateway at edge",
        "touch.key example.com/liveness never",
        "gateway.envoyproxy.io/connector-liveness",
    );

    // Somebody else writes throughline's annotations.
    let (namespace, name) = fleet.hub_key(0);
    hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some("{}")).await.unwrap();
    let gateway = &edge.items(GATEWAYS).await.unwrap()[0]["metadata"];
    let gateway = [&gateway["namespace"], &gateway["name"]].map(|t| t.as_str().unwrap());
    edge.annotate(GATEWAYS, (gateway[0], gateway[1]), TRIGGER, Some("x")).await.unwrap();
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "other writers",
        "upstream-status at hub is written by",
        "leave this annotation alone",
    );
    found.assert_finds(
        "warning",
        "other writers",
        "connector-liveness at edge is written by",
        "let nobody else write the trigger",
    );
    assert!(!format!("{:?}", found.not_passed()).contains("armada"), "the hub serves no Karmada");

    // A throughline that does not share the Lease.
    let path = format!("{}/{name}?fieldManager=throughline", CONNECTORS.path(namespace));
    let body = json!({ "metadata": { "annotations": { UPSTREAM_STATUS: "null" } } });
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .unwrap();
    hub.0.request_text(request).await.unwrap();
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "other writers",
        "without holding Lease default/throughline",
        "share this Lease",
    );

    // The carrier is late, then delivers nothing; Karmada says why.
    testbed.carrier().pause();
    hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some("{\"a\":1}")).await.unwrap();
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "carrier",
        "1 Connector with another value at edge than at hub",
        "nudges the carrier",
    );
    edge.delete(CONNECTORS, namespace, &name).await.unwrap();
    let found = config.check(&[]).await;
    found.assert_finds(
        "warning",
        "carrier",
        "edge lacks 1 of 3 Connectors at hub",
        "carrier's objects",
    );
    for i in 1..3 {
        let (namespace, name) = fleet.hub_key(i);
        edge.delete(CONNECTORS, namespace, &name).await.unwrap();
    }
    install_loose(hub, POLICIES, "Namespaced").await;
    install_loose(hub, RESOURCE_BINDINGS, "Namespaced").await;
    let binding = json!({ "metadata": { "namespace": "default", "name": "lab-connector" },
        "spec": { "resource": { "kind": "Connector", "name": "lab" } },
        "status": { "conditions": [{ "type": "FullyApplied", "status": "False",
            "reason": "FullyAppliedFailed", "message": "member is away" }] } });
    hub.create(RESOURCE_BINDINGS, binding).await.unwrap();
    let found = config.check(&[]).await;
    found.assert_finds(
        "failed",
        "carrier",
        "nothing is carried from hub to edge: no PropagationPolicy selects Connectors",
        "selects Connector of",
    );
    found.assert_finds(
        "failed",
        "carrier",
        "1 ResourceBinding not applied: default/lab-connector",
        "member cluster",
    );
    assert_eq!(found.code, 1);
    let (code, text, _) = run(&config.path, &[]).await;
    println!("{text}");
    assert!(code == 1 && text.contains("× nothing is carried from hub to edge: "), "{text}");
}
