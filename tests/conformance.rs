//! The front of a world claims to answer as an API server does: one script of requests runs
//! against it and against a real kube-apiserver, and both must answer alike.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/front/mod.rs"]
mod front;
#[path = "support/real_server.rs"]
mod real_server;
#[path = "support/requests/mod.rs"]
mod requests;

use real_server::RealServer;
use requests::{Run, Step, script};
use serde_json::Value;
use throughline::front::FrontSettings;

async fn answers_of_the_front(script: &[Step]) -> Vec<Value> {
    let served = front::serve(FrontSettings::default()).await;
    let mut run = Run::new(served.client.clone());
    let mut answers = Vec::new();
    for step in script {
        match step.hook.as_deref() {
            Some("compact") => served.front.compact(),
            Some(hook) => panic!("{}: no such hook: {hook}", step.name),
            None => {}
        }
        answers.push(run.step(step).await);
    }
    answers
}

async fn answers_of_a_real_server(script: &[Step]) -> Vec<Value> {
    let real = RealServer::start().await;
    let mut run = Run::new(real.client.clone());
    let mut answers = Vec::new();
    for step in script {
        match step.hook.as_deref() {
            Some("compact") => real.compact().await,
            Some(hook) => panic!("{}: no such hook: {hook}", step.name),
            None => {}
        }
        answers.push(run.step(step).await);
    }
    answers
}

#[tokio::test]
async fn the_front_answers_the_script_with_its_codes_and_reasons() {
    let script = script();
    assert_eq!(answers_of_the_front(&script).await.len(), script.len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and etcd in the folder KUBEBUILDER_ASSETS; `make e2e` has them"]
async fn real_kube_apiserver_and_front_answer_alike() {
    let script = script();
    let front = answers_of_the_front(&script).await;
    let real = answers_of_a_real_server(&script).await;
    let mut differences = String::new();
    for ((step, front), real) in script.iter().zip(&front).zip(&real) {
        if front != real {
            differences += &format!("\n{}\n  front: {front}\n  real:  {real}\n", step.name);
        }
    }
    assert!(differences.is_empty(), "they differ in:{differences}");
}
