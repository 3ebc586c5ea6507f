//! `throughline check` on real API servers: healthy it ticks everything; each problem that is put in is
//! named, with what to do.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use throughline::check::need::{Need, needs, parts};
use throughline::config::{Overrides, load};

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::crd;
use crate::cluster::rest::{CRDS, NAMESPACES, PROXIES, Resource, Rest};
use crate::cluster::rights::{folders, only};
use crate::cluster::throughline::{Setup, binary};
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle};

const CLASSES: Resource = Resource {
    group_version: "gateway.networking.k8s.io/v1",
    plural: "gatewayclasses",
    kind: "GatewayClass",
};
pub(crate) const ENVOY_PROXIES: Resource = Resource {
    group_version: "gateway.envoyproxy.io/v1alpha1",
    plural: "envoyproxies",
    kind: "EnvoyProxy",
};
/// A configuration of the world, and the file that it is in.
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    needs: Vec<Need>,
}

impl Place {
    pub(crate) fn new(world: &World, more: &Value) -> Self {
        let clusters: Vec<_> = world.clusters.iter().map(|c| c.config()).collect();
        let mut config = json!({ "clusters": clusters, "watch": { "timeoutMs": 5000 },
            "leaderElection": { "leaseNamespace": "default" } });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let file = world.hub().server.folder().join("check.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        let loaded = load(Some(&file), &Overrides::default()).unwrap();
        Self { file, needs: needs(&loaded.config) }
    }

    /// What was found, and the exit code.
    pub(crate) async fn check(&self, flags: &[&str]) -> Found {
        let (code, out, err) = run(&self.file, &[&["--output", "json"], flags].concat()).await;
        assert!(code < 2, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["well"], code == 0, "{out}");
        Found { report, code, err }
    }

    /// Gives exactly what is needed in each cluster, without what `but` says.
    pub(crate) async fn grant(&self, world: &World, but: impl Fn(&Need) -> bool, more: &[Value]) {
        for cluster in &world.clusters {
            let mine = self.needs.iter().filter(|n| n.cluster.as_str() == cluster.name && !but(n));
            let rule = |need: &Need| {
                let (plural, group) = parts(need.resource);
                json!({ "apiGroups": [group], "resources": [plural], "verbs": [need.verb] })
            };
            let rules: Vec<_> = mine.map(rule).chain(more.iter().cloned()).collect();
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

pub(crate) struct Found {
    report: Value,
    pub(crate) code: i32,
    err: String,
}

impl Found {
    fn all(&self) -> &[Value] {
        self.report["findings"].as_array().unwrap()
    }

    /// Those that are not well, as `GROUP: WHAT`.
    pub(crate) fn unwell(&self) -> Vec<String> {
        let unwell = self.all().iter().filter(|f| f["level"] != "passed");
        let told = |f: &Value| {
            let word = |name: &str| f[name].as_str().unwrap_or_default().to_owned();
            format!(
                "{} {}: {} [{}] -> {}",
                word("level"),
                word("group"),
                word("what"),
                word("detail"),
                word("remedy")
            )
        };
        unwell.map(told).collect()
    }

    /// The finding with these words, of this level; with a remedy with those.
    #[track_caller]
    pub(crate) fn tells(&self, level: &str, group: &str, what: &str, remedy: &str) {
        self.told(level, group, what, remedy).unwrap();
    }

    pub(crate) fn told(
        &self,
        level: &str,
        group: &str,
        what: &str,
        remedy: &str,
    ) -> Result<(), String> {
        let has =
            |f: &Value, name: &str, text: &str| f[name].as_str().unwrap_or_default().contains(text);
        let fits = |f: &&Value| {
            f["level"] == level
                && has(f, "group", group)
                && has(f, "what", what)
                && has(f, "remedy", remedy)
        };
        ensure(self.all().iter().any(|f| fits(&f)), || {
            format!("no {level} {group}: {what} -> {remedy} in {:#?}", self.unwell())
        })
    }
}

/// A CRD that takes anything, for kinds that only `check` looks at.
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
    eventually("a loose kind is served", SOON, async || {
        rest.items(resource).await.map(drop).map_err(|refused| refused.to_string())
    })
    .await;
}

/// Envoy Gateway's kinds with a class that is merged or not.
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

/// What `check` looks at beside what a run needs.
pub(crate) fn to_look() -> Vec<Value> {
    let looked = throughline::check::need::LOOKED_AT.iter().map(|resource| {
        let (plural, group) = parts(resource);
        json!({ "apiGroups": [group], "resources": [plural], "verbs": ["list"] })
    });
    looked.collect()
}

/// Under exactly the rights of the table a run does its work, and `check` has nothing to say.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_healthy_setup_is_all_ticks_under_exactly_the_rights_of_the_table() {
    let world = World::start(Topology::Three).await;
    let place = Place::new(&world, &json!({ "orphans": { "mode": "delete" } }));
    for cluster in &world.clusters {
        default_namespace(cluster.rest()).await;
    }
    place.grant(&world, |_| false, &to_look()).await;
    envoy_gateway(world.edge().rest(), false).await;
    let fleet = Fleet::seed(&world, Spec::of(4)).await;
    let election = json!({ "leaderElection": { "enabled": true, "leaseNamespace": "default" },
        "orphans": { "mode": "delete" } });
    let throughline = Setup::of(&world).set(&election).ready().await;
    oracle::converges(&world).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&world).await;

    let mut found = place.check(&["--wait", "30s"]).await;
    // The file names no event log, which is told.
    assert_eq!(found.unwell().len(), 1, "{:#?}", found.unwell());
    found.tells("warning", "configuration", "orphans.mode", "leave it");
    let log = world.hub().server.folder().join("log.jsonl").display().to_string();
    found = place.check(&["--event-log", &log]).await;
    assert_eq!(found.unwell(), [""; 0], "{:#?}", found.unwell());
    assert_eq!(found.code, 0);
    found.tells("passed", "leader election", "leads", "");
    found.tells("passed", "carrier", "each of 4 replicas", "");
    found.tells("passed", "other writers", "throughline alone wrote it, to 4 objects", "");
    assert!(!Path::new(&log).exists(), "check writes no log");

    let (code, text, err) = run(&place.file, &["--event-log", &log]).await;
    println!("{text}");
    assert_eq!((code, &*err), (0, ""));
    assert!(text.ends_with("\nStatus check results are √\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colour in a pipe");
    throughline.stop().await;

    // Who runs it with a live run's rights alone sees less, and nothing fails.
    place.grant(&world, |_| false, &[]).await;
    eventually("what may not be looked at is left out", SOON, async || {
        let found = place.check(&["--event-log", &log]).await;
        let unwell = found.unwell();
        ensure(found.code == 0 && unwell.len() == 1, || format!("{unwell:#?}"))?;
        let merged = "whether its gateways are merged can't be told";
        found.told("skipped", "Envoy Gateway", merged, "")?;
        found.told("passed", "Envoy Gateway", "by its kind EnvoyProxy", "")
    })
    .await;
}

/// Each permission is taken away in turn, and found missing; each that is superfluous is found.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn each_missing_permission_and_each_superfluous_one_is_named() {
    let world = World::start(Topology::One).await;
    let rest = world.hub().rest();
    default_namespace(rest).await;
    let place = Place::new(&world, &json!({ "orphans": { "mode": "delete" } }));
    assert_eq!(place.needs.len(), 21, "{:#?}", place.needs);
    for need in &place.needs {
        place.grant(&world, |other| other == need, &[]).await;
        eventually(&format!("{} {} is missed", need.verb, need.resource), SOON, async || {
            let found = place.check(&[]).await;
            let missing = format!("may not {} {}", need.verb, need.resource);
            let (plural, _) = parts(need.resource);
            let remedy = format!("grant {} on {plural} of", need.verb);
            let failed: Vec<_> = found
                .all()
                .iter()
                .filter(|f| f["check"] == "permission" && f["level"] == "failed")
                .collect();
            ensure(failed.len() == 1, || format!("{failed:#?}"))?;
            found.told("failed", "cluster all", &missing, &remedy)
        })
        .await;
    }
    for (rule, told) in [
        (json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }), "get secrets"),
        (
            json!({ "apiGroups": ["networking.datumapis.com"], "resources": ["connectors"], "verbs": ["delete"] }),
            "delete connectors.networking.datumapis.com",
        ),
        (
            json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }),
            "do anything with everything",
        ),
    ] {
        place.grant(&world, |_| false, &[rule]).await;
        eventually(told, SOON, async || {
            let found = place.check(&[]).await;
            found.told("warning", "cluster all", told, "take it away")
        })
        .await;
    }
}

