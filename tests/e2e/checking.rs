//! `throughline check` on real API servers: in a healthy environment every check passes, and each
//! problem that a test causes is named, with a remedy.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use throughline::check::permissions::{
    READ_BY_CHECK_ONLY, RequiredPermission, required_permissions, split_resource,
};
use throughline::config::{Overrides, load};

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::crd;
use crate::cluster::rest::{CRDS, NAMESPACES, PROXIES, Resource, Rest};
use crate::cluster::rights::{folders, only};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, binary};
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
/// A configuration for the clusters of a test, in a file.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    needed: Vec<RequiredPermission>,
}

impl ConfigFile {
    pub(crate) fn new(testbed: &Testbed, more: &Value) -> Self {
        let clusters: Vec<_> = testbed.clusters.iter().map(|c| c.config()).collect();
        let log = testbed.hub().server.folder().join("log.jsonl");
        let mut config = json!({ "clusters": clusters, "watch": { "timeoutMs": 5000 },
            "leaderElection": { "leaseNamespace": "default" }, "eventLog": { "file": log } });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let path = testbed.hub().server.folder().join("check.yaml");
        std::fs::write(&path, config.to_string()).unwrap();
        let loaded = load(Some(&path), &Overrides::default()).unwrap();
        Self { path, needed: required_permissions(&loaded.config) }
    }

