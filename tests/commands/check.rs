//! The permissions that a configuration needs, what `check` finds on simulated API servers, and how that is
//! printed. (tests/e2e/checking.rs has every check on real ones.)

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::check::permissions::{PermissionScope, required_permissions, split_resource};
use throughline::check::{Check, CheckReport, Finding, Level, check};
use throughline::config::{Config, ConfigSource};
use throughline::core::contract::cause::Cause;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::report::{self, ReportOptions};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::ServerMode;

use crate::program::Place;
use crate::sim_apiserver::{START, TestServer, serve_cluster};

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
            json!({ "discovery": { "kubeconfigSecrets": { "cluster": "hub", "namespace": "fleet" } } }),
            &[],
            &["hub: secrets@fleet list,watch"],
        ),
        (json!({ "leaderElection": { "enabled": false } }), &hub_lease, &[]),
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
    let all = permission_lines(&config(&[("all", &["upstream", "hub", "edge"])], &none));
    assert!(all.contains(&"all: connectors get,list,patch,watch".to_owned()), "{all:?}");
}

/// Three tiers with two connectors, whose statuses have arrived everywhere.
struct Tiers {
    up: TestServer,
    hub: TestServer,
    edge: TestServer,
    place: Place,
}

/// The upstream namespaces, each with a Connector, and their uids.
const SHOPS: [(&str, &str); 2] = [
    ("shop-1", "00000000-0000-0000-0000-000000000001"),
    ("shop-2", "00000000-0000-0000-0000-000000000002"),
];
const OTHER_UID: &str = "00000000-0000-0000-0000-000000000003";
const LABELS: [&str; 3] = ["upstream-cluster-name", "upstream-namespace", "upstream-name"];

impl Tiers {
    async fn start() -> Self {
        let tiers = [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)];
        let specs = tiers.map(|(name, role)| ClusterSpec { name: name.into(), roles: vec![role] });
        let mut sim = SimClusters::new(&specs, 0);
        sim.advance(START);
        let sim = Arc::new(Mutex::new(sim));
        let serve = async |name: &str| serve_cluster(&sim, ClusterName::from(name)).await;
        let (up, hub, edge) = (serve("up").await, serve("hub").await, serve("edge").await);
        let clusters: [(&TestServer, &[&str]); 3] =
            [(&up, &["upstream"]), (&hub, &["hub"]), (&edge, &["edge"])];
        let config =
            json!({ "leaderElection": { "enabled": false }, "touch": { "enabled": false } });
        let place = Place::new(&clusters, config);
        let tiers = Self { up, hub, edge, place };
        for (shop, (name, uid)) in SHOPS.into_iter().enumerate() {
            tiers.set_uid(shop, uid);
            tiers.up.put(connector(name, json!({})));
            copy(&tiers.hub, shop, "", "{}");
            copy(&tiers.edge, shop, "", "{}");
        }
        tiers
    }

    fn set_uid(&self, shop: usize, uid: &str) {
        let metadata = json!({ "name": SHOPS[shop].0, "uid": uid });
        self.up.put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }));
    }

    fn config(&self) -> Config {
        let file = Some(self.place.path("config.yaml"));
        ConfigSource { file, ..ConfigSource::default() }.load().unwrap()
    }

    /// Check, level and cause of what did not pass, and the checks that were skipped.
    async fn found(&self) -> (Vec<(Check, Level, Cause)>, Vec<Check>) {
        let report = check(&self.config(), &[]).await.unwrap();
        let problem = |f: &Finding| Some((f.check, f.level, f.cause?));
        let skipped = report.findings.iter().filter(|f| f.level == Level::Skipped);
        let skipped = skipped.map(|finding| finding.check).collect();
        assert_eq!(self.hub.handle.writes(), 0);
        (report.findings.iter().filter_map(problem).collect(), skipped)
    }
}

fn hub_namespace(shop: usize) -> String {
    format!("ns-{}", SHOPS[shop].1)
}

/// Puts the Connector of hub and edge, without one label.
fn copy(server: &TestServer, shop: usize, but: &str, status: &str) {
    let mut labels = json!({});
    for (label, value) in LABELS.into_iter().zip(["cluster-up", SHOPS[shop].0, "lab"]) {
        if label != but {
            labels[format!("meta.datumapis.com/{label}")] = value.into();
        }
    }
    let annotations = json!({ "networking.datumapis.com/upstream-status": status });
    let metadata = json!({ "labels": labels, "annotations": annotations });
    server.put(connector(&hub_namespace(shop), metadata));
}

fn connector(namespace: &str, mut metadata: Value) -> Value {
    metadata["namespace"] = namespace.into();
    metadata["name"] = "lab".into();
    json!({ "apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": metadata })
}

