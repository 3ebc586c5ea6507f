//! The admin port: probes, metrics, the machine's state as JSON, and the live page.
//!
//! Some answers need the loop: a [`Query`] asks it, and waits at most two seconds. If the loop hangs
//! or has ended, `/livez` fails and everything else still answers.

mod access;
mod connections;
mod hops;
mod page;
mod scrape;
mod state;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::build_info::InstanceInfo;
use crate::clock::wall_clock_now;
use crate::config::StateAccess;
use crate::core::view::{View, WatchState};
use crate::metrics::{MachineCounts, Metrics, Readiness, WatchStatus};
use access::{StateReader, refusal};
use page::Feed;
use scrape::Scrapes;
use state::{Layout, Turn};

pub use hops::PassedHop;
pub(crate) use hops::RecentHops;

/// The longest that the loop may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// With more watches than this, the probes show no line for each.
const WATCHES_EACH_MAX: usize = 200;

const PATHS: &str = "\
/                 in a browser: the live page of the fleet; otherwise this list
/livez            whether the event loop answers
/readyz           whether the watches have been listed; ?verbose shows each
/metrics          Prometheus metrics
/state            the state of every connector, as JSON
/trace            where one connector is stuck, as JSON; ?connector=NAMESPACE/NAME
/changes          the state and its changes, as server-sent events for the live page
";

/// A question to the loop. It ignores a dropped receiver: whoever asked gave up.
#[derive(Debug)]
pub enum Query {
    /// Whether the loop answers.
    Ping(oneshot::Sender<()>),
    /// [`Machine::phases`](crate::core::machine::Machine::phases) and
    /// [`Machine::orphan_counts`](crate::core::machine::Machine::orphan_counts).
    Counts(oneshot::Sender<MachineCounts>),
    /// [`Machine::view`](crate::core::machine::Machine::view). The HTTP handler turns it into JSON,
    /// so that the loop can go on.
    State(oneshot::Sender<Box<View>>),
    /// The hops of the last minutes with a number after this one.
    PassedHops { after: u64, reply: oneshot::Sender<Vec<PassedHop>> },
}

/// Why a query got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum QueryError {
    #[error("the event loop did not answer within {} s; the process should be restarted", ANSWER_WITHIN.as_secs())]
    TimedOut,
    #[error("the event loop has ended; the process is stopping, or should be restarted")]
    LoopEnded,
}

impl IntoResponse for QueryError {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n")).into_response()
    }
}

#[derive(Clone, Debug)]
struct Admin {
    access: StateAccess,
    instance: Arc<InstanceInfo>,
    metrics: Arc<Metrics>,
    queries: mpsc::Sender<Query>,
    turn: Turn,
    scrapes: Scrapes,
    feed: Feed,
}

/// Serves until `stop` resolves, and then until the open requests are answered.
pub async fn serve(
    listener: tokio::net::TcpListener,
    access: StateAccess,
    metrics: Arc<Metrics>,
    queries: mpsc::Sender<Query>,
    stop: impl Future<Output = ()> + Send,
) {
    let (stops, stopping) = watch::channel(false);
    // Open pages would otherwise hold up the stop.
    let stop = async {
        stop.await;
        stops.send_replace(true);
    };
    let admin = Admin {
        access,
        instance: Arc::new(InstanceInfo::since(wall_clock_now())),
        metrics,
        queries,
        turn: Arc::new(Mutex::new(Instant::now())),
        scrapes: Scrapes::new(connections::share()),
        feed: Feed::new(connections::share(), stopping),
    };
    let router = Router::new()
        .route("/", get(page::index))
        .route("/changes", get(page::changes))
        .route("/trace", get(page::trace))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/state", get(state))
        .fallback(not_found)
        .with_state(admin);
    connections::serve(listener, router, stop).await;
}

impl Admin {
    async fn ask<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> Query,
    ) -> Result<T, QueryError> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.queries.send(query(answer)).await.map_err(|_| QueryError::LoopEnded)?;
            answered.await.map_err(|_| QueryError::LoopEnded)
        };
        timeout(ANSWER_WITHIN, asked).await.unwrap_or(Err(QueryError::TimedOut))
    }
}

