//! `/state`: built by the loop, at most now and then, and rendered apart from it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Admin, Query, QueryError};
use crate::build_info::InstanceInfo;
use crate::core::data::time::UnixMillis;
use crate::core::view::View;
use crate::metrics::WatchStatus;
use crate::outside_text::plain_json::PlainJson;

/// After an answer the loop is left alone for this many times as long as the answer took, so that
/// requests for the state take at most a tenth of its time, and changes of liveness never wait
/// behind more than one.
pub(super) const PAUSE_FACTOR: u32 = 9;

/// However long the answer took, the pause is not longer.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The longest that a request waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// How the JSON is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// On one line, for programs.
    Compact,
    /// Indented, for people.
    Pretty,
}

/// Whose turn it is to ask for the state, and not before when.
pub(super) type Turn = Arc<Mutex<Instant>>;

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("too many requests for the state; try again")]
    Busy,
    #[error("cannot encode the state as JSON: {0}")]
    Encode(String),
}

impl IntoResponse for StateError {
    fn into_response(self) -> Response {
        let status = match self {
            StateError::Query(error) => return error.into_response(),
            StateError::Busy => StatusCode::SERVICE_UNAVAILABLE,
            StateError::Encode(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{self}\n")).into_response()
    }
}

/// The state as JSON, once it is this request's turn.
pub(super) async fn json(admin: &Admin, layout: Layout) -> Result<Bytes, StateError> {
    let state = State { instance: admin.instance.clone(), view: view(admin).await? };
    render(state, layout).await
}

/// The state, once it is this request's turn.
pub(super) async fn view(admin: &Admin) -> Result<Box<View>, StateError> {
    let turn = async {
        let turn = admin.turn.lock().await;
        sleep_until(*turn).await;
        turn
    };
    let mut turn = timeout(TURN_WITHIN, turn).await.map_err(|_| StateError::Busy)?;
    let asked = Instant::now();
    // The client may leave before the answer.
    *turn = asked + PAUSE_MAX;
    let mut view = admin.ask(Query::State).await?;
    *turn = Instant::now() + (asked.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX);
    view.holder = admin.metrics.lease_holder();
    let lost = admin.metrics.readiness().watches;
    let now = view.at_ms;
    let received = |w: &WatchStatus| {
        let at = UnixMillis(now.0.saturating_sub(w.received_ago_ms?));
        Some((w.cluster.clone(), w.kind, at))
    };
    view.tell_received(lost.iter().filter_map(received));
    view.tell_errors(lost.into_iter().filter_map(|w| Some((w.cluster, w.kind, w.failure?))));
    Ok(view)
}

/// The answer: the machine's view, and which instance it is.
#[derive(Serialize)]
struct State {
    instance: Arc<InstanceInfo>,
    #[serde(flatten)]
    view: Box<View>,
}

/// Megabytes in a large installation: not on a thread that carries out requests to clusters.
async fn render(state: State, layout: Layout) -> Result<Bytes, StateError> {
    let rendered = tokio::task::spawn_blocking(move || {
        let mut json = Vec::new();
        let out = PlainJson::new(&mut json);
        match layout {
            Layout::Compact => serde_json::to_writer(out, &state)?,
            Layout::Pretty => serde_json::to_writer_pretty(out, &state)?,
        }
        json.push(b'\n');
        serde_json::Result::Ok(Bytes::from(json))
    });
    let rendered = rendered.await.map_err(|e| StateError::Encode(e.to_string()))?;
    rendered.map_err(|e| StateError::Encode(e.to_string()))
}
