//! Ten wrong setups: `throughline check` names each and nothing else, and what it says mends it when
//! pasted.

use serde_json::{Value, json};

use crate::checking::{ENVOY_PROXIES, check_only_rules, install_loose};
use crate::checking_world::{EDGE, HUB, UPSTREAM, World};
use crate::cluster::apiserver::{ApiServer, THROUGHLINE};
use crate::cluster::carrier::Carrier;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::objects::{connector, install, with_upstream_labels};
use crate::cluster::rest::{CONNECTORS, CRDS, NAMESPACES, Resource};
use crate::cluster::testbed::{Cluster, Testbed};
use crate::cluster::throughline::Setup;
use crate::karmada::{CLUSTER_POLICIES, POLICIES};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_wrong_name() {
    let misname = |config: &mut Value| config["clusters"][0]["name"] = "proj-a".into();
    let world = World::start_with(&json!({}), misname).await;
    let what = "3 hub Connectors name upstream project-a, which is not configured";
    let [again] = &world.finds_only("failed", "hub Connectors", what).await[..] else {
        panic!("one command")
    };
    assert!(again.ends_with("--set 'clusters[0].name=project-a'"), "{again}");
    world.is_well_with(again).await;
}

/// An upstream that is configured, and of whose Connectors the hub has none.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_upstream_that_nobody_copies() {
    let mut world = World::start(&json!({})).await;
    let other = ApiServer::start("project-b").await;
    install(other.rest(), &["upstream"]).await;
    let created = other.rest().create(NAMESPACES, json!({ "metadata": { "name": "n" } })).await;
    let uid = created.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    other.rest().create(CONNECTORS, connector("n", "c")).await.unwrap();
    let entry = json!({ "name": "project-b", "roles": ["upstream"],
        "kubeconfig": other.kubeconfig(THROUGHLINE) });
    world.config["clusters"].as_array_mut().unwrap().push(entry);
    world.write_config();
    let what = "project-b holds 1 Connector, of which the hub has none";
    world.finds_only("warning", "hub Connectors", what).await;

    // The remedy: the replicator copies it.
    let hub = world.testbed.hub().rest();
    let namespace = format!("ns-{uid}");
    for rest in [hub, world.testbed.edge().rest()] {
        rest.create(NAMESPACES, json!({ "metadata": { "name": namespace } })).await.unwrap();
    }
    let kind = ("networking.datumapis.com", "Connector");
    let copy = with_upstream_labels(connector(&namespace, "c"), "project-b", kind, ("n", "c"));
    hub.create(CONNECTORS, copy).await.unwrap();
    world.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_wrong_kubeconfig() {
    let world = World::start(&json!({})).await;
    let other = ApiServer::start("another").await;
    install(other.rest(), &["upstream"]).await;
    // One namespace has the same name there.
    let (namespace, _) = world.fleet.upstream_key(0);
    let object = json!({ "metadata": { "name": namespace } });
    other.rest().create(NAMESPACES, object).await.unwrap();
    world.lead(UPSTREAM, Some(&other));
    let what = "none of 3 hub Connectors of project-a can be followed";
    let [look] = &world.finds_only("failed", "hub Connectors", what).await[..] else {
        panic!("one command")
    };
    let uids: Vec<_> =
        (0..3).map(|i| world.fleet.hub_key(i).0.strip_prefix("ns-").unwrap().to_owned()).collect();
    let (_, said) = world.paste(look).await;
    assert!(!uids.contains(&said), "another control plane's: {said}");

    // The remedy: the kubeconfig leads to its own control plane, where the command prints what it must.
    world.lead(UPSTREAM, None);
    let said = world.does(look).await;
    assert!(uids.contains(&said), "{said}");
    world.is_well().await;
}

