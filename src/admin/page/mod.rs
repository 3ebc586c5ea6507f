//! The live page: the fleet as it is now, in a browser. `/` is the page, `/changes` feeds it, and
//! `/trace` says of one connector where it is stuck and what to do.
//!
//! It shows what `/state` shows, so it answers whom `/state` answers. Texts from clusters reach the page
//! as JSON alone, and its scripts show them only as text; its policy allows no other script or style.

mod banners;
mod board;
mod feed;

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Query as UrlQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::access::{StateReader, refusal};
use super::{Admin, PATHS, state};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::outside_text::plain_json::PlainJson;
use crate::trace::{Snapshot, Trace, trace_connector};

pub(super) use feed::Feed;

/// `policy` allows only the style and the scripts below, by their hashes. A test checks it;
/// `UPDATE_EXPECT=1` updates it.
const POLICY: &str = include_str!("policy");

/// Style and shapes are those of the picture (`src/report/html`).
const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    include_str!("head.html"),
    "<style>",
    include_str!("../../report/html/page.css"),
    include_str!("live.css"),
    "</style>\n</head>\n",
    include_str!("body.html"),
    "<script>",
    include_str!("../../report/html/words.js"),
    include_str!("../../report/html/shapes.js"),
    include_str!("../../report/html/bands.js"),
    include_str!("../../report/html/theme.js"),
    include_str!("fleet.js"),
    include_str!("rows.js"),
    include_str!("detail.js"),
    include_str!("feed.js"),
    "</script>\n</body>\n</html>\n"
);

/// The page for a browser, the list of paths for everybody else.
pub(super) async fn index(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    let vary = [(header::VARY, "accept")];
    if !accepts(&headers, "text/html") {
        return (vary, PATHS).into_response();
    }
    if let Some((status, why)) = refusal(admin.access, peer.ip(), &headers) {
        return (status, vary, format!("{why}\nOther paths:\n{PATHS}")).into_response();
    }
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (vary, headers, PAGE).into_response()
}

/// Where to go on: what the page has already, as the last event's id.
#[derive(Debug, Deserialize)]
pub(super) struct ChangesQuery {
    since: Option<String>,
}

/// The state of the fleet, and then its changes, as server-sent events; for a client that does not ask
/// for `text/event-stream`, the first event alone.
pub(super) async fn changes(
    State(admin): State<Admin>,
    UrlQuery(query): UrlQuery<ChangesQuery>,
    _: StateReader,
    headers: HeaderMap,
) -> Response {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let since = last.map(str::to_owned).or(query.since);
    let follows = accepts(&headers, "text/event-stream");
    let body = admin.feed.open(&admin, since.as_deref(), follows);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

#[derive(Debug, Deserialize)]
pub(super) struct TraceQuery {
    /// Its namespace and name, upstream or at the hub and the edges.
    connector: Option<String>,
    /// The cluster that chooses among connectors of one name.
    #[serde(rename = "in")]
    only_in: Option<String>,
}

#[derive(Serialize)]
struct Traces {
    traces: Vec<Trace>,
}

/// One connector's hops with their causes and remedies, as `throughline trace` prints them in JSON.
pub(super) async fn trace(
    State(admin): State<Admin>,
    UrlQuery(query): UrlQuery<TraceQuery>,
    _: StateReader,
) -> Response {
    let key = query.connector.as_deref().and_then(|name| name.split_once('/'));
    let Some((namespace, name)) = key else {
        let usage =
            "expected /trace?connector=NAMESPACE/NAME, and &in=CLUSTER where several have it\n";
        return (StatusCode::BAD_REQUEST, usage).into_response();
    };
    let (key, only_in) = (ObjectKey::new(namespace, name), query.only_in.as_deref());
    let only_in = only_in.map(ClusterName::from);
    let view = match state::view(&admin).await {
        Ok(view) => *view,
        Err(error) => return error.into_response(),
    };
    match trace_connector(&Snapshot::of_instance(view), &key, only_in.as_ref()) {
        Ok(traces) => {
            let mut json = Vec::new();
            // A trace has no value that can't be encoded.
            let _ = serde_json::to_writer(PlainJson::new(&mut json), &Traces { traces });
            ([(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err(error) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
    }
}

/// Whether the client names this media type. `*/*` does not count: it is what programs send.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter();
    let mut ranges =
        values.filter_map(|v: &HeaderValue| v.to_str().ok()).flat_map(|v| v.split(','));
    ranges.any(|range| range.split(';').next().unwrap_or_default().trim() == media_type)
}
