//! kustomize and Helm render the same objects for each of the four forms.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use expect_test::expect_file;
use serde_json::{Value, json};
use similar::TextDiff;

use crate::cluster::throughline::merge_json;
use crate::temp_folder::temp_folder;
use crate::tools::{documents, read, repo, run_tool};

pub(crate) const FORMS: [&str; 4] = ["all-in-one", "standalone-hub", "standalone-edge", "sidecar"];
/// The forms that elect a leader.
pub(crate) const AT_HUB: [&str; 2] = ["all-in-one", "standalone-hub"];
const NAMESPACE: &str = "throughline";

/// A set of options, expressed both as a kustomization and as Helm values.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) name: &'static str,
    /// Components, and folders with resources, below `deploy`.
    pub(crate) with: Vec<&'static str>,
    /// Merged into the configuration.
    pub(crate) config: Value,
    pub(crate) values: Value,
    pub(crate) namespace: &'static str,
}

impl Choice {
    /// All defaults.
    pub(crate) fn plain() -> Self {
        Self::new("plain", &[], json!({}), json!({}))
    }

    pub(crate) fn new(
        name: &'static str,
        with: &[&'static str],
        config: Value,
        values: Value,
    ) -> Self {
        Self { name, with: with.to_vec(), config, values, namespace: NAMESPACE }
    }

    /// With ServiceMonitor and alerts.
    pub(crate) fn monitored() -> Self {
        let values = json!({ "monitoring": { "enabled": true } });
        Self::new("monitored", &["kustomize/components/monitoring"], json!({}), values)
    }

    /// Four shards. The second component patches the StatefulSet of the first.
    pub(crate) fn sharded() -> Self {
        let with = ["kustomize/components/shards", "kustomize/components/discovery-directory"];
        let dir = json!({ "path": "/etc/throughline/clusters" });
        let config =
            json!({ "leaderElection": { "shards": 4 }, "discovery": { "kubeconfigDir": dir } });
        let values = json!({ "replicas": 8, "clustersSecret": "throughline-clusters" });
        Self::new("sharded", &with, config, values)
    }
}

pub(crate) fn kustomize(form: &str, choice: &Choice) -> Vec<Value> {
    documents(&kustomize_text(form, choice))
}

fn kustomize_text(form: &str, choice: &Choice) -> String {
    let folder = temp_folder(&format!("kustomize-{form}-{}", choice.name));
    // kustomize accepts no absolute paths.
    symlink(repo("deploy"), folder.join("deploy")).unwrap();
    let paths = choice.with.iter().map(|path| format!("deploy/{path}"));
    let (components, mut resources): (Vec<_>, Vec<_>) =
        paths.partition(|path| path.contains("/components/"));
    resources.insert(0, format!("deploy/kustomize/overlays/{form}"));
    let mut kustomization = json!({ "resources": resources, "components": components });
    if choice.namespace != NAMESPACE {
        // `namespace:` alone would not change the namespace of the bindings' subjects; see docs/how-to/install.md.
        let transformer = json!({
            "apiVersion": "builtin", "kind": "NamespaceTransformer",
            "metadata": { "name": "elsewhere", "namespace": choice.namespace },
            "setRoleBindingSubjects": "allServiceAccounts",
        });
        kustomization["transformers"] = json!([transformer.to_string()]);
    }
    if choice.config != json!({}) {
        let parent = if form == "sidecar" { "components" } else { "overlays" };
        let own = format!("deploy/kustomize/{parent}/{form}/config.yaml");
        let mut config = read(own).remove(0);
        merge_json(&mut config, &choice.config);
        fs::write(folder.join("config.yaml"), config.to_string()).unwrap();
        let generator =
            json!({ "name": "throughline", "behavior": "replace", "files": ["config.yaml"] });
        kustomization["configMapGenerator"] = json!([generator]);
    }
    fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let rendered = run_tool("kustomize", &["build".as_ref(), folder.as_os_str()]);
    rendered.unwrap_or_else(|error| panic!("{form}, {}: {error}", choice.name))
}

/// The values with which the chart equals the overlay of that form.
pub(crate) fn values(form: &str, choice: &Choice) -> Value {
    let mut values = json!({ "form": form, "config": choice.config });
    let own = match form {
        "standalone-hub" => json!({
            "clusterName": "hub",
            "clusters": [
                { "name": "project-a", "roles": ["upstream"] },
                { "name": "edge-1", "roles": ["edge"] },
            ],
        }),
        "all-in-one" => json!({}),
        _ => json!({ "clusterName": "edge-1" }),
    };
    merge_json(&mut values, &own);
    merge_json(&mut values, &choice.values);
    values
}

pub(crate) fn helm(form: &str, choice: &Choice) -> Vec<Value> {
    let folder = temp_folder(&format!("helm-{form}-{}", choice.name));
    let mut values = values(form, choice);
    let mut chart = repo("deploy/helm/throughline");
    if form == "sidecar" {
        // An extension server's chart with throughline's as a subchart.
        let sample = repo("tests/deploy/extension-server");
        fs::create_dir(folder.join("charts")).unwrap();
        symlink(&chart, folder.join("charts/throughline")).unwrap();
        for file in ["Chart.yaml", "templates"] {
            symlink(sample.join(file), folder.join(file)).unwrap();
        }
        (chart, values) = (folder.clone(), json!({ "throughline": values }));
    }
    let file = folder.join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    let [chart, file] = [&chart, &file].map(|path| path.to_str().unwrap());
    let options = ["--namespace", choice.namespace, "--values", file];
    let rendered = run_tool("helm", &[&["template", "throughline", chart], &options[..]].concat());
    documents(&rendered.unwrap_or_else(|error| panic!("{form}, {}: {error}", choice.name)))
}

pub(crate) fn config_map(objects: &[Value]) -> &Value {
    objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap()
}

/// The Deployment or StatefulSet.
pub(crate) fn workload(objects: &[Value]) -> &Value {
    objects.iter().find(|object| object["spec"]["template"].is_object()).unwrap()
}

/// Objects by kind and name, without the two differences that kustomize and Helm must have: how a new
/// configuration causes a rollout (a hash in the ConfigMap's name, or a pod annotation), and the order of
/// lists of named items.
fn canonical(objects: &[Value]) -> BTreeMap<String, Value> {
    let hashed = &config_map(objects)["metadata"]["name"];
    let by_id = |object: &Value| {
        let text = object.to_string().replace(&hashed.to_string(), "\"throughline\"");
        let mut object: Value = serde_json::from_str(&text).unwrap();
        if object["kind"] == "ConfigMap" {
            let config = object["data"]["config.yaml"].as_str().unwrap();
            object["data"]["config.yaml"] = documents(config).remove(0);
        }
        let template = &mut object["spec"]["template"];
        if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
            annotations.remove("checksum/config");
        }
        (format!("{} {}", object["kind"], object["metadata"]["name"]), normalize(object))
    };
    let by_id: BTreeMap<_, _> = objects.iter().map(by_id).collect();
    assert_eq!(by_id.len(), objects.len(), "two objects have the same name");
    by_id
}