/// Of upstream and hub, and of hub and edge.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn swapped_roles() {
    let mut world = World::start(&json!({})).await;
    let right = world.config.clone();
    for (a, b, names) in [(0, 1, [UPSTREAM, HUB]), (1, 2, [HUB, EDGE])] {
        world.config = right.clone();
        let clusters = &mut world.config["clusters"];
        let roles = [clusters[a]["roles"].clone(), clusters[b]["roles"].clone()];
        [clusters[b]["roles"], clusters[a]["roles"]] = roles;
        world.write_config();
        let commands = world.finds_only("failed", "roles", "seem to be swapped").await;
        let [again] = &commands[..] else { panic!("one command: {commands:?}") };
        assert!(names.iter().all(|name| right.to_string().contains(name)), "{names:?}");
        world.is_well_with(again).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_missing_crd() {
    let world = World::start(&json!({})).await;
    let name = "httpproxies.networking.datumapis.com";
    world.testbed.edge().rest().delete(CRDS, "", name).await.unwrap();
    let what = format!("does not serve {name} in v1alpha");
    let [install] = &world.finds_only("failed", "cluster edge", &what).await[..] else {
        panic!("one command")
    };
    world.does(install).await;
    world.is_well().await;

    // At a hub that serves it in another version, nothing is copied.
    let hub = world.testbed.hub().rest();
    let mut routes = hub.read(CRDS, "", "httproutes.gateway.networking.k8s.io").await.unwrap();
    for version in routes["spec"]["versions"].as_array_mut().unwrap() {
        let is_v1 = version["name"] == "v1";
        (version["served"], version["storage"]) = ((!is_v1).into(), (!is_v1).into());
    }
    let path = format!("{}/httproutes.gateway.networking.k8s.io", CRDS.path(""));
    hub.replace(&path, &routes).await.unwrap();
    let what = "does not serve httproutes.gateway.networking.k8s.io in v1";
    assert_eq!(world.finds_only("failed", "cluster hub", what).await, [""; 0]);
}

const DEPLOYMENTS: Resource =
    Resource { group_version: "apps/v1", plural: "deployments", kind: "Deployment" };

/// Helm, which would fetch a chart, is a script here: it sets the image that the chart has.
const HELM: &str = r#"
case "$1 $2" in
"show crds") echo '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"crds","namespace":"default"}}' ;;
"--kube-context edge") exec kubectl --context edge -n envoy-gateway-system set image \
  deployment/envoy-gateway "envoy-gateway=docker.io/envoyproxy/gateway:${7}" ;;
*) echo "$*" >&2; exit 1 ;;
esac"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_old_envoy_gateway() {
    let mut world = World::start(&json!({})).await;
    world.testbed.clusters[2].server.restart_with_all_apis().await;
    let edge = world.testbed.edge().rest();
    let namespace = "envoy-gateway-system";
    edge.create(NAMESPACES, json!({ "metadata": { "name": namespace } })).await.unwrap();
    let labels = json!({ "control-plane": "envoy-gateway" });
    let container =
        json!({ "name": "envoy-gateway", "image": "docker.io/envoyproxy/gateway:v1.0.2" });
    let deployment = json!({
        "metadata": { "namespace": namespace, "name": "envoy-gateway", "labels": labels,
            "annotations": { "meta.helm.sh/release-name": "eg" } },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels }, "spec": { "containers": [container] } } },
    });
    edge.create(DEPLOYMENTS, deployment).await.unwrap();
    let what = "Envoy Gateway v1.0.2 is too old: touches have no effect";
    let commands = world.finds_only("failed", "Envoy Gateway at edge", what).await;
    assert_eq!(commands.len(), 2, "{commands:?}");
    world.stand_in("helm", HELM);
    for command in &commands {
        world.does(command).await;
    }
    world.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn unmerged_gateways_with_class_scope() {
    let mut world = World::start(&json!({ "touch": { "scope": "gatewayClass" } })).await;
    let what = "touch.scope is gatewayClass, but GatewayClass edge is not merged";
    let [again] = &world.finds_only("failed", "Envoy Gateway at edge", what).await[..] else {
        panic!("one command")
    };
    world.is_well_with(again).await;
    world.config["touch"]["edgeScopes"] = json!({ "edge": "gateway" });
    world.write_config();
    world.is_well().await;

    // The other way round it works, at a cost.
    let merged = json!({ "spec": { "mergeGateways": true } });
    world.testbed.edge().rest().merge(ENVOY_PROXIES, ("default", "shared"), &merged).await.unwrap();
    let what = "the 3 gateways of GatewayClass edge are merged";
    let [again] = &world.finds_only("warning", "Envoy Gateway at edge", what).await[..] else {
        panic!("one command")
    };
    world.is_well_with(again).await;
}

/// Another throughline, with a Lease of its own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_second_controller() {
    let world = World::start(&json!({})).await;
    let clusters = world.testbed.clusters.iter().map(Cluster::config_of_admin);
    let second = json!({ "clusters": clusters.collect::<Vec<_>>(),
        "leaderElection": { "leaseNamespace": "kube-system", "leaseName": "second" } });
    let second = Setup::new(&second).ready().await;
    let what = "another throughline leads at hub";
    let [share] = &world.finds_only("warning", "other writers", what).await[..] else {
        panic!("one command")
    };
    world.is_well_with(share).await;

    // Or it is stopped: its Lease is released, or expires.
    second.stop().await;
    world.is_well().await;
}

