//! `throughline check` on real API servers, as a person uses it who pastes what it prints into a shell: in a
//! healthy environment every check passes, each mistake is found alone, and its remedy mends it.
//! (tests/commands/check.rs has checks 4, 11 to 13 and their levels on simulated ones.)

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use throughline::check::permissions::{
    READ_BY_CHECK_ONLY, RequiredPermission, required_permissions, split_resource,
};

use crate::cluster::apiserver::{ADMIN, ApiServer, THROUGHLINE, token};
use crate::cluster::carrier::Carrier;
use crate::cluster::follow::Task;
use crate::cluster::milo::Milo;
use crate::cluster::objects::{crd, install, install_loose};
use crate::cluster::rest::{CRDS, LEASES, NAMESPACES, PROXIES, Resource};
use crate::cluster::rights::{folders, only};
use crate::cluster::throughline::{binary, merge_json};
use crate::prelude::*;
use crate::tools::tools_folder;

const UPSTREAM: &str = "project-a";
const HUB: &str = "hub";
const EDGE: &str = "edge";
const LEASE: (&str, &str) = ("default", "throughline");
const PROBLEM: [&str; 2] = ["failed", "warning"];

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
    let root = json!({ "kubeconfig": world.file("throughline.kubeconfig"), "context": HUB });
    let folder = world.file("kubeconfigs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("shop"), "kind: Config").unwrap();
    let milo = Milo::start().await;
    let typo = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/typo/control-plane";
    let mut clusters = world.right["clusters"].as_array().unwrap().clone();
    clusters.push(
        json!({ "name": "typo", "roles": ["upstream"], "kubeconfig": milo.kubeconfig(typo) }),
    );
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
    let kubeconfig = world.file("throughline.kubeconfig");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let mut broken: Value = serde_json::from_str(&text).unwrap();
    broken["users"][2]["user"] = json!({ "tokenFile": "/nowhere" });
    std::fs::write(&kubeconfig, broken.to_string()).unwrap();
    world.finds_only("reachable failed kubeconfig_invalid", "of edge cannot be used").await;
    std::fs::write(&kubeconfig, text).unwrap();
}

