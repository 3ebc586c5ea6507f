//! The admin port over TCP: probes, metrics, state, and how they behave when the loop is gone.

mod access;
mod crowd;
mod fleet;
mod page;
mod readiness;
mod scrape;

use serde_json::Value;
use throughline::config::StateAccess;
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::Kind;
use throughline::core::view::fleet::Source;

use crate::every_metric::count;
use crate::http::{Server, get};
use crate::stage::{Stage, status};

const OPEN: &str =
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";

fn stage() -> Stage {
    let mut stage = Stage::new(Settings::default());
    stage.upstream(Some(&status(Some("n1"))));
    stage.gateway(r#""throughline.datumapis.com/paused":"true""#);
    stage
}

#[tokio::test]
async fn livez_says_whether_the_loop_answers() {
    let server = Server::with_loop(stage().machine).await;
    let answer = server.get("/livez").await;
    assert_eq!((answer.status, &*answer.body), (200, "ok\n"));
    server.stop().await;

    let (server, asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    let answer = server.get("/livez").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("did not answer within 2 s"), "{}", answer.body);
    drop(asked);
    for path in ["/livez", "/state"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.body.contains("the event loop has ended"), "{}", answer.body);
    }
    // What needs no loop still answers.
    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let scraped = scrape::read(&answer.body, false);
    assert!(!scraped.has("throughline_connectors") && scraped.has("throughline_actions_total"));
    server.stop().await;
}

#[tokio::test]
async fn a_scrape_is_well_formed_in_both_formats_and_has_every_count() {
    let server = Server::with_loop(stage().machine).await;
    let requests = count(&server.metrics);
    for (accept, open, content_type) in [
        (OPEN, true, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("*/*", false, "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let answer = get(server.address, "/metrics", accept).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-type"], content_type);
        let scraped = scrape::read(&answer.body, open);
        for (series, value) in [
            (r#"throughline_build_info{version="0.1.0",commit="unknown"}"#, 1.0),
            (r#"throughline_causes_open{cause="not_carried",cluster="edge"}"#, 1.0),
            (r#"throughline_causes_total{cause="not_carried"}"#, 1.0),
            (r#"throughline_causes_total{cause="bug"}"#, 0.0),
            (r#"throughline_connectors{state="held"}"#, 1.0),
            (r#"throughline_connectors{state="stuck"}"#, 0.0),
            (r#"throughline_hop_seconds_count{hop="mirrored"}"#, 1.0),
            (r#"throughline_hop_seconds_bucket{le="0.025",hop="mirrored"}"#, 0.0),
            (r#"throughline_hop_seconds_bucket{le="0.05",hop="mirrored"}"#, 1.0),
            (r#"throughline_hop_seconds_bucket{le="120.0",hop="announced"}"#, 0.0),
            (r#"throughline_actions_total{verb="touch",outcome="superseded"}"#, 1.0),
            (r#"throughline_actions_total{verb="delete",outcome="unanswered"}"#, 0.0),
            (r#"throughline_action_seconds_count{verb="touch"}"#, 1.0),
            (r#"throughline_action_seconds_sum{verb="mirror"}"#, 0.02),
            (r#"workqueue_depth{name="org/team \"a\""}"#, 4.0),
            (r#"rest_client_requests_total{code="200",method="PATCH",host="org/team \"a\""}"#, 2.0),
            (
                r#"rest_client_requests_total{code="<error>",method="PATCH",host="org/team \"a\""}"#,
                1.0,
            ),
            (r#"leader_election_master_status{name="throughline"}"#, 1.0),
            ("throughline_loop_seconds_count", 1.0),
            ("throughline_event_log_lines_lost_total", 5.0),
            (r#"throughline_events_total{result="dropped"}"#, 1.0),
            (r#"throughline_config_reloads_total{result="refused"}"#, 0.0),
            (r#"throughline_clusters{state="joining"}"#, 1.0),
            (r#"throughline_clusters{state="idle"}"#, 0.0),
            (r#"throughline_watches{kind="Connector",state="listing"}"#, 1.0),
            (r#"throughline_watches{kind="Gateway",state="never"}"#, 1.0),
            (r#"throughline_watch_events_total{kind="Connector"}"#, 1.0),
            (r#"throughline_watch_restarts_total{kind="Connector",by="list"}"#, 1.0),
            (r#"throughline_watch_restarts_total{kind="Connector",by="resume"}"#, 1.0),
        ] {
            assert_eq!(scraped.value(series), value, "{series}");
        }
        assert!(!answer.body.contains("10.0.0.1"), "addresses must not appear in metrics");
        let silence = |kind| format!("throughline_watch_silence_seconds{{kind=\"{kind}\"}}");
        assert!(scraped.value(&silence("Connector")) < 60.0);
        assert!(!scraped.series.contains_key(&silence("Gateway")), "nothing was received");
        if cfg!(target_os = "linux") {
            assert!(scraped.value("process_resident_memory_bytes") > 1e6);
            assert!(scraped.value("process_open_fds") >= 3.0);
            assert!(scraped.value("process_start_time_seconds") > 1.7e9);
            assert!(scraped.has("process_cpu_seconds_total"));
        }
    }
    drop(requests);
    server.metrics.remove_cluster(&"org/team \"a\"".into());
    let answer = server.get("/metrics").await;
    assert!(!answer.body.contains("org/team"), "{}", answer.body);
    server.stop().await;
}

/// Dashboards are made from the documentation.
#[tokio::test]
async fn the_documentation_lists_exactly_the_metrics_that_exist() {
    let server = Server::with_loop(stage().machine).await;
    let _requests = count(&server.metrics);
    let scraped = scrape::read(&server.get("/metrics").await.body, false);
    let page = include_str!("../../docs/reference/metrics.md");
    let (_, section) = page.split_once("\n## Metrics\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut documented: Vec<_> = rows.map(|row| row.split(['`', '{']).next().unwrap()).collect();
    documented.sort_unstable();
    let families: Vec<_> = scraped.families.keys().map(String::as_str).collect();
    assert_eq!(documented, families);
    server.stop().await;
}

#[tokio::test]
async fn the_state_is_indented_json_unless_json_is_asked_for() {
    let stage = stage();
    let mut expected =
        serde_json::to_value(stage.machine.fleet(Source::Instance, &|_| None)).unwrap();
    let server = Server::with_loop(stage.machine).await;
    // What only the process knows.
    server.metrics.set_lease_holder("pod-1");
    server.metrics.watch(&"edge".into(), Kind::Connector).list_finished();
    expected["leader"]["holder"] = "pod-1".into();
    let people = get(server.address, "/state", "*/*").await;
    assert_eq!(people.status, 200);
    assert_eq!(people.headers["content-type"], "application/json");
    assert!(people.body.lines().count() > 20);
    let program = get(server.address, "/state", "application/json").await;
    assert_eq!(program.body.lines().count(), 1);
    for answer in [people, program] {
        let mut state: Value = serde_json::from_str(&answer.body).unwrap();
        let instance = state.as_object_mut().unwrap().remove("instance").unwrap();
        assert_eq!(instance["version"], env!("CARGO_PKG_VERSION"));
        assert!(instance["commit"].is_string() && instance["sinceMs"].is_u64(), "{instance}");
        let mut clusters = state["clusters"].as_array_mut().unwrap().iter_mut();
        let edge = clusters.find(|cluster| cluster["name"] == "edge").unwrap();
        let received = edge.as_object_mut().unwrap().remove("receivedAtMs").unwrap();
        assert!(received["Connector"].is_u64(), "{received}");
        assert_eq!(state, expected);
    }
    server.stop().await;
}
