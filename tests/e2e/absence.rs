//! One wrong input harms nobody: an upstream that is another control plane, or lost what it held, on
//! real API servers with 200 connectors. Nothing is written, and the reason is named.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::{ApiServer, THROUGHLINE};
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::objects::{self, UPSTREAM_STATUS, annotation, connector, status};
use crate::cluster::rest::{CONNECTORS, NAMESPACES};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline, binary};
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};

const CONNECTORS_COUNT: usize = 200;
/// Longer than the grace period, several times.
const LONG: Duration = Duration::from_secs(15);

async fn fleet() -> (Testbed, Fleet) {
    let testbed = Testbed::start(Topology::Three).await;
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(CONNECTORS_COUNT) };
    let fleet = Fleet::seed(&testbed, spec).await;
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    throughline.stop().await;
    testbed.reset_counts();
    (testbed, fleet)
}

/// Waits until every connector is held for this reason; then nothing has been written, and one Event
/// says why.
async fn all_are_held(testbed: &Testbed, throughline: &Throughline, cause: Cause) {
    eventually(&format!("all are held: {}", cause.as_str()), SOON, async || {
        let state = throughline.state().await;
        let is_of_cause = |hop: &Value| hop["hop"] == "mirrored" && hop["cause"] == cause.as_str();
        let held = state["connectors"].as_array().unwrap().iter().filter(|connector| {
            connector["state"] == "held"
                && connector["hops"].as_array().unwrap().iter().any(is_of_cause)
        });
        let held = held.count();
        ensure(held == CONNECTORS_COUNT, || format!("{held} of them; {}", state["counts"]))
    })
    .await;
    tokio::time::sleep(LONG).await;
    assert_eq!(testbed.writes().len(), 0, "{:#?}", testbed.writes());
    let events = testbed.events();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert!(throughline.logged(cause.as_str()));
    let url = format!("http://{}", throughline.admin());
    let (code, said) = ask(&["status", "--state", &url]);
    assert!(code == 1 && said.contains(cause.as_str()), "{said}");
}

async fn all_annotations_stay(fleet: &Fleet) {
    let connectors = fleet.hub.items(CONNECTORS).await.unwrap();
    let annotated = connectors.iter().filter(|c| annotation(c, UPSTREAM_STATUS).is_some());
    assert_eq!(annotated.count(), CONNECTORS_COUNT);
}

/// The exit code of a command, and what it prints.
pub(crate) fn ask(words: &[&str]) -> (i32, String) {
    let mut command = Command::new(binary());
    command.args(words).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// The evidence of the finding with this cause, in what `check` prints as JSON.
fn found(said: &str, cause: &str) -> String {
    let report: Value = serde_json::from_str(said).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["cause"] == cause);
    found.map_or_else(String::new, |finding| finding["evidence"].to_string())
}

/// A file with the configuration of a test's clusters.
fn config_of(testbed: &Testbed) -> String {
    let clusters: Vec<_> = testbed.clusters.iter().map(|cluster| cluster.config()).collect();
    let election = json!({ "leaseNamespace": "default" });
    let path = testbed.hub().server.folder().join("config.yaml");
    let config = json!({ "clusters": clusters, "leaderElection": election });
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The configuration in which the upstream's name leads to this kubeconfig.
fn with_upstream(testbed: &Testbed, kubeconfig: &Path) -> Value {
    let clusters = testbed.clusters.iter().map(|cluster| {
        let mut config = cluster.config();
        if cluster.roles.contains(&"upstream") {
            config["kubeconfig"] = json!(kubeconfig);
        }
        config
    });
    json!({ "clusters": clusters.collect::<Vec<_>>() })
}

/// A typo in a kubeconfig: a control plane that exists, answers 200 and holds nothing; then one that
/// holds namespaces and Connectors of the same names, all of them offline.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn another_control_plane_writes_nothing() {
    let (testbed, fleet) = fleet().await;
    let other = ApiServer::start("other").await;
    objects::install(other.rest(), &["upstream"]).await;
    let config = with_upstream(&testbed, &other.kubeconfig(THROUGHLINE));
    let file = other.folder().join("config.yaml");
    let mut short = config.clone();
    short["leaderElection"] = json!({ "leaseNamespace": "default" });
    std::fs::write(&file, short.to_string()).unwrap();
    let file = file.to_str().unwrap();
    for cause in [Cause::NamespaceMissing, Cause::NamespaceMismatch] {
        if cause == Cause::NamespaceMismatch {
            for i in 0..CONNECTORS_COUNT {
                let (namespace, name) = fleet.upstream_key(i);
                let made = json!({ "metadata": { "name": namespace } });
                let _ = other.rest().create(NAMESPACES, made).await;
                other.rest().create(CONNECTORS, connector(namespace, &name)).await.unwrap();
                let offline = status(false, 1);
                let key = (namespace, &*name);
                other.rest().merge_status(CONNECTORS, key, &offline).await.unwrap();
            }
        }
        testbed.reset_counts();
        let throughline = Setup::of(&testbed).set(&config).ready().await;
        all_are_held(&testbed, &throughline, cause).await;
        let (_, said) = ask(&["status", "--config", file]);
        assert!(said.contains(cause.as_str()), "{said}");
        let (code, said) = ask(&["check", "--output", "json", "--config", file]);
        assert_eq!(code, 1, "{said}");
        assert!(found(&said, cause.as_str()).contains("200 of 200 hub Connectors"), "{said}");
        throughline.stop().await;
    }
    all_annotations_stay(&fleet).await;
    // With the right one everything is as before.
    testbed.reset_counts();
    let throughline = Setup::of(&testbed).ready().await;
    oracle::ends_well(&testbed, throughline).await;
    assert_eq!(testbed.writes().len(), 0);
}

