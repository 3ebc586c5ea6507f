//! Metrics and readiness of fleets: with series for each cluster and without, and what is left of a cluster
//! that left.

use std::sync::Arc;

use throughline::core::contract::error_cause::RequestFailure;
use throughline::core::data::ids::Kind;
use throughline::metrics::{ClusterRequests, Format, Metrics};

use super::{body, stage};
use crate::http::Server;

/// A cluster is joined for as long as this is there.
fn join(metrics: &Metrics, name: &str) -> Arc<ClusterRequests> {
    let cluster = name.into();
    metrics.set_discovered(&cluster);
    for kind in [Kind::Connector, Kind::HttpRoute, Kind::Namespace] {
        let watch = metrics.watch(&cluster, kind);
        watch.list_started();
        watch.list_finished();
    }
    metrics.set_queue(&cluster, 1);
    let requests = metrics.requests(&cluster);
    requests.count("GET", Some(200));
    requests
}

/// As a run does, and then what may come late: the end of a request.
fn leave(metrics: &Metrics, name: &str, requests: Arc<ClusterRequests>) {
    metrics.remove_cluster(&name.into());
    requests.count("PATCH", None);
    drop(requests);
}

#[test]
fn nothing_is_left_of_clusters_that_left() {
    let lengths = [20, 200].map(|clusters| {
        let metrics = Metrics::new();
        let _stays = join(&metrics, "stays");
        for n in 0..clusters {
            let name = format!("project-{n}");
            let requests = join(&metrics, &name);
            assert!(metrics.text(None, Format::Plain).contains(&name));
            leave(&metrics, &name, requests);
            assert!(!metrics.text(None, Format::Plain).contains(&name), "{name} left");
        }
        let text = metrics.text(None, Format::Plain);
        text.replace(|c: char| c.is_ascii_digit(), "").len()
    });
    // Some numbers have another count of digits, and so of signs: 1e-5.
    assert!(lengths[0].abs_diff(lengths[1]) < 40, "{lengths:?}");
}

