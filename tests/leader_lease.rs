//! The Lease over HTTP: what is asked for, how it is spelled, and what each answer counts as.

#![allow(missing_docs, unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use throughline::client::Cluster;
use throughline::config::ClusterConfig;
use throughline::core::ids::Role;
use throughline::events::Recorder;
use throughline::leader::election::{Answer, Record, Request};
use throughline::leader::lease::{Api, Lease};
use throughline::metrics::Metrics;
use tokio::sync::mpsc;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

type Asked = (Method, String, Value);
/// A status code and a body; `None` is no answer at all.
type Reply = Option<(u16, Value)>;

/// Answers each request with the last of these, and takes it away.
#[derive(Clone)]
struct Double {
    answers: Arc<Mutex<Vec<Reply>>>,
    asked: mpsc::UnboundedSender<Asked>,
}

async fn answer(
    State(double): State<Double>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, String) {
    let body = serde_json::from_slice(&body).unwrap_or_default();
    double.asked.send((method, uri.to_string(), body)).unwrap();
    let next = double.answers.lock().unwrap().pop();
    match next.expect("one request too many") {
        Some((code, body)) => (StatusCode::from_u16(code).unwrap(), body.to_string()),
        None => std::future::pending().await,
    }
}

/// A Lease whose API server gives these answers, and what it is asked.
async fn lease(
    name: &str,
    answers: Vec<Reply>,
    timeout: Duration,
) -> (Lease, mpsc::UnboundedReceiver<Asked>) {
    let (asked, requests) = mpsc::unbounded_channel();
    let answers = Arc::new(Mutex::new(answers.into_iter().rev().collect()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(answer).with_state(Double { answers, asked });
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let kubeconfig = json!({
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "current-context": "one",
    });
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leader-lease");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let config = ClusterConfig {
        name: "hub".into(),
        roles: vec![Role::Downstream],
        kubeconfig: Some(file),
        context: None,
        in_cluster: false,
    };
    let metrics = Arc::new(Metrics::new());
    let cluster = Arc::new(Cluster::new(config, metrics.clone()));
    let (events, mut workers) = Recorder::start(vec![cluster.clone()], metrics);
    workers.detach_all();
    (Lease::new(cluster, None, "throughline".to_owned(), timeout, Some(events)), requests)
}

const PATIENCE: Duration = Duration::from_secs(30);

fn record(holder: &str, renewed: &str) -> Record {
    Record {
        holder: holder.to_owned(),
        lease_ms: 15_000,
        transitions: 3,
        renewed: renewed.to_owned(),
    }
}

fn status(code: u16, reason: &str, message: &str) -> Reply {
    Some((code, json!({"kind": "Status", "code": code, "reason": reason, "message": message})))
}

/// Not found, as API servers say it: of the object that the answer names apart from its message.
fn missing(group: &str, resource: &str, name: &str) -> Reply {
    let message = format!("{resource}.{group} \"{name}\" not found");
    let mut reply = status(404, "NotFound", message.trim_start_matches('.'))?;
    reply.1["details"] = json!({"group": group, "kind": resource, "name": name});
    Some(reply)
}

#[tokio::test]
async fn a_lease_is_read_and_written_as_client_go_spells_it_and_the_rest_of_it_is_kept() {
    let found = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "throughline", "namespace": "ns", "uid": "u-1", "resourceVersion": "7",
            "labels": {"team": "edge"}, "annotations": {"a": "b"}},
        "spec": {"holderIdentity": "go", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-11-21T09:00:00.000000Z",
            "renewTime": "2026-11-21T09:00:10.000000Z", "preferredHolder": "other"},
    });
    let mut written = found.clone();
    written["metadata"]["resourceVersion"] = json!("8");
    written["spec"] = json!({"holderIdentity": "me", "leaseDurationSeconds": 15,
        "leaseTransitions": 4, "acquireTime": "now", "renewTime": "now",
        "preferredHolder": "other"});
    let answers = vec![Some((200, found.clone())), Some((200, written.clone()))];
    let (mut lease, mut requests) = lease("spelled", answers, PATIENCE).await;

    let (answer, _) = lease.ask(&Request::Get).await;
    let theirs = record("go", "2026-11-21T09:00:10.000000Z");
    assert_eq!(answer, Answer::Is(theirs.clone(), "7".to_owned()));
    let (method, path, _) = requests.recv().await.unwrap();
    assert_eq!((method, path), (Method::GET, format!("{PATH}/throughline")));

    let mine = Record { transitions: 4, ..record("me", "now") };
    let (answer, _) = lease.ask(&Request::Update(mine.clone(), "7".to_owned())).await;
    assert_eq!(answer, Answer::Is(mine, "8".to_owned()));
    let (method, path, body) = requests.recv().await.unwrap();
    assert_eq!(method, Method::PUT);
    assert_eq!(path, format!("{PATH}/throughline?fieldManager=throughline"));
    // With its uid and its resourceVersion: without them, a PUT would create one that is gone.
    assert_eq!(body["metadata"], found["metadata"]);
    assert_eq!(body["spec"], written["spec"]);
}

