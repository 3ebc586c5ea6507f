//! API servers that refuse, are slow, or lose answers; and permissions and CRDs that come late.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::objects::install;
use crate::cluster::proxy::{FaultProxy, Write};
use crate::cluster::rights::{folders, grant, revoke};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};

/// Retries soon; a refused write waits 30 s by default.
fn short_retries() -> Value {
    json!({ "retry": { "firstMs": 500, "maxMs": 2_000 } })
}

async fn started(provoked: &[Cause]) -> (Testbed, Fleet, Throughline) {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(10)).await;
    let setup = Setup::of(&testbed).set(&short_retries()).provokes(provoked);
    let throughline = setup.ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    (testbed, fleet, throughline)
}

/// Each error, for a mirror at the hub and a touch at the edge, is retried until everything converges.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn refused_writes_succeed_in_the_end() {
    let (testbed, fleet, throughline) = started(&[Cause::WriteFailing, Cause::WriteRefused]).await;
    for (i, code) in [409, 404, 403, 422, 500, 503, 504].into_iter().enumerate() {
        for cluster in [testbed.hub(), testbed.edge()] {
            let rule = cluster.proxy.add(Rule::status(code).method("PATCH").times(2));
            fleet.flip(i).await.unwrap();
            eventually(&format!("{code} at {}", cluster.name), SOON, async || {
                let applied = cluster.proxy.applied(rule);
                ensure(applied == 2, || format!("{applied} of 2"))
            })
            .await;
            oracle::converges(&testbed).await;
        }
    }
    oracle::ends_well(&testbed, throughline).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn retry_after_is_respected() {
    let (testbed, fleet, throughline) = started(&[]).await;
    let hub = &testbed.hub().proxy;
    hub.add(Rule::too_many(2).method("PATCH").times(1));
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    let writes = hub.writes();
    let codes: Vec<_> = writes.iter().map(|write| write.code).collect();
    assert_eq!(codes, [429, 200]);
    let waited = writes[1].at - writes[0].at;
    assert!(waited >= Duration::from_secs(2), "retried after {waited:?}");
    throughline.stop().await;
}

/// Slow writes of one object do not delay others; an attempt that takes too long is abandoned.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn slow_answers_do_not_delay_other_objects() {
    let (testbed, fleet, throughline) = started(&[]).await;
    let (_, slow) = fleet.hub_key(0);
    let hub = &testbed.hub().proxy;
    let rule = hub.add(Rule::new(Fault::Freeze).method("PATCH").name(&slow));
    fleet.flip_all(0..10).await.unwrap();
    eventually("the other nine are written", SOON, async || {
        let done = hub.writes().iter().filter(|write| write.code == 200).count();
        ensure(done == 9, || format!("{done} of 9"))
    })
    .await;
    // The proxy sees the client close the connection.
    eventually("the slow one is abandoned", SOON, async || {
        let given_up = hub.writes().iter().filter(|write| write.code == 0).count();
        ensure(given_up > 0, || "not yet".to_owned())
    })
    .await;
    hub.remove(rule);
    oracle::converges(&testbed).await;

    // Slow, but within the timeout: ten writes take about as long as one.
    testbed.reset_counts();
    hub.add(Rule::new(Fault::Delay(Duration::from_secs(1))).method("PATCH"));
    fleet.flip_all(0..10).await.unwrap();
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    assert_eq!(hub.writes().iter().filter(|write| write.code == 200).count(), 10);
    oracle::no_needless_write(&testbed).unwrap();
    throughline.stop().await;
}

/// A write whose answer is lost was done. It is neither undone nor done wrong.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn lost_answers_do_no_harm() {
    let (testbed, fleet, throughline) = started(&[]).await;
    for cluster in [testbed.hub(), testbed.edge()] {
        let lost = Rule::new(Fault::LoseAnswer).method("PATCH").times(5);
        let cut = Rule::new(Fault::Cut).method("PATCH").times(5);
        let rules = [cluster.proxy.add(lost), cluster.proxy.add(cut)];
        fleet.flip_all(0..10).await.unwrap();
        eventually("ten answers were lost", SOON, async || {
            let applied = rules.map(|rule| cluster.proxy.applied(rule));
            ensure(applied == [5, 5], || format!("{applied:?}"))
        })
        .await;
        oracle::converges(&testbed).await;
    }
    wait_until_idle(&testbed).await;
    oracle::converged(&testbed).await.unwrap();
    throughline.stop().await;
}

/// Permissions are revoked at the API server and granted again: no restart is needed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn permissions_that_come_back_are_used() {
    const PROVOKED: &[Cause] = &[Cause::ClusterUnavailable, Cause::PermissionMissing];
    let (testbed, fleet, throughline) = started(PROVOKED).await;
    let hub = testbed.hub();
    revoke(hub.rest(), &folders(hub.roles)).await.unwrap();
    hub.proxy.cut();
    fleet.flip(0).await.unwrap();
    eventually("the 403 is logged", SOON, async || {
        ensure(throughline.logged("403"), || "not yet".to_owned())
    })
    .await;
    grant(hub.rest(), &folders(hub.roles)).await.unwrap();
    oracle::converges(&testbed).await;
    throughline.stop().await;
}

