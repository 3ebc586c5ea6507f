//! The live page: the current fleet in a browser. `/` is the page, and `/changes` sends its updates.
//!
//! It shows the content of `/state`, so it has the same access rules. Texts from clusters reach the
//! page only as JSON, and its scripts show them only as text; its policy allows no other script or
//! style.

mod feed;
mod moment;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use super::access::{StateReader, refusal};
use super::{Admin, PATHS, accepts};

pub(super) use feed::{Feed, run_feed};

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

/// The page for a browser, the list of paths for other clients.
pub(super) async fn index(
    State(admin): State<Arc<Admin>>,
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

/// The state of the fleet, and then its changes, as server-sent events; for a client that does not ask
/// for `text/event-stream`, the first event alone.
pub(super) async fn changes(
    State(admin): State<Arc<Admin>>,
    _: StateReader,
    headers: HeaderMap,
) -> Response {
    let body = feed::open(&admin.feed, accepts(&headers, "text/event-stream"));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}
