//! Three clusters in which every check passes, a configuration that names their contexts, and a person
//! who pastes what `throughline check` prints into a shell.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::checking::{ConfigFile, check_only_rules, default_namespace, envoy_gateway};
use crate::cluster::apiserver::{ADMIN, ApiServer, THROUGHLINE, token};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
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
    pub(crate) config: Value,
    /// Programs that a pasted command finds first.
    bin: PathBuf,
}

impl World {
    /// Three connectors in three namespaces, converged; `config` is merged over the configuration.
    pub(crate) async fn start(config: &Value) -> Self {
        Self::start_with(config, |_| {}).await
    }

    /// Like `start`; `before` changes the configuration, at last.
    pub(crate) async fn start_with(config: &Value, before: impl FnOnce(&mut Value)) -> Self {
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
        let mut world = Self { testbed, fleet, granted, config: Value::Null, bin };
        // throughline has contexts of the same names, with credentials that may do little.
        let kubeconfig = world.kubeconfig("throughline.kubeconfig", &world.places(THROUGHLINE));
        let (kubeconfig, program) = (kubeconfig.display(), binary());
        let script = format!("KUBECONFIG={kubeconfig} exec {} \"$@\"", program.display());
        world.stand_in("throughline", &script);
        let clusters = world.testbed.clusters.iter().map(|cluster| {
            json!({ "name": cluster.name, "roles": cluster.roles, "context": cluster.name })
        });
        world.config = json!({ "clusters": clusters.collect::<Vec<_>>(),
            "watch": { "timeoutMs": 5000 }, "eventLog": { "file": world.file("log.jsonl") },
            "leaderElection": { "leaseNamespace": "default" } });
        world.write_config();
        world.kubeconfig("admin.kubeconfig", &world.places(ADMIN));
        world.is_well().await;
        merge_json(&mut world.config, config);
        before(&mut world.config);
        world.write_config();
        world
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.testbed.hub().server.folder().join(name)
    }

    /// For each cluster, its name, and the server, certificate and token for a user.
    fn places(&self, user: &str) -> Vec<(&'static str, Value)> {
        let place = |cluster: &crate::cluster::testbed::Cluster| {
            let is_admin = user == ADMIN;
            let server = if is_admin { cluster.server.url() } else { cluster.proxy.url() };
            let ca = is_admin.then(|| cluster.server.ca());
            let ca = ca.or_else(|| cluster.proxy.ca().map(Path::to_owned));
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
        command.env_remove("RUST_LOG").env_remove("THROUGHLINE_CONFIG");
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

    /// The failures and warnings of `throughline check`. Its text for a terminal of 80 columns, which is of
    /// another run a moment later, has every command on a line of its own.
    ///
    /// # Errors
    /// A command is not in the text.
    pub(crate) async fn check(&self) -> Result<Vec<Value>, String> {
        let line = format!("throughline check --config {}", self.file("three.yaml").display());
        let (code, out) = self.paste(&format!("{line} --output json")).await;
        let problems = problems(code, &out);
        let (_, text) = self.paste(&line).await;
        println!("{text}");
        for problem in &problems {
            let remedy = problem["remedy"].as_str().unwrap();
            let (explanation, commands) = remedy.split_once('\n').unwrap_or((remedy, ""));
            assert!(!explanation.contains("kubectl "), "a command within a sentence: {remedy}");
            for command in commands.lines() {
                let command = command.replace(" --output json", "");
                let whole = format!("        {command}");
                ensure(text.lines().any(|line| line == whole), || format!("{command} in\n{text}"))?;
                assert!(!command.ends_with(['.', ',', ';']), "{command}");
            }
        }
        Ok(problems)
    }

    /// Waits until `check` finds this and nothing else; returns the commands of its remedy. `level` is
    /// `failed` or `warning`.
    pub(crate) async fn finds_only(&self, level: &str, group: &str, what: &str) -> Vec<String> {
        let commands = Mutex::new(Vec::new());
        eventually(&format!("only {group}: {what}"), SOON, async || {
            let problems = self.check().await?;
            let [problem] = &problems[..] else { return Err(format!("{problems:#?}")) };
            let word = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
            let fits = word("level") == level
                && word("group").contains(group)
                && word("what").contains(what);
            *commands.lock().unwrap() = word("remedy").lines().skip(1).map(str::to_owned).collect();
            ensure(fits, || format!("{problem:#}"))
        })
        .await;
        commands.into_inner().unwrap()
    }

    /// Waits until `check` finds no problem.
    pub(crate) async fn is_well(&self) {
        eventually("nothing is wrong", SOON, async || {
            let problems = self.check().await?;
            ensure(problems.is_empty(), || format!("{problems:#?}"))
        })
        .await;
    }

    /// Pastes the line of a remedy that repeats the check with another setting: nothing is wrong then.
    pub(crate) async fn is_well_with(&self, line: &str) {
        assert!(
            line.starts_with("throughline check --config ") && line.contains(" --set "),
            "{line}"
        );
        let (code, out) = self.paste(line).await;
        assert_eq!(problems(code, &out), [Value::Null; 0], "{line}");
    }
}

/// What failed, or is a warning. The exit code says whether anything failed.
fn problems(code: i32, out: &str) -> Vec<Value> {
    assert!(code < 2, "{out}");
    let report: Value = serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let findings = report["findings"].as_array().unwrap();
    let failed = findings.iter().any(|finding| finding["level"] == "failed");
    assert_eq!(code == 1, failed, "{out}");
    let is_problem = |f: &&Value| f["level"] == "failed" || f["level"] == "warning";
    findings.iter().filter(is_problem).cloned().collect()
}
