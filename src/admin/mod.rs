//! The admin port: probes, metrics, the machine's state as JSON, and the live page.
//!
//! Some answers need the loop: a [`Query`] asks it, and waits at most two seconds. If the loop hangs or
//! has ended, `/livez` fails and everything else still answers.

mod access;
mod connections;
mod hops;
mod page;
mod scrape;
mod state;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout};

use crate::build_info::{COMMIT, VERSION};
use crate::clock::wall_clock_now;
use crate::config::StateAccess;
use crate::core::view::WatchState;
use crate::core::view::fleet::Fleet;
use crate::environment::here;
use crate::metrics::{MachineCounts, Metrics, Readiness, WatchStatus};
use access::refusal;
use page::Feed;
use scrape::Scrapes;
use state::InstanceInfo;

pub use hops::PassedHop;
pub(crate) use hops::RecentHops;

/// The longest time for the loop to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The most watches for which the probes show a line each.
const WATCHES_EACH_MAX: usize = 200;

const PATHS: &str = "\
/                 in a browser: the live page of the fleet; otherwise this list
/livez            whether the event loop answers
/readyz           whether the watches have been listed; ?verbose shows each
/metrics          Prometheus metrics
/state            the state of every connector, as JSON
/changes          the state and its changes, as server-sent events for the live page
";

/// A query to the loop, which ignores a dropped receiver: the caller gave up.
#[derive(Debug)]
pub enum Query {
    /// Whether the loop answers.
    Ping(oneshot::Sender<()>),
    /// The loop's counts for a scrape.
    Counts(oneshot::Sender<MachineCounts>),
    /// The machine's state, and the open problems. The HTTP handler turns them into JSON, so that the
    /// loop can continue.
    State(oneshot::Sender<Fleet>),
    /// The hops of the last minutes.
    PassedHops(oneshot::Sender<Vec<Arc<PassedHop>>>),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the event loop did not answer within {} s; the process should be restarted", ANSWER_WITHIN.as_secs())]
    TimedOut,
    #[error("the event loop has ended; the process is stopping, or should be restarted")]
    LoopEnded,
    #[error("too many requests for the state; try again")]
    Busy,
    #[error("too many scrapes at once")]
    Scrapes,
    #[error("cannot encode the answer: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("cannot encode the answer: {0}")]
    Panicked(#[from] JoinError),
}

impl IntoResponse for NoAnswer {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Encode(_) | Self::Panicked(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, format!("{self}\n")).into_response()
    }
}

#[derive(Debug)]
struct Admin {
    access: StateAccess,
    instance: InstanceInfo,
    metrics: Arc<Metrics>,
    queries: mpsc::Sender<Query>,
    /// The earliest time of the next query for the state. The lock gives requests their turns.
    turn: Mutex<Instant>,
    scrapes: Scrapes,
    feed: Feed,
}

/// Serves until `stop` turns true, and then until the open requests are answered.
pub async fn serve(
    listener: tokio::net::TcpListener,
    access: StateAccess,
    metrics: Arc<Metrics>,
    queries: mpsc::Sender<Query>,
    mut stop: watch::Receiver<bool>,
) {
    let admin = Arc::new(Admin {
        access,
        instance: InstanceInfo { version: VERSION, commit: COMMIT, since_ms: wall_clock_now() },
        metrics,
        queries,
        turn: Mutex::new(Instant::now()),
        scrapes: Scrapes::new(connections::share()),
        feed: Feed::new(connections::share(), stop.clone()),
    });
    let router = Router::new()
        .route("/", get(page::index))
        .route("/changes", get(page::changes))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/state", get(state::state))
        .fallback(not_found)
        .with_state(admin.clone());
    let mut feed = JoinSet::new();
    feed.spawn(here(page::run_feed(admin)));
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    connections::serve(listener, router, stopped).await;
}

