//! What an answer proves: a write counts only if the answer is the object as it was stored, with what
//! was sent in it. And the write whose precondition is an annotation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::apply::{self, Applier};
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::contract::action::{Action, AnnotationBefore, Precondition, Verb};
use throughline::core::contract::error_cause::ErrorCause;
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use throughline::metrics::Metrics;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, SimApiServerSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::live::{Kubeconfig, cluster};
use crate::sim_apiserver::{TestServer, serve};

const KEY: &str = "networking.datumapis.com/upstream-status";

fn write(verb: Verb, kind: Kind, key: &str, value: Option<&str>) -> Action {
    Action {
        id: ActionId(1),
        verb,
        cluster: ClusterName::from("one"),
        kind,
        object: ObjectKey::new("n", "a"),
        annotations: vec![(key.to_owned(), value.map(str::to_owned))],
        precondition: Precondition::default(),
        connectors: Vec::new(),
    }
}

async fn outcome(applier: &Applier, action: &Action) -> Outcome {
    let done = applier.apply(action, || true).await;
    done.unwrap_or_else(|error| apply::outcome(&error))
}

/// Something in front of the API server that answers every request in the same way.
async fn answers(head: &'static str, body: String) -> (Applier, Kubeconfig) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 65_536];
            let _ = stream.read(&mut request).await;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let path = std::env::temp_dir().join(format!("throughline-{}-{port}.yaml", std::process::id()));
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    std::fs::write(&path, config.to_string()).unwrap();
    let config = ClusterConfig {
        name: "one".into(),
        roles: vec![Role::Hub, Role::Edge],
        kubeconfig: Some(path.clone()),
        context: None,
        in_cluster: false,
    };
    let client = Arc::new(ClusterClient::new(config, Arc::new(Metrics::new())));
    let applier = Applier::new([("one".into(), client)].into(), Duration::from_secs(10));
    (applier, Kubeconfig(path))
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_success() {
    let page = "<html><head><title>Sign in</title></head><body></body></html>".to_owned();
    let (applier, _kubeconfig) = answers("200 OK\r\ncontent-type: text/html", page).await;
    for verb in [Verb::Mirror, Verb::Nudge, Verb::Touch] {
        let outcome = outcome(&applier, &write(verb, Kind::Gateway, "k", Some("v"))).await;
        let Outcome::Failed { error, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(error.cause, ErrorCause::Unreadable);
        assert!(error.contains("a proxy may answer in the API server's place"), "{error}");
    }
}

#[tokio::test]
async fn an_object_without_what_was_written_is_a_refusal_that_names_its_likely_cause() {
    let stored = |annotations: Value| {
        let metadata = json!({"name": "a", "resourceVersion": "8", "annotations": annotations});
        json!({"kind": "PartialObjectMetadata", "metadata": metadata}).to_string()
    };
    let mirror = write(Verb::Mirror, Kind::Connector, KEY, Some(r#"{"a":1}"#));
    for (annotations, kept) in [
        (json!({KEY: r#"{"a":1}"#}), true),
        (json!({KEY: r#"{ "a": 1 }"#, "other": "x"}), true),
        (json!({KEY: r#"{"a":2}"#}), false),
        (json!({"other": "x"}), false),
        (Value::Null, false),
    ] {
        let body = stored(annotations.clone());
        let (applier, _kubeconfig) = answers("200 OK", body).await;
        let outcome = outcome(&applier, &mirror).await;
        assert_eq!(outcome.name(), if kept { "applied" } else { "refused" }, "{annotations}");
        if let Some(error) = outcome.error() {
            assert_eq!(error.cause, ErrorCause::NotKept);
            assert!(error.contains("a webhook, a policy or a proxy"), "{error}");
        }
    }
}

/// 200, and nothing is done.
#[tokio::test]
async fn a_status_with_code_200_is_no_success_either() {
    let served = serve(SimApiServerSettings::default()).await;
    served.put(json!({"kind": "Gateway", "metadata": {"namespace": "n", "name": "a"}}));
    let (applier, _kubeconfig) = applier(&served);
    served.handle.inject(&Fault::on_writes(200), 1);
    let touch = write(Verb::Touch, Kind::Gateway, "k", Some("v"));
    assert_eq!(outcome(&applier, &touch).await.name(), "refused");
    assert_eq!(outcome(&applier, &touch).await.name(), "applied");
}

#[tokio::test]
async fn a_retry_after_of_a_day_is_cut_to_30_s() {
    let served = serve(SimApiServerSettings::default()).await;
    let (applier, _kubeconfig) = applier(&served);
    served.handle.inject(&Fault::on_writes(429).retry_after(86_400), 1);
    let outcome = outcome(&applier, &write(Verb::Touch, Kind::Gateway, "k", Some("v"))).await;
    let Outcome::Failed { retry_after_ms, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(retry_after_ms, Some(30_000));
}

fn applier(served: &TestServer) -> (Applier, Kubeconfig) {
    let kubeconfig = Kubeconfig::of(served);
    let clusters = [(served.cluster.clone(), cluster(served, &kubeconfig))].into();
    (Applier::new(clusters, Duration::from_secs(10)), kubeconfig)
}

/// The hub Connector has this annotation and has changed since the decision.
async fn with_annotations(
    annotations: &Value,
    before: Option<&str>,
    value: Option<&str>,
) -> (Outcome, Option<String>, u64) {
    let served = serve(SimApiServerSettings::default()).await;
    let metadata = json!({"namespace": "n", "name": "a", "uid": "u-a", "annotations": annotations});
    served.put(json!({"kind": "Connector", "metadata": metadata}));
    let (applier, _kubeconfig) = applier(&served);
    let mut mirror = write(Verb::Mirror, Kind::Connector, KEY, value);
    mirror.precondition.uid = Some("u-a".to_owned());
    let before = before.map(str::to_owned);
    let before = AnnotationBefore { key: KEY.to_owned(), value: before, no_annotations: false };
    mirror.precondition.annotation = Some(Box::new(before));
    let outcome = outcome(&applier, &mirror).await;
    let patches = served.handle.requests()[&(ApiVerb::Patch, Resource::Connectors)];
    let sim = served.sim.lock().unwrap();
    let object = sim.get(&served.cluster, Kind::Connector, &ObjectKey::new("n", "a")).unwrap();
    (outcome, object.meta.annotations.get(KEY).map(str::to_owned), patches)
}

#[tokio::test]
async fn a_write_that_asks_for_the_old_annotation_overwrites_no_other() {
    for (annotations, before, expected, patches) in [
        (json!({KEY: "old", "busy": "7"}), Some("old"), "applied", 1),
        (json!({KEY: "newer"}), Some("old"), "conflict", 1),
        (json!({"busy": "7"}), Some("old"), "conflict", 1),
        (json!({}), Some("old"), "conflict", 1),
        (json!({"busy": "7"}), None, "applied", 1),
        // Whether an object has annotations at all takes a request of its own to find out.
        (json!({}), None, "applied", 2),
        (json!({KEY: "newer"}), None, "conflict", 2),
    ] {
        let (outcome, stored, sent) = with_annotations(&annotations, before, Some("new")).await;
        let told = format!("{annotations} before: {before:?}: {outcome:?}");
        assert_eq!((outcome.name(), sent), (expected, patches), "{told}");
        let untouched = annotations[KEY].as_str();
        let wanted = if expected == "applied" { Some("new") } else { untouched };
        assert_eq!(stored.as_deref(), wanted, "{told}");
    }
    let (outcome, stored, _) = with_annotations(&json!({KEY: "old"}), Some("old"), None).await;
    assert_eq!((outcome.name(), stored), ("applied", None));
}

#[tokio::test]
async fn a_write_that_asks_for_the_old_annotation_still_asks_for_the_uid() {
    let served = serve(SimApiServerSettings::default()).await;
    let metadata =
        json!({"namespace": "n", "name": "a", "uid": "u-new", "annotations": {KEY: "old"}});
    served.put(json!({"kind": "Connector", "metadata": metadata}));
    let (applier, _kubeconfig) = applier(&served);
    let mut mirror = write(Verb::Mirror, Kind::Connector, KEY, Some("new"));
    mirror.precondition.uid = Some("u-old".to_owned());
    let value = Some("old".to_owned());
    let before = AnnotationBefore { key: KEY.to_owned(), value, no_annotations: false };
    mirror.precondition.annotation = Some(Box::new(before));
    assert_eq!(outcome(&applier, &mirror).await.name(), "conflict");
    // What is wrong with the result is no conflict.
    mirror.precondition.uid = None;
    mirror.annotations[0].1 = Some("x".repeat(300_000));
    assert_eq!(outcome(&applier, &mirror).await.name(), "refused");
    mirror.object = ObjectKey::new("n", "nowhere");
    assert_eq!(outcome(&applier, &mirror).await, Outcome::NotFound);
}
