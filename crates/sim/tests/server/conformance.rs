//! The simulated API server answers as a real one does: one script of requests runs against both,
//! and their answers must be the same.

use kube::Client;
use serde_json::Value;
use throughline_sim::apiserver::SimApiServerSettings;

use crate::real_server::RealServer;
use crate::requests::{ScriptRun, Step, script};
use crate::sim_apiserver;

async fn answers(script: &[Step], client: &Client, compact: impl AsyncFn()) -> Vec<Value> {
    let mut run = ScriptRun::new(client.clone());
    let mut answers = Vec::new();
    for step in script {
        if step.compacts {
            compact().await;
        }
        answers.push(run.step(step).await);
    }
    answers
}

async fn simulated_answers(script: &[Step]) -> Vec<Value> {
    let served = sim_apiserver::serve(SimApiServerSettings::default()).await;
    answers(script, &served.client, async || served.handle.compact()).await
}

#[tokio::test]
async fn the_simulated_server_answers_with_the_codes_and_reasons_of_the_script() {
    let script = script();
    assert_eq!(simulated_answers(&script).await.len(), script.len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and etcd in the folder KUBEBUILDER_ASSETS; `make e2e` has them"]
async fn simulated_and_real_kube_apiserver_answer_alike() {
    let script = script();
    let simulated = simulated_answers(&script).await;
    let server = RealServer::start().await;
    let real = answers(&script, &server.client, async || server.compact().await).await;
    let mut differences = String::new();
    for ((step, simulated), real) in script.iter().zip(&simulated).zip(&real) {
        if simulated != real {
            differences +=
                &format!("\n{}\n  simulated: {simulated}\n  real:      {real}\n", step.name);
        }
    }
    assert!(differences.is_empty(), "the answers differ:{differences}");
}