async fn not_found(uri: Uri) -> Response {
    let path = uri.path();
    (StatusCode::NOT_FOUND, format!("no such path: {path}; these exist:\n{PATHS}")).into_response()
}

async fn livez(State(admin): State<Admin>) -> Response {
    match admin.ask(Query::Ping).await {
        Ok(()) => "ok\n".into_response(),
        Err(error) => error.into_response(),
    }
}

async fn readyz(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let readiness = admin.metrics.readiness();
    let verbose =
        query.is_some_and(|q| q.split('&').any(|q| q == "verbose" || q == "verbose=true"));
    // Errors may hold addresses, which only those who may see the state may see.
    let with_errors = refusal(admin.access, peer.ip(), &headers).is_none();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, readiness_text(&readiness, verbose, with_errors)).into_response()
}

/// When ready: `ok`, and a line for each watch that is not live. When not ready, or `verbose`: a
/// line for each watch. In the format of kube-apiserver's `/readyz`.
fn readiness_text(readiness: &Readiness, verbose: bool, with_errors: bool) -> String {
    let mut text = String::new();
    let all = verbose || !readiness.ready;
    if readiness.watches.len() > WATCHES_EACH_MAX {
        summarize(&mut text, readiness, with_errors);
    }
    let each = Some(readiness).filter(|readiness| readiness.watches.len() <= WATCHES_EACH_MAX);
    let watches = each.into_iter().flat_map(|readiness| &readiness.watches);
    for watch in watches.filter(|w| all || w.state != WatchState::Live) {
        let WatchStatus { cluster, kind, state, was_listed, failure, .. } = watch;
        let _ = match (state, was_listed) {
            (WatchState::Live, _) => writeln!(text, "[+]{cluster}/{kind} ok"),
            (WatchState::Never, _) => writeln!(text, "[-]{cluster}/{kind} not started"),
            (WatchState::Listing, false) => writeln!(text, "[-]{cluster}/{kind} listing"),
            (WatchState::Listing, true) => writeln!(text, "[-]{cluster}/{kind} listing again"),
            (WatchState::Lost, _) => {
                let error = failure.as_deref().filter(|_| with_errors).unwrap_or("see the log");
                writeln!(text, "[-]{cluster}/{kind} lost: {error}")
            }
        };
    }
    text.push_str(match (readiness.ready, readiness.watches.is_empty()) {
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

/// A line for each state and cause: nobody reads thousands.
fn summarize(text: &mut String, readiness: &Readiness, with_errors: bool) {
    let mut groups: BTreeMap<(WatchState, &str), Vec<&WatchStatus>> = BTreeMap::new();
    for watch in &readiness.watches {
        let error = watch.failure.as_deref().filter(|_| with_errors).unwrap_or("see the log");
        let error = if watch.state == WatchState::Lost { error } else { "" };
        groups.entry((watch.state, error)).or_default().push(watch);
    }
    for ((state, error), watches) in groups {
        let (WatchStatus { cluster, kind, .. }, count) = (watches[0], watches.len());
        let _ = match state {
            WatchState::Live => writeln!(text, "[+]{count} watches ok"),
            WatchState::Never => {
                writeln!(text, "[-]{count} watches not started, such as {cluster}/{kind}")
            }
            WatchState::Listing => {
                writeln!(text, "[-]{count} watches listing, such as {cluster}/{kind}")
            }
            WatchState::Lost => {
                writeln!(text, "[-]{count} watches lost, such as {cluster}/{kind}: {error}")
            }
        };
    }
}

async fn state(State(admin): State<Admin>, _: StateReader, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_program = accept.is_some_and(|a| a.contains("application/json"));
    let layout = if is_program { Layout::Compact } else { Layout::Pretty };
    match state::json(&admin, layout).await {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => error.into_response(),
    }
}
