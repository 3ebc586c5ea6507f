//! The admin port over TCP: probes, metrics, state, and how they behave when the loop is gone.

mod access;
mod crowd;
mod fleet;
mod page;

use std::collections::BTreeSet;

use expect_test::expect_file;
use serde_json::Value;
use throughline::admin::Query;
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

/// What the server answers with this status.
async fn body(server: &Server, path: &str, status: u16) -> String {
    let answer = server.get(path).await;
    assert_eq!(answer.status, status, "{path}: {}", answer.body);
    answer.body
}

#[tokio::test]
async fn livez_says_whether_the_loop_answers() {
    let server = Server::with_loop(stage().machine).await;
    assert_eq!(body(&server, "/livez", 200).await, "ok\n");

    let (server, asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    let said = body(&server, "/livez", 503).await;
    assert!(said.contains("did not answer within 2 s"), "{said}");
    drop(asked);
    for path in ["/livez", "/state"] {
        let said = body(&server, path, 503).await;
        assert!(said.contains("the event loop has ended"), "{said}");
    }
    // What needs no loop still answers.
    let metrics = body(&server, "/metrics", 200).await;
    let has = |series: &str| metrics.contains(&format!("\n{series}{{"));
    assert!(!has("throughline_connectors") && has("throughline_actions_total"));
}

/// The value of a series in a scrape.
pub(crate) fn sample(scrape: &str, series: &str) -> Option<f64> {
    let value = scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

/// What differs from one run to another.
const UNSTEADY: [&str; 7] = [
    "process_",
    "throughline_build_info{",
    "throughline_lease_left_seconds",
    "throughline_user_visible_online_seconds_total",
    "throughline_user_visible_unknown_seconds_total",
    "throughline_user_visible_wrong_seconds_total",
    "throughline_watch_silence_seconds",
];

/// A scrape without that, the samples of each family in order.
fn steady(text: &str) -> String {
    let mut families = Vec::<Vec<&str>>::new();
    for line in text.lines() {
        if line.starts_with("# HELP ") {
            families.push(Vec::new());
        }
        families.last_mut().unwrap().push(line);
    }
    for family in &mut families {
        family[2..].sort_unstable();
        family.retain(|line| !UNSTEADY.iter().any(|name| line.contains(name)));
    }
    families.concat().join("\n") + "\n"
}

/// `UPDATE_EXPECT=1` writes the golden.
#[tokio::test]
async fn a_scrape_has_every_count_in_both_formats() {
    let server = Server::with_loop(stage().machine).await;
    let requests = count(&server.metrics);
    let open = get(server.address, "/metrics", OPEN).await;
    let plain = server.get("/metrics").await;
    for (answer, content_type) in [
        (&open, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (&plain, "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        assert_eq!((answer.status, &*answer.headers["content-type"]), (200, content_type));
    }
    let other = get(server.address, "/metrics", "application/openmetrics-text-next").await;
    assert_eq!(other.headers["content-type"], plain.headers["content-type"]);
    expect_file!["admin/scrape.txt"].assert_eq(&steady(&plain.body));
    let samples = |text: &str| -> Vec<String> {
        let text = steady(text);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&open.body), samples(&plain.body));
    assert!(open.body.contains("\n# TYPE throughline_actions counter\n"));
    assert!(open.body.ends_with("\n# EOF\n") && !plain.body.contains("# EOF"));

    let value = |series: &str| sample(&plain.body, series).expect(series);
    assert!(value(r#"throughline_watch_silence_seconds{kind="Connector"}"#) < 60.0);
    let never = r#"throughline_watch_silence_seconds{kind="Gateway"}"#;
    assert!(!plain.body.contains(never), "nothing was received");
    if cfg!(target_os = "linux") {
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
    let version = concat!("throughline_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",");
    assert!(plain.body.contains(version));
    drop(requests);
    server.metrics.remove_cluster(&"org/team \"a\"".into());
    let answer = server.get("/metrics").await;
    assert!(!answer.body.contains("org/team"), "{}", answer.body);
}

/// Dashboards are made from the documentation.
#[test]
fn the_documentation_lists_exactly_the_metrics_that_exist_with_their_labels() {
    let page = include_str!("../../docs/reference/metrics.md");
    let (_, section) = page.split_once("\n## Metrics\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    // Each name with its labels, in any order.
    let documented: BTreeSet<BTreeSet<_>> =
        rows.map(|metric| metric.trim_end_matches('}').split(['{', ',']).collect()).collect();
    // tests/commands/surface.rs holds this list to the program. Its second word is a type.
    let list = include_str!("../commands/surface/metrics.txt").lines();
    let existing = list.map(|line| {
        let words = line.split([' ', ',']).enumerate();
        words.filter_map(|(n, word)| (n != 1).then_some(word)).collect()
    });
    assert_eq!(documented, existing.collect::<BTreeSet<BTreeSet<_>>>());
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
    for (accept, is_program) in
        [("text/html, application/json;q=0.9", true), ("application/json-seq", false)]
    {
        let answer = get(server.address, "/state", accept).await;
        assert_eq!(answer.body.lines().count() == 1, is_program, "{accept}");
    }
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
}

#[tokio::test]
async fn the_state_has_no_secrets_of_errors() {
    let mut fleet = stage().machine.fleet(Source::Instance, &|_| None);
    let hop = &mut fleet.connectors[0].hops[0];
    hop.message = Some("refused by 10.0.0.7:443".to_owned());
    hop.evidence.push("the last write failed: token=hunter2".to_owned());
    let (server, mut asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    tokio::spawn(async move {
        let Some(Query::State(answer)) = asked.recv().await else { return };
        drop(answer.send(fleet));
    });
    let state = body(&server, "/state", 200).await;
    for text in ["refused by <address>", "the last write failed: token=<secret>"] {
        assert!(state.contains(text), "{state}");
    }
}
