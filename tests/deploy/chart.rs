//! The Helm chart: its errors for wrong values, what values change, and its notes. `UPDATE_EXPECT=1` rewrites
//! the goldens.

use std::fs;

use expect_test::expect_file;

use crate::render::{Choice, FORMS, changes, values};
use crate::temp_folder::temp_folder;
use crate::tools::{read, repo, run_tool};

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
    let golden = expect_file![repo("tests/deploy/chart/values.diff")];
    golden.assert_eq(&changes(&before, &after));

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
    assert_eq!(checksum("clusters: [{name: a, roles: [upstream]}]"), before);
    for values in [
        "clusterName: other",
        "form: standalone-edge",
        "config: {dryRun: true}",
        "config: {orphans: {mode: 'off'}}",
        "config: {log: {level: debug}}",
        "config: {touch: {platformKey: 'off'}}",
        "config: {admin: {state: 'off'}}",
        "config: {log: {format: json}}",
        "config: {discovery: {milo: {join: all}}}",
    ] {
        assert_ne!(checksum(values), before, "{values}");
    }
}

/// A package contains the files that are symbolic links in this tree.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn the_chart_lints_and_can_be_packaged() {
    for form in FORMS {
        let values = values(form, &Choice::monitored()).to_string();
        chart(&["lint", "--strict"], &values).unwrap_or_else(|error| panic!("{form}: {error}"));
    }
    let version = env!("CARGO_PKG_VERSION");
    let meta = read("deploy/helm/throughline/Chart.yaml").remove(0);
    assert_eq!((&meta["version"], &meta["appVersion"]), (&version.into(), &version.into()));

    let folder = temp_folder("package");
    let source = repo("deploy/helm/throughline");
    let [source, to] = [&source, &folder].map(|path| path.to_str().unwrap());
    run_tool("helm", &["package", source, "-d", to]).unwrap();
    let package = format!("{to}/throughline-{version}.tgz");
    let args = ["template", "throughline", &package, "--set-json", "monitoring.enabled=true"];
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
