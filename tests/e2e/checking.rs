//! `throughline check` on real API servers, as a person uses it who pastes what it prints into a shell: in a
//! healthy environment every check passes, each mistake is found alone, and its remedy mends it.
//! (tests/commands/check.rs has checks 4, 11 to 13 and their levels on simulated ones.)

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use throughline::check::permissions::{READ_BY_CHECK_ONLY, split_resource};

use crate::cluster::apiserver::{ADMIN, ApiServer, token};
use crate::cluster::carrier::Carrier;
use crate::cluster::milo::Milo;
use crate::cluster::objects::{crd, install, install_loose};
use crate::cluster::rest::CRDS;
use crate::cluster::rights::only;
use crate::cluster::throughline::{binary, merge_json};
use crate::leading::LEASE;
use crate::prelude::*;
use crate::tools::tools_folder;

const HUB: &str = "hub";
const EDGE: &str = "edge";

const CLASSES: Resource =
    Resource::new("gateway.networking.k8s.io/v1", "gatewayclasses", "GatewayClass");
const ENVOY_PROXIES: Resource =
    Resource::new("gateway.envoyproxy.io/v1alpha1", "envoyproxies", "EnvoyProxy");
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn each_mistake_is_found_alone_and_its_remedy_mends_it() {
    let mut world = World::start().await;
    the_configuration(&mut world).await;
    reaching_the_edge(&mut world).await;
    permissions(&mut world).await;
    the_leader(&mut world).await;
    the_upstreams(&mut world).await;
    triggers(&mut world).await;
    the_carrier(&mut world).await;
    what_the_edge_serves(&mut world).await;
}

async fn the_configuration(world: &mut World) {
    // An API server without Projects, a kubeconfig without a context, and the control plane of a Project
    // that does not exist, which answers nevertheless.
    let root = json!({ "kubeconfig": world.right["clusters"][1]["kubeconfig"] });
    let folder = world.file("kubeconfigs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("shop"), "kind: Config").unwrap();
    let milo = Milo::start().await;
    let typo = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/typo/control-plane";
    let mut clusters = world.right["clusters"].as_array().unwrap().clone();
    clusters.push(
        json!({ "name": "typo", "roles": ["upstream"], "kubeconfig": milo.kubeconfig(typo) }),
    );
    // In all namespaces, also in one that is not there.
    let leases = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "verbs": ["get", "create", "update"] });
    only(world.testbed.hub().rest(), &[], &json!([leases])).await;
    for (change, found, message) in [
        (
            json!({ "eventLog": { "file": "/proc/log.jsonl" } }),
            "event-log failed event_log_failing",
            "Lines of /proc/log.jsonl cannot be written",
        ),
        (
            json!({ "discovery": { "milo": root } }),
            "discovery failed discovery_failing",
            "milo cannot list its clusters: 403",
        ),
        (
            json!({ "discovery": { "kubeconfigDir": { "path": folder } } }),
            "discovery failed kubeconfig_invalid",
            "The kubeconfig of shop cannot be used",
        ),
        (
            json!({ "clusters": clusters }),
            "project failed project_missing",
            "points to Project typo, which does not exist",
        ),
        (
            json!({ "leaderElection": { "leaseNamespace": "nowhere" } }),
            "lease failed lease_unusable",
            "Lease nowhere/throughline cannot be read or renewed: 404",
        ),
        (
            json!({ "touch": { "key": "example.com/liveness" } }),
            "trigger failed touch_ineffective",
            "Touches have no effect at edge",
        ),
    ] {
        world.configure(&change);
        world.finds_only(found, message).await;
    }
    world.configure(&json!({}));
    world.let_check_read(true).await;
}

async fn reaching_the_edge(world: &mut World) {
    let edge = &world.testbed.edge().proxy;
    edge.freeze();
    let found = "reachable failed cluster_unavailable";
    world.finds_only(found, "The API server of edge does not answer").await;
    edge.thaw();
    edge.add(Rule::status(401));
    let found = "reachable failed credentials_rejected";
    world.finds_only(found, "edge rejects the credentials (401).").await;
    edge.clear();
    let kubeconfig = edge.kubeconfig(THROUGHLINE);
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let mut broken: Value = serde_json::from_str(&text).unwrap();
    broken["users"][0]["user"] = json!({ "tokenFile": "/nowhere" });
    std::fs::write(&kubeconfig, broken.to_string()).unwrap();
    world.finds_only("reachable failed kubeconfig_invalid", "of edge cannot be used").await;
    std::fs::write(&kubeconfig, text).unwrap();
}

