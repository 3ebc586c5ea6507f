//! The updates for open pages. While at least one page is open, the loop is queried at most once a
//! second, and all pages get its result.
//!
//! A page first gets the whole state, and again after it missed an update: a slow reader costs one
//! waiting event. Its connection ends after a while, like all connections of this port, and the page
//! reconnects.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::moment::{Moment, Sent};
use crate::admin::{Admin, NoAnswer, Query, state};
use crate::environment::spawn;

/// The least time between two updates.
const UPDATE_EVERY: Duration = Duration::from_secs(1);

/// When a stream ends, before the port would cut it off.
const STREAM_WITHIN: Duration = Duration::from_secs(50);

/// How soon a page reconnects after a stream has ended.
const RETRY_MS: u32 = 300;

/// How soon a page reconnects after a refusal.
const REFUSED_RETRY_MS: u32 = 10_000;

/// The update for the pages: the state, or an event that says why there is none.
type Update = Result<Moment, Bytes>;

#[derive(Debug)]
pub(in crate::admin) struct Feed {
    pages: Arc<Semaphore>,
    pages_max: usize,
    opened: Notify,
    /// `None` while no page is open, and until the loop has answered.
    updates: watch::Sender<Option<Update>>,
    /// Turns true when the port stops: an open page must not delay that.
    stop: watch::Receiver<bool>,
}

impl Feed {
    /// A feed for at most `pages_max` pages at a time, until `stop` turns true.
    pub(in crate::admin) fn new(pages_max: usize, stop: watch::Receiver<bool>) -> Self {
        Self {
            pages: Arc::new(Semaphore::new(pages_max)),
            pages_max,
            opened: Notify::new(),
            updates: watch::channel(None).0,
            stop,
        }
    }
}

/// The events for one page; only the first unless it `follows`.
pub(super) fn open(feed: &Feed, follows: bool) -> Response {
    let Ok(permit) = feed.pages.clone().try_acquire_owned() else {
        return refused(feed.pages_max).into_response();
    };
    let mut updates = feed.updates.subscribe();
    updates.mark_changed();
    feed.opened.notify_one();
    let page = Page {
        updates,
        stop: feed.stop.clone(),
        has: None,
        until: Instant::now() + STREAM_WITHIN,
        follows,
        _permit: permit,
    };
    let (events, body) = mpsc::channel(1);
    drop(spawn(page.run(events)));
    Body::from_stream(ReceiverStream::new(body).map(Ok::<_, Infallible>)).into_response()
}

/// Asks the loop while pages are open. Never ends.
pub(in crate::admin) async fn run_feed(admin: Arc<Admin>) {
    let feed = &admin.feed;
    let mut sent = Arc::default();
    loop {
        while feed.updates.receiver_count() == 0 {
            feed.updates.send_replace(None);
            sent = Arc::default();
            feed.opened.notified().await;
        }
        let began = Instant::now();
        let update = next_update(&admin, &sent).await;
        let update = update.map_err(|error| event("trouble", &error.to_string()).into());
        feed.updates.send_replace(Some(update));
        sleep_until(began + UPDATE_EVERY).await;
    }
}

/// The current fleet.
async fn next_update(admin: &Admin, sent: &Arc<Mutex<Sent>>) -> Result<Moment, NoAnswer> {
    let state = state::known(admin).await?;
    let hops = admin.ask(Query::PassedHops).await?;
    let sent = sent.clone();
    state::encode(move || sent.lock().unwrap_or_else(PoisonError::into_inner).next(state, &hops))
        .await
}

/// One open page.
struct Page {
    updates: watch::Receiver<Option<Update>>,
    stop: watch::Receiver<bool>,
    /// The number of the last moment sent to it.
    has: Option<u64>,
    until: Instant,
    follows: bool,
    _permit: OwnedSemaphorePermit,
}

impl Page {
    /// Sends events until the page is closed, its time is over, or the port stops.
    async fn run(mut self, events: mpsc::Sender<Bytes>) {
        // This sends the head of the answer before the loop is queried.
        if events.send(format!("retry: {RETRY_MS}\n\n").into()).await.is_err() {
            return;
        }
        // There is room once the last event was taken: a slow reader gets the newest one next.
        while let Ok(room) = events.reserve().await {
            tokio::select! {
                // The end first: a stop must not wait for an update.
                biased;
                _ = self.stop.wait_for(|stop| *stop) => {
                    return room.send(event("end", "").into());
                }
                () = events.closed() => return,
                () = sleep_until(self.until) => return,
                changed = self.updates.changed() => if changed.is_err() { return },
            }
            let Some(update) = self.updates.borrow_and_update().clone() else { continue };
            room.send(update.map_or_else(|trouble| trouble, |moment| self.take(&moment)));
            if !self.follows {
                return;
            }
        }
    }

    fn take(&mut self, moment: &Moment) -> Bytes {
        let event = moment.event_for(self.has);
        self.has = Some(moment.number);
        event
    }
}

/// An event rather than a status: a browser's `EventSource` gives a page no details of a failed
/// request.
fn refused(pages_max: usize) -> String {
    let seconds = REFUSED_RETRY_MS / 1_000;
    let why = match pages_max {
        0 => "this process has too few file descriptors for pages; see /state".to_owned(),
        1 => format!("another page is open, and no more may be; trying again every {seconds} s"),
        n => format!("{n} pages are open, and no more may be; trying again every {seconds} s"),
    };
    format!("retry: {REFUSED_RETRY_MS}\n{}", event("refused", &why))
}

/// An event with a text.
fn event(name: &str, text: &str) -> String {
    format!("event: {name}\ndata: {}\n\n", json!(text))
}
