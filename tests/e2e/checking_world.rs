//! Three clusters in which every check passes, a configuration that names their contexts, and a person
//! who pastes what `throughline check` prints into a shell.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use crate::checking::{ConfigFile, check_only_rules, default_namespace, envoy_gateway, findings};
use crate::cluster::apiserver::{ADMIN, ApiServer, THROUGHLINE, token};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::follow::Task;
use crate::cluster::rest::{LEASES, Resource, Rest};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, binary, merge_json};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::tools::tools_folder;

pub(crate) const UPSTREAM: &str = "project-a";
pub(crate) const HUB: &str = "hub";
pub(crate) const EDGE: &str = "edge";

/// The clusters, and the files of the person.
pub(crate) struct World {
    pub(crate) testbed: Testbed,
    pub(crate) fleet: Fleet,
    pub(crate) granted: ConfigFile,
    /// What `check` reads; `right` while nothing is broken.
    pub(crate) config: Value,
    pub(crate) right: Value,
    /// Renews the Lease as a throughline does. None runs: it would mend what a test breaks.
    renewing: Option<Task>,
    /// Programs that a pasted command finds first.
    bin: PathBuf,
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

impl World {
    /// Three connectors in three namespaces, converged, with exactly the permissions that a run and a check
    /// need: every check passes.
    pub(crate) async fn start() -> Self {
        let names = [UPSTREAM, HUB, EDGE];
        let testbed = Testbed::start_named(Topology::Three, &names, |_| true).await;
        for cluster in &testbed.clusters {
            default_namespace(cluster.rest()).await;
        }
        envoy_gateway(testbed.edge().rest(), false).await;
        let granted = ConfigFile::new(&testbed, &json!({}));
        granted.grant(&testbed, |_| false, &check_only_rules()).await;
        let spec = Spec { per_namespace: 1, mirrored: Mirrored::Absent, ..Spec::of(3) };
        let fleet = Fleet::seed(&testbed, spec).await;
        let election =
            json!({ "leaderElection": { "enabled": true, "leaseNamespace": "default" } });
        let throughline = Setup::of(&testbed).set(&election).ready().await;
        oracle::converges(&testbed).await;
        throughline.stop().await;

        let bin = testbed.hub().server.folder().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(tools_folder().join("kubectl"), bin.join("kubectl")).unwrap();
        let (config, right, renewing) = (Value::Null, Value::Null, None);
        let mut world = Self { testbed, fleet, granted, config, right, renewing, bin };
        // throughline has contexts of the same names, with credentials that may do little.
        let kubeconfig = world.kubeconfig("throughline.kubeconfig", &world.places(THROUGHLINE));
        let script = format!("exec {} \"$@\"", binary().display());
        world.stand_in("throughline", &script);
        let clusters = world.testbed.clusters.iter().map(|cluster| {
            json!({ "name": cluster.name, "roles": cluster.roles, "kubeconfig": kubeconfig,
                "context": cluster.name })
        });
        world.right = json!({ "clusters": clusters.collect::<Vec<_>>(),
            "eventLog": { "file": world.file("log.jsonl") },
            "leaderElection": { "leaseNamespace": "default" } });
        world.kubeconfig("admin.kubeconfig", &world.places(ADMIN));
        world.renew("pod-1");
        world.mend().await;
        let (code, text) = world.paste("throughline check").await;
        println!("{text}");
        assert!(code == 0 && text.ends_with("\n√ no check failed, no warnings\n"), "{text}");
        assert!(!text.contains("not visible") && !text.contains('\u{1b}'), "{text}");
        world
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
        self.config = self.right.clone();
        self.write_config();
        eventually("nothing is wrong", SOON, async || {
            let problems = self.check().await;
            ensure(problems.is_empty(), || format!("{problems:#?}"))
        })
        .await;
    }

    /// Merges this over the right configuration.
    pub(crate) fn configure(&mut self, change: &Value) {
        self.config = self.right.clone();
        merge_json(&mut self.config, change);
        self.write_config();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.testbed.hub().server.folder().join(name)
    }

    /// For each cluster, its name, and the server, certificate and token for a user.
    fn places(&self, user: &str) -> Vec<(&'static str, Value)> {
        let place = |cluster: &crate::cluster::testbed::Cluster| {
            // Where a proxy is in between, the person's context leads elsewhere than throughline's.
            let is_direct = user == ADMIN || cluster.name != EDGE;
            let server = if is_direct { cluster.server.url() } else { cluster.proxy.url() };
            let ca = if is_direct {
                Some(cluster.server.ca())
            } else {
                cluster.proxy.ca().map(Into::into)
            };
            (cluster.name, json!({ "server": server, "ca": ca, "token": token(user) }))
        };
        self.testbed.clusters.iter().map(place).collect()
    }

    /// Writes a kubeconfig with a context for each place.
    fn kubeconfig(&self, file: &str, places: &[(&str, Value)]) -> PathBuf {
        let (mut clusters, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
        for (name, place) in places {
            let mut cluster = json!({ "server": place["server"] });
            if !place["ca"].is_null() {
                cluster["certificate-authority"] = place["ca"].clone();
            }
            clusters.push(json!({ "name": name, "cluster": cluster }));
            users.push(json!({ "name": name, "user": { "token": place["token"] } }));
            contexts.push(json!({ "name": name, "context": { "cluster": name, "user": name } }));
        }
        let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": clusters,
            "users": users, "contexts": contexts });
        let path = self.file(file);
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Lets the context of `name` lead to another server, in throughline's kubeconfig and the person's.
    pub(crate) fn lead(&self, name: &str, server: Option<&ApiServer>) {
        for (file, user) in [("throughline.kubeconfig", THROUGHLINE), ("admin.kubeconfig", ADMIN)] {
            let mut places = self.places(user);
            let (_, place) = places.iter_mut().find(|(other, _)| *other == name).unwrap();
            if let Some(server) = server {
                *place = json!({ "server": server.url(), "ca": server.ca(), "token": token(user) });
            }
            self.kubeconfig(file, &places);
        }
    }

    pub(crate) fn write_config(&self) {
        std::fs::write(self.file("three.yaml"), self.config.to_string()).unwrap();
    }

    /// Puts a script in place of a program.
    pub(crate) fn stand_in(&self, program: &str, script: &str) {
        let path = self.bin.join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
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

    /// The failures and warnings of `throughline check`.
    async fn check(&self) -> Vec<Value> {
        let (code, out) = self.paste("throughline check --output json").await;
        assert!(code < 2, "{out}");
        let findings = findings(&out);
        let failed = findings.iter().any(|finding| finding["level"] == "failed");
        assert_eq!(code == 1, failed, "{out}");
        let is_problem = |f: &&Value| f["level"] == "failed" || f["level"] == "warning";
        findings.iter().filter(is_problem).cloned().collect()
    }

    /// Waits until `check` finds this and nothing else; returns the commands of its remedy. `found` is the
    /// check, the level and the cause.
    pub(crate) async fn finds_only(&self, found: [&str; 3], message: &str) -> Vec<String> {
        let remedy = Mutex::new(String::new());
        eventually(&format!("only {found:?}: {message}"), SOON, async || {
            let problems = self.check().await;
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
}
