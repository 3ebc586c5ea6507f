//! Lists that are not as a sound API server answers them: pages that always expire, lists without
//! items or without a resourceVersion.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::Kind;
use throughline::watch::WatchConstants;

use crate::live::Watched;
use crate::log::Log;

type Params = BTreeMap<String, String>;
type Answer = (StatusCode, String);
type Answers = Arc<Mutex<dyn FnMut(&Params) -> Answer + Send>>;

/// The events of a watch of an API server that answers so.
async fn bench(answers: impl FnMut(&Params) -> Answer + Send + 'static) -> Watched {
    async fn answer(State(answers): State<Answers>, Query(params): Query<Params>) -> Answer {
        if params.contains_key("watch") {
            // Open, and silent.
            std::future::pending::<()>().await;
        }
        (answers.lock().unwrap())(&params)
    }
    let answers: Answers = Arc::new(Mutex::new(answers));
    let router = Router::new().fallback(answer).with_state(answers);
    let config = WatchConstants {
        page_size: 1,
        backoff_first_ms: 1,
        backoff_max_ms: 20,
        ..WatchConstants::default()
    };
    Watched::start(router, Kind::Gateway, config).await
}

impl Watched {
    /// The number of objects in the first list that is complete.
    async fn listed(&mut self) -> usize {
        let mut objects = 0;
        loop {
            match self.next().await {
                EventKind::ListStarted { .. } => objects = 0,
                EventKind::Listed { .. } => objects += 1,
                EventKind::ListFinished { .. } => return objects,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn gateway(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "5"}})
}

fn ok(list: &Value) -> Answer {
    (StatusCode::OK, list.to_string())
}

#[tokio::test]
async fn where_pages_always_expire_it_says_so_and_lists_without_them() {
    let log = Log::default();
    let _guard = log.capture();
    let mut bench = bench(|params| {
        let (first, second) = (gateway("a"), gateway("b"));
        let items = match (params.contains_key("continue"), params.contains_key("limit")) {
            (true, _) => {
                let status = json!({"kind": "Status", "reason": "Expired", "code": 410,
                    "message": "The provided continue parameter is too old"});
                return (StatusCode::GONE, status.to_string());
            }
            (false, true) => {
                let metadata = json!({"resourceVersion": "7", "continue": "more"});
                return ok(&json!({"metadata": metadata, "items": [first]}));
            }
            (false, false) => json!([first, second]),
        };
        ok(&json!({"metadata": {"resourceVersion": "7"}, "items": items}))
    })
    .await;
    assert_eq!(bench.listed().await, 2);
    let text = log.text();
    assert_eq!(text.matches("a later page of the list has expired").count(), 1, "{text}");
}

#[tokio::test]
async fn a_list_of_null_is_empty() {
    let mut bench =
        bench(|_| ok(&json!({"metadata": {"resourceVersion": "7"}, "items": null}))).await;
    assert_eq!(bench.listed().await, 0);
}

#[tokio::test]
async fn a_list_without_resource_version_tells_nothing_and_is_tried_again() {
    let mut lists = 0;
    let mut bench = bench(move |_| {
        lists += 1;
        let metadata = if lists < 3 { json!({}) } else { json!({"resourceVersion": "7"}) };
        ok(&json!({"metadata": metadata, "items": [gateway("a")]}))
    })
    .await;
    match bench.next().await {
        EventKind::WatchLost { error, .. } => {
            assert!(error.contains("a list without metadata.resourceVersion"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.listed().await, 1);
}

/// What arrived before may be mirrored, but nothing counts as missing: the list is never finished.
#[tokio::test]
async fn a_list_that_breaks_off_or_is_too_large_is_not_finished() {
    let large = "x".repeat(9 * 1024 * 1024);
    for (rest, why) in [
        (r#"{"metadata":{"name":"#.to_owned(), "it broke off"),
        ("nonsense]}".to_owned(), "a list: expected ident"),
        (format!(r#"{{"x":"{large}"}}]}}"#), "an object of more than 8 MiB"),
    ] {
        let mut lists = 0;
        let mut bench = bench(move |_| {
            lists += 1;
            if lists > 1 {
                return ok(&json!({"metadata": {"resourceVersion": "8"}, "items": []}));
            }
            let first = gateway("a");
            let head = r#"{"metadata":{"resourceVersion":"7"},"items":["#;
            (StatusCode::OK, format!("{head}{first},{rest}"))
        })
        .await;
        assert!(matches!(bench.next().await, EventKind::ListStarted { .. }));
        assert!(matches!(bench.next().await, EventKind::Listed { .. }));
        match bench.next().await {
            EventKind::WatchLost { error, .. } => assert!(error.contains(why), "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.listed().await, 0, "the next list is whole");
    }
}