/// An edge without CRDs and permissions: the other clusters are served, and CRDs that are installed
/// later are found.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_crd_that_comes_late_is_found() {
    let testbed = Testbed::start_with(Topology::Three, |cluster| cluster != "edge").await;
    let throughline = Setup::of(&testbed)
        .set(&short_retries())
        .provokes(&[Cause::KindNotServed, Cause::PermissionMissing])
        .start()
        .await;
    let (code, _) = throughline.get("/readyz").await.unwrap();
    assert_ne!(code, 200, "ready before the edge was listed");
    let edge = testbed.edge();
    grant(edge.rest(), &folders(edge.roles)).await.unwrap();
    eventually("the missing CRD is logged", SOON, async || {
        ensure(throughline.logged("404"), || "not yet".to_owned())
    })
    .await;
    revoke(edge.rest(), &folders(edge.roles)).await.unwrap();
    install(edge.rest(), edge.roles).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    throughline.wait_ready().await;
    oracle::converges(&testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    throughline.stop().await;
}

/// An invalid token is replaced in the kubeconfig: no restart is needed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn renewed_credentials_are_read_again() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    let hub = testbed.hub();
    let kubeconfig = hub.proxy.kubeconfig(THROUGHLINE);
    let setup = Setup::of(&testbed).set(&short_retries()).provokes(&[Cause::CredentialsRejected]);
    hub.proxy.write_kubeconfig(&kubeconfig, "whoever");
    let throughline = setup.start().await;
    eventually("the 401 is logged with its remedy", SOON, async || {
        ensure(throughline.logged("(401)") && throughline.logged("Renew the token"), || {
            "not yet".to_owned()
        })
    })
    .await;
    hub.proxy.write_kubeconfig(&kubeconfig, THROUGHLINE);
    throughline.wait_ready().await;
    oracle::converges(&testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    throughline.stop().await;
}

/// 200 connectors of a hub, all in sync, and none with a Gateway.
async fn fleet_of_200(testbed: &Testbed) -> Fleet {
    let mirrored = Mirrored::Fresh;
    Fleet::seed(testbed, Spec { gateways: 0, mirrored, ..Spec::of(200) }).await
}

fn answered(writes: &[Write], code: u16) -> impl Iterator<Item = &Write> {
    writes.iter().filter(move |write| write.code == code)
}

/// 200 mirrors are refused, for several times the pause between two attempts at one of them. Then the first
/// is written within its share of the pause, and all others with it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn what_was_refused_follows_the_first_that_is_written() {
    const PAUSE: Duration = Duration::from_secs(15);
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = fleet_of_200(&testbed).await;
    let setup = Setup::of(&testbed)
        .set(&json!({ "retry": { "maxMs": PAUSE.as_millis() } }))
        .provokes(&[Cause::NotMirrored, Cause::WriteRefused]);
    let throughline = setup.ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();

    let hub = &testbed.hub().proxy;
    let forbidden = hub.add(Rule::status(403).method("PATCH").resource("connectors"));
    fleet.flip_all(0..200).await.unwrap();
    eventually("each was refused", SOON, async || {
        let refused = hub.applied(forbidden);
        ensure(refused >= 200, || format!("{refused} of 200"))
    })
    .await;
    let refused_at = Instant::now();
    tokio::time::sleep(PAUSE * 3).await;

    // From the first pause on, so that the first attempts don't count.
    let mut by_second = BTreeMap::<u64, usize>::new();
    for write in hub.writes().iter().filter(|write| write.at > refused_at + Duration::from_secs(1))
    {
        *by_second.entry((write.at - refused_at).as_secs()).or_default() += 1;
    }
    let most = by_second.values().max().copied().unwrap_or_default();
    assert!(most <= 20, "{most} requests in a second: {by_second:?}");
    assert!(by_second.len() >= 40, "not spread over the pause: {by_second:?}");

    hub.remove(forbidden);
    let lifted_at = Instant::now();
    eventually("all are written", SOON, async || {
        let written = answered(&hub.writes(), 200).count();
        ensure(written == 200, || format!("{written} of 200"))
    })
    .await;
    let writes = hub.writes();
    let after: Vec<_> = answered(&writes, 200).map(|write| write.at - lifted_at).collect();
    let (first, last) = (after.iter().min().unwrap(), after.iter().max().unwrap());
    println!(
        "refused: at most {most} a second; the first written after {first:?}, the last {last:?}"
    );
    // Its share is 75 ms, and without the first one's success the last would take a whole pause.
    assert!(*first < PAUSE / 10 && *last < PAUSE * 2 / 3, "{first:?} {last:?}");
    oracle::ends_well(&testbed, throughline).await;
}

/// A hub that refuses every stream has enough to do. 200 mirrors wait for it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_hub_that_refuses_every_stream_gets_few_of_them() {
    const WITHIN: Duration = Duration::from_secs(5);
    let mut testbed = Testbed::start(Topology::Three).await;
    let hub = testbed.clusters.iter_mut().find(|cluster| cluster.name == "hub").unwrap();
    hub.proxy = FaultProxy::start_http2(&hub.server).await;
    let fleet = fleet_of_200(&testbed).await;
    let setup = Setup::of(&testbed).provokes(&[Cause::NotMirrored, Cause::WriteFailing]);
    let throughline = setup.ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();

    let hub = &testbed.hub().proxy;
    let refused = hub.add(Rule::new(Fault::RefuseStream).method("PATCH"));
    fleet.flip_all(0..200).await.unwrap();
    eventually("a stream is refused", SOON, async || {
        ensure(hub.applied(refused) > 0, || "none yet".to_owned())
    })
    .await;
    let first_at = hub.writes().iter().map(|write| write.at).min().unwrap();
    tokio::time::sleep(WITHIN).await;
    let writes = hub.writes();
    let streams = writes.iter().filter(|write| write.at - first_at <= WITHIN).count();
    println!("refused streams: {streams} within {WITHIN:?}");
    assert!(streams <= 400, "{streams} streams");
    hub.remove(refused);
    oracle::converges(&testbed).await;
    oracle::ends_well(&testbed, throughline).await;
}
