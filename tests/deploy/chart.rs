//! What the chart says to values that make no sense, and that the configuration it makes is one.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::cluster::throughline::binary;
use crate::render::{Choice, FORMS, config_map, helm, kustomize, values};
use crate::tools::{repo, scratch, tool};

/// With the contexts of the overlay standalone-hub.
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "users": [],
    "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
    "contexts": [{"name": "project-a", "context": {"cluster": "c", "user": ""}},
                 {"name": "edge-1", "context": {"cluster": "c", "user": ""}}]}"#;

fn template(sets: &[&str]) -> Result<String, String> {
    let chart = repo("deploy/helm/throughline");
    let mut args = vec!["template", "throughline", chart.to_str().unwrap()];
    args.extend(sets.iter().flat_map(|set| ["--set-json", *set]));
    tool("helm", &args)
}

#[test]
#[ignore = "needs helm: make deploy-test"]
fn wrong_values_are_told() {
    // What is wrong, and words that must stand in what is said about it.
    let cases: &[(&[&str], &[&str])] = &[
        (&["form=\"standalone\""], &["/form", "standalone-hub", "sidecar"]),
        (&["replica=3"], &["replica", "not allowed"]),
        (&["replicas=0"], &["/replicas", "minimum"]),
        (
            &["clusters=[{\"name\":\"a\",\"roles\":[\"hub\"]}]"],
            &["/clusters/0/roles/0", "downstream"],
        ),
        (&["clusters=[{\"name\":\"a\"}]"], &["/clusters/0", "roles"]),
        // What YAML makes of an `off` without quotes.
        (&["config.orphans.mode=false"], &["/config/orphans/mode", "'off'"]),
        (&["config.clusters=[]"], &["/config", "not"]),
        (&["config.shutdown.graceMs=\"10s\""], &["/config/shutdown/graceMs", "integer"]),
        (&["config.admin.address=\"0.0.0.0:9090\""], &["/config/admin/address", ":8080"]),
        (&["networkPolicy.apiServerBlocks=[\"10.0.0.1\"]"], &["/networkPolicy/apiServerBlocks/0"]),
        (&["form=\"standalone-hub\""], &["standalone-hub needs an upstream", "roles: [upstream]"]),
        (
            &["form=\"sidecar\"", "clusters=[{\"name\":\"a\",\"roles\":[\"edge\"]}]"],
            &["its own edge alone", "standalone-hub"],
        ),
    ];
    for (sets, words) in cases {
        let said = template(sets).expect_err(&format!("{sets:?} is taken"));
        for word in *words {
            assert!(said.contains(word), "{sets:?}: no {word:?} in: {said}");
        }
    }
}

#[test]
#[ignore = "needs helm: make deploy-test"]
fn the_chart_lints() {
    for form in FORMS {
        let file = scratch(&format!("lint-{form}")).join("values.json");
        fs::write(&file, values(form, &Choice::monitored()).to_string()).unwrap();
        let chart = repo("deploy/helm/throughline");
        let args =
            ["lint", "--strict", chart.to_str().unwrap(), "--values", file.to_str().unwrap()];
        tool("helm", &args).unwrap_or_else(|error| panic!("{form}: {error}"));
    }
    let chart = crate::tools::read(&repo("deploy/helm/throughline/Chart.yaml")).remove(0);
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// A packaged chart stands alone: what is linked to in this tree is in it.
#[test]
#[ignore = "needs helm: make deploy-test"]
fn the_chart_can_be_packaged() {
    let folder = scratch("package");
    let chart = repo("deploy/helm/throughline");
    tool("helm", &["package", chart.to_str().unwrap(), "-d", folder.to_str().unwrap()]).unwrap();
    let package = folder.join(format!("throughline-{}.tgz", env!("CARGO_PKG_VERSION")));
    let packed = [
        "template",
        "throughline",
        package.to_str().unwrap(),
        "--set-json",
        "monitoring.enabled=true",
    ];
    let from_tree = template(&["monitoring.enabled=true"]).unwrap();
    assert_eq!(tool("helm", &packed).unwrap(), from_tree);
}

#[test]
#[ignore = "needs helm and kustomize: make deploy-test"]
fn notes_say_what_to_do_next() {
    let chart = repo("deploy/helm/throughline");
    for form in FORMS {
        let file = scratch(&format!("notes-{form}")).join("values.json");
        fs::write(&file, values(form, &Choice::plain()).to_string()).unwrap();
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
        let said = tool("helm", &args).unwrap();
        let (_, notes) = said.split_once("NOTES:").unwrap();
        let wanted: &[&str] = match form {
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
        assert!(notes.contains("docs/runbook.md"), "{notes}");
    }
}

/// `throughline config` has nothing to say against what either of them renders.
#[test]
#[ignore = "needs helm and kustomize: make deploy-test"]
fn the_configuration_is_one() {
    for form in FORMS {
        for (by, render) in [("kustomize", kustomize as fn(_, &_) -> _), ("helm", helm)] {
            let objects: Vec<Value> = render(form, &Choice::plain());
            let config = config_map(&objects)["data"]["config.yaml"].as_str().unwrap();
            let folder = scratch(&format!("config-{form}-{by}"));
            let file = folder.join("config.yaml");
            // The pod's volumes are not here.
            let config = config.replace("/var/log/throughline", folder.to_str().unwrap());
            let config = config.replace("/etc/throughline/kubeconfig", folder.to_str().unwrap());
            fs::write(folder.join("config"), KUBECONFIG).unwrap();
            fs::write(&file, config).unwrap();
            let mut command = Command::new(binary());
            command.args(["config", "--config"]).arg(&file);
            // As in a pod.
            let output = command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{form}, {by}: {said}");
        }
    }
}
