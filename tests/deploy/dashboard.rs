//! Dashboard and alerts use only metrics and labels that a live run exposes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use regex::{Captures, Regex};
use serde_json::{Value, json};

use crate::alerts::rules;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{connector, with_upstream_labels};
use crate::cluster::rest::CONNECTORS;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::tools::{read, repo};

/// Labels that Prometheus adds to each target.
const TARGET_LABELS: [&str; 4] = ["namespace", "job", "pod", "instance"];

/// Metrics, each with the labels that an expression names.
type Used = BTreeMap<String, BTreeSet<String>>;

fn find<'a>(pattern: &str, text: &'a str) -> Vec<Captures<'a>> {
    Regex::new(pattern).unwrap().captures_iter(text).collect()
}

/// The metrics of an expression of PromQL. The labels of `by (…)` and `on (…)` count for all of them.
fn used(expression: &str) -> Used {
    const GROUP: &str = r"\b(?:by|on)\s*\(([^)]*)\)";
    let text = Regex::new("\"[^\"]*\"").unwrap().replace_all(expression, "");
    let labels = |text| find(r"\w+", text).into_iter().map(|label| label[0].to_owned());
    let grouped =
        find(GROUP, &text).into_iter().flat_map(|group| labels(group.get(1).unwrap().as_str()));
    let grouped: BTreeSet<_> = grouped.collect();
    let text = Regex::new(GROUP).unwrap().replace_all(&text, "");
    let mut used = Used::new();
    // Each of our metrics has `_`, and no word of PromQL that is not a function has.
    for metric in find(r"([$\w:]*_[$\w:]*)(?:\{([^}]*)\}|(\())?", &text) {
        let is_call = metric.get(3).is_some();
        if !is_call && !metric[1].starts_with('$') {
            let own = labels(metric.get(2).map_or("", |own| own.as_str()));
            used.entry(metric[1].to_owned()).or_default().extend(own.chain(grouped.clone()));
        }
    }
    used
}

#[test]
fn metrics_and_labels_are_found() {
    let expression = "max by (namespace) (rate(a_total{x=~\"$x_y\",y!=\"by (z_)\"}[5m]) > bool 2e3) \
                      unless on (namespace, pod) (b_b == 0 or absent(c_c[$__interval])) / 2";
    let of = |name: &str, labels: &[&str]| {
        let labels = labels.iter().chain(&["namespace", "pod"]).map(|&label| label.to_owned());
        (name.to_owned(), labels.collect())
    };
    let found = [of("a_total", &["x", "y"]), of("b_b", &[]), of("c_c", &[])];
    assert_eq!(used(expression), found.into());
}

fn dashboard() -> Value {
    read("deploy/grafana/throughline.json").remove(0)
}

/// All panels, including those in rows.
fn panels(dashboard: &Value) -> Vec<Value> {
    let list = |of: &Value| of["panels"].as_array().cloned().unwrap_or_default();
    list(dashboard).into_iter().flat_map(|panel| [list(&panel), vec![panel]].concat()).collect()
}

/// All expressions, each with its place and the labels that its legend or text uses.
fn expressions() -> Vec<(String, String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let labels = |pattern: &str, text: &str| -> Vec<String> {
        find(pattern, text).iter().map(|label| label[1].to_owned()).collect()
    };
    let mut all = Vec::new();
    for rule in rules() {
        let used = labels(r"\$labels\.(\w+)", &rule["annotations"].to_string());
        all.push((text(&rule["alert"]), text(&rule["expr"]), used));
    }
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        for target in list(&panel["targets"]) {
            let used = labels(r"\{\{ *(\w+)", &text(&target["legendFormat"]));
            all.push((text(&panel["title"]), text(&target["expr"]), used));
        }
    }
    for annotation in list(&dashboard["annotations"]["list"]) {
        all.push(("annotation".into(), text(&annotation["expr"]), Vec::new()));
    }
    for variable in list(&dashboard["templating"]["list"]) {
        let query = text(&variable["query"]["query"]);
        if query.contains(',') {
            let values = &find(r"^label_values\((.*), *(\w+)\)$", &query)[0];
            all.push((query.clone(), values[1].to_owned(), vec![values[2].to_owned()]));
        }
    }
    all
}