/// While throughline runs, its upstream's list comes back with half of the objects; its etcd is
/// restored from a backup; and its etcd is lost, and set up again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_upstream_that_lost_its_objects_writes_nothing() {
    let (testbed, fleet) = fleet().await;
    let up = testbed.upstream();
    let settings = json!({ "watch": { "timeoutMs": 5_000, "backoffMaxMs": 2_000 } });
    let throughline = Setup::of(&testbed)
        .set(&settings)
        .provokes(&[Cause::ClusterUnavailable, Cause::PermissionMissing, Cause::KindNotServed])
        .ready()
        .await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();

    // Half a list, with 200.
    let mut half = up.rest().get(&CONNECTORS.path("")).await.unwrap();
    half["items"].as_array_mut().unwrap().truncate(CONNECTORS_COUNT / 2);
    let list = Rule::new(Fault::Answer(half)).method("GET").resource("connectors").watches(false);
    let list = up.proxy.add(list);
    let relist = || {
        up.proxy.add(Rule::new(Fault::Expire).resource("connectors").watches(true).times(1));
        up.proxy.cut();
    };
    relist();
    eventually("half a list is held", SOON, async || {
        let metrics = throughline.metrics().await;
        let held = metrics.get(r#"throughline_causes_open{cause="removals_held",cluster="up"}"#);
        ensure(held == Some(&100.0), || format!("{held:?}"))
    })
    .await;
    tokio::time::sleep(LONG).await;
    assert_eq!(testbed.writes().len(), 0, "{:#?}", testbed.writes());
    assert_eq!(testbed.events().len(), 1, "{:#?}", testbed.events());
    let config = config_of(&testbed);
    let url = format!("http://{}", throughline.admin());
    let (code, said) = ask(&["status", "--state", &url]);
    assert!(code == 1 && said.contains("Connectors of up vanished at once"), "{said}");
    let (_, said) = ask(&["check", "--output", "json", "--config", &config]);
    assert!(found(&said, "removals_held").contains("100 upstream, 200 at the hub"), "{said}");
    // A check asks for its permissions, by POST.
    testbed.reset_counts();
    up.proxy.remove(list);
    relist();
    eventually("the list is whole again", SOON, async || {
        let counts = throughline.state().await["counts"].clone();
        ensure(counts["ok"] == CONNECTORS_COUNT, || counts.to_string())
    })
    .await;

    // One object can't be read, and 100 are missing beside it.
    let mut list = up.rest().get(&CONNECTORS.path("")).await.unwrap();
    list["items"].as_array_mut().unwrap().truncate(CONNECTORS_COUNT / 2);
    list["items"][0]["metadata"]["labels"] = json!("not a map");
    let list = Rule::new(Fault::Answer(list)).method("GET").resource("connectors").watches(false);
    let list = up.proxy.add(list);
    relist();
    eventually("an unreadable object holds them", SOON, async || {
        let metrics = throughline.metrics().await;
        let open =
            metrics.get(r#"throughline_causes_open{cause="object_unreadable",cluster="up"}"#);
        ensure(open == Some(&1.0), || format!("{open:?}"))
    })
    .await;
    tokio::time::sleep(LONG).await;
    assert_eq!(testbed.writes().len(), 0, "{:#?}", testbed.writes());
    up.proxy.remove(list);
    relist();
    eventually("everything can be read again", SOON, async || {
        let counts = throughline.state().await["counts"].clone();
        ensure(counts["ok"] == CONNECTORS_COUNT, || counts.to_string())
    })
    .await;

    // A backup of today, restored after everything has moved.
    up.server.back_up().await;
    for i in 0..CONNECTORS_COUNT {
        fleet.move_node(i).await.unwrap();
    }
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    up.server.restore().await;
    all_are_held(&testbed, &throughline, Cause::UpstreamRestored).await;
    // What changes from now on is new.
    fleet.flip(0).await.unwrap();
    eventually("a flip after the restore is mirrored", SOON, async || {
        let mirrored =
            testbed.writes().iter().filter(|w| w.target.resource == "connectors").count();
        ensure(mirrored == 1, || format!("{mirrored} mirrors"))
    })
    .await;

    // Lost, and set up again: nothing but the CRDs and the permissions.
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    up.server.lose_everything().await;
    objects::install(up.rest(), up.roles).await;
    all_are_held(&testbed, &throughline, Cause::NamespaceMissing).await;
    let (code, said) = ask(&["check", "--output", "json", "--config", &config]);
    let evidence = found(&said, "namespace_missing");
    assert!(code == 1 && evidence.contains("200 of 200 hub Connectors"), "{said}");
    all_annotations_stay(&fleet).await;
    throughline.stop().await;
}
