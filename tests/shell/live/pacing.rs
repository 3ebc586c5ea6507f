//! How a fleet of hundreds of clusters behind one API server treats it: when they join, when one of
//! them hangs, when the server begins to serve them, and when it restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode, Uri};
use futures::StreamExt;
use serde_json::json;
use throughline::client::{ClusterClient, ConnectionSpec, Connections, Credentials, Server};
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::{Kind, Role};
use throughline::metrics::Metrics;
use throughline::watch::WatchConstants;
use throughline::watch::{MembershipId, WatchMessage, WatchShared, WatchTask};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use crate::cluster::Kubeconfig;
use crate::live::told;
use crate::log::Log;

const PARALLEL: usize = 8;

/// An API server with any number of control planes, at `/p/NAME`, each without objects.
#[derive(Default)]
struct Served {
    lists: AtomicUsize,
    lists_now: AtomicUsize,
    lists_max: AtomicUsize,
    /// Control planes that never answer a list.
    hanging: Mutex<BTreeSet<String>>,
    /// How many more times a control plane says that it begins to serve.
    initializing: Mutex<BTreeMap<String, usize>>,
    cut: Notify,
    /// While it is down, what a proxy answers in its place; 0 while it is up.
    down: AtomicU16,
}

async fn answer(State(served): State<Arc<Served>>, uri: Uri) -> Response<Body> {
    let project = uri.path().split('/').nth(2).unwrap_or_default().to_owned();
    let response = |code: u16, body: Body| {
        Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap()
    };
    let down = served.down.load(SeqCst);
    if down != 0 {
        return response(down, Body::empty());
    }
    if uri.query().unwrap_or_default().contains("watch=true") {
        let served = served.clone();
        let cut = async move {
            served.cut.notified().await;
            Err::<String, _>(std::io::Error::other("cut"))
        };
        return response(200, Body::from_stream(futures::stream::once(cut).boxed()));
    }
    if let Some(left) = served.initializing.lock().unwrap().get_mut(&project)
        && *left > 0
    {
        *left -= 1;
        let status = json!({"kind": "Status", "apiVersion": "v1", "code": 429,
            "reason": "TooManyRequests", "message": "storage is (re)initializing"});
        return response(429, Body::from(status.to_string()));
    }
    served.lists.fetch_add(1, SeqCst);
    let now = served.lists_now.fetch_add(1, SeqCst) + 1;
    served.lists_max.fetch_max(now, SeqCst);
    if served.hanging.lock().unwrap().contains(&project) {
        served.lists_now.fetch_sub(1, SeqCst);
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(3)).await;
    served.lists_now.fetch_sub(1, SeqCst);
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": []});
    response(200, Body::from(list.to_string()))
}

const ONE_KIND: &[Kind] = &[Kind::Connector];

struct Fleet {
    served: Arc<Served>,
    events: mpsc::Receiver<WatchMessage>,
    shared: Arc<WatchShared>,
    kubeconfig: Kubeconfig,
    clusters: usize,
    kinds: &'static [Kind],
    began: Instant,
    tasks: tokio::task::JoinSet<()>,
}

