//! `throughline check` on real API servers: in a healthy environment every check passes, and for each check
//! there is a broken one in which it alone speaks.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use throughline::check::permissions::{
    READ_BY_CHECK_ONLY, RequiredPermission, required_permissions, split_resource,
};

use crate::checking_world::{EDGE, HUB, UPSTREAM, World, as_throughline, held_by};
use crate::cluster::apiserver::{ApiServer, THROUGHLINE};
use crate::cluster::carrier::Carrier;
use crate::cluster::faults::Rule;
use crate::cluster::milo::Milo;
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, crd, install};
use crate::cluster::rest::{
    CONNECTORS, CRDS, GATEWAYS, LEASES, NAMESPACES, PROXIES, Resource, Rest,
};
use crate::cluster::rights::{self, folders, only};
use crate::cluster::testbed::Testbed;
use crate::cluster::throughline::binary;
use crate::cluster::{SOON, ensure, eventually};
use crate::karmada::{CLUSTER_POLICIES, POLICIES, RESOURCE_BINDINGS};

const CLASSES: Resource = Resource {
    group_version: "gateway.networking.k8s.io/v1",
    plural: "gatewayclasses",
    kind: "GatewayClass",
};
const ENVOY_PROXIES: Resource = Resource {
    group_version: "gateway.envoyproxy.io/v1alpha1",
    plural: "envoyproxies",
    kind: "EnvoyProxy",
};
const DEPLOYMENTS: Resource =
    Resource { group_version: "apps/v1", plural: "deployments", kind: "Deployment" };
const CUSTOMIZATIONS: Resource = Resource {
    group_version: "config.karmada.io/v1alpha1",
    plural: "resourceinterpretercustomizations",
    kind: "ResourceInterpreterCustomization",
};

/// A configuration for the clusters of a test, in a file.
pub(crate) struct ConfigFile {
    path: PathBuf,
    needed: Vec<RequiredPermission>,
}

impl ConfigFile {
    pub(crate) fn new(testbed: &Testbed, more: &Value) -> Self {
        let clusters: Vec<_> = testbed.clusters.iter().map(|c| c.config()).collect();
        let log = testbed.hub().server.folder().join("log.jsonl");
        let mut config = json!({ "clusters": clusters, "eventLog": { "file": log },
            "leaderElection": { "leaseNamespace": "default" } });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let path = testbed.hub().server.folder().join("check.yaml");
        std::fs::write(&path, config.to_string()).unwrap();
        let config = serde_json::from_value(config).unwrap();
        Self { path, needed: required_permissions(&config) }
    }

    async fn check(&self) -> Vec<Value> {
        let (code, out, err) = run(&self.path, &["--output", "json"]).await;
        assert!(code < 2, "{err}");
        findings(&out)
    }

    /// Grants in each cluster exactly what the configuration needs, without the permissions that
    /// `except` selects and with the rules in `more`.
    pub(crate) async fn grant(
        &self,
        testbed: &Testbed,
        except: impl Fn(&RequiredPermission) -> bool,
        more: &[Value],
    ) {
        for cluster in &testbed.clusters {
            let is_here = |n: &&RequiredPermission| n.cluster.as_str() == cluster.name;
            let granted = self.needed.iter().filter(is_here).filter(|n| !except(n));
            let rule = |need: &RequiredPermission| {
                let (plural, group) = split_resource(need.resource);
                json!({ "apiGroups": [group], "resources": [plural], "verbs": [need.verb] })
            };
            let rules: Vec<_> = granted.map(rule).chain(more.iter().cloned()).collect();
            only(cluster.rest(), &folders(cluster.roles), &json!(rules)).await;
        }
    }
}

pub(crate) async fn run(config: &Path, flags: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(binary());
    command.arg("check").arg("--config").arg(config).args(flags);
    command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    (output.status.code().unwrap(), out, err)
}

/// The findings of a report in JSON.
pub(crate) fn findings(out: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"));
    report["findings"].as_array().unwrap().clone()
}

