//! kustomize and Helm render the same objects for each of the four forms.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::cluster::throughline::merge_json;
use crate::tools::{documents, read, repo, run_tool, temp_folder};

pub(crate) const FORMS: [&str; 4] = ["all-in-one", "standalone-hub", "standalone-edge", "sidecar"];
/// The forms that elect a leader.
pub(crate) const AT_HUB: [&str; 2] = ["all-in-one", "standalone-hub"];

/// A set of options, expressed both as a kustomization and as Helm values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) name: &'static str,
    /// Folders below `deploy`.
    pub(crate) resources: Vec<&'static str>,
    /// Folders below `deploy`.
    pub(crate) components: Vec<&'static str>,
    /// Merged into the configuration.
    pub(crate) config: Value,
    pub(crate) values: Value,
    pub(crate) namespace: Option<&'static str>,
}

impl Choice {
    /// All defaults.
    pub(crate) fn plain() -> Self {
        Self { name: "plain", ..Self::default() }
    }

    /// With ServiceMonitor and alerts.
    pub(crate) fn monitored() -> Self {
        Self {
            name: "monitored",
            components: vec!["kustomize/components/monitoring"],
            values: json!({ "monitoring": { "enabled": true } }),
            ..Self::default()
        }
    }

    /// Four shards. The second component patches the StatefulSet of the first.
    pub(crate) fn sharded() -> Self {
        let dir = json!({ "path": "/etc/throughline/clusters" });
        Self {
            name: "sharded",
            components: vec![
                "kustomize/components/shards",
                "kustomize/components/discovery-directory",
            ],
            config: json!({
                "leaderElection": { "shards": 4 }, "discovery": { "kubeconfigDir": dir },
            }),
            values: json!({ "replicas": 8, "clustersSecret": "throughline-clusters" }),
            ..Self::default()
        }
    }

    fn in_namespace(&self) -> &'static str {
        self.namespace.unwrap_or("throughline")
    }
}

/// kustomize accepts no absolute paths.
fn relative(from: &Path, to: &Path) -> String {
    let up = "../".repeat(from.components().count() - 1);
    format!("{up}{}", to.strip_prefix("/").unwrap().display())
}

pub(crate) fn kustomize(form: &str, choice: &Choice) -> Vec<Value> {
    let folder = temp_folder(&format!("kustomize-{form}-{}", choice.name));
    let path = |path: &str| relative(&folder, &repo("deploy").join(path));
    let overlay = format!("kustomize/overlays/{form}");
    let paths = |list: &[&str]| list.iter().map(|p| path(p)).collect::<Vec<_>>();
    let mut resources = paths(&choice.resources);
    resources.insert(0, path(&overlay));
    let mut kustomization = json!({
        "resources": resources,
        "components": paths(&choice.components),
    });
    if let Some(namespace) = choice.namespace {
        // `namespace:` alone would not change the namespace of the bindings' subjects; see docs/how-to/install.md.
        let transformer = json!({
            "apiVersion": "builtin", "kind": "NamespaceTransformer",
            "metadata": { "name": "elsewhere", "namespace": namespace },
            "setRoleBindingSubjects": "allServiceAccounts",
        });
        kustomization["transformers"] = json!([transformer.to_string()]);
    }
    if !choice.config.is_null() {
        let mut config = read(&own_config(form)).remove(0);
        merge_json(&mut config, &choice.config);
        fs::write(folder.join("config.yaml"), config.to_string()).unwrap();
        let generator =
            json!({ "name": "throughline", "behavior": "replace", "files": ["config.yaml"] });
        kustomization["configMapGenerator"] = json!([generator]);
    }
    fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let rendered = run_tool("kustomize", &["build".as_ref(), folder.as_os_str()]);
    documents(&rendered.unwrap_or_else(|error| panic!("{form}, {}: {error}", choice.name)))
}

fn own_config(form: &str) -> std::path::PathBuf {
    let of_component = repo("deploy/kustomize/components").join(form).join("config.yaml");
    let of_overlay = repo("deploy/kustomize/overlays").join(form).join("config.yaml");
    if of_component.is_file() { of_component } else { of_overlay }
}