/// In all namespaces, and in that of the Lease.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_missing_right() {
    let world = World::start(&json!({})).await;
    for (resource, verb) in [
        ("connectors.networking.datumapis.com", "patch"),
        ("httpproxies.networking.datumapis.com", "list"),
        ("leases.coordination.k8s.io", "update"),
    ] {
        let is_it = |need: &throughline::check::permissions::RequiredPermission| {
            need.resource == resource && need.verb == verb
        };
        // Other verbs on Leases would stand for this one in the rules of `check` alone.
        let (plural, _) = throughline::check::permissions::split_resource(resource);
        let more: Vec<_> = check_only_rules()
            .into_iter()
            .filter(|rule| verb == "update" || rule["resources"][0] != plural)
            .collect();
        world.granted.grant(&world.testbed, is_it, &more).await;
        let what = format!("may not {verb} {resource}");
        let commands = world.finds_only("failed", "cluster", &what).await;
        assert_eq!(commands.len(), 2, "{commands:?}");
        for command in &commands {
            world.does(command).await;
        }
        world.is_well().await;
    }
}

/// Of one API server, and of this machine.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_clock_that_is_off() {
    let world = World::start(&json!({})).await;
    let set_back = |cluster: &Cluster| {
        let long_ago = Fault::Date("Sat, 21 Nov 2020 19:10:39 GMT");
        cluster.proxy.add(Rule::new(long_ago));
    };
    let marker = world.file("synchronised");
    let script = format!("[ \"$*\" = 'set-ntp true' ] && touch {}", marker.display());
    world.stand_in("timedatectl", &script);
    let all: Vec<_> = world.testbed.clusters.iter().collect();
    for (clusters, group, what) in [
        (&all[1..2], "cluster hub", "our clock is"),
        (&all[..], "cluster project-a", "the clock of this machine is"),
    ] {
        clusters.iter().for_each(|cluster| set_back(cluster));
        let [synchronise] = &world.finds_only("warning", group, what).await[..] else {
            panic!("one command")
        };
        world.does(synchronise).await;
        std::fs::remove_file(&marker).unwrap();
        clusters.iter().for_each(|cluster| cluster.proxy.clear());
        world.is_well().await;
    }
}

/// Without Karmada, and with Karmada but without a policy for Connectors.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn no_carrier() {
    let mut world = World::start(&json!({})).await;
    let stop = async |testbed: &mut Testbed, world_keys: &[(String, String)]| {
        testbed.carrier = None;
        for (namespace, name) in world_keys {
            testbed.edge().rest().delete(CONNECTORS, namespace, name).await.unwrap();
        }
    };
    let keys: Vec<_> = (0..3).map(|i| world.fleet.hub_key(i)).collect();
    let keys: Vec<_> =
        keys.into_iter().map(|(namespace, name)| (namespace.to_owned(), name)).collect();
    stop(&mut world.testbed, &keys).await;
    let what = "nothing is carried: edge has none of 3 Connectors at hub";
    let commands = world.finds_only("failed", "carrier", what).await;
    assert_eq!(commands, [""; 0], "nobody knows how to start it");
    let (hub, edge) = (world.testbed.hub().rest().clone(), world.testbed.edge().rest().clone());
    world.testbed.carrier = Some(Carrier::start(hub.clone(), edge.clone()));
    world.is_well().await;

    install_loose(&hub, POLICIES, "Namespaced").await;
    install_loose(&hub, CLUSTER_POLICIES, "Cluster").await;
    stop(&mut world.testbed, &keys).await;
    let what = "nothing is carried from hub to edge: no PropagationPolicy selects Connectors";
    let [create] = &world.finds_only("failed", "carrier", what).await[..] else {
        panic!("one command")
    };
    world.does(create).await;
    // Karmada carries what a policy selects.
    let policy = &hub.items(CLUSTER_POLICIES).await.unwrap()[0];
    let selector = &policy["spec"]["resourceSelectors"][0];
    assert_eq!(*selector, json!({ "apiVersion": CONNECTORS.group_version, "kind": "Connector" }));
    world.testbed.carrier = Some(Carrier::start(hub, edge));
    world.is_well().await;
}
