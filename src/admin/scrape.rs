//! `/metrics`: counted by the loop and rendered once for all that ask at the same time, at most now and
//! then.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::{Admin, Query};
use crate::metrics::Format;

/// After a scrape the loop is left alone for this many times as long as the scrape took, so that scrapes
/// take at most a tenth of its time, however many ask.
const PAUSE_FACTOR: u32 = 9;

/// The pause is at least so long, because to accept connections takes time, too. No scraper that asks
/// once a second waits for it.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The pause is at most so long: when the loop hangs, each scrape takes two seconds.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The last scrape. Whoever makes the next one holds the lock.
pub(super) type Scrapes = Arc<Mutex<Option<Scrape>>>;

#[derive(Debug)]
pub(super) struct Scrape {
    began: Instant,
    /// When the next one may begin.
    next: Instant,
    format: Format,
    text: Bytes,
}

pub(super) async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let arrived = Instant::now();
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    let mut last = admin.scrapes.lock().await;
    // One that began after this request came shows what a new one would.
    let shared = last.as_ref().filter(|last| last.format == format && last.began > arrived);
    let text = match shared {
        Some(scrape) => Some(scrape.text.clone()),
        None => {
            if let Some(last) = &*last {
                sleep_until(last.next).await;
            }
            let scrape = scrape(&admin, format).await;
            scrape.map(|scrape| last.insert(scrape).text.clone())
        }
    };
    drop(last);
    match text {
        Some(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `None` if rendering panicked.
async fn scrape(admin: &Admin, format: Format) -> Option<Scrape> {
    let began = Instant::now();
    // When the loop hangs, the other metrics are needed most.
    let counts = admin.ask(Query::Counts).await.ok();
    let metrics = admin.metrics.clone();
    // Megabytes in a large installation: not on a thread that carries out requests to clusters.
    let rendered = tokio::task::spawn_blocking(move || metrics.text(counts.as_ref(), format));
    let text = rendered.await.ok()?.into();
    let pause = (began.elapsed() * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX);
    Some(Scrape { began, next: Instant::now() + pause, format, text })
}