async fn permissions(world: &mut World) {
    for (resource, verb, kind) in [
        ("connectors.networking.datumapis.com", "patch", "Connector"),
        ("leases.coordination.k8s.io", "update", "leases.coordination.k8s.io"),
    ] {
        world.grant(true, |need| need.resource == resource && need.verb == verb).await;
        let found = "permissions failed permission_missing";
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
    let found = "least-privilege warning permissions_excess";
    world.finds_only(found, "may do more in edge than it needs: get secrets.").await;
    world.does(&format!("{kubectl} delete clusterrolebinding more")).await;

    // With the permissions of a run alone, or where lists fail, a check says that it cannot tell.
    world.grant(false, |_| false).await;
    world.skips_only("touch-scope").await;
    world.grant(true, |_| false).await;
    let failing = Rule::status(500).method("GET").resource("connectors");
    world.testbed.edge().proxy.add(failing);
    let found = "kinds failed cluster_unavailable";
    world.finds_only(found, "The API server of edge does not answer: 500").await;
    world.skips_only("carrier").await;
    world.testbed.edge().proxy.clear();
}

async fn the_leader(world: &mut World) {
    let hub = world.testbed.hub().rest().clone();
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
    as_throughline(&hub, LEASES, LEASE, &left).await;
    let found = "leader warning no_leader";
    let message = "No instance holds Lease default/throughline";
    world.finds_only(found, message).await;
    hub.delete(LEASES, LEASE.0, LEASE.1).await.unwrap();
    world.finds_only(found, message).await;
    world.renew("pod-2");
}

async fn the_upstreams(world: &mut World) {
    // A wrong name, proven by the uid of a namespace.
    let mut clusters = world.right["clusters"].clone();
    clusters[0]["name"] = "proj-a".into();
    world.configure(&json!({ "clusters": clusters }));
    let found = "upstreams failed upstream_unknown";
    let message =
        "Upstream proj-a is configured under another name; hub objects call it project-a.";
    let again = world.finds_command(found, message).await;
    world.does(&again).await;
    world.configure(&json!({}));

    // The kubeconfig leads to another control plane; then one with namespaces of the same names.
    let other = ApiServer::start("another").await;
    install(other.rest(), &["upstream"]).await;
    world.lead(Some(&other));
    world.finds_only("identity failed namespace_missing", "is not in project-a.").await;
    for i in 0..3 {
        let object = json!({ "metadata": { "name": world.fleet.upstream_key(i).0 } });
        other.rest().create(NAMESPACES, object).await.unwrap();
    }
    let found = "identity failed namespace_mismatch";
    let look = world.finds_command(found, "of project-a is not the namespace").await;
    let uid = |i| world.fleet.hub_key(i).0.strip_prefix("ns-").unwrap();
    let said = world.does(&look).await;
    assert!(!(0..3).any(|i| said.contains(uid(i))), "{said}");
    world.lead(None);
    let said = world.does(&look).await;
    assert!((0..3).any(|i| said.contains(uid(i))), "{said}");
}

async fn triggers(world: &mut World) {
    let edge = world.testbed.edge().rest().clone();
    let (namespace, name) = (world.fleet.hub_key(0).0.to_owned(), app(0, 0));
    let gateway = (&*namespace, &*name);
    edge.annotate(GATEWAYS, gateway, TRIGGER, Some("x")).await.unwrap();
    let message = format!("keeps overwriting {TRIGGER} on Gateway {namespace}/{name}.");
    world.finds_only("trigger warning overwritten", &message).await;
    let ours = json!({ "metadata": { "annotations": { TRIGGER: "0-1-0" } } });
    as_throughline(&edge, GATEWAYS, gateway, &ours).await;

    world.configure(&json!({ "touch": { "scope": "gatewayClass" } }));
    let found = "touch-scope failed touch_scope_wrong";
    world.finds_only(found, "GatewayClass edge of edge is not merged.").await;
    let merged = json!({ "spec": { "mergeGateways": true } });
    edge.merge(ENVOY_PROXIES, ("default", "shared"), &merged).await.unwrap();
    world.right = world.config.clone();
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

/// Three clusters in which every check passes, a configuration that names their contexts, and the files of
/// the person.
struct World {
    testbed: Testbed,
    fleet: Fleet,
    /// What `check` reads; `right` while nothing is broken.
    config: Value,
    right: Value,
    /// Renews the Lease as a throughline does. None runs: it would mend what a test breaks.
    renewing: Option<Task>,
    /// Programs that a pasted command finds first.
    bin: PathBuf,
}

/// What `throughline check` finds with this configuration.
pub(crate) async fn findings(config: &Path) -> Vec<Value> {
    let words = ["check", "--output", "json", "--config", config.to_str().unwrap()];
    let (code, out, err) = command(&words).await;
    assert!(code < 2, "{err}");
    findings_of(code, &out)
}

/// The findings of a report as JSON; the exit code is 1 if there is a failure.
fn findings_of(code: i32, report: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    let findings = json["findings"].as_array().unwrap();
    let failed = findings.iter().any(|finding| finding["level"] == "failed");
    assert_eq!(code == 1, failed, "{report}");
    findings.clone()
}

/// Sends a merge patch as throughline's field manager.
async fn as_throughline(
    rest: &Rest,
    resource: Resource,
    (namespace, name): (&str, &str),
    body: &Value,
) {
    let path = format!("{}/{name}?fieldManager=throughline", resource.path(namespace));
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .unwrap();
    rest.0.request_text(request).await.unwrap();
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
    /// Three connectors in three namespaces, converged, with exactly the permissions that a run and a check
    /// need: every check passes.
    async fn start() -> Self {
        let names = [UPSTREAM, HUB, EDGE];
        let testbed = Testbed::start_named(Topology::Three, &names, |_| true).await;
        for cluster in &testbed.clusters {
            let exists = async || cluster.rest().read(NAMESPACES, "", "default").await.is_ok();
            until("namespace default", exists).await;
        }
        install_envoy_gateway(testbed.edge().rest()).await;
        let fleet = Fleet::seed(&testbed, Spec { per_namespace: 1, ..Spec::of(3) }).await;
        let folder = testbed.hub().server.folder();
        let kubeconfig = folder.join("throughline.kubeconfig");
        let cluster = |c: &Cluster| json!({ "name": c.name, "roles": c.roles, "kubeconfig": kubeconfig, "context": c.name });
        let clusters: Vec<_> = testbed.clusters.iter().map(cluster).collect();
        let right = json!({ "clusters": clusters,
            "eventLog": { "file": folder.join("log.jsonl") },
            "leaderElection": { "leaseNamespace": LEASE.0 } });
        let bin = folder.join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(tools_folder().join("kubectl"), bin.join("kubectl")).unwrap();
        symlink(binary().canonicalize().unwrap(), bin.join("throughline")).unwrap();
        let mut world = Self { testbed, fleet, config: Value::Null, right, renewing: None, bin };
        world.grant(true, |_| false).await;
        let election = json!({ "leaderElection": { "enabled": true, "leaseNamespace": LEASE.0 } });
        let throughline = Setup::of(&world.testbed).set(&election).ready().await;
        oracle::converges(&world.testbed).await;
        throughline.stop().await;

        world.lead(None);
        world.renew("pod-1");
        world.mend().await;
        let (code, text) = world.paste("throughline check").await;
        assert!(code == 0 && text.ends_with("\n√ no check failed, no warnings\n"), "{text}");
        assert!(!text.contains("not visible") && !text.contains('\u{1b}'), "{text}");
        world
    }

    /// Grants in each cluster what a run needs and, if asked, what `check` reads beside, without the
    /// permissions that `except` selects.
    async fn grant(&self, with_check: bool, except: impl Fn(&RequiredPermission) -> bool) {
        let rule = |resource: &str, verb: &str| {
            let (plural, group) = split_resource(resource);
            json!({ "apiGroups": [group], "resources": [plural], "verbs": [verb] })
        };
        let needed = required_permissions(&serde_json::from_value(self.right.clone()).unwrap());
        for cluster in &self.testbed.clusters {
            let of_it = needed.iter().filter(|need| need.cluster.as_str() == cluster.name);
            let granted = of_it.filter(|need| !except(need));
            let mut rules: Vec<_> = granted.map(|need| rule(need.resource, need.verb)).collect();
            if with_check {
                rules.extend(READ_BY_CHECK_ONLY.iter().map(|resource| rule(resource, "list")));
            }
            only(cluster.rest(), &folders(cluster.roles), &json!(rules)).await;
        }
    }

    /// Renews the Lease as a throughline of this name.
    fn renew(&mut self, holder: &'static str) {
        let hub = self.testbed.hub().rest().clone();
        self.renewing = Some(Task::spawn(async move {
            let object = json!({ "metadata": { "namespace": LEASE.0, "name": LEASE.1 } });
            let _ = hub.create(LEASES, object).await;
            loop {
                as_throughline(&hub, LEASES, LEASE, &held_by(holder)).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }));
    }

    /// Writes the right configuration, and waits until `check` finds no problem.
    async fn mend(&mut self) {
        self.configure(&json!({}));
        eventually("nothing is wrong", SOON, async || {
            let problems = self.findings(&PROBLEM).await;
            ensure(problems.is_empty(), || format!("{problems:#?}"))
        })
        .await;
    }

    /// Merges this over the right configuration.
    fn configure(&mut self, change: &Value) {
        self.config = self.right.clone();
        merge_json(&mut self.config, change);
        std::fs::write(self.file("three.yaml"), self.config.to_string()).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.testbed.hub().server.folder().join(name)
    }

    /// Writes two kubeconfigs with a context for each cluster: throughline's, whose credentials may do little, and
    /// the person's. The context of upstream leads to another server, if there is one.
    fn lead(&self, other: Option<&ApiServer>) {
        for (file, user) in [("throughline.kubeconfig", THROUGHLINE), ("admin.kubeconfig", ADMIN)] {
            let named = |what: &str, of: &dyn Fn(&Cluster) -> Value| -> Vec<Value> {
                let clusters = self.testbed.clusters.iter();
                clusters.map(|cluster| json!({ "name": cluster.name, what: of(cluster) })).collect()
            };
            let place = |cluster: &Cluster| {
                // Where a proxy is in between, the person's context leads elsewhere than throughline's.
                if user == THROUGHLINE && cluster.name == EDGE {
                    return json!({ "server": cluster.proxy.url() });
                }
                let other = other.filter(|_| cluster.name == UPSTREAM);
                let server = other.unwrap_or(&cluster.server);
                json!({ "server": server.url(), "certificate-authority": server.ca() })
            };
            let config = json!({ "apiVersion": "v1", "kind": "Config",
                "clusters": named("cluster", &place),
                "users": named("user", &|_| json!({ "token": token(user) })),
                "contexts": named("context", &|c| json!({ "cluster": c.name, "user": c.name })) });
            std::fs::write(self.file(file), config.to_string()).unwrap();
        }
    }

    /// Runs one line in a shell, as a person does who may do everything.
    async fn paste(&self, line: &str) -> (i32, String) {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", line]).env("PATH", path);
        command.env("KUBECONFIG", self.file("admin.kubeconfig")).env("COLUMNS", "80");
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
        assert!(code < 2, "{out}");
        let mut findings = findings_of(code, &out);
        findings.retain(|f| levels.contains(&f["level"].as_str().unwrap()));
        findings
    }

    /// Waits until `check` skips only this.
    async fn skips_only(&self, check: &str) {
        eventually(&format!("{check} is skipped"), SOON, async || {
            let skipped = self.findings(&["skipped"]).await;
            let is_it = matches!(&skipped[..], [finding] if finding["check"] == check);
            ensure(is_it, || format!("{skipped:#?}"))
        })
        .await;
    }

    /// Waits until `check` finds this and nothing else; returns the commands of its remedy. `found` is the
    /// check, the level and the cause.
    async fn finds_only(&self, found: &str, message: &str) -> Vec<String> {
        let remedy = Mutex::new(String::new());
        eventually(&format!("only {found}: {message}"), SOON, async || {
            let problems = self.findings(&PROBLEM).await;
            let [problem] = &problems[..] else { return Err(format!("{problems:#?}")) };
            let word = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
            let is_it = ["check", "level", "cause"].map(word).join(" ") == found;
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
