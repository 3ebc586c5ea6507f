//! The alerts: what fires when, and where the runbook says what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use throughline::core::contract::cause::{AlertRule, Cause};

use crate::temp_folder::temp_folder;
use crate::tools::{read, repo, run_tool};

fn spec() -> Value {
    read("deploy/kustomize/components/monitoring/prometheusrule.yaml").remove(0)["spec"].take()
}

/// The alerting rules of the PrometheusRule.
pub(crate) fn rules() -> Vec<Value> {
    let spec = spec();
    let groups = spec["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

#[test]
#[ignore = "needs promtool: make deploy-test"]
fn alerts_fire_when_they_should() {
    let folder = temp_folder("alerts");
    let [rules, tests] = ["rules.yaml", "alerts.test.yaml"].map(|name| folder.join(name));
    fs::copy(repo("tests/deploy/alerts.test.yaml"), &tests).unwrap();
    let promtool = |command: &str, spec: &Value| {
        fs::write(&rules, spec.to_string()).unwrap();
        let file = if command == "test" { &tests } else { &rules };
        run_tool("promtool", &[command, "rules", file.to_str().unwrap()])
    };
    let spec = spec();
    promtool("check", &spec).unwrap();
    promtool("test", &spec).unwrap();

    // Each alert is tested: without it, a test fails.
    for (left_out, rule) in self::rules().iter().enumerate() {
        let mut fewer = spec.clone();
        fewer["groups"][0]["rules"].as_array_mut().unwrap().remove(left_out);
        assert!(promtool("test", &fewer).is_err(), "no test fails without {}", rule["alert"]);
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
        // tests/commands/causes.rs holds that each cause has a section.
        if anchor == "{{ $labels.cause }}" {
            continue;
        }

        let section = sections.get(anchor).unwrap_or_else(|| panic!("{name}: no section {anchor}"));
        if rule["labels"]["severity"] == "page"
            && let Some(after) = rule["for"].as_str()
        {
            let after = after.strip_suffix('m').unwrap();
            assert!(section.contains(&format!("ages after {after} minutes")), "{name}: {section}");
        }
    }
}

/// Causes are found by name, and a new one is easily forgotten here.
#[test]
fn the_rules_name_the_causes_that_the_table_gives_them() {
    for (alert, rule) in [
        ("ThroughlineClusterNotWatched", AlertRule::NotWatched),
        ("ThroughlineCauseOpen", AlertRule::Ticket),
        ("ThroughlineShardUnheld", AlertRule::Shard),
        ("ThroughlinePaused", AlertRule::Paused),
    ] {
        let given = Cause::ALL.iter().filter(|cause| cause.info().alert.contains(&rule));
        let given: BTreeSet<_> = given.map(|cause| cause.as_str()).collect();
        let found = rules().into_iter().find(|found| found["alert"] == alert).unwrap();
        let expression = found["expr"].as_str().unwrap();
        let (_, rest) = expression.split_once("throughline_causes_open{cause=").unwrap();
        let named: BTreeSet<_> = rest.split('"').nth(1).unwrap().split('|').collect();
        assert_eq!(given, named, "{alert}");
    }
}
