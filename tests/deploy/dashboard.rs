//! Dashboard and alerts use only metrics and labels that a live run exposes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::alerts::rules;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{connector, with_upstream_labels};
use crate::cluster::rest::CONNECTORS;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::tools::repo;

/// Labels that Prometheus adds to each target.
const TARGET_LABELS: [&str; 4] = ["namespace", "job", "pod", "instance"];

/// Metrics, each with the labels that an expression names.
type Used = BTreeMap<String, BTreeSet<String>>;

/// The metrics of an expression of PromQL. The labels of `by (…)` and `on (…)` count for all of them.
fn used(expression: &str) -> Used {
    const GROUPING: [&str; 2] = ["by", "on"];
    const OPERATORS: [&str; 4] = ["and", "or", "unless", "bool"];
    let is_name = |c: char| c.is_alphanumeric() || "_:$".contains(c);
    let mut used = Used::new();
    let mut grouped = BTreeSet::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|c| is_name(c) || c == '[') {
        // A range, or a name and what follows it.
        rest = &rest[start..];
        if rest.starts_with('[') {
            rest = rest.split_once(']').unwrap().1;
            continue;
        }
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after.trim_start();
        let is_aggregation = GROUPING.iter().any(|word| rest.starts_with(word));
        if GROUPING.contains(&name) {
            let (labels, after) = rest.trim_start_matches('(').split_once(')').unwrap();
            grouped.extend(labels.split(',').map(|label| label.trim().to_owned()));
            rest = after;
        } else if let Some((matchers, after)) =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        {
            let label = |matcher: &str| matcher.split(['=', '!']).next().unwrap().trim().to_owned();
            used.entry(name.to_owned()).or_default().extend(matchers.split(',').map(label));
            rest = after;
        } else if name.starts_with(char::is_alphabetic)
            && !rest.starts_with('(')
            && !is_aggregation
            && !OPERATORS.contains(&name)
        {
            used.entry(name.to_owned()).or_default();
        }
    }
    used.values_mut().for_each(|labels| labels.extend(grouped.iter().cloned()));
    used
}

#[test]
fn metrics_and_labels_are_found() {
    let expression = "max by (namespace) (rate(a_total{x=~\"$x\", y!=\"by (z)\"}[5m]) > bool 2e3) \
                      unless on (namespace, pod) (b == 0 or absent(c[$__interval])) / 2";
    let of = |name: &str, labels: &[&str]| {
        let labels = labels.iter().chain(&["namespace", "pod"]).map(|&label| label.to_owned());
        (name.to_owned(), labels.collect())
    };
    assert_eq!(used(expression), [of("a_total", &["x", "y"]), of("b", &[]), of("c", &[])].into());
}