#[tokio::test]
async fn a_lease_is_created_and_changes_leave_an_event() {
    let mine = record("me", "now");
    let created = json!({"metadata": {"uid": "u-2", "resourceVersion": "1"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "renewTime": "now"}});
    let answers = vec![Some((201, created)), status(403, "Forbidden", "no events")];
    let (mut lease, mut requests) = lease("created", answers, PATIENCE).await;
    let (answer, _) = lease.ask(&Request::Create(mine.clone())).await;
    assert_eq!(answer, Answer::Is(mine, "1".to_owned()));
    let (method, path, body) = requests.recv().await.unwrap();
    assert_eq!((method, path), (Method::POST, format!("{PATH}?fieldManager=throughline")));
    assert_eq!(body["metadata"], json!({"name": "throughline", "namespace": "ns"}));
    assert_eq!(body["spec"]["acquireTime"], "now");

    lease.tell("me became leader".to_owned());
    let (method, path, event) = requests.recv().await.unwrap();
    let events = "/api/v1/namespaces/ns/events?fieldManager=throughline";
    assert_eq!((method, path.as_str()), (Method::POST, events));
    assert_eq!(event["reason"], "LeaderElection");
    assert_eq!(event["message"], "me became leader");
    assert_eq!(event["involvedObject"]["uid"], "u-2");
    assert_eq!(event["involvedObject"]["kind"], "Lease");
}

#[tokio::test]
async fn each_refusal_counts_as_what_it_says_about_the_lease() {
    let cases = [
        (missing("coordination.k8s.io", "leases", "throughline"), Answer::Missing),
        // Of the API group, of the namespace: nothing about the Lease.
        (status(404, "NotFound", "404 page not found"), Answer::Failed),
        (missing("", "namespaces", "throughline"), Answer::Failed),
        (status(409, "Conflict", "the object has been modified"), Answer::Conflict),
        (status(403, "Forbidden", "no"), Answer::Failed),
        (status(500, "InternalError", "etcd"), Answer::Failed),
        (Some((200, json!("no Lease"))), Answer::Failed),
        (Some((200, json!({"metadata": {}}))), Answer::Failed),
    ];
    let (answers, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let (mut lease, _requests) = lease("refused", answers, PATIENCE).await;
    for expected in expected {
        let (answer, why) = lease.ask(&Request::Get).await;
        let why = why.expect("a reason");
        assert_eq!(answer, expected, "{why}");
        assert!(why.starts_with("get of Lease throughline: "), "{why}");
        assert_eq!(why.contains("grant get on leases"), why.contains("403"), "{why}");
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_waited_for_no_longer_than_one_try_may_take() {
    let answers = vec![None, missing("coordination.k8s.io", "leases", "throughline")];
    let (mut lease, _requests) = lease("hangs", answers, Duration::from_millis(300)).await;
    let (answer, why) = lease.ask(&Request::Get).await;
    assert_eq!(answer, Answer::Failed);
    assert!(why.unwrap().contains("no answer from the API server within 300 ms"));
    // The next one does not wait behind it.
    let (answer, _) = lease.ask(&Request::Get).await;
    assert_eq!(answer, Answer::Missing);
}
