//! What no sound API server answers: objects of another type than was asked for, as from a proxy that
//! mixes its answers, objects without a name, and lists that break off.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Uri;
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use throughline::config::WatchConstants;
use throughline::core::data::ids::Kind;

use crate::cluster::{self, client_at};
use crate::live::{Watched, quick, told};
use crate::log::Log;

const VERSION: &str = "networking.datumapis.com/v1alpha1";

/// The last one is repeated.
fn next<T: Clone>(answers: &mut Vec<T>) -> T {
    if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
}

/// A watch of Connectors with the answers to its lists, and the events of each of its watches. Pauses last
/// at most `pause_ms`.
fn scripted(lists: Vec<String>, watches: Vec<Vec<Value>>, pause_ms: u64) -> Watched {
    let answers = Arc::new(Mutex::new((lists, watches)));
    let serve = move |uri: Uri| {
        let (lists, watches) = &mut *answers.lock().unwrap();
        let body = if uri.query().unwrap_or_default().contains("watch=true") {
            let lines = next(watches).into_iter().map(|line| Ok(format!("{line}\n")));
            let open = futures::stream::pending::<Result<String, std::io::Error>>();
            Body::from_stream(futures::stream::iter(lines).chain(open))
        } else {
            next(lists).into()
        };
        std::future::ready(Response::new(body))
    };
    let config = WatchConstants { backoff_max_ms: pause_ms, ..quick() };
    let client = client_at("one", &cluster::serve(Router::new().fallback(serve)));
    Watched::of(client, Kind::Connector, config)
}

/// The lists are complete, and the pauses short.
fn bench(lists: Vec<Vec<Value>>, watches: Vec<Vec<Value>>) -> Watched {
    scripted(lists.into_iter().map(list).collect(), watches, 20)
}

/// A complete list.
fn list(items: impl Into<Value>) -> String {
    json!({"metadata": {"resourceVersion": "8"}, "items": items.into()}).to_string()
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
        let why = format!(
            "watch_lost unusable response from the API server: {kind} of {api_version} came"
        );
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
    let watches = vec![vec![event("ADDED", &connector("b"))]];
    let mut watch = scripted(vec![list(vec![nameless])], watches, 1_000);
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

/// What arrived before may be mirrored, but nothing counts as missing: the list is never finished.
#[tokio::test]
async fn a_list_that_is_broken_too_large_or_of_no_version_is_not_finished() {
    let head = r#"{"metadata":{"resourceVersion":"7"},"items":["#;
    let (first, large) = (connector("a"), "x".repeat(9 * 1024 * 1024));
    let started: &[&str] = &["list_started", "listed a"];
    let pages: [(String, &[&str], &str); 4] = [
        (format!(r#"{head}{first},{{"metadata":{{"name":"#), started, "it broke off"),
        (format!("{head}{first},nonsense]}}"), started, "a list: expected ident"),
        (format!(r#"{head}{first},{{"x":"{large}"}}]}}"#), started, "an object of more than 8 MiB"),
        // Not even its objects.
        (
            format!(r#"{{"metadata":{{}},"items":[{first}]}}"#),
            &[],
            "a list without metadata.resourceVersion",
        ),
    ];
    for (page, expected, why) in pages {
        let mut watch = scripted(vec![page, list(Value::Null)], vec![vec![]], 20);
        watch.expect(why, expected).await;
        let lost = told(&watch.next().await);
        assert!(lost.starts_with("watch_lost ") && lost.contains(why), "{lost}");
        // The next list is whole, and null is empty.
        watch.expect(why, &["list_started", "list_finished"]).await;
    }
}
