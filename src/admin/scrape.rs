//! `/metrics`: counted by the loop and rendered once for all that ask at the same time, with a pause before the
//! next.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::state::PAUSE_FACTOR;
use super::{Admin, Query};
use crate::metrics::Format;

/// The pause is at least so long, because to accept connections takes time, too. No scraper that asks
/// once a second waits for it.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The pause is at most so long: when the loop hangs, each scrape takes two seconds.
const PAUSE_MAX: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(super) struct Scrapes {
    last: Arc<Mutex<Last>>,
    waiting: Arc<Semaphore>,
}

/// The last scrape of each format. Whoever makes the next one holds the lock.
#[derive(Debug, Default)]
struct Last {
    scrapes: Vec<Scrape>,
    /// When the next one may begin.
    next: Option<Instant>,
}

#[derive(Debug)]
struct Scrape {
    began: Instant,
    format: Format,
    text: Bytes,
}

impl Scrapes {
    /// At most so many requests may wait.
    pub(super) fn new(waiting: usize) -> Self {
        Self { last: Arc::default(), waiting: Arc::new(Semaphore::new(waiting.max(1))) }
    }
}

pub(super) async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    let Ok(_place) = admin.scrapes.waiting.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at once\n").into_response();
    };
    match text(&admin, format).await {
        Some(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `None` if rendering panicked.
async fn text(admin: &Admin, format: Format) -> Option<Bytes> {
    let arrived = Instant::now();
    let mut last = admin.scrapes.last.lock().await;
    // One that began after this request came shows what a new one would.
    let is_shared = |scrape: &&Scrape| scrape.format == format && scrape.began > arrived;
    if let Some(scrape) = last.scrapes.iter().find(is_shared) {
        return Some(scrape.text.clone());
    }
    if let Some(next) = last.next {
        sleep_until(next).await;
    }
    let began = Instant::now();
    // The client may leave before the end.
    last.next = Some(began + PAUSE_MAX);
    // When the loop hangs, the other metrics are needed most.
    let counts = admin.ask(Query::Counts).await.ok();
    let metrics = admin.metrics.clone();
    // Megabytes in a large installation: not on a thread that carries out requests to clusters.
    let rendered = tokio::task::spawn_blocking(move || metrics.text(counts.as_ref(), format)).await;
    let pause = (began.elapsed() * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX);
    last.next = Some(Instant::now() + pause);
    let text = Bytes::from(rendered.ok()?);
    last.scrapes.retain(|scrape| scrape.format != format);
    last.scrapes.push(Scrape { began, format, text: text.clone() });
    Some(text)
}