/// Installs a CRD without a schema, for kinds that only `check` reads.
pub(crate) async fn install_loose(rest: &Rest, resource: Resource, scope: &str) {
    let (group, version) = resource.group_version.split_once('/').unwrap();
    let object = json!({
        "metadata": {
            "name": format!("{}.{group}", resource.plural),
            "annotations": { "api-approved.kubernetes.io": "unapproved, test-only" },
        },
        "spec": {
            "group": group, "scope": scope,
            "names": { "plural": resource.plural, "kind": resource.kind },
            "versions": [{ "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    rest.create(CRDS, object).await.unwrap();
    eventually("the kind is served", SOON, async || {
        rest.items(resource).await.map(drop).map_err(|refused| refused.to_string())
    })
    .await;
}

/// Installs Envoy Gateway's kinds, with a GatewayClass that is merged or not.
pub(crate) async fn envoy_gateway(rest: &Rest, merged: bool) {
    install_loose(rest, CLASSES, "Cluster").await;
    install_loose(rest, ENVOY_PROXIES, "Namespaced").await;
    let proxy = json!({ "metadata": { "namespace": "default", "name": "shared" },
        "spec": { "mergeGateways": merged } });
    rest.create(ENVOY_PROXIES, proxy).await.unwrap();
    let class = json!({ "metadata": { "name": "edge" }, "spec": {
        "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
        "parametersRef": { "group": "gateway.envoyproxy.io", "kind": "EnvoyProxy",
            "namespace": "default", "name": "shared" } } });
    rest.create(CLASSES, class).await.unwrap();
}

pub(crate) async fn default_namespace(rest: &Rest) {
    eventually("namespace default", SOON, async || {
        rest.read(NAMESPACES, "", "default").await.map(drop).map_err(|r| r.to_string())
    })
    .await;
}

/// Rules for what `check` reads in addition to what a run needs.
pub(crate) fn check_only_rules() -> Vec<Value> {
    let rules = READ_BY_CHECK_ONLY.iter().map(|resource| {
        let (plural, group) = split_resource(resource);
        json!({ "apiGroups": [group], "resources": [plural], "verbs": ["list"] })
    });
    rules.collect()
}

/// Checks 1 to 3, 5 and 7 to 9: what is here, each cluster by itself, the Lease.
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
    world.testbed.edge().proxy.down();
    world.finds_only(unavailable, "The API server of edge does not answer").await;
    world.testbed.edge().proxy.up();
    world.testbed.edge().proxy.freeze();
    world.finds_only(unavailable, "The API server of edge does not answer").await;
    world.testbed.edge().proxy.thaw();
    world.testbed.edge().proxy.add(Rule::status(401));
    let found = ["reachable", "failed", "credentials_rejected"];
    world.finds_only(found, "edge rejects the credentials (401).").await;
    world.testbed.edge().proxy.clear();
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
        let is_it = |need: &RequiredPermission| need.resource == resource && need.verb == verb;
        world.granted.grant(&world.testbed, is_it, &check_only_rules()).await;
        let found = ["permissions", "failed", "permission_missing"];
        let message = format!("hub does not allow throughline to {verb} {kind} objects.");
        let commands = world.finds_only(found, &message).await;
        assert_eq!(commands.len(), 2, "{commands:?}");
        for command in &commands {
            world.does(command).await;
        }
        world.mend().await;
    }
    world.granted.grant(&world.testbed, |_| false, &check_only_rules()).await;
    let kubectl = format!("kubectl --context {EDGE}");
    world.does(&format!("{kubectl} create clusterrole more --verb=get --resource=secrets")).await;
    let bind = "create clusterrolebinding more --clusterrole=more --user=throughline";
    world.does(&format!("{kubectl} {bind}")).await;
    let found = ["least-privilege", "warning", "permissions_excess"];
    world.finds_only(found, "may do more in edge than it needs: get secrets.").await;
    world.does(&format!("{kubectl} delete clusterrolebinding more")).await;

    world.configure(&json!({ "leaderElection": { "leaseNamespace": "nowhere" } }));
    let found = ["lease", "failed", "lease_unusable"];
    world.finds_only(found, "Lease nowhere/throughline cannot be read or renewed: 404").await;
    world.mend().await;
    the_leader(&mut world).await;
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

/// Checks 4 and 11 to 13: the hub's Connectors and their upstreams.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_hubs_connectors_and_their_upstreams() {
    let mut world = World::start().await;
    let hub = world.testbed.hub().rest().clone();

    // The control plane of a Project that does not exist answers all the same.
    let milo = Milo::start().await;
    rights::grant(milo.root.rest(), &["discovery-milo"]).await.unwrap();
    let path = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/typo/control-plane";
    let kubeconfig = milo.kubeconfig_at(THROUGHLINE, path);
    let mut clusters = world.right["clusters"].as_array().unwrap().clone();
    clusters.push(json!({ "name": "typo", "roles": ["upstream"], "kubeconfig": kubeconfig }));
    world.configure(&json!({ "clusters": clusters }));
    let found = ["project", "failed", "project_missing"];
    world.finds_only(found, "Project typo, to which").await;
    world.mend().await;

    // A wrong name, proven by the uid of a namespace.
    world.config["clusters"][0]["name"] = "proj-a".into();
    world.write_config();
    let found = ["upstreams", "failed", "upstream_unknown"];
    let message =
        "Upstream proj-a is configured under another name; hub objects call it project-a.";
    let [again] = &world.finds_only(found, message).await[..] else { panic!("one command") };
    world.does(again).await;
    world.mend().await;

    // A hub Connector without a label.
    let (namespace, name) = world.fleet.hub_key(0);
    let (namespace, name) = (namespace.to_owned(), name);
    let label = "meta.datumapis.com/upstream-name";
    let labelled = |value: Value| json!({ "metadata": { "labels": { label: value } } });
    hub.merge(CONNECTORS, (&namespace, &name), &labelled(Value::Null)).await.unwrap();
    let found = ["upstreams", "failed", "labels_missing"];
    let message = format!("Hub Connector {namespace}/{name} lacks the label {label}");
    world.finds_only(found, &message).await;
    let source = name.clone().into();
    hub.merge(CONNECTORS, (&namespace, &name), &labelled(source)).await.unwrap();
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
    let [look] = &world.finds_only(found, "of project-a is not the one").await[..] else {
        panic!("one command")
    };
    let uids: Vec<_> =
        (0..3).map(|i| world.fleet.hub_key(i).0.strip_prefix("ns-").unwrap().to_owned()).collect();
    let said = world.does(look).await;
    assert!(!uids.iter().any(|uid| said.contains(uid)), "{said}");
    world.lead(UPSTREAM, None);
    let said = world.does(look).await;
    assert!(uids.iter().any(|uid| said.contains(uid)), "{said}");
    world.mend().await;

    // The hub lacks one Connector, then all; the upstream does.
    for i in 0..3 {
        world.fleet.delete_at_hub(i).await.unwrap();
        let level = if i < 2 { "warning" } else { "failed" };
        let found = ["replication", level, "not_replicated"];
        world.finds_only(found, "The hub has no Connector for").await;
    }
    for i in 0..3 {
        world.fleet.create_hub_connector(i).await.unwrap();
        let (namespace, name) = world.fleet.hub_key(i);
        hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some("{}")).await.unwrap();
    }
    world.mend().await;
    for i in 0..3 {
        world.fleet.delete_upstream(i).await.unwrap();
        let found = ["replication", if i < 2 { "warning" } else { "failed" }, "removals_held"];
        let message = format!("{} of 3 Connectors of project-a vanished at once", i + 1);
        world.finds_only(found, &message).await;
    }
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
    let merged = |merged: bool| json!({ "spec": { "mergeGateways": merged } });
    edge.merge(ENVOY_PROXIES, ("default", "shared"), &merged(true)).await.unwrap();
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
    let status = hub.read(CONNECTORS, key.0, key.1).await.unwrap();
    let status = status["metadata"]["annotations"][UPSTREAM_STATUS].as_str().unwrap().to_owned();
    world.testbed.carrier().set_stuck(true);
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some("{\"a\":1}")).await.unwrap();
    let message = format!("edge does not have the hub annotation of {}/{}.", key.0, key.1);
    world.finds_only(["carrier", "failed", "not_carried"], &message).await;
    world.testbed.carrier().set_stuck(false);
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&status)).await.unwrap();
    world.mend().await;

    // Without a carrier nothing arrives; at a hub with Karmada the remedy creates a policy.
    let stop = async |world: &mut World| {
        world.testbed.carrier = None;
        edge.delete(CONNECTORS, key.0, key.1).await.unwrap();
    };
    stop(world).await;
    let placed = ["carrier", "failed", "not_placed"];
    let message = format!("No edge has the Connector {}/{}.", key.0, key.1);
    assert_eq!(world.finds_only(placed, &message).await, ["throughline check"]);
    world.testbed.carrier = Some(Carrier::start(hub.clone(), edge.clone()));
    world.mend().await;
    install_loose(hub, POLICIES, "Namespaced").await;
    install_loose(hub, CLUSTER_POLICIES, "Cluster").await;
    install_loose(hub, RESOURCE_BINDINGS, "Namespaced").await;
    stop(world).await;
    let [create] = &world.finds_only(placed, &message).await[..] else { panic!("one command") };
    assert!(create.contains(&format!("kubectl --context {HUB} apply -f -")), "{create}");
    world.does(create).await;
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
    let [retain] = &world.finds_only(found, "Karmada may bring back old triggers").await[..] else {
        panic!("one command")
    };
    world.does(retain).await;
    world.mend().await;
}

