//! What no sound API server answers: objects of another type than was asked for, as from a proxy that
//! mixes its answers, and objects without a name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::Kind;
use throughline::watch::WatchConstants;

use crate::live::Watched;
use crate::log::Log;

const VERSION: &str = "networking.datumapis.com/v1alpha1";

/// The answers to lists and to watches, in turn; the last of them is repeated.
struct Script {
    lists: Vec<Vec<Value>>,
    watches: Vec<Vec<Value>>,
}

fn answer(answers: &mut Vec<Vec<Value>>) -> Vec<Value> {
    if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
}

async fn serve(
    State(script): State<Arc<Mutex<Script>>>,
    Query(params): Query<BTreeMap<String, String>>,
) -> Response<Body> {
    let mut script = script.lock().unwrap();
    if params.contains_key("watch") {
        let lines = answer(&mut script.watches).into_iter().map(|line| Ok(format!("{line}\n")));
        let open = futures::stream::pending::<Result<String, std::io::Error>>();
        let lines = futures::stream::iter(lines.collect::<Vec<_>>());
        return Response::new(Body::from_stream(lines.chain(open)));
    }
    let items = answer(&mut script.lists);
    let list = json!({"metadata": {"resourceVersion": "8"}, "items": items});
    Response::new(Body::from(list.to_string()))
}

/// A watch of Connectors. Pauses last at most `pause_ms`.
async fn bench(lists: Vec<Vec<Value>>, watches: Vec<Vec<Value>>, pause_ms: u64) -> Watched {
    let script = Arc::new(Mutex::new(Script { lists, watches }));
    let router = Router::new().fallback(serve).with_state(script);
    let config = WatchConstants {
        backoff_first_ms: 1,
        backoff_max_ms: pause_ms,
        ..WatchConstants::default()
    };
    Watched::start(router, Kind::Connector, config).await
}

impl Watched {
    async fn told(&mut self) -> String {
        told(self.next().await)
    }

    async fn expect(&mut self, expected: &[&str], why: &str) {
        for expected in expected {
            let next = self.told().await;
            assert!(next.starts_with(expected), "{why}: {next:?}, not {expected:?}");
        }
    }
}

fn told(event: EventKind) -> String {
    match event {
        EventKind::ListStarted { .. } => "list_started".into(),
        EventKind::Listed { object, .. } => format!("listed {}", object.meta.name),
        EventKind::ListFinished { .. } => "list_finished".into(),
        EventKind::Applied { object, .. } => format!("applied {}", object.meta.name),
        EventKind::Unreadable { object, .. } => format!("unreadable {:?}", object.name),
        EventKind::WatchLost { error, .. } => format!("lost: {error}"),
        other => panic!("{other:?}"),
    }
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

/// Neither mirrored nor taken for a sign of life: it says where the watch's own objects may have gone.
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
            let mut watch = bench(vec![vec![]], vec![lines, vec![]], 20).await;
            watch.expect(&expected, &line.to_string()).await;
        }
        let lists = vec![vec![connector("a"), other.clone()], vec![connector("a")]];
        let mut watch = bench(lists, vec![vec![]], 20).await;
        watch.expect(&["list_started", "listed a", &*why], "an item of a list").await;
        watch.expect(&["list_started", "listed a", "list_finished"], "the next list").await;
    }
}

/// Lists of built-in kinds do not say what their items are.
#[tokio::test]
async fn an_object_that_names_no_type_is_of_the_one_that_was_asked_for() {
    let mut item = connector("a");
    item.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
    let lines = vec![event("ADDED", &item)];
    let mut watch = bench(vec![vec![item]], vec![lines], 20).await;
    watch.expect(&["list_started", "listed a", "list_finished", "applied a"], "no type").await;
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
        let expected = ["list_started", "list_finished", "unreadable \"\"", "list_started"];
        let lines = vec![event("MODIFIED", &nameless)];
        let mut watch = bench(vec![vec![], vec![connector("a")]], vec![lines, vec![]], 20).await;
        watch.expect(&expected, &why).await;
        watch.expect(&["listed a", "list_finished"], &why).await;

        let lists = vec![vec![nameless.clone(), connector("b")], vec![connector("a")]];
        let mut watch = bench(lists, vec![vec![]], 20).await;
        let expected = ["list_started", "unreadable \"\"", "listed b", "list_finished"];
        watch.expect(&expected, &why).await;
        watch.expect(&["list_started", "listed a", "list_finished"], &why).await;
    }
}

#[tokio::test]
async fn a_list_that_always_has_such_an_object_is_not_asked_for_all_the_time() {
    let log = Log::default();
    let _guard = log.capture();
    let mut nameless = connector("a");
    nameless["metadata"]["name"] = json!(7);
    let mut watch =
        bench(vec![vec![nameless]], vec![vec![event("ADDED", &connector("b"))]], 1_000).await;
    let first = ["list_started", "unreadable", "list_finished", "applied b", "list_started"];
    watch.expect(&first, "the watch goes on between two lists").await;
    let (mut lists, until) = (1, tokio::time::Instant::now() + Duration::from_secs(3));
    while let Ok(Some(message)) = tokio::time::timeout_at(until, watch.events.recv()).await {
        lists += usize::from(told(message.kind) == "list_started");
    }
    // Each is half a second after the one before at the soonest.
    assert!((2..=7).contains(&lists), "{lists} lists");
    let text = log.text();
    assert!(text.contains("watch{cluster=one kind=Connector}"), "{text}");
}

#[tokio::test]
async fn an_object_whose_name_can_be_read_does_not_make_the_watch_list_again() {
    let mut unreadable = connector("a");
    unreadable["metadata"]["labels"] = json!(5);
    let lines = vec![event("MODIFIED", &unreadable), event("ADDED", &connector("b"))];
    let mut watch = bench(vec![vec![unreadable]], vec![lines], 20).await;
    watch.expect(&["list_started", "unreadable \"a\"", "list_finished"], "the list").await;
    watch.expect(&["unreadable \"a\"", "applied b"], "the watch").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(watch.events.try_recv().is_err());
}