/// The values with which the chart equals the overlay of that form.
pub(crate) fn values(form: &str, choice: &Choice) -> Value {
    let mut values = match form {
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
    values["form"] = json!(form);
    merge_json(&mut values, &json!({ "config": choice.config }));
    if !choice.values.is_null() {
        merge_json(&mut values, &choice.values);
    }
    if values["config"].is_null() {
        values["config"] = json!({});
    }
    values
}

pub(crate) fn helm(form: &str, choice: &Choice) -> Vec<Value> {
    let folder = temp_folder(&format!("helm-{form}-{}", choice.name));
    let mut values = values(form, choice);
    let mut chart = repo("deploy/helm/throughline");
    if form == "sidecar" {
        // An extension server's chart with throughline's as a subchart.
        let parent = folder.join("extension-server");
        fs::create_dir_all(parent.join("templates")).unwrap();
        fs::create_dir_all(parent.join("charts")).unwrap();
        for file in ["Chart.yaml", "templates/deployment.yaml"] {
            let from = repo("tests/deploy/extension-server").join(file);
            fs::copy(from, parent.join(file)).unwrap();
        }
        symlink(&chart, parent.join("charts/throughline")).unwrap();
        (chart, values) = (parent, json!({ "throughline": values }));
    }
    let file = folder.join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    let rendered = run_tool(
        "helm",
        &[
            "template".as_ref(),
            "throughline".as_ref(),
            chart.as_os_str(),
            "--namespace".as_ref(),
            choice.in_namespace().as_ref(),
            "--values".as_ref(),
            file.as_os_str(),
        ],
    );
    documents(&rendered.unwrap_or_else(|error| panic!("{form}, {}: {error}", choice.name)))
}

/// Kind and name of an object.
pub(crate) fn id(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

pub(crate) fn config_map(objects: &[Value]) -> &Value {
    let found = objects.iter().find(|object| object["kind"] == "ConfigMap");
    found.expect("there is a ConfigMap")
}

/// Objects by kind and name, without the two differences that kustomize and Helm must have: how a new
/// configuration causes a rollout (a hash in the ConfigMap's name, or a pod annotation), and the order of
/// lists of named items.
fn canonical(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let hashed = config_map(&objects)["metadata"]["name"].as_str().unwrap().to_owned();
    let by_id = |mut object: Value| {
        if object["kind"] == "ConfigMap" {
            let config = object["data"]["config.yaml"].as_str().unwrap();
            let config: Value = serde_saphyr::from_str(config).unwrap();
            object["data"]["config.yaml"] = config;
        }
        let mut object = same_name(object, &hashed);
        let template = &mut object["spec"]["template"];
        if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
            annotations.remove("checksum/config");
        }
        (id(&object), normalize(object))
    };
    let count = objects.len();
    let objects: BTreeMap<_, _> = objects.into_iter().map(by_id).collect();
    assert_eq!(objects.len(), count, "two objects have the same name");
    objects
}

fn same_name(value: Value, hashed: &str) -> Value {
    match value {
        Value::String(text) if text == hashed => json!("throughline"),
        Value::Array(list) => list.into_iter().map(|v| same_name(v, hashed)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, v)| (key, same_name(v, hashed))).collect(),
        value => value,
    }
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

/// The options that are tested for a form.
fn choices(form: &str) -> Vec<Choice> {
    let mut choices = vec![Choice::plain(), Choice::monitored()];
    let deleting = match form {
        "all-in-one" => vec!["rbac/upstream-delete", "rbac/hub-delete"],
        "standalone-hub" => vec!["rbac/hub-delete"],
        _ => vec![],
    };
    choices.push(Choice {
        name: "deleting",
        resources: deleting,
        config: json!({ "orphans": { "mode": "delete" }, "limits": { "maxPerMinute": 4 } }),
        ..Choice::default()
    });
    choices.push(Choice {
        name: "off",
        components: vec!["kustomize/components/orphans-off", "kustomize/components/events-off"],
        config: json!({ "orphans": { "mode": "off" }, "events": { "enabled": false } }),
        ..Choice::default()
    });
    if AT_HUB.contains(&form) {
        choices.extend(discovering(form));
        choices.push(Choice::sharded());
    }
    let namespace = Some("edge-system");
    choices.push(Choice { name: "elsewhere", namespace, ..Choice::monitored() });
    choices
}

/// One for each source of clusters.
fn discovering(form: &str) -> [Choice; 3] {
    let own = if form == "all-in-one" { "local" } else { "hub" };
    let secrets = json!({ "cluster": own, "namespace": "throughline" });
    let dir = json!({ "path": "/etc/throughline/clusters" });
    [
        Choice {
            name: "milo",
            resources: vec!["rbac/discovery-milo"],
            config: json!({ "discovery": { "milo": { "kubeconfig": "" } } }),
            ..Choice::default()
        },
        Choice {
            name: "secrets",
            resources: vec!["rbac/discovery-secrets"],
            config: json!({ "discovery": { "kubeconfigSecrets": secrets } }),
            ..Choice::default()
        },
        Choice {
            name: "directory",
            components: vec!["kustomize/components/discovery-directory"],
            config: json!({ "discovery": { "kubeconfigDir": dir } }),
            values: json!({ "clustersSecret": "throughline-clusters" }),
            ..Choice::default()
        },
    ]
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
            let [ours, theirs] = [ours, helm(form, &choice)].map(canonical);
            let ids =
                |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
            assert_eq!(ids(&ours), ids(&theirs), "{what}");
            for (id, object) in &ours {
                let [ours, theirs] = [object, &theirs[id]].map(|object| format!("{object:#}"));
                let difference = TextDiff::from_lines(&ours, &theirs);
                assert!(ours == theirs, "{what}: {id}:\n{}", difference.unified_diff());
            }
        }
    }
}