impl Admin {
    async fn ask<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.queries.send(query(answer)).await.map_err(|_| NoAnswer::LoopEnded)?;
            answered.await.map_err(|_| NoAnswer::LoopEnded)
        };
        timeout(ANSWER_WITHIN, asked).await.unwrap_or(Err(NoAnswer::TimedOut))
    }
}

/// Whether the client names this media type. `*/*` does not count: programs send it.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = values.flat_map(|value| value.split(','));
    ranges.any(|range| range.split(';').next().unwrap_or_default().trim() == media_type)
}

async fn not_found(uri: Uri) -> Response {
    let path = uri.path();
    (StatusCode::NOT_FOUND, format!("no such path: {path}; these exist:\n{PATHS}")).into_response()
}

async fn livez(State(admin): State<Arc<Admin>>) -> Result<&'static str, NoAnswer> {
    admin.ask(Query::Ping).await.map(|()| "ok\n")
}

async fn readyz(
    State(admin): State<Arc<Admin>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let readiness = admin.metrics.readiness();
    let verbose =
        query.is_some_and(|q| q.split('&').any(|q| q == "verbose" || q == "verbose=true"));
    // Errors may contain addresses, which only readers of the state may see.
    let with_errors = refusal(admin.access, peer.ip(), &headers).is_none();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, readiness_text(&readiness, verbose, with_errors)).into_response()
}

/// In the format of kube-apiserver's `/readyz`. When ready: `ok`, and a line for each watch that is not
/// live. When not ready, or `verbose`: a line for each watch. With many watches, a line for each state
/// and cause.
fn readiness_text(readiness: &Readiness, verbose: bool, with_errors: bool) -> String {
    let all = verbose || !readiness.ready;
    let watches = &readiness.watches;
    let mut text = if watches.len() > WATCHES_EACH_MAX {
        summary(watches, with_errors)
    } else {
        let shown = watches.iter().filter(|watch| all || watch.state != WatchState::Live);
        let line = |watch: &WatchStatus| {
            let WatchStatus { cluster, kind, .. } = watch;
            let (sign, does, error) = words(watch, with_errors);
            format!("[{sign}]{cluster}/{kind} {does}{error}\n")
        };
        shown.map(line).collect()
    };
    text.push_str(match (readiness.ready, watches.is_empty()) {
        (true, _) if all => "readyz check passed\n",
        (true, _) => "ok\n",
        (false, true) => "not ready: no watch has started yet\n",
        (false, false) => {
            "not ready: every watch of a configured cluster must have been listed or have failed \
             once, and at least one cluster must be fully listed\n"
        }
    });
    text
}

fn summary(watches: &[WatchStatus], with_errors: bool) -> String {
    let mut groups: BTreeMap<_, Vec<&WatchStatus>> = BTreeMap::new();
    for watch in watches {
        groups.entry((watch.state, words(watch, with_errors))).or_default().push(watch);
    }
    let line = |((state, (sign, does, error)), watches): ((_, _), Vec<&WatchStatus>)| {
        let WatchStatus { cluster, kind, .. } = watches[0];
        let such_as = match state {
            WatchState::Live => String::new(),
            _ => format!(", such as {cluster}/{kind}"),
        };
        format!("[{sign}]{} watches {does}{such_as}{error}\n", watches.len())
    };
    groups.into_iter().map(line).collect()
}

/// The state of a watch, and why it is lost.
fn words(watch: &WatchStatus, with_errors: bool) -> (char, &'static str, String) {
    let does = match (watch.state, watch.was_listed) {
        (WatchState::Live, _) => return ('+', "ok", String::new()),
        (WatchState::Never, _) => "not started",
        (WatchState::Listing, false) => "listing",
        (WatchState::Listing, true) => "listing again",
        (WatchState::Lost, _) => {
            let error = watch.failure.as_deref().filter(|_| with_errors);
            return ('-', "lost", format!(": {}", error.unwrap_or("see the log")));
        }
    };
    ('-', does, String::new())
}
