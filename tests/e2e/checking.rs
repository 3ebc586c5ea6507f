//! `throughline check` on real API servers: in a healthy environment every check passes, and for each check
//! there is a broken one in which it alone speaks. (tests/commands/check.rs has checks 4, 11 to 13 and their
//! levels on simulated ones.)

use crate::checking_world::{EDGE, ENVOY_PROXIES, HUB, UPSTREAM, World, as_throughline, held_by};
use crate::cluster::apiserver::{ApiServer, THROUGHLINE};
use crate::cluster::carrier::Carrier;
use crate::cluster::milo::Milo;
use crate::cluster::objects::{crd, install, install_loose};
use crate::cluster::rest::{CRDS, LEASES, NAMESPACES, PROXIES, Resource};
use crate::cluster::rights;
use crate::prelude::*;

const DEPLOYMENTS: Resource = Resource::new("apps/v1", "deployments", "Deployment");
const CUSTOMIZATIONS: Resource = Resource::new(
    "config.karmada.io/v1alpha1",
    "resourceinterpretercustomizations",
    "ResourceInterpreterCustomization",
);
const POLICIES: Resource =
    Resource::new("policy.karmada.io/v1alpha1", "propagationpolicies", "PropagationPolicy");
const CLUSTER_POLICIES: Resource = Resource::new(
    "policy.karmada.io/v1alpha1",
    "clusterpropagationpolicies",
    "ClusterPropagationPolicy",
);
const RESOURCE_BINDINGS: Resource =
    Resource::new("work.karmada.io/v1alpha2", "resourcebindings", "ResourceBinding");

/// Checks 1 to 5, 7 to 9, 11 and 12: what is here, each cluster by itself, the Lease, the upstreams.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn each_cluster_by_itself_and_the_lease() {
    let mut world = World::start().await;

    let (code, said) = world.paste("throughline check --set touch.windw=1").await;
    assert!(code == 2 && said.contains("windw"), "{code} {said}");

    world.configure(&json!({ "eventLog": { "file": "/proc/log.jsonl" } }));
    let found = ["event-log", "failed", "event_log_failing"];
    world.finds_only(found, "/proc/log.jsonl does not take all lines").await;

    // An API server without Projects, and a kubeconfig without a context.
    let milo = json!({ "kubeconfig": world.file("throughline.kubeconfig"), "context": HUB });
    world.configure(&json!({ "discovery": { "milo": milo } }));
    let found = ["discovery", "failed", "discovery_failing"];
    world.finds_only(found, "milo cannot list its clusters: 403").await;
    let folder = world.file("kubeconfigs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("shop"), "kind: Config").unwrap();
    world.configure(&json!({ "discovery": { "kubeconfigDir": { "path": folder } } }));
    let found = ["discovery", "failed", "kubeconfig_invalid"];
    world.finds_only(found, "The kubeconfig of shop cannot be used").await;

    world.configure(&json!({}));
    let unavailable = ["reachable", "failed", "cluster_unavailable"];
    let edge = &world.testbed.edge().proxy;
    edge.down();
    world.finds_only(unavailable, "The API server of edge does not answer").await;
    edge.up();
    edge.freeze();
    world.finds_only(unavailable, "The API server of edge does not answer").await;
    edge.thaw();
    edge.add(Rule::status(401));
    let found = ["reachable", "failed", "credentials_rejected"];
    world.finds_only(found, "edge rejects the credentials (401).").await;
    edge.clear();
    let kubeconfig = world.file("throughline.kubeconfig");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let mut broken: Value = serde_json::from_str(&text).unwrap();
    broken["users"][2]["user"] = json!({ "tokenFile": "/nowhere" });
    std::fs::write(&kubeconfig, broken.to_string()).unwrap();
    world.finds_only(["reachable", "failed", "kubeconfig_invalid"], "of edge cannot be used").await;
    std::fs::write(&kubeconfig, text).unwrap();
    world.mend().await;

    // What the remedy creates mends it, pasted as it stands.
    for (resource, verb, kind) in [
        ("connectors.networking.datumapis.com", "patch", "Connector"),
        ("leases.coordination.k8s.io", "update", "leases.coordination.k8s.io"),
    ] {
        world.grant(true, |need| need.resource == resource && need.verb == verb).await;
        let found = ["permissions", "failed", "permission_missing"];
        let message = format!("hub does not allow throughline to {verb} {kind} objects.");
        let commands = world.finds_only(found, &message).await;
        assert_eq!(commands.len(), 2, "{commands:?}");
        for command in &commands {
            world.does(command).await;
        }
        world.mend().await;
    }
    world.grant(true, |_| false).await;
    let kubectl = format!("kubectl --context {EDGE}");
    world.does(&format!("{kubectl} create clusterrole more --verb=get --resource=secrets")).await;
    let bind = "create clusterrolebinding more --clusterrole=more --user=throughline";
    world.does(&format!("{kubectl} {bind}")).await;
    let found = ["least-privilege", "warning", "permissions_excess"];
    world.finds_only(found, "may do more in edge than it needs: get secrets.").await;
    world.does(&format!("{kubectl} delete clusterrolebinding more")).await;

    // With the permissions of a run alone, or where lists fail, a check says that it cannot tell.
    world.grant(false, |_| false).await;
    world.skips_only("touch-scope").await;
    world.grant(true, |_| false).await;
    let failing = Rule::status(500).method("GET").resource("connectors");
    let failing = world.testbed.edge().proxy.add(failing);
    let found = ["kinds", "failed", "cluster_unavailable"];
    world.finds_only(found, "The API server of edge does not answer: 500").await;
    world.skips_only("carrier").await;
    world.testbed.edge().proxy.remove(failing);

    world.configure(&json!({ "leaderElection": { "leaseNamespace": "nowhere" } }));
    let found = ["lease", "failed", "lease_unusable"];
    world.finds_only(found, "Lease nowhere/throughline cannot be read or renewed: 404").await;
    world.mend().await;
    the_leader(&mut world).await;
    the_upstreams(&mut world).await;
}

