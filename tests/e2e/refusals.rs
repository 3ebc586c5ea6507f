//! API servers that refuse, are slow, or lose answers; and permissions and CRDs that come late.

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::install;
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
