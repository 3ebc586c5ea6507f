//! How a fleet of hundreds of clusters behind one API server treats it: when they join, when one of
//! them hangs, when the server begins to serve them, and when it restarts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use throughline::client::{Connections, Server};
use throughline::config::WatchConstants;
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::Kind;
use throughline::metrics::Metrics;
use throughline::watch::{WatchMessage, WatchShared, WatchTask};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use crate::cluster::{connect, serve, spec};
use crate::live::told;
use crate::log::Log;

const PARALLEL: usize = 8;

/// An API server with any number of control planes, at `/p/NUMBER`, each without objects.
#[derive(Default)]
struct Served {
    lists: AtomicUsize,
    lists_now: AtomicUsize,
    lists_max: AtomicUsize,
    /// The first so many control planes never answer a list.
    hanging: usize,
    /// How many more times each control plane says that it begins to serve.
    initializing: Mutex<Vec<usize>>,
    cut: Notify,
    /// While it is, a proxy answers 503 in its place.
    is_down: AtomicBool,
}

async fn answer(State(served): State<Arc<Served>>, uri: Uri) -> Response {
    if served.is_down.load(SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    // A probe of the connection names none.
    let project = uri.path().split('/').nth(2).and_then(|n| n.parse::<usize>().ok());
    let Some(project) = project else { return Response::default() };
    if uri.query().unwrap_or_default().contains("watch=true") {
        let cut = async move {
            served.cut.notified().await;
            Err::<String, _>(std::io::Error::other("cut"))
        };
        return Body::from_stream(futures::stream::once(cut)).into_response();
    }
    if let Some(left) = served.initializing.lock().unwrap().get_mut(project)
        && *left > 0
    {
        *left -= 1;
        let status = json!({"kind": "Status", "apiVersion": "v1", "code": 429,
            "reason": "TooManyRequests", "message": "storage is (re)initializing"});
        return (StatusCode::TOO_MANY_REQUESTS, status.to_string()).into_response();
    }
    served.lists.fetch_add(1, SeqCst);
    if project < served.hanging {
        std::future::pending::<()>().await;
    }
    let now = served.lists_now.fetch_add(1, SeqCst) + 1;
    served.lists_max.fetch_max(now, SeqCst);
    tokio::time::sleep(Duration::from_millis(3)).await;
    served.lists_now.fetch_sub(1, SeqCst);
    json!({"metadata": {"resourceVersion": "7"}, "items": []}).to_string().into_response()
}

struct Fleet {
    served: Arc<Served>,
    events: mpsc::Receiver<WatchMessage>,
}

impl Fleet {
    fn new(clusters: usize, kinds: &[Kind], served: Served) -> Self {
        let served = Arc::new(served);
        let url = serve(Router::new().fallback(answer).with_state(served.clone()));
        let (bus, events) = mpsc::channel(1024);
        let config = WatchConstants {
            lists_in_parallel: PARALLEL,
            timeout_ms: 5_000,
            ..WatchConstants::default()
        };
        let shared = Arc::new(WatchShared::new(config, bus));
        shared.set_clusters(clusters);
        let (metrics, connections) = (Arc::new(Metrics::new()), Connections::default());
        for n in 0..clusters {
            let spec = spec(&url, None, &json!({}), Server::Path(format!("/p/{n}")));
            let client = connect(&format!("p{n}"), spec, &connections);
            for kind in kinds {
                let task = WatchTask::new(client.clone(), *kind, shared.clone(), &metrics);
                tokio::spawn(task.run());
            }
        }
        Self { served, events }
    }

    /// Waits until so many different watches have said this; returns how many were lost meanwhile.
    async fn until(&mut self, watches: usize, said: &str) -> usize {
        let (mut seen, mut lost) = (BTreeSet::new(), 0);
        while seen.len() < watches {
            let next = timeout(Duration::from_secs(60), self.events.recv()).await;
            let message = next.expect("an event in time").expect("the watches go on");
            let event = told(&message.kind);
            lost += usize::from(event.starts_with("watch_lost"));
            if let EventKind::ListFinished { kind, .. }
            | EventKind::WatchLost { kind, .. }
            | EventKind::WatchResumed { kind, .. } = message.kind
                && event.starts_with(said)
            {
                seen.insert((message.cluster.name().clone(), kind));
            }
        }
        lost
    }

    fn assert_paced(&self) {
        let lists_max = self.served.lists_max.load(SeqCst);
        assert!(lists_max <= PARALLEL, "{lists_max} at a time");
    }
}

#[tokio::test]
async fn clusters_that_hang_hold_up_no_other() {
    // As many as there are turns, and one more.
    let served = Served { hanging: PARALLEL + 1, ..Served::default() };
    let mut fleet = Fleet::new(100, &[Kind::Connector], served);
    let began = Instant::now();
    fleet.until(100 - PARALLEL - 1, "list_finished").await;
    // Their lists time out after 5 s; turns come back after one.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn clusters_that_join_or_are_not_served_yet_are_listed_eight_at_a_time_and_lose_no_watch() {
    let initializing = Mutex::new((0..40).map(|n| 1 + n % 2).collect());
    let served = Served { initializing, ..Served::default() };
    let (log, _guard) = Log::capture();
    let mut fleet = Fleet::new(40, &[Kind::Connector], served);
    assert_eq!(fleet.until(40, "list_finished").await, 0);
    assert_eq!(fleet.served.lists.load(SeqCst), 40);
    fleet.assert_paced();
    assert!(!log.text().contains("WARN"), "{}", log.text());
}

/// A restart: all watches break at once, and come back one after another.
#[tokio::test]
async fn a_restart_is_no_stampede() {
    const KINDS: [Kind; 3] = [Kind::Connector, Kind::HttpRoute, Kind::Gateway];
    const WATCHES: usize = 600 * KINDS.len();
    let mut fleet = Fleet::new(600, &KINDS, Served::default());
    fleet.until(WATCHES, "list_finished").await;
    // The watches are open.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fleet.served.lists_max.store(0, SeqCst);
    fleet.served.is_down.store(true, SeqCst);
    fleet.served.cut.notify_waiters();
    fleet.until(WATCHES, "watch_lost").await;
    fleet.served.is_down.store(false, SeqCst);
    let up = Instant::now();
    fleet.until(WATCHES, "watch_resumed").await;
    assert!(up.elapsed() < Duration::from_secs(20), "{:?}", up.elapsed());
    fleet.assert_paced();
}
