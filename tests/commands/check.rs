//! The permissions that a configuration needs, what `check` finds on simulated API servers, and how that is
//! printed. (tests/e2e/checking.rs has every check on real ones.)

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::check::permissions::{PermissionScope, required_permissions, split_resource};
use throughline::check::{Check, CheckReport, Finding, Level, check};
use throughline::config::Config;
use throughline::core::contract::cause::Cause;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Role};
use throughline::report::{self, ReportOptions};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::ServerMode;

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
    // Each verb once, whatever the roles.
    let all = required_permissions(&config(&[("all", &["upstream", "hub", "edge"])], &none));
    let mut unique: Vec<_> = all.iter().map(|n| (n.resource, &n.scope, n.verb)).collect();
    unique.dedup();
    assert_eq!(unique.len(), all.len());
}

/// Three tiers with two connectors, whose statuses have arrived everywhere.
struct Tiers {
    up: TestServer,
    hub: TestServer,
    edge: TestServer,
    config: Config,
    folder: PathBuf,
}

/// The upstream namespaces, each with a Connector.
const SHOPS: [(&str, &str); 2] = [
    ("shop-1", "00000000-0000-0000-0000-000000000001"),
    ("shop-2", "00000000-0000-0000-0000-000000000002"),
];
const OTHER_UID: &str = "00000000-0000-0000-0000-000000000003";
const LABELS: [&str; 3] = ["upstream-cluster-name", "upstream-namespace", "upstream-name"];

fn hub_namespace((_, uid): (&str, &str)) -> String {
    format!("ns-{uid}")
}

/// A Connector of hub and edge, without one label.
fn copied(shop: (&str, &str), but: &str, status: &str) -> Value {
    let mut labels = json!({});
    for (label, value) in LABELS.into_iter().zip(["cluster-up", shop.0, "lab"]) {
        if label != but {
            labels[format!("meta.datumapis.com/{label}")] = value.into();
        }
    }
    connector(
        &hub_namespace(shop),
        json!({ "labels": labels,
            "annotations": { "networking.datumapis.com/upstream-status": status } }),
    )
}

fn connector(namespace: &str, mut metadata: Value) -> Value {
    metadata["namespace"] = namespace.into();
    metadata["name"] = "lab".into();
    json!({ "apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": metadata })
}

fn namespace(name: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "uid": uid } })
}

impl Tiers {
    async fn start() -> Self {
        let tiers = [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)];
        let specs = tiers.map(|(name, role)| ClusterSpec { name: name.into(), roles: vec![role] });
        let mut sim = SimClusters::new(&specs, 0);
        sim.advance(START);
        let sim = Arc::new(Mutex::new(sim));
        let serve = async |name: &str| serve_cluster(&sim, ClusterName::from(name)).await;
        let (up, hub, edge) = (serve("up").await, serve("hub").await, serve("edge").await);
        let url = up.handle.url();
        let port = url.rsplit(':').next().unwrap();
        let folder = std::env::temp_dir().join(format!("throughline-check-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let clusters = [(&up, "upstream"), (&hub, "hub"), (&edge, "edge")].map(|(server, role)| {
            let name = server.cluster.as_str();
            json!({ "name": name, "roles": [role], "kubeconfig": server.kubeconfig(&folder) })
        });
        let config = json!({ "clusters": clusters, "leaderElection": { "enabled": false },
            "touch": { "enabled": false } });
        let config = serde_json::from_value(config).unwrap();
        let tiers = Self { up, hub, edge, config, folder };
        for shop in SHOPS {
            tiers.up.put(namespace(shop.0, shop.1));
            tiers.up.put(connector(shop.0, json!({})));
            tiers.hub.put(copied(shop, "", "{}"));
            tiers.edge.put(copied(shop, "", "{}"));
        }
        tiers
    }

    async fn delete(server: &TestServer, namespace: &str) {
        let path = "/apis/networking.datumapis.com/v1alpha1/namespaces";
        let path = format!("{path}/{namespace}/connectors/lab");
        assert_eq!(server.send("DELETE", &path, &Value::Null).await.0, 200);
    }

    /// Check, level and cause of what did not pass, and the checks that were skipped.
    async fn found(&self) -> (Vec<(Check, Level, Cause)>, Vec<Check>) {
        let report = check(&self.config, &[]).await.unwrap();
        let problem = |f: &Finding| Some((f.check, f.level, f.cause?));
        let skipped = report.findings.iter().filter(|f| f.level == Level::Skipped);
        let skipped = skipped.map(|finding| finding.check).collect();
        (report.findings.iter().filter_map(problem).collect(), skipped)
    }
}

