//! The simulated API server answers as a real one does: one script of requests runs against both, and their
//! answers must be the same.

use crate::cluster::apiserver::ApiServer;
use crate::cluster::objects::wait_crds;
use crate::cluster::rest::CRDS;
use crate::prelude::*;
use crate::requests::{answers, script, simulated_answers};

/// Of the script's kinds, with schemas that its objects fit.
const DEFINITIONS: &str = include_str!("../../crates/sim/tests/server/requests/crds.yaml");

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn simulated_and_real_kube_apiserver_answer_alike() {
    let server = ApiServer::start_without_snapshots("conformance").await;
    let rest = server.rest();
    for crd in serde_saphyr::from_str::<Vec<Value>>(DEFINITIONS).unwrap() {
        rest.create(CRDS, crd).await.unwrap();
    }
    wait_crds(rest).await;
    let real = answers(&rest.0, async || server.compact().await).await;
    let simulated = simulated_answers().await;
    let mut differences = String::new();
    for ((step, simulated), real) in script().iter().zip(&simulated).zip(&real) {
        if simulated != real {
            let name = &step.name;
            differences += &format!("\n{name}\n  simulated: {simulated}\n  real:      {real}\n");
        }
    }
    assert!(differences.is_empty(), "the answers differ:{differences}");
}