/// Removes empty members, which mean the same as absent ones, and sorts lists of named items.
fn normalize(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, normalize(value)))
            .filter(|(_, value)| !(value.is_null() || value == &json!({})))
            .collect(),
        Value::Array(list) => {
            let mut list: Vec<_> = list.into_iter().map(normalize).collect();
            list.sort_by_key(|item| item.get("name").map(Value::to_string));
            Value::Array(list)
        }
        value => value,
    }
}

/// What differs between two texts, wherever it is.
pub(crate) fn changes(before: &str, after: &str) -> String {
    let changes = TextDiff::from_lines(before, after);
    let changes = changes.unified_diff().context_radius(1).to_string();
    let lines = changes.lines().map(|line| if line.starts_with("@@") { "@@" } else { line });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The options that are tested for a form.
fn choices(form: &str) -> Vec<Choice> {
    let deleting = match form {
        "all-in-one" => &["rbac/upstream-delete", "rbac/hub-delete"][..],
        "standalone-hub" => &["rbac/hub-delete"],
        _ => &[],
    };
    let delete = json!({ "orphans": { "mode": "delete" }, "limits": { "maxPerMinute": 4 } });
    let off = json!({ "orphans": { "mode": "off" }, "events": { "enabled": false } });
    let without = ["kustomize/components/orphans-off", "kustomize/components/events-off"];
    let mut choices = vec![
        Choice::plain(),
        Choice::monitored(),
        Choice::new("deleting", deleting, delete, json!({})),
        Choice::new("off", &without, off, json!({})),
        Choice { name: "elsewhere", namespace: "edge-system", ..Choice::monitored() },
    ];
    if AT_HUB.contains(&form) {
        let own = if form == "all-in-one" { "local" } else { "hub" };
        let milo = json!({ "milo": { "kubeconfig": "" } });
        let secrets = json!({ "kubeconfigSecrets": { "cluster": own, "namespace": NAMESPACE } });
        let directory = json!({ "kubeconfigDir": { "path": "/etc/throughline/clusters" } });
        let values = json!({ "clustersSecret": "throughline-clusters" });
        for (name, with, source, values) in [
            ("milo", "rbac/discovery-milo", milo, json!({})),
            ("secrets", "rbac/discovery-secrets", secrets, json!({})),
            ("directory", "kustomize/components/discovery-directory", directory, values),
        ] {
            choices.push(Choice::new(name, &[with], json!({ "discovery": source }), values));
        }
        choices.push(Choice::sharded());
    }
    choices
}

#[test]
#[ignore = "needs helm and kustomize: make deploy-test"]
fn helm_and_kustomize_render_the_same() {
    for form in FORMS {
        for choice in choices(form) {
            let what = format!("{form}, {}", choice.name);
            let ours = kustomize(form, &choice);
            // A hash of the configuration, which has the pods replaced when it changes.
            let name = config_map(&ours)["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with("throughline-"), "{what}: {name} has no hash");
            let [ours, theirs] = [ours, helm(form, &choice)]
                .map(|objects| format!("{:#}", json!(canonical(&objects))));
            // Helm knows which installation it is.
            let own = r#"build_info{namespace=\"NS\",job=\"throughline\"}"#;
            let ours = ours.replace("build_info", &own.replace("NS", choice.namespace));
            assert!(ours == theirs, "{what}:\n{}", changes(&ours, &theirs));
        }
    }
}

/// The golden has the pods, what differs between the forms, and what shards change: an instance finds its shard
/// in the ordinal of its pod, and lists the Leases of the other shards.
#[test]
#[ignore = "needs kustomize: make deploy-test"]
fn pods_and_shards_are_as_in_the_golden() {
    let mut golden = String::new();
    let mut former = String::new();
    for form in FORMS {
        let rendered = |choice: &Choice| {
            let text = kustomize_text(form, choice);
            let name = config_map(&documents(&text))["metadata"]["name"].clone();
            let text = text.replace(name.as_str().unwrap(), "throughline-HASH");
            text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
        };
        let plain = rendered(&Choice::plain());
        let is_shown = |text: &&str| {
            ["Deployment", "Service"].iter().any(|kind| text.contains(&format!("\nkind: {kind}\n")))
        };
        let pods: String = plain.split("---\n").filter(is_shown).collect();
        golden += &format!("## {form}\n\n{}\n", changes(&former, &pods));
        if AT_HUB.contains(&form) {
            let sharded = Choice { config: json!({}), ..Choice::sharded() };
            let sharded = changes(&plain, &rendered(&sharded));
            golden += &format!("## {form}, sharded\n\n{sharded}\n");
        }
        former = pods;

        let objects = documents(&plain);
        if form != "sidecar" {
            let grace = &workload(&objects)["spec"]["template"]["spec"];
            let grace = grace["terminationGracePeriodSeconds"].as_u64().unwrap();
            let needed = throughline::config::Constants::default().shutdown_grace_ms / 1_000;
            assert!(grace > needed, "{form}: {grace} s, and {needed} s are needed");
        }
        for role in objects.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("Role")) {
            let text = role.to_string();
            assert!(!text.contains("\"*\"") && !text.contains("secrets"), "{text}");
        }
    }
    expect_file![repo("tests/deploy/pods.diff")].assert_eq(&golden);
}