#[test]
fn a_cluster_that_joins_again_before_its_last_request_ended_goes_on_counting() {
    let metrics = Metrics::new();
    let former = join(&metrics, "a");
    metrics.remove_cluster(&"a".into());
    let joined_again = join(&metrics, "a");
    former.count("GET", Some(200));
    drop(former);
    joined_again.count("GET", Some(200));
    let text = metrics.text(None, Format::Plain);
    assert!(text.contains(r#"{code="200",method="GET",host="a"} 4"#), "{text}");
}

#[test]
fn beyond_two_hundred_clusters_sums_take_the_place_of_series_for_each() {
    let metrics = Metrics::new();
    let (a, b) = (join(&metrics, "a"), join(&metrics, "b"));
    for (clusters, expected) in [(200, true), (201, false)] {
        metrics.set_clusters(clusters);
        let text = metrics.text(None, Format::Plain);
        let has = |part: &str| text.contains(part);
        let which = format!("{clusters}: {text}");
        assert_eq!(has(r#"host="a""#), expected, "{which}");
        assert_eq!(has(r#"{code="200",method="GET",host="all"} 2"#), !expected, "{which}");
        // In both: how many watches and clusters are in which state.
        assert!(has(r#"throughline_watches{kind="Connector",state="live"} 2"#), "{which}");
        assert!(has(r#"throughline_watches{kind="Connector",state="lost"} 0"#), "{which}");
        assert!(has(r#"throughline_clusters{state="followed"} 2"#), "{which}");
        // Only clusters with writes have one.
        assert!(has(r#"workqueue_depth{name="a"} 1"#), "{which}");
    }
    // A dashboard's rates must not see a counter fall when clusters leave.
    let sums = || {
        let text = metrics.text(None, Format::Plain);
        ["rest_client_requests_total{", "throughline_watch_restarts_total{"].map(|series| {
            let lines = text.lines().filter(|line| line.starts_with(series));
            lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
        })
    };
    metrics.watch(&"a".into(), Kind::Connector).list_started();
    assert_eq!(sums(), [2.0, 1.0]);
    leave(&metrics, "a", a);
    assert_eq!(sums(), [3.0, 1.0], "and the late one");
    leave(&metrics, "b", b);
    assert_eq!(sums(), [4.0, 1.0]);
}

/// Nobody reads thousands of lines, and a kubelet cuts them off.
#[tokio::test]
async fn the_probe_of_a_large_fleet_has_a_line_for_each_state_and_cause() {
    let server = Server::with_loop(stage().machine).await;
    let metrics = &server.metrics;
    let hub = metrics.watch(&"hub".into(), Kind::Connector);
    for n in 0..300 {
        let cluster = format!("project-{n:03}").as_str().into();
        metrics.set_discovered(&cluster);
        let watch = metrics.watch(&cluster, Kind::Connector);
        match n {
            0..200 => watch.list_finished(),
            200..240 => watch.lost(&RequestFailure::from("401 Unauthorized")),
            240..250 => watch.lost(&RequestFailure::from("503 Service Unavailable")),
            250..270 => watch.list_started(),
            _ => {}
        }
    }
    let summary = "[-]31 watches not started, such as hub/Connector\n\
                   [-]20 watches listing, such as project-250/Connector\n\
                   [+]200 watches ok\n\
                   [-]40 watches lost, such as project-200/Connector: 401 Unauthorized\n\
                   [-]10 watches lost, such as project-240/Connector: 503 Service Unavailable\n";
    let said = body(&server, "/readyz", 503).await;
    assert!(said.starts_with(summary), "the hub is configured, and was not tried: {said}");
    hub.list_finished();
    // No discovered cluster is waited for.
    let said = body(&server, "/readyz", 200).await;
    assert!(said.ends_with("\nok\n"), "{said}");
    assert_eq!(said.lines().count(), 6, "{said}");
}

#[tokio::test]
async fn ready_once_every_watch_was_tried_and_one_cluster_is_fully_listed() {
    let server = Server::with_loop(stage().machine).await;
    let not_ready = async |expected: &str| {
        let said = body(&server, "/readyz", 503).await;
        assert!(said.starts_with(expected) && said.contains("not ready: "), "{said}");
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
    // A broken cluster must not hold up the others.
    broken.lost(&"401 Unauthorized".into());
    let said = body(&server, "/readyz", 200).await;
    assert_eq!(said, "[-]project-b/Connector lost: 401 Unauthorized\nok\n");
    assert_eq!(
        body(&server, "/readyz?verbose", 200).await,
        "[+]project-a/Connector ok\n[+]project-a/Gateway ok\n\
         [-]project-b/Connector lost: 401 Unauthorized\nreadyz check passed\n"
    );
    // Once ready, always ready: a restarted process would not see more than this one.
    broken.list_started();
    connectors.lost(&"cut".into());
    gateways.lost(&"cut".into());
    connectors.list_started();
    server.metrics.watch(&"project-c".into(), Kind::Connector);
    let said = body(&server, "/readyz", 200).await;
    assert!(said.contains("[-]project-a/Connector listing again\n"), "{said}");
    broken.list_finished();
    assert_eq!(body(&server, "/readyz?verbose", 200).await.matches("[+]").count(), 1);

    // It is not while no cluster is fully listed.
    let server = Server::with_loop(stage().machine).await;
    for cluster in ["a", "b"] {
        server.metrics.watch(&cluster.into(), Kind::Connector).list_finished();
        server.metrics.watch(&cluster.into(), Kind::Gateway).lost(&"404: no such CRD".into());
    }
    body(&server, "/readyz", 503).await;
    server.metrics.watch(&"b".into(), Kind::Gateway).list_finished();
    body(&server, "/readyz", 200).await;
}
