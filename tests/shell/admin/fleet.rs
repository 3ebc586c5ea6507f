//! Metrics and probes of fleets: with series for each cluster and without, and what is left of a
//! cluster that left.

use std::sync::Arc;

use throughline::core::contract::error_cause::RequestFailure;
use throughline::core::data::ids::Kind;
use throughline::metrics::{ClusterRequests, Format, Metrics};

use super::stage;
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

/// The text without its digits.
fn scraped(metrics: &Metrics) -> String {
    metrics.text(None, Format::Plain).replace(|c: char| c.is_ascii_digit(), "")
}

/// The sum of these series.
fn sum(text: &str, series: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(series));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
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
        scraped(&metrics).len()
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

/// A dashboard's rates must not see a counter fall when clusters leave.
#[test]
fn without_series_for_each_cluster_the_sums_remain() {
    let metrics = Metrics::new();
    metrics.set_clusters(201);
    let (a, b) = (join(&metrics, "a"), join(&metrics, "b"));
    let requests = |metrics: &Metrics| {
        let text = metrics.text(None, Format::Plain);
        let requests = sum(&text, "rest_client_requests_total{");
        assert_eq!(
            sum(&text, r#"rest_client_requests_total{code="200",method="GET",host="all"}"#),
            2.0
        );
        (requests, sum(&text, "throughline_watch_restarts_total{"))
    };
    metrics.watch(&"a".into(), Kind::Connector).list_started();
    assert_eq!(requests(&metrics), (2.0, 1.0));
    leave(&metrics, "a", a);
    assert_eq!(requests(&metrics), (3.0, 1.0), "and the late one");
    leave(&metrics, "b", b);
    assert_eq!(requests(&metrics), (4.0, 1.0));
}

#[test]
fn beyond_two_hundred_clusters_there_are_no_series_for_each() {
    let metrics = Metrics::new();
    let _requests = join(&metrics, "a");
    for (clusters, expected) in [(200, true), (201, false)] {
        metrics.set_clusters(clusters);
        let text = metrics.text(None, Format::Plain);
        let has = |part: &str| text.contains(part);
        let which = format!("{clusters}: {text}");
        assert_eq!(has(r#"host="a""#), expected, "{which}");
        assert_eq!(has(r#"host="all""#), !expected, "{which}");
        // In both: how many watches and clusters are in which state.
        assert!(has(r#"throughline_watches{kind="Connector",state="live"} 1"#), "{which}");
        assert!(has(r#"throughline_watches{kind="Connector",state="lost"} 0"#), "{which}");
        assert!(has(r#"throughline_clusters{state="followed"} 1"#), "{which}");
        // Only clusters with writes have one.
        assert!(has(r#"workqueue_depth{name="a"} 1"#), "{which}");
    }
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
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, 503, "the hub is configured, and was not tried");
    assert!(answer.body.starts_with(summary), "{}", answer.body);
    hub.list_finished();
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, 200, "no discovered cluster is waited for");
    assert!(answer.body.ends_with("\nok\n"), "{}", answer.body);
    assert_eq!(answer.body.lines().count(), 6, "{}", answer.body);
    server.stop().await;
}
