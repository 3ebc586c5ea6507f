//! One wrong input harms nobody: an upstream that is another control plane, or lost what it held, on
//! real API servers with 200 connectors. Nothing is written, and the reason is named.

use crate::cluster::apiserver::ApiServer;
use crate::cluster::objects::{self, connector};
use crate::prelude::*;

const CONNECTORS_COUNT: usize = 200;

fn setup(testbed: &Testbed) -> Setup {
    Setup::of(testbed).set(&json!({ "mirror": { "absentGraceMs": 1_000 },
        "watch": { "timeoutMs": 5_000, "backoffMaxMs": 2_000 } }))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn wrong_upstreams() {
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(CONNECTORS_COUNT) };
    let (testbed, fleet) = seeded(Topology::Three, spec).await;
    setup(&testbed).settled(&testbed).await.stop().await;
    another_control_plane_writes_nothing(&testbed, &fleet).await;
    an_upstream_that_lost_its_objects_writes_nothing(&testbed, &fleet).await;
}

/// Waits until every connector is held for this reason; then nothing has been written, and one Event
/// says why.
async fn all_are_held(testbed: &Testbed, throughline: &Throughline, cause: Cause) {
    eventually(&format!("all are held: {}", cause.as_str()), SOON, async || {
        let state = throughline.state().await;
        let is_of_cause = |hop: &Value| hop["hop"] == "mirrored" && hop["cause"] == cause.as_str();
        let is_held = |c: &&Value| c["state"] == "held" && list(&c["hops"]).any(is_of_cause);
        let held = list(&state["connectors"]).filter(is_held).count();
        ensure(held == CONNECTORS_COUNT, || format!("{held} of them; {}", state["counts"]))
    })
    .await;
    nothing_is_written(testbed, throughline, cause.as_str()).await;
    assert!(throughline.logged(cause.as_str()));
}

/// For long, nothing is written, one Event says why, and so does `status`.
async fn nothing_is_written(testbed: &Testbed, throughline: &Throughline, why: &str) {
    until("an Event says why", async || !testbed.events().is_empty()).await;
    // Longer than the grace period, several times.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(testbed.writes().len(), 0, "{:#?}", testbed.writes());
    assert_eq!(testbed.events().len(), 1, "{:#?}", testbed.events());
    let url = format!("http://{}", throughline.admin());
    let (code, said, _) = command(&["status", "--state", &url]).await;
    assert!(code == 1 && said.contains(why), "{said}");
}

async fn all_annotations_stay(fleet: &Fleet) {
    let statuses = fleet.statuses_at_hub().await;
    assert_eq!(statuses.iter().flatten().count(), CONNECTORS_COUNT);
}

/// A typo in a kubeconfig: a control plane that exists, answers 200 and holds nothing; then one that
/// holds namespaces and Connectors of the same names, all of them offline.
async fn another_control_plane_writes_nothing(testbed: &Testbed, fleet: &Fleet) {
    let other = ApiServer::start("other").await;
    objects::install(other.rest(), &["upstream"]).await;
    let mut clusters: Vec<_> = testbed.clusters.iter().map(Cluster::config).collect();
    clusters[0]["kubeconfig"] = json!(other.kubeconfig(THROUGHLINE));
    let config = json!({ "clusters": clusters });
    let file = testbed.config_file(&config);
    for cause in [Cause::NamespaceMissing, Cause::NamespaceMismatch] {
        if cause == Cause::NamespaceMismatch {
            run_concurrently(CONNECTORS_COUNT, async |i| {
                let (namespace, name) = fleet.upstream_key(i);
                let made = json!({ "metadata": { "name": namespace } });
                let _ = other.rest().create(NAMESPACES, made).await;
                other.rest().create(CONNECTORS, connector(namespace, &name)).await?;
                let offline = status(false, 1);
                other.rest().merge_status(CONNECTORS, (namespace, &*name), &offline).await
            })
            .await
            .unwrap();
        }
        testbed.reset_counts();
        let throughline = setup(testbed).set(&config).ready().await;
        all_are_held(testbed, &throughline, cause).await;
        let (_, said, _) = command(&["status", "--config", file.to_str().unwrap()]).await;
        assert!(said.contains(cause.as_str()), "{said}");
        throughline.stop().await;
    }
    all_annotations_stay(fleet).await;
    // With the right one everything is as before.
    testbed.reset_counts();
    let throughline = setup(testbed).ready().await;
    oracle::ends_well(testbed, throughline).await;
    assert_eq!(testbed.writes().len(), 0);
}

/// While throughline runs, its upstream's list comes back with half of the objects; its etcd is
/// restored from a backup; and its etcd is lost, and set up again.
async fn an_upstream_that_lost_its_objects_writes_nothing(testbed: &Testbed, fleet: &Fleet) {
    let up = testbed.upstream();
    let provoked = [Cause::ClusterUnavailable, Cause::PermissionMissing, Cause::KindNotServed];
    let throughline = setup(testbed).provokes(&provoked).settled(testbed).await;

    let relist = || {
        up.proxy.add(Rule::new(Fault::Expire).resource("connectors").watches(true).times(1));
        up.proxy.cut();
    };
    // The next lists have half of the objects, with 200.
    let mut half = up.rest().get(&CONNECTORS.path("")).await.unwrap();
    half["items"].as_array_mut().unwrap().truncate(CONNECTORS_COUNT / 2);
    let list = Rule::new(Fault::Answer(half)).method("GET").resource("connectors");
    let list = up.proxy.add(list.watches(false));
    relist();
    let held = async || throughline.open(Cause::RemovalsHeld, "up").await == Some(100.0);
    until("half a list is held", held).await;
    nothing_is_written(testbed, &throughline, "Connectors of up vanished at once").await;
    testbed.reset_counts();
    up.proxy.remove(list);
    relist();
    let ok = async || throughline.state().await["counts"]["ok"].clone();
    becomes("the list is whole again", json!(CONNECTORS_COUNT), ok).await;

    // A backup of today, restored after everything has moved.
    up.server.back_up().await;
    for i in 0..CONNECTORS_COUNT {
        fleet.move_node(i).await.unwrap();
    }
    oracle::settles(testbed).await;
    up.server.restore().await;
    all_are_held(testbed, &throughline, Cause::UpstreamRestored).await;
    // What changes from now on is new.
    fleet.flip(0).await.unwrap();
    becomes("a flip after the restore is mirrored", 1, async || {
        testbed.writes().iter().filter(|write| write.target.resource == "connectors").count()
    })
    .await;

    // Lost, and set up again: nothing but the CRDs and the permissions.
    wait_until_idle(testbed).await;
    testbed.reset_counts();
    up.server.lose_everything().await;
    objects::install(up.rest(), up.roles).await;
    all_are_held(testbed, &throughline, Cause::NamespaceMissing).await;
    all_annotations_stay(fleet).await;
    throughline.stop().await;
}