async fn the_leader(world: &mut World) {
    let hub = world.testbed.hub().rest().clone();
    let lease = ("default", "throughline");
    let before = hub.read(LEASES, lease.0, lease.1).await.unwrap();
    world.stop_renewing();

    // Another program took it over. An older entry of ours in `managedFields` owns other fields.
    hub.merge(LEASES, lease, &held_by("scheduler-1")).await.unwrap();
    let now = hub.read(LEASES, lease.0, lease.1).await.unwrap();
    let managers = now["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|m| m["manager"] == "throughline"), "{now}");
    let found = ["leader", "failed", "no_leader"];
    let commands = world.finds_only(found, "scheduler-1, no throughline, holds Lease").await;
    assert!(world.does(&commands[0]).await.contains("scheduler-1"));
    let after = hub.read(LEASES, lease.0, lease.1).await.unwrap();
    assert_eq!(now, after, "a dry run changes nothing");
    assert_ne!(before, after);

    // A throughline that was killed holds it; nobody does; it is not there.
    let mut left = held_by("pod-1");
    left["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
    as_throughline(&hub, LEASES, lease, &left).await;
    let found = ["leader", "warning", "no_leader"];
    let message = "No instance leads by Lease default/throughline";
    world.finds_only(found, message).await;
    as_throughline(&hub, LEASES, lease, &json!({ "spec": { "holderIdentity": "" } })).await;
    world.finds_only(found, message).await;
    hub.delete(LEASES, lease.0, lease.1).await.unwrap();
    world.finds_only(found, message).await;
    world.renew("pod-2");
    world.mend().await;
}

/// Checks 4, 11 and 12: the hub's Connectors and their upstreams.
async fn the_upstreams(world: &mut World) {
    // The control plane of a Project that does not exist still answers.
    let milo = Milo::start().await;
    rights::grant(milo.root.rest(), &["discovery-milo"]).await.unwrap();
    let path = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/typo/control-plane";
    let kubeconfig = milo.kubeconfig_at(THROUGHLINE, path);
    let mut clusters = world.right["clusters"].as_array().unwrap().clone();
    clusters.push(json!({ "name": "typo", "roles": ["upstream"], "kubeconfig": kubeconfig }));
    world.configure(&json!({ "clusters": clusters }));
    let found = ["project", "failed", "project_missing"];
    world.finds_only(found, "Project typo, to which").await;

    // A wrong name, proven by the uid of a namespace.
    clusters.pop();
    clusters[0]["name"] = "proj-a".into();
    world.configure(&json!({ "clusters": clusters }));
    let found = ["upstreams", "failed", "upstream_unknown"];
    let message =
        "Upstream proj-a is configured under another name; hub objects call it project-a.";
    let again = world.finds_command(found, message).await;
    world.does(&again).await;
    world.mend().await;

    // The kubeconfig leads to another control plane; then one with namespaces of the same names.
    let other = ApiServer::start("another").await;
    install(other.rest(), &["upstream"]).await;
    world.lead(UPSTREAM, Some(&other));
    let found = ["identity", "failed", "namespace_missing"];
    world.finds_only(found, "is not in project-a.").await;
    for i in 0..3 {
        let object = json!({ "metadata": { "name": world.fleet.upstream_key(i).0 } });
        let _ = other.rest().create(NAMESPACES, object).await;
    }
    let found = ["identity", "failed", "namespace_mismatch"];
    let look = world.finds_command(found, "of project-a is not the one").await;
    let uid = |i| world.fleet.hub_key(i).0.strip_prefix("ns-").unwrap();
    let said = world.does(&look).await;
    assert!(!(0..3).any(|i| said.contains(uid(i))), "{said}");
    world.lead(UPSTREAM, None);
    let said = world.does(&look).await;
    assert!((0..3).any(|i| said.contains(uid(i))), "{said}");
    world.mend().await;
}

/// Checks 14 to 17 and 6: the edge, the carrier, and kinds that are not served.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_edge_and_the_carrier() {
    let mut world = World::start().await;
    let edge = world.testbed.edge().rest().clone();
    let hub = world.testbed.hub().rest().clone();

    world.configure(&json!({ "touch": { "key": "example.com/liveness" } }));
    let ineffective = ["trigger", "failed", "touch_ineffective"];
    world.finds_only(ineffective, "Touches have no effect at edge").await;
    world.mend().await;
    let gateways = edge.items(GATEWAYS).await.unwrap();
    let touched = |g: &&Value| !g["metadata"]["annotations"][TRIGGER].is_null();
    let gateway = gateways.iter().find(touched).unwrap()["metadata"].clone();
    let gateway = ["namespace", "name"].map(|field| gateway[field].as_str().unwrap().to_owned());
    let gateway = (gateway[0].as_str(), gateway[1].as_str());
    edge.annotate(GATEWAYS, gateway, TRIGGER, Some("x")).await.unwrap();
    let message = format!("keeps overwriting {TRIGGER} on Gateway {}/{}.", gateway.0, gateway.1);
    world.finds_only(["trigger", "warning", "overwritten"], &message).await;
    let ours = json!({ "metadata": { "annotations": { TRIGGER: "0-1-0" } } });
    as_throughline(&edge, GATEWAYS, gateway, &ours).await;
    world.mend().await;

    world.configure(&json!({ "touch": { "scope": "gatewayClass" } }));
    let found = ["touch-scope", "failed", "touch_scope_wrong"];
    world.finds_only(found, "GatewayClass edge of edge is not merged.").await;
    let merged = json!({ "spec": { "mergeGateways": true } });
    edge.merge(ENVOY_PROXIES, ("default", "shared"), &merged).await.unwrap();
    world.right = world.config.clone();
    world.mend().await;

    the_carrier(&mut world, &hub, &edge).await;

    // A version of Envoy Gateway that ignores touches.
    world.testbed.clusters[2].server.restart_with_all_apis().await;
    let namespace = json!({ "metadata": { "name": "envoy-gateway-system" } });
    edge.create(NAMESPACES, namespace).await.unwrap();
    let labels = json!({ "control-plane": "envoy-gateway" });
    let container =
        json!({ "name": "envoy-gateway", "image": "docker.io/envoyproxy/gateway:v1.0.2" });
    let deployment = json!({
        "metadata": { "namespace": "envoy-gateway-system", "name": "envoy-gateway",
            "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels }, "spec": { "containers": [container] } } },
    });
    edge.create(DEPLOYMENTS, deployment).await.unwrap();
    world.finds_only(ineffective, "Envoy Gateway v1.0.2 is older than v1.1").await;
    edge.delete(DEPLOYMENTS, "envoy-gateway-system", "envoy-gateway").await.unwrap();
    world.mend().await;

    // The CRD is missing; then it serves another version.
    edge.delete(CRDS, "", "httpproxies.networking.datumapis.com").await.unwrap();
    let found = ["kinds", "failed", "kind_not_served"];
    world.finds_only(found, "edge does not serve HTTPProxy.").await;
    let mut other = crd(PROXIES);
    other["spec"]["versions"][0]["name"] = "v9".into();
    edge.create(CRDS, other).await.unwrap();
    world.finds_only(found, "edge does not serve HTTPProxy.").await;
}

async fn the_carrier(world: &mut World, hub: &Rest, edge: &Rest) {
    let (namespace, name) = world.fleet.hub_key(0);
    let (namespace, name) = (namespace.to_owned(), name);
    let key = (namespace.as_str(), name.as_str());
    let status = world.fleet.status_at_hub(0).await;
    world.testbed.carrier().set_stuck(true);
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some("{\"a\":1}")).await.unwrap();
    let message = format!("edge does not have the hub annotation of {}/{}.", key.0, key.1);
    world.finds_only(["carrier", "failed", "not_carried"], &message).await;
    world.testbed.carrier().set_stuck(false);
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, status.as_deref()).await.unwrap();
    world.mend().await;

    // Without a carrier nothing arrives; at a hub with Karmada the remedy creates a policy.
    let stop = async |world: &mut World| {
        world.testbed.carrier = None;
        edge.delete(CONNECTORS, key.0, key.1).await.unwrap();
    };
    let placed = ["carrier", "failed", "not_placed"];
    let message = format!("No edge has the Connector {}/{}.", key.0, key.1);
    stop(world).await;
    assert_eq!(world.finds_command(placed, &message).await, "throughline check");
    world.testbed.carrier = Some(Carrier::start(hub.clone(), edge.clone()));
    world.mend().await;
    install_loose(hub, POLICIES, "Namespaced").await;
    install_loose(hub, CLUSTER_POLICIES, "Cluster").await;
    install_loose(hub, RESOURCE_BINDINGS, "Namespaced").await;
    stop(world).await;
    let create = world.finds_command(placed, &message).await;
    assert!(create.contains(&format!("kubectl --context {HUB} apply -f -")), "{create}");
    world.does(&create).await;
    // Karmada carries what a policy selects.
    let policy = &hub.items(CLUSTER_POLICIES).await.unwrap()[0];
    let selector = &policy["spec"]["resourceSelectors"][0];
    assert_eq!(*selector, json!({ "apiVersion": CONNECTORS.group_version, "kind": "Connector" }));
    world.testbed.carrier = Some(Carrier::start(hub.clone(), edge.clone()));
    world.mend().await;

    // Karmada carries Gateways, too.
    install_loose(hub, CUSTOMIZATIONS, "Cluster").await;
    let gateways = json!([{ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway" }]);
    let policy = json!({ "metadata": { "name": "gateways" },
        "spec": { "resourceSelectors": gateways, "placement": { "clusterAffinity": {} } } });
    hub.create(CLUSTER_POLICIES, policy).await.unwrap();
    let found = ["retention", "warning", "retention_missing"];
    let retain = world.finds_command(found, "Karmada may bring back old triggers").await;
    world.does(&retain).await;
    world.mend().await;
}