fn delete(server: &TestServer, namespace: &str) {
    let key = ObjectKey::new(namespace, "lab");
    server.sim.lock().unwrap().remove(&server.cluster, Kind::Connector, &key);
}

/// The simulated servers have no API for permissions.
fn is_not_simulated(check: Check) -> bool {
    matches!(check, Check::Permissions | Check::LeastPrivilege)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tier_is_compared_with_the_next() {
    use Level::{Failed, Warning};
    type Mistake = (fn(&Tiers), Check, Level, Cause);
    let mistakes: [Mistake; 11] = [
        (|t| copy(&t.hub, 0, LABELS[0], "{}"), Check::Upstreams, Failed, Cause::LabelsMissing),
        (|t| copy(&t.hub, 0, LABELS[1], "{}"), Check::Upstreams, Failed, Cause::LabelsMissing),
        (|t| copy(&t.hub, 0, LABELS[2], "{}"), Check::Upstreams, Failed, Cause::LabelsMissing),
        // In part and altogether, another control plane.
        (|t| t.set_uid(0, OTHER_UID), Check::Identity, Failed, Cause::NamespaceMismatch),
        (
            |t| (0..2).for_each(|shop| t.set_uid(shop, OTHER_UID)),
            Check::Identity,
            Failed,
            Cause::NamespaceMismatch,
        ),
        // In part a warning, altogether a failure.
        (|t| delete(&t.up, SHOPS[0].0), Check::Replication, Warning, Cause::RemovalsHeld),
        (
            |t| SHOPS.into_iter().for_each(|(name, _)| delete(&t.up, name)),
            Check::Replication,
            Failed,
            Cause::RemovalsHeld,
        ),
        (|t| delete(&t.hub, &hub_namespace(0)), Check::Replication, Warning, Cause::NotReplicated),
        (
            |t| (0..2).for_each(|shop| delete(&t.hub, &hub_namespace(shop))),
            Check::Replication,
            Failed,
            Cause::NotReplicated,
        ),
        (|t| delete(&t.edge, &hub_namespace(0)), Check::Carrier, Failed, Cause::NotPlaced),
        (|t| copy(&t.edge, 0, "", "null"), Check::Carrier, Failed, Cause::NotCarried),
    ];
    for (make, of, level, cause) in mistakes {
        let tiers = Tiers::start().await;
        make(&tiers);
        let (problems, skipped) = tiers.found().await;
        assert_eq!(problems, [(of, level, cause)]);
        let may_be_skipped = |check: &Check| is_not_simulated(*check) || *check == Check::Identity;
        assert!(skipped.iter().all(may_be_skipped), "{cause:?}: {skipped:?}");
    }

    let tiers = Tiers::start().await;
    let (problems, skipped) = tiers.found().await;
    assert!(problems.is_empty() && skipped.into_iter().all(is_not_simulated), "{problems:?}");
    // A difference that goes away is being carried just then.
    copy(&tiers.edge, 0, "", "null");
    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        copy(&tiers.edge, 0, "", "{}");
    };
    let ((problems, _), ()) = tokio::join!(tiers.found(), late);
    assert_eq!(problems, []);

    // What is not reached is reported once, and nobody says that it is fine.
    tiers.hub.handle.set_mode(ServerMode::Down);
    let (problems, skipped) = tiers.found().await;
    assert_eq!(problems, [(Check::Reachable, Level::Failed, Cause::ClusterUnavailable)]);
    let of_hub = [Check::Kinds, Check::Upstreams, Check::Identity, Check::Replication];
    for check in of_hub.into_iter().chain([Check::Carrier, Check::Retention]) {
        assert!(skipped.contains(&check), "{check:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_is_proven_by_a_uid() {
    let tiers = Tiers::start().await;
    let mut config = tiers.config();
    config.clusters[0].name = "project-a".into();
    let message = async || {
        let report = check(&config, &[]).await.unwrap();
        report.findings.into_iter().find_map(|finding| finding.message).unwrap()
    };
    let proven = "Upstream project-a is configured under another name; hub objects call it up.";
    assert_eq!(message().await, proven);
    // Another upstream's namespaces prove nothing.
    (0..2).for_each(|shop| tiers.set_uid(shop, OTHER_UID));
    assert_eq!(message().await, "Hub objects name upstream up, which is not followed.");
    let unknown = check(&config, &["projekt-a".into()]).await.unwrap_err();
    assert!(unknown.contains("did you mean project-a?"), "{unknown}");
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
                "Set `touch.scope: x`: `kubectl is longer than the line that it is on`.",
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
                    ‼ trigger hub: x overwrites\u{fffd}[2J.\n    overwritten: seen\n    → Set touch.scope: x: run this.\n        kubectl is longer than the line that it is on\n\
                    × permissions hub: hub does not allow\n  throughline to patch Connector\n  objects.\n    permission_missing: no\n    → run this\n        kubectl x\n\n\
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
