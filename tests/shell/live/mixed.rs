//! What no sound API server answers: objects of another type than was asked for, as from a proxy that
//! mixes its answers, objects without a name, pages that always expire, and lists that break off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use throughline::config::WatchConstants;
use throughline::core::data::ids::Kind;

use crate::cluster::{self, client_at};
use crate::live::{Watched, told};
use crate::log::Log;

const VERSION: &str = "networking.datumapis.com/v1alpha1";

type Params = BTreeMap<String, String>;
type Answer = (StatusCode, String);

fn next(answers: &mut Vec<Vec<Value>>) -> Vec<Value> {
    if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
}

/// A watch of Connectors with the answers to its lists, and the events of each of its watches; the last are
/// repeated. Pauses last at most `pause_ms`.
fn scripted(
    mut lists: impl FnMut(&Params) -> Answer + Send + 'static,
    mut watches: Vec<Vec<Value>>,
    pause_ms: u64,
) -> Watched {
    let answer = move |params: &Params| {
        if !params.contains_key("watch") {
            return lists(params).into_response();
        }
        let lines = next(&mut watches).into_iter().map(|line| Ok(format!("{line}\n")));
        let open = futures::stream::pending::<Result<String, std::io::Error>>();
        let lines = futures::stream::iter(lines.collect::<Vec<_>>());
        Response::new(Body::from_stream(lines.chain(open)))
    };
    let answer = Arc::new(Mutex::new(answer));
    let serve =
        move |Query(params): Query<Params>| std::future::ready(answer.lock().unwrap()(&params));
    let config = WatchConstants {
        page_size: 10,
        backoff_first_ms: 1,
        backoff_max_ms: pause_ms,
        ..WatchConstants::default()
    };
    let client = client_at("one", &cluster::serve(Router::new().fallback(serve)));
    Watched::of(client, Kind::Connector, config)
}

/// The lists are complete, and the pauses short.
fn bench(mut lists: Vec<Vec<Value>>, watches: Vec<Vec<Value>>) -> Watched {
    scripted(move |_| list(&next(&mut lists).into()), watches, 20)
}

/// A complete list.
fn list(items: &Value) -> Answer {
    let list = json!({"metadata": {"resourceVersion": "8"}, "items": items});
    (StatusCode::OK, list.to_string())
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "n", "name": name,
        "uid": name, "resourceVersion": "8"}, "status": {"conditions": []}})
}

fn connector(name: &str) -> Value {
    object(VERSION, "Connector", name)
}

fn event(event_type: &str, object: &Value) -> Value {
    json!({"type": event_type, "object": object})
}

/// Neither mirrored nor taken as proof of a live watch: it says where the watch's own objects may have gone.
#[tokio::test]
async fn what_is_of_another_type_ends_the_watch_and_only_a_list_goes_on() {
    for (api_version, kind) in [
        ("gateway.networking.k8s.io/v1", "Gateway"),
        ("networking.example.com/v1alpha1", "Connector"),
        // The request names the version.
        ("networking.datumapis.com/v1alpha2", "Connector"),
    ] {
        let other = object(api_version, kind, "other");
        let mut undecodable = other.clone();
        undecodable["metadata"]["labels"] = json!(5);
        let why =
            format!("lost: unusable response from the API server: {kind} of {api_version} came");
        let expected = ["list_started", "list_finished", "applied a", &*why, "list_started"];
        for line in [
            event("MODIFIED", &other),
            event("DELETED", &other),
            event("BOOKMARK", &other),
            event("ADDED", &undecodable),
        ] {
            let lines = vec![event("ADDED", &connector("a")), line.clone()];
            let mut watch = bench(vec![vec![]], vec![lines, vec![]]);
            watch.expect(&line.to_string(), &expected).await;
        }
        let lists = vec![vec![connector("a"), other.clone()], vec![connector("a")]];
        let mut watch = bench(lists, vec![vec![]]);
        watch.expect("an item of a list", &["list_started", "listed a", &*why]).await;
        watch.expect("the next list", &["list_started", "listed a", "list_finished"]).await;
    }

    // Items of a list have no type.
    let mut item = connector("a");
    item.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
    let lines = vec![event("ADDED", &item)];
    let mut watch = bench(vec![vec![item]], vec![lines]);
    watch.expect("no type", &["list_started", "listed a", "list_finished", "applied a"]).await;
}

