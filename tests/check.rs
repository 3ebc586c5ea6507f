//! The permissions that a configuration needs, and how the findings of `check` are printed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use throughline::check::permissions::{PermissionScope, required_permissions, split_resource};
use throughline::check::{CheckReport, Finding, Level};
use throughline::config::Config;
use throughline::core::cause::{AlertRule, Cause, CauseInfo, Hop, State};
use throughline::report::{self, ReportOptions};

fn config(clusters: &[(&str, &[&str])], more: &Value) -> Config {
    let clusters: Vec<_> =
        clusters.iter().map(|(name, roles)| json!({ "name": name, "roles": roles })).collect();
    let mut config = json!({ "clusters": clusters });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    serde_json::from_value(config).unwrap()
}

/// `CLUSTER: RESOURCE VERB,VERB`, one line for each resource.
fn permission_lines(config: &Config) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for need in required_permissions(config) {
        let place = match need.scope {
            PermissionScope::AllNamespaces => String::new(),
            PermissionScope::LeaseNamespace(namespace) => {
                format!("@{}", namespace.unwrap_or_default())
            }
            PermissionScope::Namespace(namespace) => format!("@{namespace}"),
        };
        let (plural, _) = split_resource(need.resource);
        let start = format!("{}: {plural}{place} ", need.cluster);
        match lines.last_mut().filter(|line| line.starts_with(&start)) {
            Some(line) => *line += &format!(",{}", need.verb),
            None => lines.push(start + need.verb),
        }
    }
    lines
}

const UP: (&str, &[&str]) = ("up", &["upstream"]);
const HUB: (&str, &[&str]) = ("hub", &["hub"]);
const EDGE: (&str, &[&str]) = ("edge", &["edge"]);

#[test]
fn each_role_and_feature_needs_its_verbs_and_no_others() {
    let three = [UP, HUB, EDGE];
    let lease = json!({ "leaderElection": { "leaseNamespace": "tl" } });
    let hub_lease = ["hub: leases@tl create,get,update"];
    let edge = [
        "edge: connectors list,watch",
        "edge: events create,patch",
        "edge: gateways list,patch,watch",
        "edge: httpproxies list,watch",
    ];
    let up = [
        "up: connectors get,list,watch",
        "up: gateways list,watch",
        "up: namespaces get,list,watch",
    ];
    let expected: Vec<&str> = [
        &edge[..],
        &["hub: connectors list,patch,watch", "hub: events create,patch"],
        &["hub: httproutes list,watch"],
        &hub_lease,
        &["hub: namespaces list,watch"],
        &up,
    ]
    .concat();
    assert_eq!(permission_lines(&config(&three, &lease)), expected);

    // Each setting takes away or adds its permissions.
    let changed = |more: Value| {
        let mut config = lease.clone();
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let (now, before) = (permission_lines(&self::config(&three, &config)), expected.clone());
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
            &["hub: connectors list,patch,watch", up[0], up[2]],
            &[
                "hub: connectors list,watch",
                "up: connectors list,watch",
                "up: namespaces list,watch",
            ],
        ),
        (
            json!({ "discovery": { "kubeconfigSecrets": { "cluster": "hub", "namespace": "fleet" } } }),
            &[],
            &["hub: secrets@fleet list,watch"],
        ),
        (json!({ "leaderElection": { "enabled": false } }), &hub_lease, &[]),
        (
            json!({ "leaderElection": { "shards": 8 } }),
            &hub_lease,
            &["hub: leases@ create,delete,get,list,update"],
        ),
        (
            json!({ "orphans": { "mode": "off" } }),
            &["hub: httproutes list,watch", "up: gateways list,watch"],
            &[],
        ),
        (
            json!({ "orphans": { "mode": "delete" } }),
            &["hub: httproutes list,watch", "up: gateways list,watch"],
            &["hub: httproutes delete,get,list,watch", "up: gateways get,list,watch"],
        ),
        (
            json!({ "dryRun": true, "orphans": { "mode": "delete" } }),
            &[
                edge[1],
                edge[2],
                "hub: connectors list,patch,watch",
                "hub: events create,patch",
                hub_lease[0],
                up[0],
                up[2],
            ],
            &[
                "edge: gateways list,watch",
                "hub: connectors list,watch",
                "up: connectors list,watch",
                "up: namespaces list,watch",
            ],
        ),
    ] {
        assert_eq!(changed(more.clone()), (list(gone), list(new)), "{more}");
    }
}

