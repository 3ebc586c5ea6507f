//! The Helm chart: its errors for wrong values, what values change, its notes, and the configuration that it
//! renders. `UPDATE_EXPECT=1` rewrites the goldens.

use std::fs;
use std::process::Command;

use expect_test::expect_file;
use serde_json::Value;
use similar::TextDiff;

use crate::cluster::throughline::binary;
use crate::render::{Choice, FORMS, config_map, helm, kustomize, values};
use crate::tools::{repo, run_tool, temp_folder};

/// Has the contexts that the overlay standalone-hub names.
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "users": [],
    "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
    "contexts": [{"name": "project-a", "context": {"cluster": "c", "user": ""}},
                 {"name": "edge-1", "context": {"cluster": "c", "user": ""}}]}"#;

/// Runs helm on the chart, with these values.
fn chart(command: &[&str], values: &str) -> Result<String, String> {
    let file = temp_folder("values").join("values.yaml");
    fs::write(&file, values).unwrap();
    let chart = repo("deploy/helm/throughline");
    let more = [chart.to_str().unwrap(), "--values", file.to_str().unwrap()];
    run_tool("helm", &[command, &more].concat())
}

fn template(values: &str) -> Result<String, String> {
    chart(&["template", "throughline"], values)
}

/// After each file of values follows what helm says about it.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn wrong_values_are_reported() {
    let golden = expect_file![repo("tests/deploy/chart/bad.txt")];
    let text = golden.data();
    let files = text.split("===\n").map(|section| {
        let lines = section.split_inclusive('\n').filter(|line| !line.starts_with('>'));
        let values: String = lines.collect();
        let error = template(&values).expect_err(&format!("accepted:\n{values}"));
        // Of the schema, or of a template and its line.
        let lines = error.lines().filter_map(|line| match line.split_once("yaml:") {
            Some((_, after)) if line.starts_with("Error: ") => after.split_once("): "),
            _ => line.split_once("- "),
        });
        let said: String = lines.map(|(_, line)| format!("> {line}\n")).collect();
        format!("{values}{said}")
    });
    golden.assert_eq(&files.collect::<Vec<_>>().join("===\n"));
}

/// What operators add to pods reaches them, and their own labels reach what their Prometheus selects by.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn values_for_pods_and_monitoring_are_rendered() {
    let values = fs::read_to_string(repo("tests/deploy/chart/values.yaml")).unwrap();
    let [before, after] = ["monitoring: {enabled: true}", &values].map(|values| {
        let rendered = template(values).unwrap();
        let lines = rendered.lines().filter(|line| !line.contains("checksum/config"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    });
    let changes = TextDiff::from_lines(&before, &after);
    let changes = changes.unified_diff().context_radius(1).to_string();
    // Where in the file it is does not matter.
    let lines = changes.lines().map(|line| if line.starts_with("@@") { "@@" } else { line });
    let changes: String = lines.map(|line| format!("{line}\n")).collect();
    expect_file![repo("tests/deploy/chart/values.diff")].assert_eq(&changes);

    let existing = template("serviceAccount: {create: false, name: liveness}").unwrap();
    assert!(!existing.contains("kind: ServiceAccount\nmetadata"), "{existing}");
}

/// A running instance follows the clusters by itself. The tool kustomize puts a hash of all into a name.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn only_what_needs_a_restart_starts_a_rollout() {
    let checksum = |values: &str| {
        let rendered = template(values).unwrap();
        let line = rendered.lines().find(|line| line.contains("checksum/config:"));
        line.unwrap().trim().to_owned()
    };
    let before = checksum("");
    let clusters = "clusters: [{name: a, roles: [upstream]}]";
    assert_eq!(checksum(clusters), before, "other clusters start a rollout");
    for restarted in [
        "dryRun: true",
        "orphans: {mode: 'off'}",
        "log: {level: debug}",
        "touch: {platformKey: 'off'}",
        "admin: {state: 'off'}",
        "log: {format: json}",
        "discovery: {milo: {join: all}}",
    ] {
        let values = format!("config: {{{restarted}}}");
        assert_ne!(checksum(&values), before, "{restarted} starts no rollout");
    }
}

#[test]
#[ignore = "needs helm: make deploy-test"]
fn the_chart_lints() {
    for form in FORMS {
        let values = values(form, &Choice::monitored()).to_string();
        chart(&["lint", "--strict"], &values).unwrap_or_else(|error| panic!("{form}: {error}"));
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
    let package = package.to_str().unwrap();
    let args = ["template", "throughline", package, "--set-json", "monitoring.enabled=true"];
    let from_tree = template("monitoring: {enabled: true}").unwrap();
    assert_eq!(run_tool("helm", &args).unwrap(), from_tree);
}

#[test]
#[ignore = "needs helm: make deploy-test"]
fn notes_say_what_to_do_next() {
    let mut all = String::new();
    let plain = FORMS.map(|form| (form, Choice::plain()));
    for (form, choice) in plain.into_iter().chain([("all-in-one", Choice::sharded())]) {
        let command = ["install", "throughline", "--dry-run=client", "--namespace", "edge-system"];
        let said = chart(&command, &values(form, &choice).to_string()).unwrap();
        let (_, notes) = said.split_once("NOTES:\n").unwrap();
        all += &format!("## {form}, {}\n\n{}\n\n", choice.name, notes.trim());
    }
    expect_file![repo("tests/deploy/chart/notes.txt")].assert_eq(&all);
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
