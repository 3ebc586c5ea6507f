//! Unavailable clusters: killed, cut off, frozen, or down from the start; and lost answers.

use crate::prelude::*;

/// A silent watch is noticed within the duration of a test. A cluster is unavailable in each of them, and an
/// API server that has just started refuses everybody for a moment.
fn short_timeouts(testbed: &Testbed) -> Setup {
    let short = json!({
        "watch": { "silentAfterMs": 75_000, "timeoutMs": 5_000, "backoffMaxMs": 2_000 },
        "retry": { "firstMs": 500, "maxMs": 2_000 },
    });
    let provoked = [Cause::ClusterUnavailable, Cause::PermissionMissing];
    Setup::of(testbed).set(&short).provokes(&provoked)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn clusters_that_are_unavailable() {
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(10) };
    let (mut testbed, fleet) = seeded(Topology::Three, spec).await;
    lost_answers_do_no_harm(&testbed, &fleet).await;
    a_silent_watch_is_restarted(&testbed, &fleet).await;
    expired_history_is_listed_again(&testbed, &fleet).await;
    moved_api_servers_are_found_by_their_kubeconfigs(&testbed, &fleet).await;
    testbed.clusters.iter_mut().for_each(|cluster| cluster.is_direct = true);
    a_killed_api_server_converges_after_its_restart(&testbed, &fleet).await;
}

/// Without proxies, over TLS. Each API server is killed in turn; the others are served, and what changed
/// meanwhile converges after the restart.
async fn a_killed_api_server_converges_after_its_restart(testbed: &Testbed, fleet: &Fleet) {
    let throughline = short_timeouts(testbed).ready().await;
    oracle::converges(testbed).await;

    // The edge is down: the mirror is written nevertheless.
    testbed.edge().server.kill().await;
    fleet.set(0, false, 0).await.unwrap();
    until("the hub says offline", async || {
        fleet.status_at_hub(0).await.is_some_and(|said| said.contains("ConnectorNotReady"))
    })
    .await;
    testbed.edge().server.restart().await;
    oracle::converges_within(testbed, 2 * SOON).await;

    // The hub is down: the mirror waits for it.
    testbed.hub().server.kill().await;
    fleet.flip(1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    testbed.hub().server.restart().await;
    oracle::converges_within(testbed, 2 * SOON).await;

    // Upstream is down: that says nothing about its connectors.
    let before = fleet.statuses_at_hub().await;
    testbed.upstream().server.kill().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let now = fleet.statuses_at_hub().await;
    assert_eq!(now, before, "an annotation changed while upstream was down");
    testbed.upstream().server.restart().await;
    fleet.flip(2).await.unwrap();
    oracle::converges_within(testbed, 2 * SOON).await;
    throughline.stop().await;
}

/// 410 as a watch event, as an answer, and from an API server whose history is compacted.
async fn expired_history_is_listed_again(testbed: &Testbed, fleet: &Fleet) {
    let page = json!({ "watch": { "pageSize": 3 } });
    let throughline = short_timeouts(testbed).set(&page).settled(testbed).await;
    for (i, cluster) in testbed.clusters.iter().enumerate() {
        for (k, rule) in [Rule::new(Fault::Expire), Rule::status(410)].into_iter().enumerate() {
            // The cluster is down during the change, so only a list can find it.
            cluster.proxy.down();
            cluster.proxy.add(rule.watches(true).times(3));
            fleet.flip(2 * i + k).await.unwrap();
            cluster.proxy.up();
            oracle::converges(testbed).await;
            // The hub may have converged before its watch is tried again.
            until("it is listed again", async || cluster.proxy.reads() > 0).await;
            testbed.reset_counts();
        }
    }
    for cluster in &testbed.clusters {
        cluster.proxy.down();
        fleet.flip(9).await.unwrap();
        cluster.server.compact().await;
        cluster.server.restart().await;
        cluster.proxy.up();
        oracle::converges_within(testbed, 2 * SOON).await;
    }
    oracle::ends_well(testbed, throughline).await;
}

/// A connection stays silent for good: the client's own timeout restarts the watch.
async fn a_silent_watch_is_restarted(testbed: &Testbed, fleet: &Fleet) {
    let soon = json!({ "watch": { "silentAfterMs": 3_000 } });
    let throughline = short_timeouts(testbed).set(&soon).settled(testbed).await;
    let up = &testbed.upstream().proxy;
    let open = up.open_watches();
    // New watches get no answer, and open ones go silent.
    let rule = up.add(Rule::new(Fault::Freeze).watches(true));
    up.freeze();
    fleet.flip(0).await.unwrap();
    let noticed = async || throughline.logged("silent") || up.open_watches() < open;
    until("the silence is noticed", noticed).await;
    up.remove(rule);
    up.thaw();
    up.cut();
    oracle::converges(testbed).await;
    throughline.stop().await;
}

/// A control plane was moved: the kubeconfig names its new address, and the old one is dead or, worse,
/// swallows everything. Before that, the hub's token was not valid, and is replaced while throughline runs.
async fn moved_api_servers_are_found_by_their_kubeconfigs(testbed: &Testbed, fleet: &Fleet) {
    let setup = short_timeouts(testbed).provokes(&[Cause::CredentialsRejected]);
    let hub = &testbed.hub().proxy;
    let kubeconfig = hub.kubeconfig(THROUGHLINE);
    hub.write_kubeconfig(&kubeconfig, "whoever");
    let throughline = setup.start().await;
    throughline.logs("(401)", 1).await;
    throughline.logs("Renew the token", 1).await;
    hub.write_kubeconfig(&kubeconfig, THROUGHLINE);
    throughline.wait_ready().await;
    oracle::converges(testbed).await;

    let mut moved = Vec::new();
    for (i, cluster) in testbed.clusters.iter().enumerate() {
        let new = FaultProxy::start(&cluster.server).await;
        if i % 2 == 0 {
            cluster.proxy.down()
        } else {
            cluster.proxy.freeze()
        }
        new.write_kubeconfig(&cluster.proxy.kubeconfig(THROUGHLINE), THROUGHLINE);
        moved.push(new);
    }
    fleet.flip(0).await.unwrap();
    oracle::converges_within(testbed, 2 * SOON).await;
    for new in &moved {
        until("its watches are at the new address", async || new.open_watches() > 0).await;
    }
    assert!(throughline.logged("the kubeconfig names another address"));
    throughline.stop().await;
}

/// A write whose answer is lost was done. It is neither undone nor done wrong.
async fn lost_answers_do_no_harm(testbed: &Testbed, fleet: &Fleet) {
    let soon = json!({ "retry": { "firstMs": 500, "maxMs": 2_000 } });
    let throughline = Setup::of(testbed).set(&soon).settled(testbed).await;
    for cluster in [testbed.hub(), testbed.edge()] {
        let lost = Rule::new(Fault::LoseAnswer).method("PATCH").times(5);
        let cut = Rule::new(Fault::Cut).method("PATCH").times(5);
        let rules = [cluster.proxy.add(lost), cluster.proxy.add(cut)];
        fleet.flip_all(0..10).await.unwrap();
        let lost = async || rules.map(|rule| cluster.proxy.applied(rule));
        becomes("ten answers were lost", [5, 5], lost).await;
        oracle::converges(testbed).await;
    }
    stays_converged(testbed).await;
    throughline.stop().await;
}
