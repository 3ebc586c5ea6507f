//! The Helm chart: its errors for wrong values, its notes, and the configuration that it renders.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::throughline::binary;
use crate::render::{Choice, FORMS, config_map, helm, kustomize, values};
use crate::tools::{documents, repo, run_tool, temp_folder};

/// Has the contexts that the overlay standalone-hub names.
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "users": [],
    "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
    "contexts": [{"name": "project-a", "context": {"cluster": "c", "user": ""}},
                 {"name": "edge-1", "context": {"cluster": "c", "user": ""}}]}"#;

fn template(sets: &[&str]) -> Result<String, String> {
    let chart = repo("deploy/helm/throughline");
    let mut args = vec!["template", "throughline", chart.to_str().unwrap()];
    args.extend(sets.iter().flat_map(|set| ["--set-json", *set]));
    run_tool("helm", &args)
}

#[test]
#[ignore = "needs helm: make deploy-test"]
fn wrong_values_are_reported() {
    // Wrong values, and words that the error must contain.
    let cases: &[(&[&str], &[&str])] = &[
        (&["form=\"standalone\""], &["/form", "standalone-hub", "sidecar"]),
        (&["replica=3"], &["replica", "not allowed"]),
        (&["replicas=0"], &["/replicas", "minimum"]),
        (&["clusters=[{\"name\":\"a\",\"roles\":[\"hubs\"]}]"], &["/clusters/0/roles/0", "'hub'"]),
        (&["clusters=[{\"name\":\"a\"}]"], &["/clusters/0", "roles"]),
        (&["config.discovery={\"kubeconfigSecrets\":{\"cluster\":\"local\"}}"], &["namespace"]),
        (
            &["config.discovery={\"kubeconfigDir\":{\"path\":\"/etc/throughline/clusters\"}}"],
            &["clustersSecret"],
        ),
        (
            &["form=\"standalone-edge\"", "config.discovery={\"milo\":{}}"],
            &["its own edge alone", "standalone-hub"],
        ),
        // YAML reads `off` without quotes as false.
        (&["config.orphans.mode=false"], &["/config/orphans/mode", "'off'"]),
        (&["config.clusters=[]"], &["/config", "not"]),
        (&["config.admin.address=\"0.0.0.0:9090\""], &["/config/admin/address", ":8080"]),
        (&["networkPolicy.apiServerBlocks=[\"10.0.0.1\"]"], &["/networkPolicy/apiServerBlocks/0"]),
        (&["image.digest=\"0123\""], &["/image/digest", "sha256"]),
        (
            &["podLabels={\"app.kubernetes.io/name\":\"x\"}"],
            &["podLabels: app.kubernetes.io/name selects the pods"],
        ),
        (&["podAnnotations={\"a\":1}"], &["/podAnnotations/a", "string"]),
        (
            &["podAnnotations={\"checksum/config\":\"x\"}"],
            &["podAnnotations: the chart sets checksum"],
        ),
        (&["extraEnv=[{\"value\":\"x\"}]"], &["/extraEnv/0", "name"]),
        (&["extraEnv={\"A\":\"x\"}"], &["/extraEnv", "array"]),
        (
            &["extraVolumes=[{\"name\":\"throughline-log\"}]"],
            &["extraVolumes: the chart has a volume throughline-log"],
        ),
        (
            &["extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"ca\"}]"],
            &["/extraVolumeMounts/0/mountPath"],
        ),
        (&["topologySpreadConstraints=[{\"maxSkew\":1}]"], &["/topologySpreadConstraints/0"]),
        (&["serviceAccount.name=\"No Name\""], &["/serviceAccount/name"]),
        (&["serviceAccount.create=false"], &["serviceAccount.name must name the ServiceAccount"]),
        (&["monitoring.labels={\"release\":7}"], &["/monitoring/labels/release", "string"]),
        (&["monitoring.runbookBase=\"docs/\""], &["/monitoring/runbookBase", "https"]),
        (&["monitoring.runbookBase=\"https://git.example.com/x\""], &["/monitoring/runbookBase"]),
        (&["monitoring.severities={\"critical\":\"x\"}"], &["/monitoring/severities", "critical"]),
        (&["monitoring.sloPercent=100"], &["/monitoring/sloPercent", "100"]),
        (&["monitoring.sloPercent=\"99.9\""], &["/monitoring/sloPercent", "number"]),
        (&["form=\"standalone-hub\""], &["standalone-hub needs an upstream", "roles: [upstream]"]),
        (
            &["form=\"sidecar\"", "clusters=[{\"name\":\"a\",\"roles\":[\"edge\"]}]"],
            &["its own edge alone", "standalone-hub"],
        ),
        (&["config.leaderElection.shards=0"], &["/config/leaderElection/shards", "minimum"]),
        (
            &["config.leaderElection.shards=4", "replicas=3"],
            &["replicas: 3 pods leave some of 4 shards", "at least 4, or 8"],
        ),
        (
            &["form=\"sidecar\"", "config.leaderElection.shards=2"],
            &["config.leaderElection.shards: form sidecar has one shard"],
        ),
    ];
    for (sets, words) in cases {
        let said = template(sets).expect_err(&format!("{sets:?} is accepted"));
        for word in *words {
            assert!(said.contains(word), "{sets:?}: no {word:?} in: {said}");
        }
    }
}

