//! `/metrics`: counted by the loop and rendered once for all simultaneous requests, with a pause before
//! the next.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::state::{self, PAUSE_FACTOR};
use super::{Admin, NoAnswer, Query, accepts};
use crate::metrics::Format;

/// The shortest pause, because accepting connections takes time, too. No scraper that asks once a
/// second waits for it.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The longest pause: when the loop hangs, each scrape takes two seconds.
const PAUSE_MAX: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Scrapes {
    last: Mutex<Last>,
    waiting: Semaphore,
}

/// The last scrape of each format. The lock is held while the next one is made.
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
    /// At most `waiting` requests may wait.
    pub(super) fn new(waiting: usize) -> Self {
        Self { last: Mutex::default(), waiting: Semaphore::new(waiting.max(1)) }
    }
}

pub(super) async fn metrics(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
) -> Result<Response, NoAnswer> {
    let is_open = accepts(&headers, "application/openmetrics-text");
    let format = if is_open { Format::OpenMetrics } else { Format::Plain };
    let _place = admin.scrapes.waiting.try_acquire().map_err(|_| NoAnswer::Scrapes)?;
    let text = text(&admin, format).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

async fn text(admin: &Admin, format: Format) -> Result<Bytes, NoAnswer> {
    let arrived = Instant::now();
    let mut last = admin.scrapes.last.lock().await;
    // A scrape that began after this request arrived is recent enough.
    let is_shared = |scrape: &&Scrape| scrape.format == format && scrape.began > arrived;
    if let Some(scrape) = last.scrapes.iter().find(is_shared) {
        return Ok(scrape.text.clone());
    }
    if let Some(next) = last.next {
        sleep_until(next).await;
    }
    let began = Instant::now();
    // The client may disconnect before the end.
    last.next = Some(began + PAUSE_MAX);
    // When the loop hangs, the other metrics are needed most.
    let counts = admin.ask(Query::Counts).await.ok();
    let metrics = admin.metrics.clone();
    let rendered = state::encode(move || Ok(metrics.text(counts.as_ref(), format))).await;
    let pause = (began.elapsed() * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX);
    last.next = Some(Instant::now() + pause);
    let text = Bytes::from(rendered?);
    last.scrapes.retain(|scrape| scrape.format != format);
    last.scrapes.push(Scrape { began, format, text: text.clone() });
    Ok(text)
}