/// What it was stays unknown, so nothing of its kind may count as missing until a list has shown it.
#[tokio::test]
async fn an_object_without_a_readable_name_makes_the_watch_list_again() {
    let mut nameless = connector("a");
    for metadata in [
        json!(5),
        json!({"namespace": "n", "resourceVersion": "8"}),
        json!({"name": 7, "resourceVersion": "8"}),
        json!({"name": "", "namespace": []}),
    ] {
        nameless["metadata"] = metadata.clone();
        let why = metadata.to_string();
        let again = ["list_started", "listed a", "list_finished"];
        let lines = vec![event("MODIFIED", &nameless)];
        let mut watch = bench(vec![vec![], vec![connector("a")]], vec![lines, vec![]]);
        watch.expect(&why, &["list_started", "list_finished", "unreadable \"\""]).await;
        watch.expect(&why, &again).await;

        let lists = vec![vec![nameless.clone(), connector("b")], vec![connector("a")]];
        let mut watch = bench(lists, vec![vec![]]);
        let expected = ["list_started", "unreadable \"\"", "listed b", "list_finished"];
        watch.expect(&why, &expected).await;
        watch.expect(&why, &again).await;
    }
    // One whose name can be read does not.
    nameless = connector("a");
    nameless["metadata"]["labels"] = json!(5);
    let lines = vec![event("MODIFIED", &nameless), event("ADDED", &connector("b"))];
    let mut watch = bench(vec![vec![nameless]], vec![lines]);
    watch.expect("the list", &["list_started", "unreadable \"a\"", "list_finished"]).await;
    watch.expect("the watch", &["unreadable \"a\"", "applied b"]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(watch.events.try_recv().is_err());
}

#[tokio::test]
async fn a_list_that_always_has_such_an_object_is_not_asked_for_all_the_time() {
    let (log, _guard) = Log::capture();
    let mut nameless = connector("a");
    nameless["metadata"]["name"] = json!(7);
    let page = json!([nameless]);
    let mut watch =
        scripted(move |_| list(&page), vec![vec![event("ADDED", &connector("b"))]], 1_000);
    let first = ["list_started", "unreadable", "list_finished", "applied b", "list_started"];
    watch.expect("the watch goes on between two lists", &first).await;
    let (mut lists, until) = (1, tokio::time::Instant::now() + Duration::from_secs(3));
    while let Ok(Some(message)) = tokio::time::timeout_at(until, watch.events.recv()).await {
        lists += usize::from(told(&message.kind) == "list_started");
    }
    // Each is half a second after the one before at the soonest.
    assert!((2..=7).contains(&lists), "{lists} lists");
    let text = log.text();
    assert!(text.contains("watch{cluster=one kind=Connector}"), "{text}");
}

#[tokio::test]
async fn where_pages_always_expire_it_says_so_and_lists_without_them() {
    let (log, _guard) = Log::capture();
    let pages = |params: &Params| match (params.contains_key("continue"), params.get("limit")) {
        (true, _) => {
            let status = json!({"kind": "Status", "reason": "Expired", "code": 410,
                "message": "The provided continue parameter is too old"});
            (StatusCode::GONE, status.to_string())
        }
        (false, Some(_)) => {
            let metadata = json!({"resourceVersion": "7", "continue": "more"});
            let page = json!({"metadata": metadata, "items": [connector("a")]});
            (StatusCode::OK, page.to_string())
        }
        (false, None) => list(&json!([connector("a"), connector("b")])),
    };
    let mut watch = scripted(pages, vec![vec![]], 20);
    watch.expect("the first page", &["list_started", "listed a"]).await;
    let whole = ["list_started", "listed a", "listed b", "list_finished"];
    watch.expect("all at once", &whole).await;
    let text = log.text();
    assert_eq!(text.matches("a later page of the list has expired").count(), 1, "{text}");
}

/// What arrived before may be mirrored, but nothing counts as missing: the list is never finished.
#[tokio::test]
async fn a_list_that_is_broken_too_large_or_of_no_version_is_not_finished() {
    let head = r#"{"metadata":{"resourceVersion":"7"},"items":["#;
    let (first, large) = (connector("a"), "x".repeat(9 * 1024 * 1024));
    let started: &[&str] = &["list_started", "listed a"];
    for (page, expected, why) in [
        (format!(r#"{head}{first},{{"metadata":{{"name":"#), started, "it broke off"),
        (format!("{head}{first},nonsense]}}"), started, "a list: expected ident"),
        (format!(r#"{head}{first},{{"x":"{large}"}}]}}"#), started, "an object of more than 8 MiB"),
        // Not even its objects.
        (
            json!({"metadata": {}, "items": [first]}).to_string(),
            &[][..],
            "a list without metadata.resourceVersion",
        ),
    ] {
        let mut pages = vec![page];
        let lists = move |_: &Params| match pages.pop() {
            Some(page) => (StatusCode::OK, page),
            None => list(&Value::Null),
        };
        let mut watch = scripted(lists, vec![vec![]], 20);
        watch.expect(why, expected).await;
        let lost = told(&watch.next().await);
        assert!(lost.starts_with("lost: ") && lost.contains(why), "{lost}");
        // The next list is whole, and null is empty.
        watch.expect(why, &["list_started", "list_finished"]).await;
    }
}
