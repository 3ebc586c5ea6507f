//! The permissions that a configuration needs, and how the findings of `check` are printed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use serde_json::{Value, json};
use throughline::check::permissions::{PermissionScope, required_permissions, split_resource};
use throughline::check::{Check, CheckReport, Finding, Level};
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

fn finding(check: Check, level: Level, cause: Option<Cause>, texts: [&str; 3]) -> Finding {
    let [message, evidence, remedy] = texts;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Finding {
        check,
        cluster: Some("hub".into()),
        level,
        cause,
        message: text(message),
        evidence: evidence.to_owned(),
        remedy: text(remedy),
    }
}

fn text(report: &CheckReport, color: bool) -> String {
    let mut out = Vec::new();
    report::check(report, &ReportOptions { color, width: 40, connector: None }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn findings_are_marked_with_cause_evidence_and_remedy_below() {
    let findings = vec![
        finding(Check::Reachable, Level::Passed, None, ["", "v1.36", ""]),
        finding(Check::Retention, Level::Skipped, None, ["", "whether it is Karmada", ""]),
        finding(
            Check::Trigger,
            Level::Warning,
            Some(Cause::Overwritten),
            [
                "x overwrites\x1b[2J.",
                "seen",
                "Set `touch.key`: `a command that is longer than the line`.",
            ],
        ),
        finding(
            Check::Permissions,
            Level::Failed,
            Some(Cause::PermissionMissing),
            ["hub does not allow throughline to patch Connector objects.", "no", "`kubectl x`"],
        ),
    ];
    let mut report = CheckReport { findings };
    let expected = "√ reachable hub: v1.36\n\
                    - retention hub: not visible: whether it\n  is Karmada\n\
                    ‼ trigger hub: x overwrites\u{fffd}[2J.\n    overwritten: seen\n    → Set touch.key: this.\n        a command that is longer than the line\n\
                    × permissions hub: hub does not allow\n  throughline to patch Connector\n  objects.\n    permission_missing: no\n    → this\n        kubectl x\n\n\
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

/// The page lists the checks in their order, each with causes that exist.
#[test]
fn check_md_lists_every_check() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/check.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("\n## The checks\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<_> = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()).collect();
    let checks: Vec<_> = rows.iter().map(|row| row[0].trim_end_matches('`')).collect();
    assert_eq!(checks, Check::ALL.map(Check::as_str));
    for row in rows {
        let causes = row[2].split('`').skip(1).step_by(2);
        for cause in causes {
            assert!(Cause::parse(cause).is_some(), "{cause}");
        }
    }
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