async fn permissions(world: &mut World) {
    for (permission, kind) in [
        (("networking.datumapis.com", "connectors", "patch"), "Connector"),
        (("coordination.k8s.io", "leases", "update"), "leases.coordination.k8s.io"),
    ] {
        world.testbed.hub().without(Some(permission)).await;
        let found = "permissions failed permission_missing";
        let message = format!("hub does not allow throughline to {} {kind} objects.", permission.2);
        let commands = world.finds_only(found, &message).await;
        assert_eq!(commands.len(), 2, "{commands:?}");
        for command in &commands {
            world.does(command).await;
        }
        world.mend().await;
    }
    let kubectl = format!("kubectl --context {EDGE}");
    world.does(&format!("{kubectl} create clusterrole more --verb=get --resource=secrets")).await;
    let bind = "create clusterrolebinding more --clusterrole=more --user=throughline";
    world.does(&format!("{kubectl} {bind}")).await;
    let found = "least-privilege warning permissions_excess";
    world.finds_only(found, "may do more in edge than it needs: get secrets.").await;
    world.does(&format!("{kubectl} delete clusterrolebinding more")).await;

    // With the permissions of a run alone, or where lists fail, a check says that it cannot tell.
    world.let_check_read(false).await;
    world.finds_only("touch-scope skipped", "").await;
    world.let_check_read(true).await;
    let failing = Rule::status(500).method("GET").resource("connectors");
    world.testbed.edge().proxy.add(failing);
    let found = "kinds failed cluster_unavailable";
    world.finds_only(found, "The API server of edge does not answer: 500").await;
    world.finds_only("carrier skipped", "").await;
    world.testbed.edge().proxy.clear();
}

