//! When `/readyz` answers 200, and what it says.

use throughline::core::data::ids::Kind;

use super::stage;
use crate::http::Server;

#[tokio::test]
async fn ready_once_every_watch_was_tried_and_one_cluster_is_fully_listed() {
    let server = Server::with_loop(stage().machine).await;
    let not_ready = async |expected: &str| {
        let answer = server.get("/readyz").await;
        assert_eq!(answer.status, 503);
        assert!(answer.body.starts_with(expected), "{}", answer.body);
        assert!(answer.body.contains("not ready: "), "{}", answer.body);
    };
    not_ready("not ready: no watch").await;
    let (a, b) = ("project-a".into(), "project-b".into());
    let connectors = server.metrics.watch(&a, Kind::Connector);
    let gateways = server.metrics.watch(&a, Kind::Gateway);
    let broken = server.metrics.watch(&b, Kind::Connector);
    connectors.list_started();
    broken.list_started();
    not_ready("[-]project-a/Connector listing\n[-]project-a/Gateway not started\n").await;
    connectors.list_finished();
    gateways.list_finished();
    not_ready("[+]project-a/Connector ok\n[+]project-a/Gateway ok\n[-]project-b/Connector listing")
        .await;
    broken.lost(&"401 Unauthorized".into());
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, 200, "a broken cluster must not hold up the others");
    assert_eq!(answer.body, "[-]project-b/Connector lost: 401 Unauthorized\nok\n");
    let answer = server.get("/readyz?verbose").await;
    assert_eq!(
        answer.body,
        "[+]project-a/Connector ok\n[+]project-a/Gateway ok\n\
         [-]project-b/Connector lost: 401 Unauthorized\nreadyz check passed\n"
    );
    // Once ready, always ready: a restarted process would not see more than this one.
    broken.list_started();
    connectors.lost(&"cut".into());
    gateways.lost(&"cut".into());
    connectors.list_started();
    server.metrics.watch(&"project-c".into(), Kind::Connector);
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("[-]project-a/Connector listing again\n"), "{}", answer.body);
    broken.list_finished();
    assert_eq!(server.get("/readyz?verbose").await.body.matches("[+]").count(), 1);
    server.stop().await;
}

#[tokio::test]
async fn without_a_fully_listed_cluster_it_is_not_ready() {
    let server = Server::with_loop(stage().machine).await;
    for cluster in ["a", "b"] {
        server.metrics.watch(&cluster.into(), Kind::Connector).list_finished();
        server.metrics.watch(&cluster.into(), Kind::Gateway).lost(&"404: no such CRD".into());
    }
    assert_eq!(server.get("/readyz").await.status, 503);
    server.metrics.watch(&"b".into(), Kind::Gateway).list_finished();
    assert_eq!(server.get("/readyz").await.status, 200);
    server.stop().await;
}
