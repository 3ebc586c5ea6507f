//! Watches of a scripted API server, by a clock that goes on while all wait.

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;
use crate::config::WatchConstants;
use crate::core::contract::event::EventName;

/// A response: its head after so many milliseconds, and each piece of its body after so many more.
struct Answer {
    head: u64,
    code: u16,
    pieces: Vec<(u64, String)>,
    ends: bool,
}

impl Answer {
    fn whole(body: Value) -> Self {
        Self { head: 0, code: 200, pieces: vec![(0, body.to_string())], ends: true }
    }

    /// A watch that stays open.
    fn open(lines: impl IntoIterator<Item = (u64, Value)>) -> Self {
        let pieces = lines.into_iter().map(|(wait, line)| (wait, format!("{line}\n"))).collect();
        Self { head: 0, code: 200, pieces, ends: false }
    }

    fn error(code: u16, message: &str) -> Self {
        Self { code, ..Self::whole(json!({"code": code, "message": message})) }
    }

    /// Its head never comes.
    fn none() -> Self {
        Self { head: 1_000_000_000, ..Self::open([]) }
    }

    fn ends(self) -> Self {
        Self { ends: true, ..self }
    }

    async fn response(self) -> http::Response<StreamBody<BoxStream<'static, Piece>>> {
        sleep(Duration::from_millis(self.head)).await;
        let pieces = futures::stream::iter(self.pieces).then(|(wait, piece)| async move {
            sleep(Duration::from_millis(wait)).await;
            Ok(Frame::data(Bytes::from(piece)))
        });
        let body = match self.ends {
            true => pieces.boxed(),
            false => pieces.chain(futures::stream::pending()).boxed(),
        };
        http::Response::builder().status(self.code).body(StreamBody::new(body)).unwrap()
    }
}

type Piece = Result<Frame<Bytes>, std::io::Error>;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    /// Since the start the n-th.
    List(u32),
    Watch(u32),
    Version,
}

fn list(version: &str) -> Answer {
    Answer::whole(json!({"metadata": {"resourceVersion": version}, "items": []}))
}

fn event(event_type: &str, version: &str) -> Value {
    let metadata = json!({"namespace": "n", "name": "a", "resourceVersion": version});
    json!({"type": event_type, "object": {"metadata": metadata}})
}

fn broken() -> Value {
    json!({"type": "ERROR", "object": {"code": 500, "message": "broken"}})
}

/// The events of a watch of Connectors as text, each after the second when it came, up to one that
/// begins with `last`.
async fn events(last: &str, answer: impl Fn(Asked) -> Answer + Send + 'static) -> Vec<String> {
    let (mut lists, mut watches) = (0, 0);
    let serve = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let asked = if query.contains("watch=true") {
            watches += 1;
            Asked::Watch(watches)
        } else if query == "limit=1" {
            Asked::Version
        } else {
            lists += 1;
            Asked::List(lists)
        };
        let answer = answer(asked);
        async move {
            assert!(answer.code != 0, "so it was written");
            Ok::<_, std::io::Error>(answer.response().await)
        }
    };
    let client = kube::Client::new(tower::service_fn(serve), "default");
    let metrics = Arc::new(Metrics::new());
    let cluster = Arc::new(ClusterClient::with_client("one".into(), client, metrics.clone()));
    let (bus, mut events) = mpsc::channel(8);
    let shared = Arc::new(WatchShared::new(WatchConstants::default(), bus));
    let task = tokio::spawn(WatchTask::new(cluster, Kind::Connector, shared, &metrics).run());
    let began = Instant::now();
    let mut told = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(300), events.recv()).await;
        let Ok(Some(message)) = next else { panic!("no {last} in {told:?}") };
        let name = EventName::from(&message.kind).as_str();
        let text = match message.kind {
            EventKind::Applied { object, .. } | EventKind::Deleted { object, .. } => {
                format!("{name} {}@{}", object.meta.name, object.meta.resource_version)
            }
            EventKind::WatchLost { error, .. } => format!("{name} {error}"),
            _ => name.to_owned(),
        };
        told.push(format!("{} {text}", began.elapsed().as_secs()));
        if text.starts_with(last) {
            task.abort();
            return told;
        }
    }
}

/// What it would show first may be old: a status from before the break would be mirrored.
#[tokio::test(start_paused = true)]
async fn a_watch_is_resumed_after_the_changes_that_it_missed() {
    let busy = || (0..20).map(|i| (900, event("MODIFIED", &format!("1{i:02}"))));
    let told = events("watch_resumed", move |asked| match asked {
        Asked::List(_) => list("5"),
        Asked::Version => list("9"),
        Asked::Watch(1) => Answer::open([(0, event("ADDED", "6")), (0, broken())]),
        Asked::Watch(_) => {
            let missed = [(0, event("MODIFIED", "7")), (0, event("MODIFIED", "9"))];
            Answer::open(missed.into_iter().chain(busy()))
        }
    });
    let told = told.await;
    assert!(told[3].starts_with("0 watch_lost 500 "), "{told:?}");
    assert_eq!(told[4..], ["0 applied a@7", "0 applied a@9", "0 watch_resumed"]);

    // Nothing says which of these is the last that was missed, but a bookmark is no event.
    let told = events("watch_resumed", |asked| match asked {
        Asked::List(_) | Asked::Version => list("x"),
        Asked::Watch(1) => Answer::open([(0, broken())]),
        Asked::Watch(_) => {
            let lines = [event("ADDED", "v"), event("ADDED", "w"), event("BOOKMARK", "y")];
            Answer::open(lines.map(|line| (950, line)))
        }
    });
    let told = told.await;
    assert_eq!(told[3..], ["1 applied a@v", "2 applied a@w", "3 watch_resumed"]);
}