#[test]
fn a_process_with_some_roles_needs_only_their_permissions() {
    let none = json!({});
    let edge = permission_lines(&config(&[EDGE], &none));
    assert_eq!(edge.len(), 4, "{edge:?}");
    assert!(edge.contains(&"edge: gateways list,patch,watch".to_owned()));
    // With no upstream there is nothing to mirror.
    let hub = permission_lines(&config(&[HUB, EDGE], &none));
    assert!(hub.contains(&"hub: connectors list,watch".to_owned()), "{hub:?}");
    // Each verb once, whatever the roles.
    let all = required_permissions(&config(&[("all", &["upstream", "hub", "edge"])], &none));
    let mut unique: Vec<_> = all.iter().map(|n| (n.resource, &n.scope, n.verb)).collect();
    unique.dedup();
    assert_eq!(unique.len(), all.len());
    // The Lease is where the configuration says.
    let elsewhere = json!({ "leaderElection": { "cluster": "edge" } });
    let lines = permission_lines(&config(&[UP, HUB, EDGE], &elsewhere));
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

fn text(report: &CheckReport, color: bool) -> String {
    let mut out = Vec::new();
    report::check(report, &ReportOptions { color, width: 40, connector: None }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn findings_are_grouped_and_marked_with_the_remedy_below() {
    let findings = vec![
        finding("one", Level::Passed, "fine", None),
        finding("one", Level::Skipped, "skipped", None),
        finding(
            "two",
            Level::Warning,
            "odd",
            Some((
                "tried this\x1b[2J",
                "do that:\na command that is longer than the line it is on",
            )),
        ),
        finding(
            "two",
            Level::Failed,
            "a long line that has to be broken once",
            Some(("no", "yes")),
        ),
    ];
    let mut report = CheckReport { findings };
    let expected = "one\n---\n√ fine\n- skipped\n\ntwo\n---\n‼ odd\n    tried this\u{fffd}[2J\n    → do that:\n        a command that is longer than the line it is on\n\
                    × a long line that has to be broken once\n    no\n    → yes\n\n\
                    × 1 check failed, 1 warning\n";
    assert_eq!(text(&report, false), expected);
    assert!(!report.is_passed());
    report.findings.pop();
    assert!(text(&report, false).ends_with("\n√ no check failed, 1 warning\n"));
    report.findings.pop();
    assert!(text(&report, false).ends_with("\n√ no check failed, no warnings\n"));
    assert!(report.is_passed());
    assert!(text(&report, true).contains("\x1b[32m√\x1b[0m"));
}

/// `check sign` of each finding that is not fine, by the code.
fn findings_in_code() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check");
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (call, sign) in [(".failed(", "×"), (".warned(", "‼")] {
            for arguments in code.split(call).skip(1) {
                let name = arguments.trim_start().strip_prefix('"').unwrap();
                found.insert(format!("{} {sign}", name.split('"').next().unwrap()));
            }
        }
    }
    found
}

#[test]
fn check_md_lists_every_finding() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/check.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("\n## What can be wrong\n").unwrap();
    let rows = table.lines().take_while(|line| !line.starts_with("## ")).filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let (name, sign) = (cells.next()?.trim(), cells.next()?.trim());
        Some(format!("{} {sign}", name.strip_suffix('`')?))
    });
    let rows: Vec<_> = rows.collect();
    let listed: BTreeSet<_> = rows.iter().cloned().collect();
    assert_eq!(listed.len(), rows.len(), "a row twice: {rows:?}");
    assert_eq!(listed, findings_in_code());
}

/// `docs/reference/causes.md`, as the table of causes has it.
#[test]
fn causes_md_is_the_table() {
    let mut page = String::from(
        "# Causes\n\n\
         Everything that can be wrong, by name; `check` prints these sentences and remedies. A cause may have two\n\
         of each: the first whose facts are all known is used. `@{cluster}` stands for\n\
         `kubectl --context NAME` where a context of your kubeconfig leads to that server, else for `at CLUSTER: kubectl`.\n\n\
         This page is generated from `src/core/cause.rs`.\n\n\
         | cause | severity | hop | state | alerts | sentence | remedy |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for cause in Cause::ALL {
        let CauseInfo { severity, hop, state, alert, sentence, remedy } = cause.info();
        let alerts: Vec<_> = alert.iter().map(|rule: &AlertRule| rule.as_str()).collect();
        let cells = [
            format!("`{}`", cause.as_str()),
            severity.as_str().to_owned(),
            hop.map_or("", Hop::as_str).to_owned(),
            state.map_or("", State::as_str).to_owned(),
            alerts.join(", "),
            sentence.join(" *or* "),
            remedy.join(" *or* "),
        ];
        page += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/causes.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), page, "UPDATE_EXPECT=1 rewrites it");
}