/// What operators add to pods reaches them, and their own labels reach what their Prometheus selects by.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn values_for_pods_and_monitoring_are_rendered() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let sets = [
        format!("image={{\"repository\":\"r.example/throughline\",\"digest\":\"{digest}\"}}"),
        "podAnnotations={\"team\":\"edge\"}".into(),
        "podLabels={\"cost\":\"7\"}".into(),
        "extraEnv=[{\"name\":\"HTTPS_PROXY\",\"value\":\"http://proxy:3128\"}]".into(),
        "extraVolumes=[{\"name\":\"ca\",\"configMap\":{\"name\":\"ca\"}}]".into(),
        "extraVolumeMounts=[{\"name\":\"ca\",\"mountPath\":\"/etc/ca\"}]".into(),
        "serviceAccount={\"create\":true,\"name\":\"liveness\",\"annotations\":{\"role\":\"a/b\"}}".into(),
        "priorityClassName=\"system-cluster-critical\"".into(),
        "nodeSelector={\"pool\":\"infra\"}".into(),
        "topologySpreadConstraints=[{\"topologyKey\":\"rack\",\"maxSkew\":1,\"whenUnsatisfiable\":\"DoNotSchedule\"}]"
            .into(),
        "monitoring={\"enabled\":true,\"labels\":{\"release\":\"prom\"},\"sloPercent\":99.95,\
         \"runbookBase\":\"https://git.example.com/t/\",\
         \"severities\":{\"page\":\"critical\",\"ticket\":\"warning\"}}"
            .into(),
    ];
    let sets: Vec<&str> = sets.iter().map(|set: &String| set.as_str()).collect();
    let objects = documents(&template(&sets).unwrap());
    let one = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let template = &one("Deployment")["spec"]["template"];
    let pod = &template["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], format!("r.example/throughline@{digest}"));
    assert_eq!(container["env"], json!([{ "name": "HTTPS_PROXY", "value": "http://proxy:3128" }]));
    let has = |list: &Value, item: Value| list.as_array().unwrap().contains(&item);
    assert!(has(&container["volumeMounts"], json!({ "name": "ca", "mountPath": "/etc/ca" })));
    assert!(has(&pod["volumes"], json!({ "name": "ca", "configMap": { "name": "ca" } })));
    assert_eq!(template["metadata"]["annotations"]["team"], "edge");
    let labels = &template["metadata"]["labels"];
    assert_eq!(
        (&labels["cost"], &labels["app.kubernetes.io/name"]),
        (&json!("7"), &json!("throughline"))
    );
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["nodeSelector"], json!({ "pool": "infra" }));
    let spread = pod["topologySpreadConstraints"].as_array().unwrap();
    assert!(spread.len() == 1 && spread[0]["topologyKey"] == "rack", "{spread:?}");

    // The pods, the account and every binding name the same account.
    assert_eq!(pod["serviceAccountName"], "liveness");
    let account = &one("ServiceAccount")["metadata"];
    assert_eq!(
        (&account["name"], &account["annotations"]["role"]),
        (&json!("liveness"), &json!("a/b"))
    );
    let bindings: Vec<_> = objects.iter().filter(|o| o["subjects"].is_array()).collect();
    assert!(bindings.len() > 2);
    assert!(bindings.iter().all(|binding| binding["subjects"][0]["name"] == "liveness"));
    let existing = ["serviceAccount={\"create\":false,\"name\":\"liveness\"}"];
    let objects_of_existing = documents(&self::template(&existing).unwrap());
    assert!(objects_of_existing.iter().all(|object| object["kind"] != "ServiceAccount"));

    let rules = one("PrometheusRule");
    for monitored in [rules, one("ServiceMonitor")] {
        let labels = &monitored["metadata"]["labels"];
        assert_eq!(labels["release"], "prom");
        assert_eq!(labels["app.kubernetes.io/name"], "throughline");
    }
    let rules = rules["spec"]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 10);
    for rule in rules {
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{rule}");
        let link = rule["annotations"]["runbook_url"].as_str().unwrap();
        assert!(link.starts_with("https://git.example.com/t/docs/how-to/runbook.md#"), "{rule}");
        if rule["alert"].as_str().unwrap().starts_with("ThroughlineBudgetBurns") {
            let expr = rule["expr"].as_str().unwrap();
            assert!(expr.matches("* 0.0005").count() == 4 && !expr.contains("0.001"), "{expr}");
            assert!(rule["annotations"]["description"].as_str().unwrap().contains("with 99.95 %"));
        }
    }
}