impl Drop for Tiers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What the simulated servers do not have, in each of the three clusters.
const NOT_SIMULATED: [Check; 6] = [
    Check::Permissions,
    Check::Permissions,
    Check::Permissions,
    Check::LeastPrivilege,
    Check::LeastPrivilege,
    Check::LeastPrivilege,
];

#[tokio::test(flavor = "multi_thread")]
async fn each_tier_is_compared_with_the_next() {
    use Level::{Failed, Warning};
    let tiers = Tiers::start().await;
    assert_eq!(tiers.found().await, (vec![], NOT_SIMULATED.to_vec()));
    let only = async |expected: (Check, Level, Cause)| {
        let (problems, mut skipped) = tiers.found().await;
        skipped.retain(|check| *check != Check::Identity);
        assert_eq!((problems, skipped), (vec![expected], NOT_SIMULATED.to_vec()));
    };
    let [first, _] = SHOPS;

    for label in LABELS {
        tiers.hub.put(copied(first, label, "{}"));
        only((Check::Upstreams, Failed, Cause::LabelsMissing)).await;
    }
    tiers.hub.put(copied(first, "", "{}"));

    // In part and altogether, another control plane.
    for (name, uid) in SHOPS {
        tiers.up.put(namespace(name, OTHER_UID));
        only((Check::Identity, Failed, Cause::NamespaceMismatch)).await;
        assert_ne!(uid, OTHER_UID);
    }
    for (name, uid) in SHOPS {
        tiers.up.put(namespace(name, uid));
    }

    // In part a warning, altogether a failure.
    for (shop, level) in SHOPS.into_iter().zip([Warning, Failed]) {
        Tiers::delete(&tiers.up, shop.0).await;
        only((Check::Replication, level, Cause::RemovalsHeld)).await;
    }
    for (name, _) in SHOPS {
        tiers.up.put(connector(name, json!({})));
    }
    for (shop, level) in SHOPS.into_iter().zip([Warning, Failed]) {
        Tiers::delete(&tiers.hub, &hub_namespace(shop)).await;
        only((Check::Replication, level, Cause::NotReplicated)).await;
    }
    for shop in SHOPS {
        tiers.hub.put(copied(shop, "", "{}"));
    }

    Tiers::delete(&tiers.edge, &hub_namespace(first)).await;
    only((Check::Carrier, Failed, Cause::NotPlaced)).await;
    tiers.edge.put(copied(first, "", "null"));
    only((Check::Carrier, Failed, Cause::NotCarried)).await;
    // A difference that goes away is being carried just then.
    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        tiers.edge.put(copied(first, "", "{}"));
    };
    let ((problems, _), ()) = tokio::join!(tiers.found(), late);
    assert_eq!(problems, []);

    // What is not reached is reported once, and nobody says that it is fine.
    tiers.hub.handle.set_mode(ServerMode::Down);
    let (problems, skipped) = tiers.found().await;
    assert_eq!(problems, [(Check::Reachable, Failed, Cause::ClusterUnavailable)]);
    for check in [Check::Kinds, Check::Upstreams, Check::Identity, Check::Replication] {
        assert!(skipped.contains(&check), "{check:?}");
    }
    assert!(skipped.contains(&Check::Carrier) && skipped.contains(&Check::Retention));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_is_proven_by_a_uid() {
    let mut tiers = Tiers::start().await;
    tiers.config.clusters[0].name = "project-a".into();
    let report = check(&tiers.config, &[]).await.unwrap();
    let found: Vec<_> = report.findings.iter().filter_map(|f| f.message.as_deref()).collect();
    assert_eq!(
        found,
        ["Upstream project-a is configured under another name; hub objects call it up."]
    );
    // Another upstream's namespaces prove nothing.
    for (name, _) in SHOPS {
        tiers.up.put(namespace(name, OTHER_UID));
    }
    let report = check(&tiers.config, &[]).await.unwrap();
    let mut found = report.findings.iter().filter_map(|f| f.message.as_deref());
    assert_eq!(found.next(), Some("Hub objects name upstream up, which is not followed."));
    let unknown = check(&tiers.config, &["projekt-a".into()]).await.unwrap_err();
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
