//! The Lease over HTTP: the requests, their format, and what each response counts as.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use throughline::core::data::shard::Shard;
use throughline::events::Recorder;
use throughline::leader::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use throughline::leader::group::Group;
use throughline::leader::lease::LeaseClient;
use throughline::metrics::Metrics;
use tokio::sync::mpsc;

use crate::cluster::{client_at, serve};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

/// Method and path, and the body.
type SentRequest = (String, Value);
/// A status code and a body.
type Reply = (u16, Value);

/// A Lease whose API server gives these answers, and the requests that it gets.
fn lease(answers: Vec<Reply>) -> (LeaseClient, mpsc::UnboundedReceiver<SentRequest>) {
    let (sent, requests) = mpsc::unbounded_channel();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let answer = move |method: Method, uri: Uri, body: Bytes| {
        let body = serde_json::from_slice(&body).unwrap_or_default();
        sent.send((format!("{method} {uri}"), body)).unwrap();
        let next = answers.lock().unwrap().next();
        let (code, body) = next.expect("one request too many");
        std::future::ready((StatusCode::from_u16(code).unwrap(), body.to_string()))
    };
    let cluster = client_at("hub", &serve(axum::Router::new().fallback(answer)));
    let group = Group::new("throughline", Shard::WHOLE);
    let metrics = Arc::new(Metrics::new());
    let (events, mut workers) = Recorder::start(vec![cluster.clone()], 30, metrics);
    workers.detach_all();
    (LeaseClient::new(cluster, None, &group, PATIENCE, Some(events)), requests)
}

const PATIENCE: Duration = Duration::from_secs(30);

fn record(holder: &str, renew_time: &str) -> LeaseRecord {
    LeaseRecord {
        holder: holder.to_owned(),
        lease_ms: 15_000,
        transitions: 3,
        renew_time: renew_time.to_owned(),
    }
}

fn status(code: u16, reason: &str, message: &str) -> Reply {
    (code, json!({"kind": "Status", "code": code, "reason": reason, "message": message}))
}

/// A 404 as API servers send it: `details` names the object.
fn missing(group: &str, resource: &str, name: &str) -> Reply {
    let message = format!("{resource}.{group} \"{name}\" not found");
    let mut reply = status(404, "NotFound", message.trim_start_matches('.'));
    reply.1["details"] = json!({"group": group, "kind": resource, "name": name});
    reply
}

#[tokio::test]
async fn a_lease_has_client_gos_format_and_keeps_the_fields_of_others() {
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
    let answers = vec![(200, found.clone()), (200, written.clone())];
    let (mut lease, mut requests) = lease(answers);

    let (answer, _) = lease.send(&LeaseRequest::Get).await;
    let theirs = record("go", "2026-11-21T09:00:10.000000Z");
    assert_eq!(answer, LeaseResponse::Current(theirs, "7".to_owned()));
    assert_eq!(requests.recv().await.unwrap().0, format!("GET {PATH}/throughline"));

    let mine = LeaseRecord { transitions: 4, ..record("me", "now") };
    let (answer, _) = lease.send(&LeaseRequest::Update(mine.clone(), "7".to_owned())).await;
    assert_eq!(answer, LeaseResponse::Current(mine, "8".to_owned()));
    let (request, body) = requests.recv().await.unwrap();
    assert_eq!(request, format!("PUT {PATH}/throughline?fieldManager=throughline"));
    // With uid and resourceVersion: without them, a PUT would create a Lease that was deleted.
    assert_eq!(body["metadata"], found["metadata"]);
    assert_eq!(body["spec"], written["spec"]);
}

#[tokio::test]
async fn a_missing_lease_is_created_and_a_change_of_leader_posts_an_event() {
    let mine = record("me", "now");
    let created = json!({"metadata": {"uid": "u-2", "resourceVersion": "1"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "renewTime": "now"}});
    let answers = vec![(201, created), status(403, "Forbidden", "no events")];
    let (mut lease, mut requests) = lease(answers);
    let (answer, _) = lease.send(&LeaseRequest::Create(mine.clone())).await;
    assert_eq!(answer, LeaseResponse::Current(mine, "1".to_owned()));
    let (request, body) = requests.recv().await.unwrap();
    assert_eq!(request, format!("POST {PATH}?fieldManager=throughline"));
    assert_eq!(body["metadata"], json!({"name": "throughline", "namespace": "ns"}));
    assert_eq!(body["spec"]["acquireTime"], "now");

    lease.post_event("me became leader".to_owned());
    let (request, event) = requests.recv().await.unwrap();
    assert_eq!(request, "POST /api/v1/namespaces/ns/events?fieldManager=throughline");
    assert_eq!(event["reason"], "LeaderElection");
    assert_eq!(event["message"], "me became leader");
    assert_eq!(event["involvedObject"]["uid"], "u-2");
    assert_eq!(event["involvedObject"]["kind"], "Lease");
}

#[tokio::test]
async fn each_error_counts_as_what_it_says_about_the_lease() {
    let cases = [
        (missing("coordination.k8s.io", "leases", "throughline"), LeaseResponse::NotFound),
        // A 404 about the API group or the namespace says nothing about the Lease.
        (status(404, "NotFound", "404 page not found"), LeaseResponse::Failed),
        (missing("", "namespaces", "throughline"), LeaseResponse::Failed),
        (status(409, "Conflict", "the object has been modified"), LeaseResponse::Conflict),
        (status(403, "Forbidden", "no"), LeaseResponse::Failed),
        (status(500, "InternalError", "etcd"), LeaseResponse::Failed),
        ((200, json!("not a Lease")), LeaseResponse::Failed),
        ((200, json!({"metadata": {}})), LeaseResponse::Failed),
    ];
    let (answers, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let (mut lease, _requests) = lease(answers);
    for expected in expected {
        let (answer, why) = lease.send(&LeaseRequest::Get).await;
        let why = why.expect("a reason");
        assert_eq!(answer, expected, "{why}");
        assert!(why.starts_with("get of Lease throughline: "), "{why}");
    }
}
