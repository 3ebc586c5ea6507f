//! The alerts: what fires when, and where the runbook says what to do.

use std::fs;

use serde_json::Value;

use crate::tools::{read, repo, run_tool, temp_folder};

/// The alerting rules of the PrometheusRule.
pub(crate) fn rules() -> Vec<Value> {
    let file = read(&rule_file()).remove(0);
    let groups = file["spec"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn rule_file() -> std::path::PathBuf {
    repo("deploy/kustomize/components/monitoring/prometheusrule.yaml")
}

#[test]
#[ignore = "needs promtool: make deploy-test"]
fn alerts_fire_when_they_should() {
    let folder = temp_folder("alerts");
    let spec = read(&rule_file()).remove(0)["spec"].clone();
    fs::write(folder.join("rules.yaml"), spec.to_string()).unwrap();
    let tests = folder.join("alerts.test.yaml");
    fs::copy(repo("tests/deploy/alerts.test.yaml"), &tests).unwrap();
    let rules = folder.join("rules.yaml");
    run_tool("promtool", &["check", "rules", rules.to_str().unwrap()]).unwrap();
    run_tool("promtool", &["test", "rules", tests.to_str().unwrap()]).unwrap();

    // Each alert is tested: without it, a test fails.
    for (left_out, rule) in spec["groups"][0]["rules"].as_array().unwrap().iter().enumerate() {
        let mut fewer = spec.clone();
        fewer["groups"][0]["rules"].as_array_mut().unwrap().remove(left_out);
        fs::write(folder.join("rules.yaml"), fewer.to_string()).unwrap();
        let tested = run_tool("promtool", &["test", "rules", tests.to_str().unwrap()]);
        assert!(tested.is_err(), "no test fails without {}", rule["alert"]);
    }
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let runbook = fs::read_to_string(repo("docs/how-to/runbook.md")).unwrap();
    let sections: Vec<_> =
        runbook.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap()).collect();
    let mut alerts = Vec::new();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        let link = format!("docs/how-to/runbook.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], link.as_str());
        assert!(rule["annotations"]["summary"].is_string(), "{name}");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        let section = sections.iter().find(|(title, _)| *title == name);
        let (_, section) = section.unwrap_or_else(|| panic!("no section {name} in the runbook"));
        for part in
            ["**What it means.**", "**What users see.**", "**What to run.**", "**What to do.**"]
        {
            assert!(section.contains(part), "{name}: no {part}");
        }
        let says =
            if severity == "page" { "Pages someone." } else { "Can wait until the morning." };
        assert!(section.trim_start().starts_with(says), "{name} is a {severity}");
        alerts.push(name);
    }
    let of_alerts: Vec<_> = sections
        .iter()
        .map(|(t, _)| t.to_string())
        .filter(|t| t.starts_with("Throughline"))
        .collect();
    assert_eq!(of_alerts, alerts, "the runbook has the same alerts in the same order");
}