/// A running instance follows the clusters by itself.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn only_what_needs_a_restart_starts_a_rollout() {
    let checksum = |set: &str| {
        let rendered = template(&[set]).unwrap();
        let line = rendered.lines().find(|line| line.contains("checksum/config:"));
        line.unwrap().trim().to_owned()
    };
    let before = checksum("config.dryRun=false");
    let clusters = "clusters=[{\"name\":\"a\",\"roles\":[\"upstream\"]}]";
    let rendered = template(&["config.dryRun=false", clusters]).unwrap();
    assert!(rendered.contains(&before), "other clusters start a rollout");
    for restarted in [
        "config.dryRun=true",
        "config.orphans.mode=\"off\"",
        "config.log.level=\"debug\"",
        "config.touch.platformKey=\"off\"",
        "config.admin.state=\"off\"",
        "config.log.format=\"json\"",
        "config.discovery.milo.join=\"all\"",
    ] {
        assert_ne!(checksum(restarted), before, "{restarted} starts no rollout");
    }
}

#[test]
#[ignore = "needs helm: make deploy-test"]
fn the_chart_lints() {
    for form in FORMS {
        let file = temp_folder(&format!("lint-{form}")).join("values.json");
        fs::write(&file, values(form, &Choice::monitored()).to_string()).unwrap();
        let chart = repo("deploy/helm/throughline");
        let args =
            ["lint", "--strict", chart.to_str().unwrap(), "--values", file.to_str().unwrap()];
        run_tool("helm", &args).unwrap_or_else(|error| panic!("{form}: {error}"));
    }
    let chart = crate::tools::read(&repo("deploy/helm/throughline/Chart.yaml")).remove(0);
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// A packaged chart is complete: it contains the files that are symbolic links in this tree.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn the_chart_can_be_packaged() {
    let folder = temp_folder("package");
    let chart = repo("deploy/helm/throughline");
    run_tool("helm", &["package", chart.to_str().unwrap(), "-d", folder.to_str().unwrap()])
        .unwrap();
    let package = folder.join(format!("throughline-{}.tgz", env!("CARGO_PKG_VERSION")));
    let packed = [
        "template",
        "throughline",
        package.to_str().unwrap(),
        "--set-json",
        "monitoring.enabled=true",
    ];
    let from_tree = template(&["monitoring.enabled=true"]).unwrap();
    assert_eq!(run_tool("helm", &packed).unwrap(), from_tree);
}

#[test]
#[ignore = "needs helm and kustomize: make deploy-test"]
fn notes_say_what_to_do_next() {
    let chart = repo("deploy/helm/throughline");
    let plain = FORMS.map(|form| (form, Choice::plain()));
    for (form, choice) in plain.into_iter().chain([("all-in-one", Choice::sharded())]) {
        let file = temp_folder(&format!("notes-{form}-{}", choice.name)).join("values.json");
        fs::write(&file, values(form, &choice).to_string()).unwrap();
        let args = [
            "install",
            "throughline",
            chart.to_str().unwrap(),
            "--dry-run=client",
            "--values",
            file.to_str().unwrap(),
            "--namespace",
            "edge-system",
        ];
        let said = run_tool("helm", &args).unwrap();
        let (_, notes) = said.split_once("NOTES:").unwrap();
        let wanted: &[&str] = match form {
            _ if choice.name == "sharded" => {
                &["rollout status statefulset/throughline", "exec statefulset/throughline --"]
            }
            "sidecar" => {
                &["{{- include \"throughline.container\" .Subcharts.throughline | nindent 8 }}"]
            }
            "standalone-hub" => {
                &["project-a, edge-1", "throughline-kubeconfig", "deploy/throughline"]
            }
            _ => &["kubectl -n edge-system exec deploy/throughline -- /throughline check"],
        };
        for words in wanted {
            assert!(notes.contains(words), "{form}: no {words:?} in {notes}");
        }
        assert!(notes.contains("docs/how-to/runbook.md"), "{notes}");
    }
}

/// `throughline config` accepts the rendered configuration.
#[test]
#[ignore = "needs helm and kustomize: make deploy-test"]
fn the_rendered_configuration_is_valid() {
    for form in FORMS {
        for (by, render) in [("kustomize", kustomize as fn(_, &_) -> _), ("helm", helm)] {
            let objects: Vec<Value> = render(form, &Choice::plain());
            let config = config_map(&objects)["data"]["config.yaml"].as_str().unwrap();
            let folder = temp_folder(&format!("config-{form}-{by}"));
            let file = folder.join("config.yaml");
            // Outside a pod, its volumes do not exist.
            let config = config.replace("/var/log/throughline", folder.to_str().unwrap());
            let config = config.replace("/etc/throughline/kubeconfig", folder.to_str().unwrap());
            fs::write(folder.join("config"), KUBECONFIG).unwrap();
            fs::write(&file, config).unwrap();
            let mut command = Command::new(binary());
            command.args(["config", "--config"]).arg(&file);
            // As in a pod, for `inCluster`.
            let output = command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{form}, {by}: {said}");
        }
    }
}
