//! The alerts: what fires when, and where the runbook says what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use throughline::core::contract::cause::{AlertRule, Cause};

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
fn every_alert_leads_to_a_section_of_the_runbook_that_says_when_it_pages() {
    let runbook = fs::read_to_string(repo("docs/how-to/runbook.md")).unwrap();
    let sections = runbook.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    let sections: BTreeMap<_, _> =
        sections.map(|(title, text)| (title.to_lowercase().replace(' ', "-"), text)).collect();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(rule["annotations"]["summary"].is_string(), "{name}");
        let link = rule["annotations"]["runbook_url"].as_str().unwrap();
        let anchor = link.strip_prefix("docs/how-to/runbook.md#").unwrap();
        if anchor == "{{ $labels.cause }}" {
            // tests/commands/causes.rs holds that each cause has a section.
            continue;
        }

        let section = sections.get(anchor).unwrap_or_else(|| panic!("{name}: no section {anchor}"));
        if let (Some("page"), Some(after)) =
            (rule["labels"]["severity"].as_str(), rule["for"].as_str())
        {
            let after = after.strip_suffix('m').unwrap();
            assert!(section.contains(&format!("ages after {after} minutes")), "{name}: {section}");
        }
    }
}

/// Causes are found by name, and a new one is easily forgotten here.
#[test]
fn the_rules_name_the_causes_that_the_table_gives_them() {
    let named = |alert: &str| -> BTreeSet<String> {
        let rule = rules().into_iter().find(|rule| rule["alert"] == alert).unwrap();
        let expression = rule["expr"].as_str().unwrap().to_owned();
        let (_, rest) = expression.split_once("throughline_causes_open{cause=").unwrap();
        let causes = rest.trim_start_matches('~').split('"').nth(1).unwrap();
        causes.split('|').map(str::to_owned).collect()
    };
    for (alert, rule) in [
        ("ThroughlineClusterNotWatched", AlertRule::NotWatched),
        ("ThroughlineCauseOpen", AlertRule::Ticket),
        ("ThroughlineShardUnheld", AlertRule::Shard),
        ("ThroughlinePaused", AlertRule::Paused),
    ] {
        let given = Cause::ALL.into_iter().filter(|cause| cause.info().alert.contains(&rule));
        let given: BTreeSet<_> = given.map(|cause| cause.as_str().to_owned()).collect();
        assert_eq!(named(alert), given, "{alert}");
    }
}