fn dashboard() -> Value {
    let text = fs::read_to_string(repo("deploy/grafana/throughline.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// All panels, including those in rows.
fn panels(dashboard: &Value) -> Vec<Value> {
    let list = |of: &Value| of["panels"].as_array().cloned().unwrap_or_default();
    list(dashboard).into_iter().flat_map(|panel| [list(&panel), vec![panel]].concat()).collect()
}

/// All expressions, each with its place and the labels that its legend or text uses.
fn expressions() -> Vec<(String, String, Vec<String>)> {
    let names = |text: &str, before: &str, after: &str| -> Vec<String> {
        let parts = text.split(before).skip(1);
        parts.filter_map(|part| Some(part.split(after).next()?.trim().to_owned())).collect()
    };
    let mut all = Vec::new();
    for rule in rules() {
        let texts = rule["annotations"].to_string();
        let labels = names(&texts, "$labels.", " }}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        all.push((text(&rule["alert"]), text(&rule["expr"]), labels));
    }
    for panel in panels(&dashboard()) {
        for target in panel["targets"].as_array().cloned().unwrap_or_default() {
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            let labels = names(legend, "{{", "}}");
            all.push((panel["title"].to_string(), target["expr"].as_str().unwrap().into(), labels));
        }
    }
    for annotation in dashboard()["annotations"]["list"].as_array().unwrap() {
        all.push(("annotation".into(), annotation["expr"].as_str().unwrap().into(), Vec::new()));
    }
    for variable in dashboard()["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            // label_values(METRIC{…}, LABEL)
            let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
            let (metric, label) = inner.rsplit_once(',').unwrap();
            all.push((query.to_owned(), metric.to_owned(), vec![label.trim().to_owned()]));
        }
    }
    all
}

/// All exposed metrics with their labels.
async fn scraped(throughline: &Throughline) -> Used {
    let mut found = Used::new();
    for series in throughline.metrics().await.into_keys() {
        let (name, labels) = series.split_once('{').unwrap_or((&series, ""));
        let labels =
            labels.split("\",").filter_map(|part| Some(part.split_once('=')?.0.to_owned()));
        found.entry(name.to_owned()).or_default().extend(labels);
    }
    found
}

/// A run that exposes every metric: with a fleet, and a hub Connector of an upstream that nobody knows.
async fn start_with_all_metrics(testbed: &Testbed) -> Throughline {
    let fleet = Fleet::seed(testbed, Spec::of(3)).await;
    let (lost, kind) =
        (connector(fleet.hub_key(0).0, "lost"), ("networking.datumapis.com", "Connector"));
    let lost = with_upstream_labels(lost, "never-was", kind, ("never-was", "lost"));
    testbed.hub().rest().create(CONNECTORS, lost).await.unwrap();
    let throughline = Setup::of(testbed)
        .set(&json!({
            "leaderElection": { "enabled": true, "leaseNamespace": "default",
                "leaseDuration": "4s", "renewDeadlineMs": 2_500, "retryPeriodMs": 500 },
            "executor": { "timeoutMs": 1_000 },
        }))
        .ready()
        .await;
    oracle::converges(testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(testbed).await;
    throughline
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make deploy-test"]
async fn metrics_in_dashboard_and_alerts_exist() {
    let testbed = Testbed::start(Topology::One).await;
    let throughline = start_with_all_metrics(&testbed).await;
    let all = expressions();
    let mut wanted: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (place, expression, texts) in &all {
        for (metric, labels) in used(expression) {
            wanted.entry((place.clone(), metric)).or_default().extend(labels);
        }
        let labels: BTreeSet<_> = used(expression).into_values().flatten().collect();
        // A text can use only labels that the expression keeps.
        for label in texts {
            let is_kept = labels.contains(label) || !expression.contains(" by ");
            assert!(is_kept, "{place}: the text uses {label}, which {expression} drops");
        }
    }
    assert!(all.len() > 20, "{} expressions", all.len());
    eventually("all metrics are exposed", SOON, async || {
        let found = scraped(&throughline).await;
        let missing = |((place, metric), labels): (&(String, String), &BTreeSet<String>)| {
            let Some(has) = found.get(metric) else {
                return Some(format!("{place}: no {metric}"));
            };
            let is_there = |l: &&String| has.contains(*l) || TARGET_LABELS.contains(&l.as_str());
            let lacks: Vec<_> = labels.iter().filter(|l| !is_there(l)).collect();
            (!lacks.is_empty()).then(|| format!("{place}: {metric} has no {lacks:?}, but {has:?}"))
        };
        let missing: Vec<_> = wanted.iter().filter_map(missing).collect();
        ensure(missing.is_empty(), || missing.join("; "))
    })
    .await;
    throughline.stop().await;
}

/// A metric that nobody looks at is not worth its series.
#[test]
fn every_metric_has_an_alert_a_panel_or_a_line_of_the_runbook() {
    let golden = fs::read_to_string(repo("tests/commands/surface/metrics.txt")).unwrap();
    let runbook = fs::read_to_string(repo("docs/how-to/runbook.md")).unwrap();
    let mut looked_at: BTreeSet<String> = BTreeSet::new();
    for (_, expression, _) in expressions() {
        looked_at.extend(used(&expression).into_keys());
    }
    let words = runbook.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    looked_at.extend(words.map(str::to_owned));
    let names: Vec<_> = golden.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let is_used =
        |name: &str| looked_at.contains(name) || looked_at.contains(&format!("{name}_bucket"));
    let unused: Vec<_> = names.iter().filter(|name| !is_used(name)).collect();
    assert!(names.len() == 29 && unused.is_empty(), "{} metrics, unused: {unused:?}", names.len());
    // No alert or panel of a metric that is gone.
    for (place, expression, _) in expressions() {
        for metric in used(&expression).into_keys() {
            let name = metric.strip_suffix("_bucket").unwrap_or(&metric);
            assert!(names.contains(&name), "{place}: no {metric}");
        }
    }
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
