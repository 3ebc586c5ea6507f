//! Metrics and readiness of fleets: with series for each cluster and without, and what is left of a cluster
//! that left.

use expect_test::expect_file;
use throughline::core::contract::error_cause::RequestFailure;
use throughline::core::data::ids::Kind;
use throughline::metrics::{ClusterRequests, Format, Metrics};

use super::{body, stage};
use crate::http::Server;

/// A cluster is joined for as long as this is there.
fn join(metrics: &Metrics, name: &str) -> ClusterRequests {
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
fn leave(metrics: &Metrics, name: &str, requests: ClusterRequests) {
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
    // The hub is configured, and was not tried.
    let mut said = body(&server, "/readyz", 503).await;
    hub.list_finished();
    // No discovered cluster is waited for.
    said += &body(&server, "/readyz", 200).await;
    expect_file!["ready_large.txt"].assert_eq(&said);
}

#[tokio::test]
async fn ready_once_every_watch_was_tried_and_one_cluster_is_fully_listed() {
    let server = Server::with_loop(stage().machine).await;
    let watch = |cluster: &str, kind| server.metrics.watch(&cluster.into(), kind);
    let mut said = body(&server, "/readyz", 503).await;
    let connectors = watch("project-a", Kind::Connector);
    let gateways = watch("project-a", Kind::Gateway);
    let broken = watch("project-b", Kind::Connector);
    connectors.list_started();
    broken.list_started();
    said += &body(&server, "/readyz", 503).await;
    connectors.list_finished();
    gateways.list_finished();
    said += &body(&server, "/readyz", 503).await;
    // A broken cluster must not hold up the others.
    broken.lost(&"401 Unauthorized".into());
    for path in ["/readyz", "/readyz?verbose"] {
        said += &body(&server, path, 200).await;
    }
    // Once ready, always ready: a restarted process would not see more than this one.
    broken.list_started();
    connectors.lost(&"cut".into());
    gateways.lost(&"cut".into());
    connectors.list_started();
    watch("project-c", Kind::Connector);
    said += &body(&server, "/readyz", 200).await;
    broken.list_finished();
    said += &body(&server, "/readyz?verbose", 200).await;
    expect_file!["ready.txt"].assert_eq(&said);

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
