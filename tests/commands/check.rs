//! The permissions that a configuration needs, what `check` finds on simulated API servers, and how that is
//! printed. (tests/e2e/checking.rs has every check on real ones.)

use std::time::Duration;

use expect_test::expect_file;
use throughline::check::permissions::{RequiredPermission, required_permissions, split_resource};
use throughline::check::{Check, CheckReport, Finding, Level, check};
use throughline::config::{ClusterConfig, Config, ConfigSource, KubeconfigDirConfig};
use throughline::report::{self, ReportOptions};
use throughline_sim::apiserver::ServerMode;

use crate::config::load;
use crate::program::Place;
use crate::sim_apiserver::{self, TestServer};
use crate::stage::*;
use crate::temp_folder::temp_folder;

/// `CLUSTER: RESOURCE@NAMESPACE VERB` of each.
fn permission_lines(config: &Config) -> Vec<String> {
    let lease_namespace = config.leader_election.lease_namespace.as_deref().unwrap_or("default");
    let of_cluster = |cluster: &ClusterConfig| {
        let needs = required_permissions(config, &cluster.name, &cluster.roles, lease_namespace);
        let line = |need: RequiredPermission| {
            let place = need.namespace.map_or(String::new(), |namespace| format!("@{namespace}"));
            let (plural, _) = split_resource(need.resource);
            format!("{}: {plural}{place} {}", cluster.name, need.verb)
        };
        needs.into_iter().map(line).collect::<Vec<_>>()
    };
    let mut lines: Vec<_> = config.clusters.iter().flat_map(of_cluster).collect();
    lines.sort();
    lines
}

/// Of three tiers, the permissions; of each setting, those that it takes away and those that it adds.
#[test]
fn each_role_and_feature_needs_its_verbs_and_no_others() {
    const TIERS: &str = "leaderElection: {leaseNamespace: tl}
clusters: [{name: up, roles: [upstream]}, {name: hub, roles: [hub]}, {name: edge, roles: [edge]}]
";
    let permissions = |set: &[&str]| permission_lines(&load(TIERS, set).unwrap());
    let all = permissions(&[]);
    let mut text = all.join("\n") + "\n";
    for set in [
        &["touch.enabled=false"][..],
        &["events.enabled=false"],
        &["discovery.kubeconfigSecrets={cluster: hub, namespace: fleet}"],
        &["leaderElection.enabled=false"],
        &["orphans.mode=off"],
        &["orphans.mode=delete", "eventLog.file=log"],
        &["orphans.mode=delete", "dryRun=true"],
        &["clusters=[{name: edge, roles: [edge]}]"],
        // With no upstream there is nothing to mirror.
        &["clusters=[{name: hub, roles: [hub]}, {name: edge, roles: [edge]}]"],
        &["clusters=[{name: all, roles: [upstream, hub, edge]}]"],
    ] {
        let some = permissions(set);
        let less = all.iter().filter(|line| !some.contains(line)).map(|line| format!("- {line}\n"));
        let more = some.iter().filter(|line| !all.contains(line)).map(|line| format!("+ {line}\n"));
        text += &format!("\n{}\n{}", set.join(" "), less.chain(more).collect::<String>());
    }
    expect_file!["permissions.txt"].assert_eq(&text);
}

/// Three tiers with two connectors, whose statuses have arrived everywhere.
struct Tiers {
    up: TestServer,
    hub: TestServer,
    edge: TestServer,
    config: Config,
}

const SHOPS: [Tenant; 2] = [UP, NEIGHBOUR];

impl Tiers {
    async fn start() -> Self {
        let tiers = [("up", &[Role::Upstream][..]), ("hub", &[Role::Hub]), ("edge", &[Role::Edge])];
        let off = json!({ "enabled": false });
        let config = json!({ "leaderElection": off, "touch": off });
        let (place, [up, hub, edge]) = Place::serve(tiers, sim_apiserver::START, config).await;
        for shop in SHOPS {
            up.put(shop.namespace());
            up.put(shop.connector("lab", None));
            hub.put(shop.copy("lab", Some("{}")));
            edge.put(shop.copy("lab", Some("{}")));
        }
        let file = Some(place.path("config.yaml"));
        let config = ConfigSource { file, ..ConfigSource::default() }.load().unwrap();
        Self { up, hub, edge, config }
    }

    fn replace_namespaces(&self, shops: &[Tenant]) {
        for shop in shops {
            self.up.put(Tenant { uid: OTHER_UID, ..*shop }.namespace());
        }
    }

    fn remove_label(&self, label: &str) {
        let key = format!("meta.datumapis.com/upstream-{label}");
        let mut copy = UP.copy("lab", Some("{}"));
        copy["metadata"]["labels"].as_object_mut().unwrap().remove(&key).unwrap();
        self.hub.put(copy);
    }

    /// A source of clusters, which shows none, takes the place of a configured one.
    fn discover(&mut self, place: usize, role: Role) {
        self.config.clusters.remove(place);
        let path = temp_folder("no-clusters");
        let source = KubeconfigDirConfig { path, roles: vec![role] };
        self.config.discovery.kubeconfig_dir = Some(source);
    }

