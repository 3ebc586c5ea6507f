//! The table of permissions that a configuration needs; and how findings are printed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};
use throughline::check::need::{Place, needs};
use throughline::check::{Finding, Level, Report};
use throughline::config::Config;
use throughline::report::{self, Options};

fn config(clusters: &[(&str, &[&str])], more: &Value) -> Config {
    let clusters: Vec<_> =
        clusters.iter().map(|(name, roles)| json!({ "name": name, "roles": roles })).collect();
    let mut config = json!({ "clusters": clusters });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    serde_json::from_value(config).unwrap()
}

/// `CLUSTER: RESOURCE VERB,VERB`, a line each.
fn told(config: &Config) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for need in needs(config) {
        let place = match need.place {
            Place::Everywhere => String::new(),
            Place::LeaseNamespace(namespace) => format!("@{}", namespace.unwrap_or_default()),
        };
        let (plural, _) = throughline::check::need::parts(need.resource);
        let start = format!("{}: {plural}{place} ", need.cluster);
        match lines.last_mut().filter(|line| line.starts_with(&start)) {
            Some(line) => *line += &format!(",{}", need.verb),
            None => lines.push(start + need.verb),
        }
    }
    lines
}

const UP: (&str, &[&str]) = ("up", &["upstream"]);
const HUB: (&str, &[&str]) = ("hub", &["downstream"]);
const EDGE: (&str, &[&str]) = ("edge", &["edge"]);

#[test]
fn each_role_and_feature_needs_its_verbs_and_none_more() {
    let three = [UP, HUB, EDGE];
    let lease = json!({ "leaderElection": { "leaseNamespace": "tl" } });
    let hub_lease = ["hub: leases@tl create,get,update"];
    let edge = [
        "edge: connectors list,watch",
        "edge: events create,patch",
        "edge: gateways list,patch,watch",
        "edge: httpproxies list,watch",
    ];
    let up = ["up: connectors list,watch", "up: gateways list,watch", "up: namespaces list,watch"];
    let expected: Vec<&str> = [
        &edge[..],
        &["hub: connectors list,patch,watch", "hub: events create,patch"],
        &["hub: httproutes list,watch"],
        &hub_lease,
        &up,
    ]
    .concat();
    assert_eq!(told(&config(&three, &lease)), expected);

    // What is turned off is not needed; what is turned on is.
    let changed = |more: Value| {
        let mut config = lease.clone();
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let (now, before) = (told(&self::config(&three, &config)), expected.clone());
        let less = before.iter().filter(|line| !now.iter().any(|l| l == *line));
        let more = now.iter().filter(|line| !before.contains(&line.as_str()));
        (less.map(|l| (*l).to_owned()).collect::<Vec<_>>(), more.cloned().collect::<Vec<_>>())
    };
    let list = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
    for (more, gone, new) in [
        (json!({ "touch": { "enabled": false } }), &edge[2..3], &["edge: gateways list,watch"][..]),
        (json!({ "events": { "enabled": false } }), &[edge[1], "hub: events create,patch"], &[]),
        (
            json!({ "mirror": { "enabled": false } }),
            &["hub: connectors list,patch,watch"],
            &["hub: connectors list,watch"],
        ),
        (json!({ "leaderElection": { "enabled": false } }), &hub_lease, &[]),
        (
            json!({ "orphans": { "mode": "off" } }),
            &["hub: httproutes list,watch", "up: gateways list,watch"],
            &[],
        ),
        (
            json!({ "orphans": { "mode": "delete" } }),
            &["hub: httproutes list,watch", "up: gateways list,watch", "up: namespaces list,watch"],
            &[
                "hub: httproutes delete,get,list,watch",
                "up: gateways get,list,watch",
                "up: namespaces get,list,watch",
            ],
        ),
        (
            json!({ "dryRun": true, "orphans": { "mode": "delete" } }),
            &[
                edge[1],
                edge[2],
                "hub: connectors list,patch,watch",
                "hub: events create,patch",
                hub_lease[0],
            ],
            &["edge: gateways list,watch", "hub: connectors list,watch"],
        ),
    ] {
        assert_eq!(changed(more.clone()), (list(gone), list(new)), "{more}");
    }
}

#[test]
fn a_process_that_sees_a_part_needs_a_part() {
    let none = json!({});
    let edge = told(&config(&[EDGE], &none));
    assert_eq!(edge.len(), 4, "{edge:?}");
    assert!(edge.contains(&"edge: gateways list,patch,watch".to_owned()));
    // With no upstream there is nothing to mirror.
    let hub = told(&config(&[HUB, EDGE], &none));
    assert!(hub.contains(&"hub: connectors list,watch".to_owned()), "{hub:?}");
    // Each verb once, whatever the roles.
    let all = needs(&config(&[("all", &["upstream", "downstream", "edge"])], &none));
    let mut unique: Vec<_> = all.iter().map(|n| (n.resource, &n.place, n.verb)).collect();
    unique.dedup();
    assert_eq!(unique.len(), all.len());
    // The Lease is where the configuration says.
    let elsewhere = json!({ "leaderElection": { "cluster": "edge" } });
    let lines = told(&config(&[UP, HUB, EDGE], &elsewhere));
    assert!(lines.contains(&"edge: leases@ create,get,update".to_owned()), "{lines:?}");
}

fn finding(group: &str, level: Level, what: &str, below: Option<(&str, &str)>) -> Finding {
    Finding {
        group: group.into(),
        check: "test",
        level,
        what: what.into(),
        detail: below.map(|(detail, _)| detail.into()),
        remedy: below.map(|(_, remedy)| remedy.into()),
    }
}

fn text(report: &Report, color: bool) -> String {
    let mut out = Vec::new();
    report::check(report, &Options { color, width: 40, connector: None }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn findings_are_grouped_and_ticked_with_what_to_do_below() {
    let findings = vec![
        finding("one", Level::Passed, "fine", None),
        finding("one", Level::Skipped, "unseen", None),
        finding("two", Level::Warning, "odd", Some(("tried this\x1b[2J", "do that"))),
        finding(
            "two",
            Level::Failed,
            "a long line that has to be broken once",
            Some(("no", "yes")),
        ),
    ];
    let mut report = Report { findings };
    let expected = "one\n---\n√ fine\n- unseen\n\ntwo\n---\n‼ odd\n    tried this\u{fffd}[2J\n    → do that\n\
                    × a long line that has to be broken once\n    no\n    → yes\n\n\
                    Status check results are ×: 1 check\nfailed, 1 warning\n";
    assert_eq!(text(&report, false), expected);
    assert!(!report.is_well());
    report.findings.pop();
    assert!(text(&report, false).ends_with("\nStatus check results are √, with 1\nwarning\n"));
    report.findings.pop();
    assert!(text(&report, false).ends_with("\nStatus check results are √\n"));
    assert!(report.is_well());
    assert!(text(&report, true).contains("\x1b[32m√\x1b[0m"));
}
