//! Projects of a Milo API server as upstreams. The test's Milo maps the paths of their control planes to
//! real API servers.

use std::path::Path;

use crate::checking_world::findings;
use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::milo::{CONTROL_PLANES, Milo, PROJECTS};
use crate::cluster::rights;
use crate::cluster::throughline::merge_json;
use crate::discovery::{flip_is_not_followed, is_left, setup, testbed_and_fleet};
use crate::prelude::*;

/// What `throughline check` says in this check, as `level cluster message: evidence`.
async fn found(config: &Path, check: &str) -> Vec<String> {
    let mut findings = findings(config).await;
    findings.retain(|finding| finding["check"] == check);
    let text = |finding: &Value| {
        let word = |name: &str| finding[name].as_str().unwrap_or("-");
        let [level, cluster, message] = ["level", "cluster", "message"].map(word);
        format!("{level} {cluster} {message}: {}", word("evidence"))
    };
    findings.iter().map(text).collect()
}

fn by(milo: &Milo, more: &Value) -> Value {
    let mut config = json!({ "kubeconfig": milo.kubeconfig(THROUGHLINE) });
    merge_json(&mut config, more);
    json!({ "milo": config })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_project_joins_once_it_is_needed_and_leaves_with_its_project() {
    let (testbed, fleet) = testbed_and_fleet().await;
    let (milo, upstream) = (Milo::start().await, testbed.upstream());
    rights::grant(milo.root.rest(), &["discovery-milo"]).await.unwrap();
    milo.serve("up", &upstream.proxy).await;
    milo.serve("idle", &upstream.proxy).await;
    let config = testbed.config_file(&json!({ "clusters": [testbed.hub().config()],
        "discovery": by(&milo, &json!({})), "leaderElection": { "enabled": false } }));

    // No Project shows it, although its control plane answers and hub Connectors name it.
    let setup = setup(&testbed, &by(&milo, &json!({})));
    let run = setup.provokes(&[Cause::DiscoveryFailing]).ready().await;
    milo.create("idle").await;
    run.logs("clusters listed", 1).await;
    flip_is_not_followed(&fleet).await;
    // It may have been deleted before the start: the root is asked.
    run.logs("the Project does not exist any longer", 1).await;
    assert_eq!(upstream.proxy.count("", ""), 0);

    // Ready, it joins; one that nothing names does not.
    let first = milo.create("up").await;
    oracle::converges(&testbed).await;
    assert_eq!(run.count_logged("cluster joins"), 1);

    // The commands look at what a run joins.
    let listed = found(&config, "discovery").await;
    assert_eq!(listed, ["passed - -: milo: 2 clusters, 2 ready; a run joins 1"]);
    let reached = found(&config, "reachable").await;
    let is_of = |i: usize, cluster| reached[i].starts_with(&format!("passed {cluster} "));
    assert!(reached.len() == 2 && is_of(0, "down") && is_of(1, "up"), "{reached:?}");
    let status = async |more: &[&str]| {
        let words =
            [&["status", "--output", "json", "--config", config.to_str().unwrap()], more].concat();
        let (_, out, err) = command(&words).await;
        let status: Value = serde_json::from_str(&out).unwrap();
        let connectors = status["connectors"].as_array().unwrap().clone();
        (connectors, err)
    };
    let (rows, err) = status(&[]).await;
    assert_eq!((rows.len(), err.as_str()), (fleet.spec.connectors, ""));
    assert!(rows.iter().all(|row| row["upstream"]["cluster"] == "up"), "{rows:?}");
    let (rows, err) = status(&["--upstream", "idle"]).await;
    assert!(rows.is_empty() && err.contains("idle is not shown"), "{err}");

    // The root refuses: what was known stays, and one line tells it.
    let refusing = milo.root_proxy.add(Rule::status(403).resource("projects"));
    milo.root_proxy.cut();
    run.logs("discovery lost", 1).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(&testbed).await;
    // One that is over within ten seconds is not worth a line.
    let told = "cannot list its clusters: ";
    run.logs(told, 1).await;
    let refused = found(&config, "discovery").await;
    assert!(refused[0].contains("milo cannot list its clusters: 403"), "{refused:?}");
    assert!(status(&[]).await.1.contains("milo are not shown"));
    milo.root_proxy.remove(refusing);
    run.logs("discovery resumed", 1).await;
    assert_eq!((run.count_logged(told), run.count_logged("cluster joins")), (1, 1));

    // A Project that is being deleted keeps its control plane until it is gone.
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/wait"] } });
    let project = ("", "up");
    let root = milo.root.rest();
    root.merge(PROJECTS, project, &finalizer).await.unwrap();
    milo.delete("up").await;
    fleet.flip(2).await.unwrap();
    oracle::converges(&testbed).await;
    let none = json!({ "metadata": { "finalizers": null } });
    root.merge(PROJECTS, project, &none).await.unwrap();
    is_left(&upstream.proxy).await;
    run.logs("the Project does not exist any longer", 2).await;
    flip_is_not_followed(&fleet).await;
    assert!(
        fleet.statuses_at_hub().await.iter().all(Option::is_some),
        "a hub object was cleaned up"
    );
    let events = std::fs::read_to_string(run.event_log()).unwrap();
    assert!(events.contains(r#""event":"cluster_gone""#), "no cluster_gone in the event log");

    // Made again, it is another cluster under the old name.
    let second = milo.create("up").await;
    assert_ne!(first, second);
    oracle::converges(&testbed).await;
    assert_eq!(run.count_logged("cluster joins"), 2);
    assert!(milo.strangers().is_empty(), "asked: {:?}", milo.strangers());
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_project_that_cannot_be_decoded_stops_no_other() {
    const OTHERS: usize = 20;
    let (testbed, fleet) = testbed_and_fleet().await;
    let (milo, upstream) = (Milo::start().await, testbed.upstream());
    let root = milo.root.rest();
    rights::grant(root, &["discovery-milo"]).await.unwrap();
    let break_status = async |name: &str| {
        let status = json!({ "conditions": [{ "type": "Ready", "status": 1 }] });
        root.merge_status(PROJECTS, ("", name), &status).await.unwrap();
    };
    milo.serve("broken", &upstream.proxy).await;
    milo.create("broken").await;
    break_status("broken").await;
    for i in 1..OTHERS {
        let name = format!("project-{i}");
        milo.serve(&name, &upstream.proxy).await;
        milo.create(&name).await;
    }
    let setup = setup(&testbed, &by(&milo, &json!({ "join": "all" })));
    let run = setup.provokes(&[Cause::KubeconfigInvalid]).ready().await;
    run.logs("no connection can be made of it", 1).await;

    // In a watch, too: the last one comes after the list, and a broken one that has joined stays.
    milo.serve("up", &upstream.proxy).await;
    milo.create("up").await;
    run.logs("cluster joins", OTHERS).await;
    oracle::converges(&testbed).await;
    break_status("up").await;
    run.logs("no connection can be made of it", 2).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    assert_eq!((run.count_logged("cluster leaves"), run.count_logged("discovery lost")), (0, 0));
    run.stop().await;
}

/// With `internalServiceDiscovery`, ProjectControlPlanes show the projects, each at its Service. None of
/// these resolves here. (No other test lists them.)
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_infrastructure_cluster_shows_projects_by_their_control_planes() {
    let (testbed, _fleet) = testbed_and_fleet().await;
    let milo = Milo::start().await;
    let root = milo.root.rest();
    rights::grant(root, &["discovery-milo"]).await.unwrap();
    for (name, condition) in [("up", "ControlPlaneReady"), ("other", "Ready")] {
        let object = json!({ "metadata": { "namespace": "default", "name": name } });
        root.create(CONTROL_PLANES, object).await.unwrap();
        let status = json!({ "conditions": [{ "type": condition, "status": "True" }] });
        root.merge_status(CONTROL_PLANES, ("default", name), &status).await.unwrap();
    }
    let config = testbed.config_file(&json!({ "clusters": [testbed.hub().config()],
        "discovery": by(&milo, &json!({ "internalServiceDiscovery": true })),
        "leaderElection": { "enabled": false } }));
    let listed = found(&config, "discovery").await;
    assert_eq!(listed, ["passed - -: milo: 2 clusters, 1 ready, 1 not ready; a run joins 1"]);
    let reached = found(&config, "reachable").await;
    assert!(reached[1].starts_with("failed up The API server of up does not answer"));
}