    fn delete(&self, server: &TestServer, shops: &[Tenant]) {
        for shop in shops {
            let is_up = server.cluster == self.up.cluster;
            let namespace = if is_up { shop.namespace.into() } else { shop.hub_namespace() };
            let key = NamespacedName::new(&namespace, "lab");
            server.sim.lock().unwrap().remove(&server.cluster, Kind::Connector, &key);
        }
    }

    /// What did not pass. The simulated servers have no API for permissions.
    async fn found(&self) -> CheckReport {
        let mut report = check(&self.config, &[]).await.unwrap();
        assert_eq!(self.hub.handle.writes(), 0);
        report.findings.retain(|finding| {
            let is_simulated =
                ![Check::Permissions, Check::LeastPrivilege].contains(&finding.check);
            is_simulated && finding.level != Level::Passed
        });
        report
    }
}

fn text(report: &CheckReport, color: bool) -> String {
    let mut out = Vec::new();
    report::check(report, &ReportOptions { color, width: 60, connector: None }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Each mistake is found alone; the golden has what is printed of it.
#[tokio::test(flavor = "multi_thread")]
async fn each_tier_is_compared_with_the_next() {
    type Mistake = (&'static str, fn(&mut Tiers));
    let mistakes: [Mistake; 16] = [
        ("no label with the cluster", |t| t.remove_label("cluster-name")),
        ("no label with the namespace", |t| t.remove_label("namespace")),
        ("no label with the name", |t| t.remove_label("name")),
        ("another uid", |t| t.replace_namespaces(&[UP])),
        ("another control plane", |t| t.replace_namespaces(&SHOPS)),
        ("one is missing upstream", |t| t.delete(&t.up, &[UP])),
        ("all are missing upstream", |t| t.delete(&t.up, &SHOPS)),
        ("one is missing at the hub", |t| t.delete(&t.hub, &[UP])),
        ("all are missing at the hub", |t| t.delete(&t.hub, &SHOPS)),
        ("one is missing at the edge", |t| t.delete(&t.edge, &[UP])),
        ("the edge has another annotation", |t| _ = t.edge.put(UP.copy("lab", Some("null")))),
        ("a wrong name, as a uid proves", |t| t.config.clusters[0].name = "project-a".into()),
        ("another control plane, which proves nothing", |t| {
            t.config.clusters[0].name = "project-a".into();
            t.replace_namespaces(&SHOPS);
        }),
        ("discovery shows no edge", |t| t.discover(2, Role::Edge)),
        ("discovery shows no upstream", |t| t.discover(0, Role::Upstream)),
        ("discovery shows no upstream, and the hub has no Connector", |t| {
            t.discover(0, Role::Upstream);
            t.delete(&t.hub, &SHOPS);
        }),
    ];
    let mut printed = String::new();
    for (name, make) in mistakes {
        let mut tiers = Tiers::start().await;
        make(&mut tiers);
        printed += &format!("## {name}\n\n{}\n", text(&tiers.found().await, false));
    }
    expect_file!["check.txt"].assert_eq(&printed);

    let tiers = Tiers::start().await;
    let unknown = check(&tiers.config, &["upp".into()]).await.unwrap_err().to_string();
    assert!(unknown.contains("did you mean up?"), "{unknown}");
    let report = tiers.found().await;
    assert!(report.findings.is_empty() && report.is_passed(), "{report:#?}");
    assert_eq!(text(&report, true), "\n\x1b[32m√\x1b[0m no check failed, no warnings\n");
    // A difference that goes away is being carried just then.
    tiers.edge.put(UP.copy("lab", Some("null")));
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tiers.edge.put(UP.copy("lab", Some("{}")));
    };
    let (report, ()) = tokio::join!(tiers.found(), late);
    assert!(report.findings.is_empty(), "{report:#?}");

    // What is not reached is reported once, and nobody says that it is fine.
    tiers.hub.handle.set_mode(ServerMode::Down);
    let CheckReport { findings } = tiers.found().await;
    let causes: Vec<_> =
        findings.iter().filter_map(|f| Some((f.check, f.level, f.cause?))).collect();
    assert_eq!(causes, [(Check::Reachable, Level::Failed, Cause::ClusterUnavailable)]);
    let of_hub = [Check::Kinds, Check::Upstreams, Check::Identity, Check::Replication];
    for check in of_hub.into_iter().chain([Check::Carrier, Check::Retention]) {
        let is_skipped = |f: &Finding| f.check == check && f.level == Level::Skipped;
        assert!(findings.iter().any(is_skipped), "{check:?}");
    }
}

/// The page lists the checks in their order, each with causes that exist.
#[test]
fn check_md_lists_every_check() {
    let page = std::fs::read_to_string("docs/reference/check.md").unwrap();
    let (_, table) = page.split_once("\n## The checks\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let checks: Vec<_> = rows.iter().map(|row| row.split('`').nth(1).unwrap()).collect();
    assert_eq!(checks, Check::ALL.map(Check::as_str));
    for row in rows {
        for cause in row.split('|').nth(3).unwrap().split('`').skip(1).step_by(2) {
            assert!(Cause::parse(cause).is_some(), "{cause}");
        }
    }
}