async fn the_leader(world: &mut World) {
    let (hub, ours) = (world.testbed.hub().rest().clone(), ours(world.testbed.hub()).await);
    let lease = async || hub.read(LEASES, LEASE.0, LEASE.1).await.unwrap();
    world.renewing = None;

    // Another program took it over. An older entry of ours in `managedFields` owns other fields.
    hub.merge(LEASES, LEASE, &held_by("scheduler-1")).await.unwrap();
    let now = lease().await;
    let managers = now["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|m| m["manager"] == "throughline"), "{now}");
    let found = "leader failed no_leader";
    let message = "scheduler-1, which is not throughline, holds Lease";
    let commands = world.finds_only(found, message).await;
    assert!(world.does(&commands[0]).await.contains("scheduler-1"));
    assert_eq!(now, lease().await, "a dry run changes nothing");

    // A throughline that was killed holds it; it is not there.
    let mut left = held_by("pod-1");
    left["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
    ours.merge(LEASES, LEASE, &left).await.unwrap();
    let found = "leader warning no_leader";
    let message = "No instance holds Lease default/throughline";
    world.finds_only(found, message).await;
    hub.delete(LEASES, LEASE.0, LEASE.1).await.unwrap();
    world.finds_only(found, message).await;
    world.renew("pod-2").await;
}

async fn the_upstreams(world: &mut World) {
    // A wrong name, proven by the uid of a namespace.
    let mut clusters = world.right["clusters"].clone();
    clusters[0]["name"] = "upp".into();
    world.configure(&json!({ "clusters": clusters }));
    let found = "upstreams failed upstream_unknown";
    let message = "Upstream upp is configured under another name; hub objects call it up.";
    let again = world.finds_command(found, message).await;
    world.does(&again).await;
    world.configure(&json!({}));

    // The kubeconfig leads to another control plane; then one with namespaces of the same names.
    let other = ApiServer::start("another").await;
    install(other.rest(), &["upstream"]).await;
    let mut clusters = world.right["clusters"].clone();
    clusters[0]["kubeconfig"] = json!(other.kubeconfig(THROUGHLINE));
    world.configure(&json!({ "clusters": clusters }));
    world.lead(Some(&other));
    world.finds_only("identity failed namespace_missing", "is not in up.").await;
    for i in 0..3 {
        let object = json!({ "metadata": { "name": world.fleet.upstream_key(i).0 } });
        other.rest().create(NAMESPACES, object).await.unwrap();
    }
    let found = "identity failed namespace_mismatch";
    let look = world.finds_command(found, "of up is not the namespace").await;
    let uid = |i| world.fleet.hub_key(i).0.strip_prefix("ns-").unwrap();
    let said = world.does(&look).await;
    assert!(!(0..3).any(|i| said.contains(uid(i))), "{said}");
    world.lead(None);
    let said = world.does(&look).await;
    assert!((0..3).any(|i| said.contains(uid(i))), "{said}");
    world.configure(&json!({}));
}

async fn triggers(world: &mut World) {
    let edge = world.testbed.edge().rest().clone();
    let (namespace, name) = (world.fleet.hub_key(0).0.to_owned(), app(0, 0));
    let gateway = (&*namespace, &*name);
    edge.annotate(GATEWAYS, gateway, TRIGGER, Some("x")).await.unwrap();
    let message = format!("keeps overwriting {TRIGGER} on Gateway {namespace}/{name}.");
    world.finds_only("trigger warning overwritten", &message).await;
    let ours = ours(world.testbed.edge()).await;
    ours.annotate(GATEWAYS, gateway, TRIGGER, Some("0-1-0")).await.unwrap();

    world.right["touch"] = json!({ "scope": "gatewayClass" });
    world.configure(&json!({}));
    let found = "touch-scope failed touch_scope_wrong";
    world.finds_only(found, "GatewayClass edge of edge is not merged.").await;
    let merged = json!({ "spec": { "mergeGateways": true } });
    edge.merge(ENVOY_PROXIES, ("default", "shared"), &merged).await.unwrap();
    world.mend().await;
}

async fn the_carrier(world: &mut World) {
    let (hub, edge) = (world.testbed.hub().rest().clone(), world.testbed.edge().rest().clone());
    let (namespace, name) = (world.fleet.hub_key(0).0.to_owned(), world.fleet.hub_key(0).1);
    let key = (&*namespace, &*name);
    let status = world.fleet.status_at_hub(0).await;
    world.testbed.carrier().set_stuck(true);
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some("{\"a\":1}")).await.unwrap();
    let message = format!("edge does not have the hub annotation of {namespace}/{name}.");
    world.finds_only("carrier failed not_carried", &message).await;
    world.testbed.carrier().set_stuck(false);
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, status.as_deref()).await.unwrap();
    world.mend().await;

    // Without a carrier nothing arrives; at a hub with Karmada the remedy creates a policy.
    let placed = "carrier failed not_placed";
    let message = format!("No edge has the Connector {namespace}/{name}.");
    world.testbed.carrier = None;
    edge.delete(CONNECTORS, key.0, key.1).await.unwrap();
    assert_eq!(world.finds_command(placed, &message).await, "throughline check");
    install_loose(&hub, POLICIES, "Namespaced").await;
    install_loose(&hub, CLUSTER_POLICIES, "Cluster").await;
    install_loose(&hub, RESOURCE_BINDINGS, "Namespaced").await;
    let create = world.finds_command(placed, &message).await;
    assert!(create.contains(&format!("kubectl --context {HUB} apply -f -")), "{create}");
    world.does(&create).await;
    // Karmada carries what a policy selects.
    let policy = &hub.items(CLUSTER_POLICIES).await.unwrap()[0];
    let selector = &policy["spec"]["resourceSelectors"][0];
    assert_eq!(*selector, json!({ "apiVersion": CONNECTORS.group_version, "kind": "Connector" }));
    world.testbed.carrier = Some(Carrier::start(hub.clone(), edge));
    world.mend().await;

    // Karmada carries Gateways, too.
    install_loose(&hub, CUSTOMIZATIONS, "Cluster").await;
    let gateways = json!([{ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway" }]);
    let policy = json!({ "metadata": { "name": "gateways" },
        "spec": { "resourceSelectors": gateways, "placement": { "clusterAffinity": {} } } });
    hub.create(CLUSTER_POLICIES, policy).await.unwrap();
    let found = "retention warning retention_missing";
    let retain = world.finds_command(found, "Karmada may bring back old triggers").await;
    world.does(&retain).await;
    world.mend().await;
}

async fn what_the_edge_serves(world: &mut World) {
    let edge = world.testbed.edge().rest().clone();
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
    let found = "trigger failed touch_ineffective";
    world.finds_only(found, "Envoy Gateway v1.0.2 is older than v1.1").await;
    edge.delete(DEPLOYMENTS, "envoy-gateway-system", "envoy-gateway").await.unwrap();

    // The CRD is missing; then it serves another version.
    edge.delete(CRDS, "", "httpproxies.networking.datumapis.com").await.unwrap();
    let found = "kinds failed kind_not_served";
    world.finds_only(found, "edge does not serve HTTPProxy.").await;
    let mut other = crd(PROXIES);
    other["spec"]["versions"][0]["name"] = "v9".into();
    edge.create(CRDS, other).await.unwrap();
    world.finds_only(found, "edge does not serve HTTPProxy.").await;
}

/// Three clusters in which every check passes, a configuration, and the files of the person.
struct World {
    testbed: Testbed,
    fleet: Fleet,
    /// What `check` reads while nothing is broken.
    right: Value,
    /// Renews the Lease as a throughline does. None runs: it would mend what a test breaks.
    renewing: Option<Task>,
}

/// The findings of a report as JSON; the exit code is 1 if there is a failure.
pub(crate) fn findings_of(code: i32, report: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    let findings: Vec<_> = list(&json["findings"]).cloned().collect();
    let failed = findings.iter().any(|finding| finding["level"] == "failed");
    assert_eq!(code, i32::from(failed), "{report}");
    findings
}

/// Sends requests as throughline's field manager.
async fn ours(cluster: &Cluster) -> Rest {
    cluster.server.rest_as("throughline").await
}

/// The `spec` of a Lease that was renewed now.
fn held_by(holder: &str) -> Value {
    let now = throughline::clock::wall_clock_now().to_string().replace('Z', "000Z");
    json!({ "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now } })
}

/// Installs Envoy Gateway's kinds, with a GatewayClass that is not merged.
async fn install_envoy_gateway(rest: &Rest) {
    install_loose(rest, CLASSES, "Cluster").await;
    install_loose(rest, ENVOY_PROXIES, "Namespaced").await;
    let proxy = json!({ "metadata": { "namespace": "default", "name": "shared" },
        "spec": { "mergeGateways": false } });
    rest.create(ENVOY_PROXIES, proxy).await.unwrap();
    let class = json!({ "metadata": { "name": "edge" }, "spec": {
        "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
        "parametersRef": { "group": "gateway.envoyproxy.io", "kind": "EnvoyProxy",
            "namespace": "default", "name": "shared" } } });
    rest.create(CLASSES, class).await.unwrap();
}

impl World {
    /// Three connectors in three namespaces, converged, with the permissions in `deploy/rbac` and those that a
    /// check needs: every check passes.
    async fn start() -> Self {
        let spec = Spec { per_namespace: 1, ..Spec::of(3) };
        let (mut testbed, fleet) = seeded(Topology::Three, spec).await;
        // Not the edge: where a proxy is in between, the person's context leads elsewhere than throughline's.
        testbed.clusters[..2].iter_mut().for_each(|cluster| cluster.is_direct = true);
        install_envoy_gateway(testbed.edge().rest()).await;
        let folder = testbed.hub().server.folder();
        let clusters: Vec<_> = testbed.clusters.iter().map(Cluster::config).collect();
        let right = json!({ "clusters": clusters,
            "eventLog": { "file": folder.join("log.jsonl") },
            "leaderElection": { "leaseNamespace": LEASE.0 } });
        // What a pasted command finds first.
        let bin = folder.join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(tools_folder().join("kubectl"), bin.join("kubectl")).unwrap();
        symlink(binary().canonicalize().unwrap(), bin.join("throughline")).unwrap();
        let mut world = Self { testbed, fleet, right, renewing: None };
        world.let_check_read(true).await;
        let election = json!({ "leaderElection": { "enabled": true, "leaseNamespace": LEASE.0 } });
        let throughline = Setup::of(&world.testbed).set(&election).ready().await;
        oracle::converges(&world.testbed).await;
        throughline.stop().await;

        world.lead(None);
        world.renew("pod-1").await;
        world.mend().await;
        let (code, text) = world.paste("throughline check").await;
        assert!(code == 0 && text.ends_with("\n√ no check failed, no warnings\n"), "{text}");
        assert!(!text.contains("not visible") && !text.contains('\u{1b}'), "{text}");
        world
    }

    /// Grants in each cluster what `check` reads beside the permissions of a run, or revokes it.
    async fn let_check_read(&self, granted: bool) {
        let rule = |resource: &&str| {
            let (plural, group) = split_resource(resource);
            json!({ "apiGroups": [group], "resources": [plural], "verbs": ["list"] })
        };
        let rules: Vec<_> = READ_BY_CHECK_ONLY.iter().filter(|_| granted).map(rule).collect();
        for cluster in &self.testbed.clusters {
            only(cluster.rest(), &[], &json!(rules)).await;
        }
    }

    /// Renews the Lease as a throughline of this name.
    async fn renew(&mut self, holder: &'static str) {
        let hub = ours(self.testbed.hub()).await;
        self.renewing = Some(Task::from_iter([async move {
            let object = json!({ "metadata": { "namespace": LEASE.0, "name": LEASE.1 } });
            let _ = hub.create(LEASES, object).await;
            loop {
                hub.merge(LEASES, LEASE, &held_by(holder)).await.unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }]));
    }

    /// Writes the right configuration, and waits until `check` finds no problem.
    async fn mend(&mut self) {
        self.configure(&json!({}));
        let problems = async || self.findings(&["failed", "warning"]).await;
        becomes("nothing is wrong", vec![], problems).await;
    }

    /// Merges this over the right configuration.
    fn configure(&mut self, change: &Value) {
        let mut config = self.right.clone();
        merge_json(&mut config, change);
        std::fs::write(self.file("three.yaml"), config.to_string()).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.testbed.hub().server.folder().join(name)
    }

    /// Writes the person's kubeconfig, with a context for each cluster. That of upstream leads to another server,
    /// if there is one.
    fn lead(&self, other: Option<&ApiServer>) {
        let [mut clusters, mut contexts] = [const { Vec::new() }; 2];
        for cluster in &self.testbed.clusters {
            let name = cluster.name;
            let server = other.filter(|_| name == "up").unwrap_or(&cluster.server);
            let to = json!({ "server": server.url(), "certificate-authority": server.ca() });
            clusters.push(json!({ "name": name, "cluster": to }));
            let context = json!({ "cluster": name, "user": ADMIN });
            contexts.push(json!({ "name": name, "context": context }));
        }
        let users = json!([{ "name": ADMIN, "user": { "token": token(ADMIN) } }]);
        let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": clusters,
            "users": users, "contexts": contexts });
        std::fs::write(self.file("person.kubeconfig"), config.to_string()).unwrap();
    }

    /// Runs one line in a shell, as a person does who may do everything.
    async fn paste(&self, line: &str) -> (i32, String) {
        let path = format!("{}:{}", self.file("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", line]).env("PATH", path);
        command.env("KUBECONFIG", self.file("person.kubeconfig")).env("COLUMNS", "80");
        command.env_remove("RUST_LOG").env("THROUGHLINE_CONFIG", self.file("three.yaml"));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
        (output.status.code().unwrap(), format!("{out}{err}"))
    }

    /// Pastes a line that must succeed.
    async fn does(&self, line: &str) -> String {
        let (code, said) = self.paste(line).await;
        assert_eq!(code, 0, "{line}\n{said}");
        said
    }

    /// What `throughline check` finds, at one of these levels.
    async fn findings(&self, levels: &[&str]) -> Vec<Value> {
        let (code, out) = self.paste("throughline check --output json").await;
        let mut findings = findings_of(code, &out);
        findings.retain(|f| levels.contains(&f["level"].as_str().unwrap()));
        findings
    }

    /// Waits until this is all that `check` skips, or the only problem that it finds; returns the commands of
    /// its remedy. `found` is the check, the level and the cause.
    async fn finds_only(&self, found: &str, message: &str) -> Vec<String> {
        let skips = found.ends_with(" skipped");
        let levels: &[&str] = if skips { &["skipped"] } else { &["failed", "warning"] };
        let remedy = Mutex::new(String::new());
        eventually(&format!("only {found}: {message}"), SOON, async || {
            let problems = self.findings(levels).await;
            let [problem] = &problems[..] else { return Err(format!("{problems:#?}")) };
            let word = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
            let is_it = ["check", "level", "cause"].map(word).join(" ").trim_end() == found;
            *remedy.lock().unwrap() = word("remedy");
            ensure(is_it && word("message").contains(message), || format!("{problem:#}"))
        })
        .await;
        let remedy = remedy.into_inner().unwrap();
        let commands = remedy.split('`').skip(1).step_by(2).filter(|part| part.contains(' '));
        commands.map(str::to_owned).collect()
    }

    /// The same where the remedy has one command.
    async fn finds_command(&self, found: &str, message: &str) -> String {
        let mut commands = self.finds_only(found, message).await;
        assert_eq!(commands.len(), 1, "{commands:?}");
        commands.remove(0)
    }
}
