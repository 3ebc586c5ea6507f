//! The admin port: probes, metrics, and what the machine believes, as JSON.
//!
//! What only the loop knows is asked of it by a [`Query`], and waited for no longer than two
//! seconds: a loop that hangs, or is gone, makes `/livez` fail and nothing else hang.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::config::StateAccess;
use crate::core::view::{View, Watch};
use crate::metrics::{Format, Levels, Metrics, Readiness, WatchStatus};

/// So long the loop may take for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const PATHS: &str = "\
/livez            whether the loop turns
/readyz           whether the watches were listed; ?verbose tells of each
/metrics          Prometheus metrics
/state            what is believed of every connector, as JSON
";

/// What the loop is asked from outside. A dropped answer is no error: the asker gave up.
#[derive(Debug)]
pub enum Query {
    /// Answered at once by a loop that turns.
    Ping(oneshot::Sender<()>),
    /// How many connectors are in each phase, and how many routes are orphans:
    /// [`Machine::phases`](crate::core::machine::Machine::phases),
    /// [`Machine::orphan_counts`](crate::core::machine::Machine::orphan_counts).
    Levels(oneshot::Sender<Levels>),
    /// What the machine believes: [`Machine::view`](crate::core::machine::Machine::view). It is
    /// spelled as JSON by whoever asked, so that the loop goes on meanwhile.
    State(oneshot::Sender<Box<View>>),
}

/// Why the loop gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum NoAnswer {
    #[error("the loop did not answer within {} s; the process should be restarted", ANSWER_WITHIN.as_secs())]
    Late,
    #[error("the loop has ended; the process is stopping, or should be restarted")]
    Ended,
}

impl IntoResponse for NoAnswer {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n")).into_response()
    }
}

#[derive(Clone, Debug)]
struct Admin {
    access: StateAccess,
    metrics: Arc<Metrics>,
    queries: mpsc::Sender<Query>,
}

/// Serves until `stop` resolves, and then until the requests under way are answered.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    access: StateAccess,
    metrics: Arc<Metrics>,
    queries: mpsc::Sender<Query>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/", get(|| async { PATHS }))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/state", get(state))
        .fallback(nothing_here)
        .with_state(Admin { access, metrics, queries });
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(stop).await
}

impl Admin {
    async fn ask<T>(&self, query: fn(oneshot::Sender<T>) -> Query) -> Result<T, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.queries.send(query(answer)).await.map_err(|_| NoAnswer::Ended)?;
            answered.await.map_err(|_| NoAnswer::Ended)
        };
        timeout(ANSWER_WITHIN, asked).await.unwrap_or(Err(NoAnswer::Late))
    }
}

async fn nothing_here(uri: Uri) -> Response {
    let path = uri.path();
    (StatusCode::NOT_FOUND, format!("there is no {path} here; there are\n{PATHS}")).into_response()
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
) -> Response {
    let readiness = admin.metrics.readiness();
    let verbose =
        query.is_some_and(|q| q.split('&').any(|q| q == "verbose" || q == "verbose=true"));
    // An error may hold an address.
    let errors = may_see_state(admin.access, peer.ip());
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, readiness_text(&readiness, verbose, errors)).into_response()
}

/// `ok` when ready, with a line for each watch that is not live; each watch when not, or when
/// `verbose`; spelled as kube-apiserver does.
fn readiness_text(readiness: &Readiness, verbose: bool, errors: bool) -> String {
    let mut text = String::new();
    let all = verbose || !readiness.ready;
    for watch in readiness.watches.iter().filter(|w| all || w.state != Watch::Live) {
        let WatchStatus { cluster, kind, state, listed, error } = watch;
        let _ = match (state, listed) {
            (Watch::Live, _) => writeln!(text, "[+]{cluster}/{kind} ok"),
            (Watch::Never, _) => writeln!(text, "[-]{cluster}/{kind} not begun"),
            (Watch::Listing, false) => writeln!(text, "[-]{cluster}/{kind} being listed"),
            (Watch::Listing, true) => writeln!(text, "[-]{cluster}/{kind} being listed again"),
            (Watch::Lost, _) => {
                let error = error.as_deref().filter(|_| errors).unwrap_or("the log says why");
                writeln!(text, "[-]{cluster}/{kind} lost: {error}")
            }
        };
    }
    text.push_str(match (readiness.ready, readiness.watches.is_empty()) {
        (true, _) if all => "readyz check passed\n",
        (true, _) => "ok\n",
        (false, true) => "not ready: no watch was begun yet\n",
        (false, false) => {
            "not ready: every watch must be listed, or have failed once, and one cluster at least \
             be listed in full\n"
        }
    });
    text
}

async fn scrape(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    // A loop that hangs is just when the other metrics are wanted.
    let levels = admin.ask(Query::Levels).await.ok();
    let text = admin.metrics.text(levels.as_ref(), format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

async fn state(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if admin.access == StateAccess::Off {
        return (StatusCode::NOT_FOUND, "admin.state is off\n").into_response();
    }
    if !may_see_state(admin.access, peer.ip()) {
        let why = "the state is served to this host only (kubectl port-forward counts as it); \
                   admin.state: everyone opens it to whoever reaches the port\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let mut view = match admin.ask(Query::State).await {
        Ok(view) => view,
        Err(error) => return error.into_response(),
    };
    view.holder = admin.metrics.lease_holder();
    let lost = admin.metrics.readiness().watches;
    view.tell_errors(lost.into_iter().filter_map(|w| Some((w.cluster, w.kind, w.error?))));
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let json = if accept.is_some_and(|a| a.contains("application/json")) {
        serde_json::to_vec(&view)
    } else {
        serde_json::to_vec_pretty(&view)
    };
    match json {
        Ok(mut json) => {
            json.push(b'\n');
            ([(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err(error) => {
            let text = format!("the state can't be spelled as JSON: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

fn may_see_state(access: StateAccess, peer: IpAddr) -> bool {
    match access {
        StateAccess::Everyone => true,
        // A listener on [::] sees IPv4 peers as ::ffff:a.b.c.d.
        StateAccess::Loopback => peer.to_canonical().is_loopback(),
        StateAccess::Off => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_sees_the_state_unless_configured_otherwise() {
        let peers = [
            ("127.0.0.1", true),
            ("127.8.9.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
            ("fe80::1", false),
            ("::ffff:10.0.0.1", false),
        ];
        for (peer, local) in peers {
            let peer = peer.parse().unwrap();
            assert_eq!(may_see_state(StateAccess::Loopback, peer), local, "{peer}");
            assert!(may_see_state(StateAccess::Everyone, peer), "{peer}");
            assert!(!may_see_state(StateAccess::Off, peer), "{peer}");
        }
    }
}