/// All exposed metrics with their labels.
async fn scraped(throughline: &Throughline) -> Used {
    let mut found = Used::new();
    for series in throughline.metrics().await.into_keys() {
        let (name, labels) = series.split_once('{').unwrap_or((&series, ""));
        let labels = find("(\\w+)=\"", labels).into_iter().map(|label| label[1].to_owned());
        found.entry(name.to_owned()).or_default().extend(labels);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make deploy-test"]
async fn metrics_in_dashboard_and_alerts_exist() {
    let testbed = Testbed::start(Topology::One).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    // A hub Connector of an upstream that nobody knows opens a cause.
    let lost = connector(fleet.hub_key(0).0, "lost");
    let kind = ("networking.datumapis.com", "Connector");
    let lost = with_upstream_labels(lost, "never-was", kind, ("never-was", "lost"));
    testbed.hub().rest().create(CONNECTORS, lost).await.unwrap();
    let throughline = Setup::of(&testbed)
        .set(&json!({
            "leaderElection": { "enabled": true, "leaseNamespace": "default",
                "leaseDuration": "4s" },
            "election": { "renewDeadlineMs": 2_500, "retryMs": 500 },
            "executor": { "timeoutMs": 1_000 },
        }))
        .ready()
        .await;
    oracle::converges(&testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;

    let all = expressions();
    assert!(all.len() > 20, "{} expressions", all.len());
    // A text can use only labels that the expression keeps.
    for (place, expression, texts) in &all {
        let used = used(expression);
        assert!(!used.is_empty(), "{place}: no metric in {expression:?}");
        let labels: BTreeSet<_> = used.into_values().flatten().collect();
        let is_kept = |label: &String| labels.contains(label) || !expression.contains(" by ");
        assert!(texts.iter().all(is_kept), "{place}: {expression} drops a label of {texts:?}");
    }
    eventually("all metrics are exposed", SOON, async || {
        let found = scraped(&throughline).await;
        for (place, expression, _) in &all {
            for (metric, labels) in used(expression) {
                let mut has = found.get(&metric).cloned().unwrap_or_default();
                has.extend(TARGET_LABELS.map(str::to_owned));
                let is_there = found.contains_key(&metric) && labels.is_subset(&has);
                ensure(is_there, || format!("{place}: {metric} {labels:?}, but {has:?}"))?;
            }
        }
        Ok(())
    })
    .await;
    throughline.stop().await;
}

/// A metric that nobody looks at is not worth its series.
#[test]
fn every_metric_has_an_alert_a_panel_or_a_line_of_the_runbook() {
    let golden = fs::read_to_string(repo("tests/commands/surface/metrics.txt")).unwrap();
    let names: Vec<_> = golden.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let runbook = fs::read_to_string(repo("docs/how-to/runbook.md")).unwrap();
    let words = runbook.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut looked_at: BTreeSet<_> = words.map(str::to_owned).collect();
    for (place, expression, _) in expressions() {
        for metric in used(&expression).into_keys() {
            let name = metric.strip_suffix("_bucket").unwrap_or(&metric);
            // No alert or panel of a metric that is gone.
            assert!(names.contains(&name), "{place}: no {metric}");
            looked_at.insert(name.to_owned());
        }
    }
    let unused: Vec<_> = names.iter().filter(|name| !looked_at.contains(**name)).collect();
    assert!(names.len() == 29 && unused.is_empty(), "{} metrics, unused: {unused:?}", names.len());
}

#[test]
fn panels_say_what_they_show_and_have_units() {
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard()) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is used twice");
        if panel["type"] != "row" {
            assert!(panel["description"].is_string(), "{title} does not say what it shows");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        }
    }
}