/// What is wrong with a cluster is told of that one, in its place, and the others are looked at.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn clusters_that_cannot_be_used_are_told_and_waited_for() {
    let world = World::start(Topology::Three).await;
    let place = Place::new(&world, &json!({ "watch": { "timeoutMs": 1500 } }));
    let groups = |found: &Found| -> Vec<String> {
        let mut groups: Vec<_> =
            found.all().iter().map(|f| f["group"].as_str().unwrap().to_owned()).collect();
        groups.dedup();
        groups
    };
    let healthy = groups(&place.check(&[]).await);
    let proxy = &world.hub().proxy;
    proxy.down();
    let found = place.check(&[]).await;
    found.tells("failed", "cluster hub", "can't be reached", "server is right and up");
    found.tells("skipped", "leader election", "can't be looked at", "");
    found.tells("passed", "cluster edge", "answers", "");
    assert_eq!(groups(&found), healthy, "the order stays");
    proxy.up();
    proxy.freeze();
    let found = place.check(&[]).await;
    found.tells("failed", "cluster hub", "does not answer", "drops packets");
    found.tells("passed", "cluster edge", "answers", "");
    assert_eq!(groups(&found), healthy, "the order stays");
    proxy.thaw();
    let kubeconfig = proxy.kubeconfig(THROUGHLINE);
    proxy.write_kubeconfig(&kubeconfig, "stranger");
    let found = place.check(&[]).await;
    found.tells("failed", "cluster hub", "refuses who asks", "renew the token");

    // Waited for: it says for what, and passes when it is mended.
    let waiting = place.check(&["--wait", "60s"]);
    let mending = async {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        proxy.write_kubeconfig(&kubeconfig, THROUGHLINE);
    };
    let (found, ()) = tokio::join!(waiting, mending);
    assert_eq!(found.code, 0, "{:#?}", found.unwell());
    assert!(found.err.contains("cluster hub (downstream): refuses who asks"), "{}", found.err);

    // No CRD; and one of another version.
    let edge = world.edge().rest();
    edge.delete(CRDS, "", "httpproxies.networking.datumapis.com").await.unwrap();
    eventually("a missing CRD is told", SOON, async || {
        let found = place.check(&[]).await;
        let what = "does not serve httpproxies.networking.datumapis.com in v1alpha";
        found.told("failed", "cluster edge", what, "install the CustomResourceDefinition")
    })
    .await;
    let mut other = crd(PROXIES);
    other["spec"]["versions"][0]["name"] = "v9".into();
    edge.create(CRDS, other).await.unwrap();
    eventually("another version is told", SOON, async || {
        let found = place.check(&[]).await;
        found.told("failed", "cluster edge", "does not serve httpproxies", "serve v1alpha")
    })
    .await;
}