    pub(crate) async fn check(&self, flags: &[&str]) -> CheckOutput {
        let (code, out, err) = run(&self.path, &[&["--output", "json"], flags].concat()).await;
        assert!(code < 2, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["well"], code == 0, "{out}");
        CheckOutput { report, code, err }
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

pub(crate) struct CheckOutput {
    report: Value,
    pub(crate) code: i32,
    err: String,
}

impl CheckOutput {
    fn findings(&self) -> &[Value] {
        self.report["findings"].as_array().unwrap()
    }

    /// The findings that did not pass, as text.
    pub(crate) fn not_passed(&self) -> Vec<String> {
        let not_passed = self.findings().iter().filter(|f| f["level"] != "passed");
        let text = |f: &Value| {
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
        not_passed.map(text).collect()
    }

    /// Asserts that there is a finding of this level whose group, text and remedy contain these.
    #[track_caller]
    pub(crate) fn assert_finds(&self, level: &str, group: &str, what: &str, remedy: &str) {
        self.finds(level, group, what, remedy).unwrap();
    }

    pub(crate) fn finds(
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
        ensure(self.findings().iter().any(|f| fits(&f)), || {
            format!("no {level} {group}: {what} -> {remedy} in {:#?}", self.not_passed())
        })
    }
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

/// With exactly the permissions of the table a run does its work, and every check passes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn every_check_passes_with_exactly_the_required_permissions() {
    let testbed = Testbed::start(Topology::Three).await;
    let config = ConfigFile::new(&testbed, &json!({ "orphans": { "mode": "delete" } }));
    for cluster in &testbed.clusters {
        default_namespace(cluster.rest()).await;
    }
    config.grant(&testbed, |_| false, &check_only_rules()).await;
    envoy_gateway(testbed.edge().rest(), false).await;
    let fleet = Fleet::seed(&testbed, Spec::of(4)).await;
    let election = json!({ "leaderElection": { "enabled": true, "leaseNamespace": "default" },
        "orphans": { "mode": "delete" } });
    let throughline = Setup::of(&testbed).set(&election).ready().await;
    oracle::converges(&testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;

    let mut found = config.check(&["--wait", "30s"]).await;
    assert_eq!(found.not_passed(), [""; 0], "{:#?}", found.not_passed());
    let log = testbed.hub().server.folder().join("log.jsonl").display().to_string();
    found = config.check(&["--event-log", &log]).await;
    assert_eq!(found.not_passed(), [""; 0], "{:#?}", found.not_passed());
    assert_eq!(found.code, 0);
    found.assert_finds("passed", "leader election", "leads", "");
    found.assert_finds("passed", "carrier", "4 Connectors at hub, with the same value at edge", "");
    found.assert_finds("passed", "other writers", "written by throughline alone (4 objects)", "");
    assert!(!Path::new(&log).exists(), "check writes no log");

    let (code, text, err) = run(&config.path, &["--event-log", &log]).await;
    println!("{text}");
    assert_eq!((code, &*err), (0, ""));
    assert!(text.ends_with("\n√ no check failed, no warnings\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colour in a pipe");
    throughline.stop().await;

    // With the permissions of a live run alone, some checks are skipped, and none fails.
    config.grant(&testbed, |_| false, &[]).await;
    eventually("what may not be read is skipped", SOON, async || {
        let found = config.check(&["--event-log", &log]).await;
        let not_passed = found.not_passed();
        ensure(found.code == 0 && not_passed.len() == 1, || format!("{not_passed:#?}"))?;
        let merged = "not known whether its gateways are merged";
        found.finds("skipped", "Envoy Gateway", merged, "")?;
        found.finds("passed", "Envoy Gateway", "EnvoyProxy is served", "")
    })
    .await;
}

/// Each required permission that is missing is found, and so is each that is not needed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn each_missing_and_each_excess_permission_is_named() {
    let testbed = Testbed::start(Topology::One).await;
    let rest = testbed.hub().rest();
    default_namespace(rest).await;
    let config = ConfigFile::new(&testbed, &json!({ "orphans": { "mode": "delete" } }));
    assert_eq!(config.needed.len(), 22, "{:#?}", config.needed);
    for need in &config.needed {
        config.grant(&testbed, |other| other == need, &[]).await;
        eventually(&format!("{} {} is missing", need.verb, need.resource), SOON, async || {
            let found = config.check(&[]).await;
            let missing = format!("may not {} {}", need.verb, need.resource);
            let (plural, _) = split_resource(need.resource);
            let remedy = format!("grant {} on {plural} of", need.verb);
            let failed: Vec<_> = found
                .findings()
                .iter()
                .filter(|f| f["check"] == "permission" && f["level"] == "failed")
                .collect();
            ensure(failed.len() == 1, || format!("{failed:#?}"))?;
            found.finds("failed", "cluster all", &missing, &remedy)
        })
        .await;
    }
    for (rule, text) in [
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
        config.grant(&testbed, |_| false, &[rule]).await;
        eventually(text, SOON, async || {
            let found = config.check(&[]).await;
            found.finds("warning", "cluster all", text, "remove them")
        })
        .await;
    }
}

/// A problem with one cluster is reported for that cluster, and the others are checked as usual.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn clusters_that_cannot_be_used_are_reported_and_waited_for() {
    let testbed = Testbed::start(Topology::Three).await;
    let config = ConfigFile::new(&testbed, &json!({ "watch": { "timeoutMs": 1500 } }));
    let groups = |found: &CheckOutput| -> Vec<String> {
        let mut groups: Vec<_> =
            found.findings().iter().map(|f| f["group"].as_str().unwrap().to_owned()).collect();
        groups.dedup();
        groups
    };
    let healthy = groups(&config.check(&[]).await);
    let proxy = &testbed.hub().proxy;
    proxy.down();
    let found = config.check(&[]).await;
    found.assert_finds(
        "failed",
        "cluster hub",
        "cannot be reached",
        "server address in the kubeconfig",
    );
    found.assert_finds("skipped", "leader election", "cannot be checked", "");
    found.assert_finds("passed", "cluster edge", "answered", "");
    assert_eq!(groups(&found), healthy, "the order of the groups is the same");
    proxy.up();
    proxy.freeze();
    let found = config.check(&[]).await;
    found.assert_finds("failed", "cluster hub", "does not answer", "drops packets");
    found.assert_finds("passed", "cluster edge", "answered", "");
    assert_eq!(groups(&found), healthy, "the order of the groups is the same");
    proxy.thaw();
    let kubeconfig = proxy.kubeconfig(THROUGHLINE);
    proxy.write_kubeconfig(&kubeconfig, "stranger");
    let found = config.check(&[]).await;
    found.assert_finds("failed", "cluster hub", "rejects the credentials", "renew the token");

    // With --wait it says what still fails, and passes once that is fixed.
    let waiting = config.check(&["--wait", "60s"]);
    let repair = async {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        proxy.write_kubeconfig(&kubeconfig, THROUGHLINE);
    };
    let (found, ()) = tokio::join!(waiting, repair);
    assert_eq!(found.code, 0, "{:#?}", found.not_passed());
    assert!(found.err.contains("cluster hub (hub): rejects the credentials"), "{}", found.err);

    // The CRD is missing; then it serves another version.
    let edge = testbed.edge().rest();
    edge.delete(CRDS, "", "httpproxies.networking.datumapis.com").await.unwrap();
    eventually("the missing CRD is found", SOON, async || {
        let found = config.check(&[]).await;
        let what = "does not serve httpproxies.networking.datumapis.com in v1alpha";
        found.finds("failed", "cluster edge", what, "install the CustomResourceDefinition")
    })
    .await;
    let mut other = crd(PROXIES);
    other["spec"]["versions"][0]["name"] = "v9".into();
    edge.create(CRDS, other).await.unwrap();
    eventually("the other version is found", SOON, async || {
        let found = config.check(&[]).await;
        found.finds("failed", "cluster edge", "does not serve httpproxies", "serve v1alpha")
    })
    .await;
}
