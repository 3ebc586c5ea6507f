//! Projects of a Milo API server as upstreams. The test's Milo maps the paths of their control planes to
//! real API servers.

use std::path::Path;

use crate::checking::findings_of;
use crate::cluster::milo::{Milo, PROJECTS};
use crate::discovery::{flip_is_not_followed, is_left, setup};
use crate::prelude::*;

/// What `throughline check` says in this check, as `level cluster message: evidence`.
async fn found(config: &Path, check: &str) -> Vec<String> {
    let words = ["check", "--output", "json", "--config", config.to_str().unwrap()];
    let (code, out, _) = command(&words).await;
    let mut findings = findings_of(code, &out);
    findings.retain(|finding| finding["check"] == check);
    let text = |finding: &Value| {
        let word = |name: &str| finding[name].as_str().unwrap_or("-");
        let [level, cluster, message] = ["level", "cluster", "message"].map(word);
        format!("{level} {cluster} {message}: {}", word("evidence"))
    };
    findings.iter().map(text).collect()
}

fn by(milo: &Milo, join: &str) -> Value {
    json!({ "milo": { "kubeconfig": milo.kubeconfig(""), "join": join } })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn projects_of_a_milo() {
    let (testbed, fleet) = seeded(Topology::Two, Spec::of(4)).await;
    let milo = Milo::start().await;
    a_project_joins_once_it_is_needed_and_leaves_with_its_project(&testbed, &fleet, &milo).await;
    a_project_that_cannot_be_decoded_stops_no_other(&testbed, &fleet, &milo).await;
}

async fn a_project_joins_once_it_is_needed_and_leaves_with_its_project(
    testbed: &Testbed,
    fleet: &Fleet,
    milo: &Milo,
) {
    let upstream = testbed.upstream();
    milo.proxy.serve("up", &upstream.proxy);
    milo.proxy.serve("idle", &upstream.proxy);
    let config = testbed.config_file(&json!({ "clusters": [testbed.hub().config()],
        "discovery": by(milo, "needed"), "leaderElection": { "enabled": false } }));

    // No Project shows it, although its control plane answers and hub Connectors name it.
    let setup = setup(testbed, &by(milo, "needed"));
    let provoked = [Cause::ClusterUnavailable, Cause::DiscoveryFailing];
    let run = setup.provokes(&provoked).ready().await;
    milo.create("idle").await;
    run.logs("clusters listed", 1).await;
    flip_is_not_followed(fleet).await;
    // It may have been deleted before the start: the root is asked.
    run.logs("the Project does not exist any longer", 1).await;
    assert_eq!(upstream.proxy.count("", ""), 0);

    // Ready, it joins; one that nothing names does not.
    let first = milo.create("up").await;
    oracle::converges(testbed).await;
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
        let mut status: Value = serde_json::from_str(&out).unwrap();
        let Value::Array(connectors) = status["connectors"].take() else { panic!("{out}") };
        (connectors, err)
    };
    let (rows, err) = status(&[]).await;
    assert_eq!((rows.len(), err.as_str()), (fleet.spec.connectors, ""));
    assert!(rows.iter().all(|row| row["upstream"]["cluster"] == "up"), "{rows:?}");
    let (rows, err) = status(&["--upstream", "idle"]).await;
    assert!(rows.is_empty() && err.contains("idle is not shown"), "{err}");

    // The root refuses: what was known stays, and one line tells it.
    let refusing = milo.proxy.add(Rule::status(403).resource("projects"));
    milo.proxy.cut();
    run.logs("discovery lost", 1).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(testbed).await;
    // One that is over within ten seconds is not worth a line.
    let told = "cannot list its clusters: ";
    run.logs(told, 1).await;
    let refused = found(&config, "discovery").await;
    assert!(refused[0].contains("milo cannot list its clusters: 403"), "{refused:?}");
    assert!(status(&[]).await.1.contains("milo are not shown"));
    milo.proxy.remove(refusing);
    run.logs("discovery resumed", 1).await;
    assert_eq!((run.count_logged(told), run.count_logged("cluster joins")), (1, 1));

    // A Project that is being deleted keeps its control plane until it is gone.
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/wait"] } });
    let project = ("", "up");
    let root = milo.root.rest();
    root.merge(PROJECTS, project, &finalizer).await.unwrap();
    root.delete(PROJECTS, "", "up").await.unwrap();
    fleet.flip(2).await.unwrap();
    oracle::converges(testbed).await;
    root.merge(PROJECTS, project, &json!({ "metadata": { "finalizers": null } })).await.unwrap();
    is_left(&upstream.proxy).await;
    run.logs("the Project does not exist any longer", 2).await;
    flip_is_not_followed(fleet).await;
    assert!(fleet.statuses_at_hub().await.iter().all(Option::is_some), "one was cleaned up");
    let events = std::fs::read_to_string(run.event_log()).unwrap();
    assert!(events.contains(r#""event":"cluster_gone""#), "no cluster_gone in the event log");

    // Made again, it is another cluster under the old name.
    let second = milo.create("up").await;
    assert_ne!(first, second);
    oracle::converges(testbed).await;
    assert_eq!(run.count_logged("cluster joins"), 2);
    assert!(milo.proxy.strangers().is_empty(), "asked: {:?}", milo.proxy.strangers());
    run.stop().await;
}

async fn a_project_that_cannot_be_decoded_stops_no_other(
    testbed: &Testbed,
    fleet: &Fleet,
    milo: &Milo,
) {
    const OTHERS: usize = 20;
    let (upstream, root) = (testbed.upstream(), milo.root.rest());
    let break_status = async |name: &str| {
        let status = json!({ "conditions": [{ "type": "Ready", "status": 1 }] });
        root.merge_status(PROJECTS, ("", name), &status).await.unwrap();
    };
    let create = async |name: &str| {
        milo.proxy.serve(name, &upstream.proxy);
        milo.create(name).await;
    };
    // `idle` is the first of the others.
    root.delete(PROJECTS, "", "up").await.unwrap();
    create("broken").await;
    break_status("broken").await;
    for i in 2..OTHERS {
        create(&format!("project-{i}")).await;
    }
    let setup = setup(testbed, &by(milo, "all"));
    let run = setup.provokes(&[Cause::KubeconfigInvalid]).ready().await;
    run.logs("no connection can be made of it", 1).await;

    // In a watch, too: the last one comes after the list, and a broken one that has joined stays.
    create("up").await;
    run.logs("cluster joins", OTHERS).await;
    oracle::converges(testbed).await;
    break_status("up").await;
    run.logs("no connection can be made of it", 2).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(testbed).await;
    assert_eq!((run.count_logged("cluster leaves"), run.count_logged("discovery lost")), (0, 0));
    run.stop().await;
}