impl Fleet {
    async fn new(clusters: usize, kinds: &'static [Kind], served: Served) -> Self {
        let served = Arc::new(served);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().fallback(answer).with_state(served.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let kubeconfig = Kubeconfig::to(port);
        let (bus, events) = mpsc::channel(1024);
        let config = WatchConstants { timeout_ms: 5_000, ..WatchConstants::default() };
        let shared = Arc::new(WatchShared::new(config, bus, PARALLEL));
        shared.set_clusters(clusters);
        let (began, tasks) = (Instant::now(), tokio::task::JoinSet::new());
        let mut fleet = Self { served, events, shared, kubeconfig, clusters, kinds, began, tasks };
        fleet.join();
        fleet
    }

    fn join(&mut self) {
        let metrics = Arc::new(Metrics::new());
        let connections = Connections::default();
        for n in 0..self.clusters {
            let (file, context) = (Some(self.kubeconfig.0.clone()), None);
            let credentials = Credentials::Kubeconfig { file, context };
            let spec = ConnectionSpec { credentials, server: Server::Path(format!("/p/p{n}")) };
            let (name, roles) = (format!("p{n}").as_str().into(), vec![Role::Upstream]);
            let client = ClusterClient::shared(name, roles, spec, &connections, metrics.clone());
            let client = Arc::new(client);
            for kind in self.kinds {
                let (id, shared) = (MembershipId(n as u64), self.shared.clone());
                self.tasks.spawn(WatchTask::new(client.clone(), *kind, id, shared, &metrics).run());
            }
        }
    }

    /// Waits until so many different watches have said this; returns how many were lost meanwhile.
    async fn until(&mut self, watches: usize, said: &str) -> usize {
        let (mut seen, mut lost) = (BTreeSet::new(), 0);
        while seen.len() < watches {
            let next = timeout(Duration::from_secs(60), self.events.recv()).await;
            let message = next.expect("an event in time").expect("the watches go on");
            let event = told(&message.kind);
            lost += usize::from(event.starts_with("lost"));
            if let EventKind::ListFinished { kind, .. }
            | EventKind::WatchLost { kind, .. }
            | EventKind::WatchResumed { kind, .. } = message.kind
                && event.starts_with(said)
            {
                seen.insert((message.membership.0, kind));
            }
        }
        lost
    }

    fn lists_max(&self) -> usize {
        self.served.lists_max.load(SeqCst)
    }
}

#[tokio::test]
async fn clusters_that_hang_hold_up_no_other() {
    let served = Served::default();
    // As many as there are turns, and one more.
    served.hanging.lock().unwrap().extend((0..=PARALLEL).map(|n| format!("p{n}")));
    let mut fleet = Fleet::new(100, ONE_KIND, served).await;
    fleet.until(100 - PARALLEL - 1, "list_finished").await;
    // Their lists time out after 5 s; turns come back after one.
    assert!(fleet.began.elapsed() < Duration::from_secs(4), "{:?}", fleet.began.elapsed());
}

#[tokio::test]
async fn clusters_that_join_or_are_not_served_yet_are_listed_eight_at_a_time_and_lose_no_watch() {
    let served = Served::default();
    let initializing = (0..40).map(|n| (format!("p{n}"), 1 + n % 2));
    served.initializing.lock().unwrap().extend(initializing);
    let log = Log::default();
    let _guard = log.capture();
    let mut fleet = Fleet::new(40, ONE_KIND, served).await;
    assert_eq!(fleet.until(40, "list_finished").await, 0);
    assert_eq!(fleet.served.lists.load(SeqCst), 40);
    assert!(fleet.lists_max() <= PARALLEL, "{} at a time", fleet.lists_max());
    assert!(!log.text().contains("WARN"), "{}", log.text());
}

/// A restart: all watches break at once, and come back one after another.
#[tokio::test]
async fn a_restart_is_no_stampede() {
    const CLUSTERS: usize = 600;
    const KINDS: &[Kind] = &[Kind::Connector, Kind::HttpRoute, Kind::Gateway];
    const WATCHES: usize = CLUSTERS * KINDS.len();
    let mut fleet = Fleet::new(CLUSTERS, KINDS, Served::default()).await;
    fleet.until(WATCHES, "list_finished").await;
    // The watches are open.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fleet.served.lists_max.store(0, SeqCst);
    fleet.served.down.store(503, SeqCst);
    fleet.served.cut.notify_waiters();
    fleet.until(WATCHES, "lost").await;
    fleet.served.down.store(0, SeqCst);
    let up = Instant::now();
    fleet.until(WATCHES, "resumed").await;
    assert!(up.elapsed() < Duration::from_secs(20), "{:?}", up.elapsed());
    assert!(fleet.lists_max() <= PARALLEL, "{} at a time", fleet.lists_max());
}