/// An instance finds its shard in the ordinal of its pod, and lists the Leases of the other shards.
#[test]
#[ignore = "needs kustomize: make deploy-test"]
fn shards_are_the_pods_of_a_stateful_set() {
    fn find<'a>(objects: &'a [Value], wanted: &str) -> Option<&'a Value> {
        objects.iter().find(|object| id(object) == wanted)
    }
    let spread_by = |pod: &Value| -> Vec<Value> {
        let constraints = pod["topologySpreadConstraints"].as_array().unwrap().iter();
        constraints.map(|constraint| constraint["matchLabelKeys"].clone()).collect()
    };
    for form in AT_HUB {
        let objects = kustomize(form, &Choice::sharded());
        assert!(find(&objects, "Deployment throughline").is_none(), "{form}");
        let spec = &find(&objects, "StatefulSet throughline").unwrap()["spec"];
        assert_eq!(spec["replicas"], 8, "{form}");
        assert_eq!(spec["podManagementPolicy"], "Parallel", "{form}");
        let service = format!("Service {}", spec["serviceName"].as_str().unwrap());
        assert_eq!(find(&objects, &service).unwrap()["spec"]["clusterIP"], "None", "{form}");
        let pod = &spec["template"]["spec"];
        let name = json!({ "fieldRef": { "fieldPath": "metadata.name" } });
        let env = json!([{ "name": "POD_NAME", "valueFrom": name }]);
        assert_eq!(pod["containers"][0]["env"], env, "{form}");
        let revision = json!(["controller-revision-hash"]);
        assert_eq!(spread_by(pod), [revision.clone(), revision], "{form}");
        let role = find(&objects, "Role throughline-lease-shards").unwrap();
        let group = "coordination.k8s.io";
        let list = json!([{ "apiGroups": [group], "resources": ["leases"], "verbs": ["list"] }]);
        assert_eq!(role["rules"], list, "{form}");
        // Back at one shard, it is needed until the Lease has lost its label.
        for kind in ["Role", "RoleBinding"] {
            let object = find(&objects, &format!("{kind} throughline-lease-shards")).unwrap();
            let policy = &object["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert_eq!(policy, "keep", "{form}: Helm deletes the {kind}");
        }

        let objects = kustomize(form, &Choice::plain());
        assert!(find(&objects, "StatefulSet throughline").is_none(), "{form}");
        assert!(find(&objects, "Role throughline-lease-shards").is_none(), "{form}");
        let deployment = find(&objects, "Deployment throughline").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let hash = json!(["pod-template-hash"]);
        assert_eq!(spread_by(pod), [hash.clone(), hash], "{form}");
        assert!(pod["containers"][0]["env"].is_null(), "{form}");
    }
}

/// Security and operational settings that each pod must have.
#[test]
#[ignore = "needs helm and kustomize: make deploy-test"]
fn pods_are_restricted() {
    for form in FORMS {
        let objects = kustomize(form, &Choice::plain());
        let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let containers = pod["containers"].as_array().unwrap();
        let ours = containers.iter().find(|c| c["name"] == "throughline").unwrap();
        assert_eq!(deployment["spec"]["replicas"], 2, "{form}");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(ours["image"], format!("throughline:{version}"), "{form}");
        let held = json!({
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
        });
        assert_eq!(ours["securityContext"], held, "{form}");
        assert_eq!(ours["livenessProbe"]["httpGet"]["path"], "/livez", "{form}");
        assert!(ours["resources"]["requests"]["memory"].is_string(), "{form}");
        if form != "sidecar" {
            assert_eq!(ours["readinessProbe"]["httpGet"]["path"], "/readyz");
            let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
            let needed = throughline::config::Constants::default().shutdown_grace_ms / 1_000;
            assert!(grace > needed, "{form}: {grace} s, and {needed} s are needed");
            assert_eq!(pod["topologySpreadConstraints"].as_array().map(Vec::len), Some(2));
        }
        // No wildcard permission, and none on Secrets.
        for role in objects.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("Role")) {
            let text = role.to_string();
            assert!(!text.contains("\"*\"") && !text.contains("secrets"), "{text}");
        }
    }
}