/// With the permissions of a run alone, or without an answer, a check says that it cannot tell.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn what_is_not_visible_is_skipped() {
    let world = World::start().await;
    world.granted.grant(&world.testbed, |_| false, &[]).await;
    let skipped = |findings: &[Value]| {
        let skipped = findings.iter().filter(|f| f["level"] == "skipped");
        skipped.map(|f| f["check"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let is_passed = |findings: &[Value]| {
        findings.iter().all(|f| f["level"] == "passed" || f["level"] == "skipped")
    };
    eventually("only the scope is skipped", SOON, async || {
        let found = world.granted.check().await;
        ensure(is_passed(&found) && skipped(&found) == ["touch-scope"], || format!("{found:#?}"))
    })
    .await;
    // Lists that fail are one mistake, and nobody says that Connectors arrive.
    world.granted.grant(&world.testbed, |_| false, &check_only_rules()).await;
    world.testbed.edge().proxy.add(Rule::status(500).method("GET").resource("connectors"));
    let found = ["kinds", "failed", "cluster_unavailable"];
    world.finds_only(found, "The API server of edge does not answer: 500").await;
    eventually("the carrier is skipped", SOON, async || {
        let found = world.granted.check().await;
        ensure(skipped(&found) == ["carrier"], || format!("{found:#?}"))
    })
    .await;
}
