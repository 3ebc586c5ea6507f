//! Three clusters in which every check passes, a configuration that names their contexts, and a person
//! who pastes what `throughline check` prints into a shell.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use throughline::check::permissions::{
    READ_BY_CHECK_ONLY, RequiredPermission, required_permissions, split_resource,
};

use crate::cluster::apiserver::{ADMIN, ApiServer, THROUGHLINE, token};
use crate::cluster::follow::Task;
use crate::cluster::objects::install_loose;
use crate::cluster::rest::{LEASES, NAMESPACES, Resource};
use crate::cluster::rights::{folders, only};
use crate::cluster::throughline::{binary, merge_json};
use crate::prelude::*;
use crate::tools::tools_folder;

pub(crate) const UPSTREAM: &str = "project-a";
pub(crate) const HUB: &str = "hub";
pub(crate) const EDGE: &str = "edge";

const CLASSES: Resource =
    Resource::new("gateway.networking.k8s.io/v1", "gatewayclasses", "GatewayClass");
pub(crate) const ENVOY_PROXIES: Resource =
    Resource::new("gateway.envoyproxy.io/v1alpha1", "envoyproxies", "EnvoyProxy");

/// The clusters, and the files of the person.
pub(crate) struct World {
    pub(crate) testbed: Testbed,
    pub(crate) fleet: Fleet,
    /// What `check` reads; `right` while nothing is broken.
    pub(crate) config: Value,
    pub(crate) right: Value,
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
pub(crate) async fn as_throughline(
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
pub(crate) fn held_by(holder: &str) -> Value {
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

/// Grants in each cluster what a run of this configuration needs and, if asked, what `check` reads beside,
/// without the permissions that `except` selects.
async fn grant(
    testbed: &Testbed,
    config: &Value,
    with_check: bool,
    except: impl Fn(&RequiredPermission) -> bool,
) {
    let rule = |resource: &str, verb: &str| {
        let (plural, group) = split_resource(resource);
        json!({ "apiGroups": [group], "resources": [plural], "verbs": [verb] })
    };
    let needed = required_permissions(&serde_json::from_value(config.clone()).unwrap());
    for cluster in &testbed.clusters {
        let granted = needed.iter().filter(|n| n.cluster.as_str() == cluster.name && !except(n));
        let mut rules: Vec<_> = granted.map(|need| rule(need.resource, need.verb)).collect();
        if with_check {
            rules.extend(READ_BY_CHECK_ONLY.iter().map(|resource| rule(resource, "list")));
        }
        only(cluster.rest(), &folders(cluster.roles), &json!(rules)).await;
    }
}

impl World {
    /// Three connectors in three namespaces, converged, with exactly the permissions that a run and a check
    /// need: every check passes.
    pub(crate) async fn start() -> Self {
        let names = [UPSTREAM, HUB, EDGE];
        let testbed = Testbed::start_named(Topology::Three, &names, |_| true).await;
        for cluster in &testbed.clusters {
            let exists = async || cluster.rest().read(NAMESPACES, "", "default").await.is_ok();
            until("namespace default", exists).await;
        }
        install_envoy_gateway(testbed.edge().rest()).await;
        let folder = testbed.hub().server.folder().to_owned();
        let clusters: Vec<_> = testbed.clusters.iter().map(Cluster::config).collect();
        let mut right = json!({ "clusters": clusters,
            "eventLog": { "file": folder.join("log.jsonl") },
            "leaderElection": { "leaseNamespace": "default" } });
        grant(&testbed, &right, true, |_| false).await;
        let fleet = Fleet::seed(&testbed, Spec { per_namespace: 1, ..Spec::of(3) }).await;
        let election =
            json!({ "leaderElection": { "enabled": true, "leaseNamespace": "default" } });
        let throughline = Setup::of(&testbed).set(&election).ready().await;
        oracle::converges(&testbed).await;
        throughline.stop().await;

        let bin = folder.join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(tools_folder().join("kubectl"), bin.join("kubectl")).unwrap();
        let script = bin.join("throughline");
        let text = format!("#!/bin/sh\nexec {} \"$@\"\n", binary().display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        for cluster in right["clusters"].as_array_mut().unwrap() {
            cluster["kubeconfig"] = json!(folder.join("throughline.kubeconfig"));
            cluster["context"] = cluster["name"].clone();
        }
        let mut world = Self { testbed, fleet, config: Value::Null, right, renewing: None, bin };
        world.lead(UPSTREAM, None);
        world.renew("pod-1");
        world.mend().await;
        let (code, text) = world.paste("throughline check").await;
        assert!(code == 0 && text.ends_with("\n√ no check failed, no warnings\n"), "{text}");
        assert!(!text.contains("not visible") && !text.contains('\u{1b}'), "{text}");
        world
    }

    /// Grants what a run needs, and what a check reads beside unless `with_check` is false, but not what
    /// `except` selects.
    pub(crate) async fn grant(
        &self,
        with_check: bool,
        except: impl Fn(&RequiredPermission) -> bool,
    ) {
        grant(&self.testbed, &self.right, with_check, except).await;
    }

    /// Renews the Lease as a throughline of this name.
    pub(crate) fn renew(&mut self, holder: &'static str) {
        let hub = self.testbed.hub().rest().clone();
        self.renewing = Some(Task::spawn(async move {
            let object = json!({ "metadata": { "namespace": "default", "name": "throughline" } });
            let _ = hub.create(LEASES, object).await;
            loop {
                as_throughline(&hub, LEASES, ("default", "throughline"), &held_by(holder)).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }));
    }

    pub(crate) fn stop_renewing(&mut self) {
        self.renewing = None;
    }

    /// Writes the right configuration, and waits until `check` finds no problem.
    pub(crate) async fn mend(&mut self) {
        self.configure(&json!({}));
        eventually("nothing is wrong", SOON, async || {
            let problems = self.problems().await;
            ensure(problems.is_empty(), || format!("{problems:#?}"))
        })
        .await;
    }

    /// Merges this over the right configuration.
    pub(crate) fn configure(&mut self, change: &Value) {
        self.config = self.right.clone();
        merge_json(&mut self.config, change);
        std::fs::write(self.file("three.yaml"), self.config.to_string()).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.testbed.hub().server.folder().join(name)
    }

    /// Writes two kubeconfigs with a context for each cluster: throughline's, whose credentials may do little, and
    /// the person's. The context of `name` leads to another server, if there is one.
    pub(crate) fn lead(&self, name: &str, other: Option<&ApiServer>) {
        for (file, user) in [("throughline.kubeconfig", THROUGHLINE), ("admin.kubeconfig", ADMIN)] {
            let (mut clusters, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
            for cluster in &self.testbed.clusters {
                let name_here = cluster.name;
                let server = other.filter(|_| name_here == name).unwrap_or(&cluster.server);
                let mut place = json!({ "server": server.url() });
                let mut ca = Some(server.ca());
                // Where a proxy is in between, the person's context leads elsewhere than throughline's.
                if user == THROUGHLINE && name_here == EDGE {
                    place["server"] = cluster.proxy.url().into();
                    ca = cluster.proxy.ca().map(Into::into);
                }
                if let Some(ca) = ca {
                    place["certificate-authority"] = json!(ca);
                }
                clusters.push(json!({ "name": name_here, "cluster": place }));
                users.push(json!({ "name": name_here, "user": { "token": token(user) } }));
                let context = json!({ "cluster": name_here, "user": name_here });
                contexts.push(json!({ "name": name_here, "context": context }));
            }
            let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": clusters,
                "users": users, "contexts": contexts });
            std::fs::write(self.file(file), config.to_string()).unwrap();
        }
    }

    /// Runs one line in a shell, as a person does who may do everything.
    pub(crate) async fn paste(&self, line: &str) -> (i32, String) {
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
    pub(crate) async fn does(&self, line: &str) -> String {
        let (code, said) = self.paste(line).await;
        assert_eq!(code, 0, "{line}\n{said}");
        said
    }

    /// What `throughline check` finds, at one of these levels.
    pub(crate) async fn findings(&self, levels: &[&str]) -> Vec<Value> {
        let (code, out) = self.paste("throughline check --output json").await;
        assert!(code < 2, "{out}");
        let mut findings = findings_of(code, &out);
        findings.retain(|f| levels.contains(&f["level"].as_str().unwrap()));
        findings
    }

    async fn problems(&self) -> Vec<Value> {
        self.findings(&["failed", "warning"]).await
    }

    /// Waits until `check` skips only this.
    pub(crate) async fn skips_only(&self, check: &str) {
        eventually(&format!("{check} is skipped"), SOON, async || {
            let skipped = self.findings(&["skipped"]).await;
            let is_it = matches!(&skipped[..], [finding] if finding["check"] == check);
            ensure(is_it, || format!("{skipped:#?}"))
        })
        .await;
    }

    /// Waits until `check` finds this and nothing else; returns the commands of its remedy. `found` is the
    /// check, the level and the cause.
    pub(crate) async fn finds_only(&self, found: [&str; 3], message: &str) -> Vec<String> {
        let remedy = Mutex::new(String::new());
        eventually(&format!("only {found:?}: {message}"), SOON, async || {
            let problems = self.problems().await;
            let [problem] = &problems[..] else { return Err(format!("{problems:#?}")) };
            let word = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
            let is_it = ["check", "level", "cause"].map(word) == found;
            *remedy.lock().unwrap() = word("remedy");
            ensure(is_it && word("message").contains(message), || format!("{problem:#}"))
        })
        .await;
        let remedy = remedy.into_inner().unwrap();
        let commands = remedy.split('`').skip(1).step_by(2).filter(|part| part.contains(' '));
        commands.map(str::to_owned).collect()
    }

    /// The same where the remedy has one command.
    pub(crate) async fn finds_command(&self, found: [&str; 3], message: &str) -> String {
        let mut commands = self.finds_only(found, message).await;
        assert_eq!(commands.len(), 1, "{commands:?}");
        commands.remove(0)
    }
}