fn usual(asked: Asked) -> Answer {
    match asked {
        Asked::List(_) => list("5"),
        Asked::Version => list("9"),
        Asked::Watch(1) => Answer::open([(20_000, event("ADDED", "6"))]).ends(),
        Asked::Watch(_) => Answer::open([]),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_opened_within_five_seconds_is_lost_and_the_attempt_goes_on() {
    type Script = fn(Asked) -> Option<Answer>;
    let rows: [(&str, u64, Script); 6] = [
        ("the first", 5, |asked| (asked == Asked::Watch(1)).then(Answer::none)),
        ("the second", 25, |asked| (asked == Asked::Watch(2)).then(Answer::none)),
        ("its version", 25, |asked| (asked == Asked::Version).then(Answer::none)),
        ("its storage", 25, |asked| {
            let error = || Answer::error(429, "storage is (re)initializing");
            matches!(asked, Asked::Watch(2..)).then(error)
        }),
        ("its list", 25, |asked| match asked {
            Asked::Watch(2) => Some(Answer::error(410, "too old")),
            Asked::List(2) => Some(Answer::none()),
            _ => None,
        }),
        ("after silence", 95, |asked| match asked {
            Asked::Watch(_) => Some(Answer::open([])),
            Asked::Version => Some(Answer::none()),
            Asked::List(_) => None,
        }),
    ];
    for (name, at, script) in rows {
        let told = events("watch_lost", move |asked| script(asked).unwrap_or(usual(asked))).await;
        let is_in_time = |lost: &String| lost.starts_with(&format!("{at} "));
        let is_soon = |lost: &String| lost.starts_with(&format!("{} ", at - 1));
        assert!(
            told.last().is_some_and(|lost| is_in_time(lost) || is_soon(lost)),
            "{name}: {told:?}"
        );
    }

    let slow = |asked| match asked {
        Asked::Watch(2..) => Answer { head: 8_000, ..Answer::open([]) },
        asked => usual(asked),
    };
    let told = events("watch_resumed", slow).await;
    assert!(told[3].starts_with("25 watch_lost no response "), "{told:?}");
    assert_eq!(told[4..], ["29 watch_resumed"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_soon_each_time_pauses_longer_each_time_and_is_lost() {
    let told = events("watch_lost", |asked| match asked {
        Asked::Watch(_) => Answer::open([(100, event("ADDED", "6"))]).ends(),
        asked => usual(asked),
    });
    let told = told.await;
    assert!((5..12).contains(&told.len()), "{told:?}");
    assert!(told.last().is_some_and(|lost| lost.contains("ended soon after")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panicked_is_lost_and_lists_again() {
    let told = events("list_finished", |asked| match asked {
        Asked::List(1) => Answer::error(0, "panics"),
        asked => usual(asked),
    });
    let expected = [
        "0 watch_lost defect of throughline: so it was written",
        "0 list_started",
        "0 list_finished",
    ];
    assert_eq!(told.await, expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_needs_no_more_than_a_name() {
    let told = events("deleted", |asked| match asked {
        Asked::Watch(_) => {
            let mut unreadable = event("DELETED", "7");
            unreadable["object"]["metadata"]["labels"] = json!(5);
            Answer::open([(0, unreadable)])
        }
        asked => usual(asked),
    });
    assert_eq!(told.await[2..], ["0 deleted a@7"]);
}

/// It may be larger than any page, and only a whole one shows what is gone.
#[tokio::test(start_paused = true)]
async fn a_list_without_pages_may_take_long_while_it_goes_on() {
    let told = events("list_finished", |asked| match asked {
        Asked::List(1) => Answer::whole(json!({
            "metadata": {"resourceVersion": "5", "continue": "next"}, "items": []})),
        Asked::List(2) => Answer::error(410, "too old"),
        Asked::List(_) => {
            let head = (0, r#"{"metadata":{"resourceVersion":"6"},"items":["#.to_owned());
            let rest = [" ", " ", " ", "]}"].map(|piece| (10_000, piece.to_owned()));
            Answer { pieces: [vec![head], rest.to_vec()].concat(), ..Answer::whole(Value::Null) }
        }
        asked => usual(asked),
    });
    assert_eq!(told.await, ["0 list_started", "40 list_started", "40 list_finished"]);
}
