//! Projects of a Milo API server as upstreams. The test's Milo maps the paths of their control planes to
//! real API servers.

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::faults::Rule;
use crate::cluster::milo::Milo;
use crate::cluster::rights;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::discovery::{
    annotations, flip_is_not_followed, is_left, is_logged, logged, setup, testbed_and_fleet,
};

const LABEL: &str = "meta.datumapis.com/upstream-cluster-name";

fn by(milo: &Milo, more: &Value) -> Value {
    let mut config = json!({ "kubeconfig": milo.kubeconfig(THROUGHLINE) });
    crate::cluster::throughline::merge_json(&mut config, more);
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

    // No Project shows it, although its control plane answers and hub Connectors name it.
    let setup = setup(&testbed, &by(&milo, &json!({})));
    let run = setup.provokes(&[Cause::DiscoveryFailing]).ready().await;
    milo.create("idle").await;
    is_logged(&run, "clusters listed", 1).await;
    flip_is_not_followed(&fleet).await;
    // It may have been deleted before the start: the root is asked.
    is_logged(&run, "the Project does not exist any longer", 1).await;
    assert_eq!(upstream.proxy.count("", ""), 0);

    // Ready, it joins; one that nothing names does not.
    let first = milo.create("up").await;
    oracle::converges(&testbed).await;
    assert_eq!(logged(&run, "cluster joins"), 1);

    // The root refuses: what was known stays, and one line tells it.
    let refusing = milo.root_proxy.add(Rule::status(403).resource("projects"));
    milo.root_proxy.cut();
    is_logged(&run, "discovery lost", 1).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(&testbed).await;
    // One that is over within ten seconds is not worth a line.
    let told = "cannot list its clusters: ";
    is_logged(&run, told, 1).await;
    milo.root_proxy.remove(refusing);
    is_logged(&run, "discovery resumed", 1).await;
    assert_eq!((logged(&run, told), logged(&run, "cluster joins")), (1, 1));

    // A Project that is being deleted keeps its control plane until it is gone.
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/wait"] } });
    let project = ("", "up");
    let root = milo.root.rest();
    root.merge(crate::cluster::milo::PROJECTS, project, &finalizer).await.unwrap();
    milo.delete("up").await;
    fleet.flip(2).await.unwrap();
    oracle::converges(&testbed).await;
    let none = json!({ "metadata": { "finalizers": null } });
    root.merge(crate::cluster::milo::PROJECTS, project, &none).await.unwrap();
    is_left(&upstream.proxy).await;
    is_logged(&run, "the Project does not exist any longer", 2).await;
    flip_is_not_followed(&fleet).await;
    assert!(annotations(&fleet).await.iter().all(Option::is_some), "a hub object was cleaned up");
    let events = std::fs::read_to_string(run.event_log()).unwrap();
    assert!(events.contains(r#""event":"cluster_gone""#), "no cluster_gone in the event log");

    // Made again, it is another cluster under the old name.
    let second = milo.create("up").await;
    assert_ne!(first, second);
    oracle::converges(&testbed).await;
    assert_eq!(logged(&run, "cluster joins"), 2);
    assert!(milo.strangers().is_empty(), "asked: {:?}", milo.strangers());
    run.stop().await;
}

/// `join: all`, a label selector that the API server applies, and the label of older hub objects.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn every_selected_project_joins_where_the_rule_says_so() {
    let (testbed, fleet) = testbed_and_fleet().await;
    let (milo, upstream) = (Milo::start().await, testbed.upstream());
    rights::grant(milo.root.rest(), &["discovery-milo"]).await.unwrap();
    for project in ["up", "idle", "other"] {
        milo.serve(project, &upstream.proxy).await;
        milo.create(project).await;
    }
    let selected = json!({ "metadata": { "labels": { "team": "a" } } });
    for project in ["up", "idle"] {
        let project = ("", project);
        let root = milo.root.rest();
        root.merge(crate::cluster::milo::PROJECTS, project, &selected).await.unwrap();
    }
    let older = json!({ "metadata": { "labels": { LABEL: "cluster-_up" } } });
    for i in 0..fleet.spec.connectors {
        let (namespace, name) = fleet.hub_key(i);
        let connectors = crate::cluster::rest::CONNECTORS;
        fleet.hub.merge(connectors, (namespace, &name), &older).await.unwrap();
    }
    let discovery = by(&milo, &json!({ "join": "all", "labelSelector": "team=a" }));
    let run = setup(&testbed, &discovery).ready().await;
    is_logged(&run, "cluster joins", 2).await;
    eventually("every hub Connector has its status", SOON, async || {
        let found = annotations(&fleet).await;
        ensure(found.iter().all(Option::is_some), || format!("{found:?}"))
    })
    .await;
    assert_eq!(logged(&run, "cluster joins"), 2);
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
        root.merge_status(crate::cluster::milo::PROJECTS, ("", name), &status).await.unwrap();
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
    is_logged(&run, "no connection can be made of it", 1).await;

    // In a watch, too: the last one comes after the list, and a broken one that has joined stays.
    milo.serve("up", &upstream.proxy).await;
    milo.create("up").await;
    is_logged(&run, "cluster joins", OTHERS).await;
    oracle::converges(&testbed).await;
    break_status("up").await;
    is_logged(&run, "no connection can be made of it", 2).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    assert_eq!((logged(&run, "cluster leaves"), logged(&run, "discovery lost")), (0, 0));
    run.stop().await;
}
