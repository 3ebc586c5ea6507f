//! What feeds the open pages. One task asks the loop, once a second at most, for as long as a page is
//! open; all pages get what it makes of the answer. While none is open there is no task.
//!
//! A page keeps the id of its last event and gets what has changed since, however long ago that was: a
//! slow reader costs one waiting event, and a connection can end at any time. It ends after a while by
//! itself, as all connections of this port do, and the page asks again.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::board::{Board, Frame};
use crate::admin::state::{self, StateError};
use crate::admin::{Admin, Query};
use crate::environment::{random, spawn};

/// No more than one update in this time.
const UPDATE_EVERY: Duration = Duration::from_secs(1);

/// How long the last frame is kept when the last page has closed: the same page may come back and then
/// needs only the changes.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// When a stream ends, before the port would cut it off.
const STREAM_WITHIN: Duration = Duration::from_secs(50);

/// How soon a page asks again when a stream has ended.
const RETRY_MS: u32 = 300;

/// How soon a page asks again that was refused.
const REFUSED_RETRY_MS: u32 = 10_000;

/// What the task has to say to the pages.
#[derive(Clone, Debug)]
enum Update {
    None,
    Frame(Arc<Frame>),
    /// The loop gives no answer.
    Trouble(Arc<str>),
}

#[derive(Clone, Debug)]
pub(in crate::admin) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pages: Arc<Semaphore>,
    pages_max: usize,
    /// Whether the task runs. Only under this lock does a page join or the task end.
    runs: Mutex<bool>,
    updates: watch::Sender<Update>,
    joined: Notify,
    /// Turns true when the port stops.
    stopping: watch::Receiver<bool>,
}

impl Feed {
    /// A feed for so many pages at a time, until `stopping` turns true.
    pub(in crate::admin) fn new(pages_max: usize, stopping: watch::Receiver<bool>) -> Self {
        let (updates, _) = watch::channel(Update::None);
        let shared = Shared {
            pages: Arc::new(Semaphore::new(pages_max)),
            pages_max,
            runs: Mutex::new(false),
            updates,
            joined: Notify::new(),
            stopping,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The events for one page that has those up to `since`; only the first unless it `follows`.
    pub(in crate::admin) fn open(
        &self,
        admin: &Admin,
        since: Option<&str>,
        follows: bool,
    ) -> Response {
        let Ok(permit) = self.shared.pages.clone().try_acquire_owned() else {
            return refused(self.shared.pages_max).into_response();
        };
        let page = Page {
            updates: self.join(admin),
            stopping: self.shared.stopping.clone(),
            since: since.map(str::to_owned),
            until: Instant::now() + STREAM_WITHIN,
            follows,
            _permit: permit,
        };
        let (events, body) = mpsc::channel(1);
        drop(spawn(page.run(events)));
        Body::from_stream(ReceiverStream::new(body).map(Ok::<_, Infallible>)).into_response()
    }

    fn join(&self, admin: &Admin) -> watch::Receiver<Update> {
        let mut runs = lock(&self.shared.runs);
        let mut updates = self.shared.updates.subscribe();
        updates.mark_changed();
        if !*runs {
            *runs = true;
            drop(spawn(self.clone().run(admin.clone())));
        }
        self.shared.joined.notify_one();
        updates
    }

    /// Asks the loop while there are pages.
    async fn run(self, admin: Admin) {
        let board = Arc::new(Mutex::new(Board::new(random())));
        let mut passed = 0;
        let mut stopping = self.shared.stopping.clone();
        loop {
            let began = Instant::now();
            let update = look(&admin, &board, &mut passed).await;
            let update = update.unwrap_or_else(|error| Update::Trouble(error.to_string().into()));
            self.shared.updates.send_replace(update);
            tokio::select! {
                () = sleep_until(began + UPDATE_EVERY) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
            if self.shared.updates.receiver_count() > 0 {
                continue;
            }
            let again = timeout(KEPT_FOR, self.shared.joined.notified()).await.is_ok();
            let mut runs = lock(&self.shared.runs);
            if !again && self.shared.updates.receiver_count() == 0 {
                self.shared.updates.send_replace(Update::None);
                *runs = false;
                return;
            }
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fleet as it is now. Megabytes in a large installation: encoded apart from the requests.
async fn look(
    admin: &Admin,
    board: &Arc<Mutex<Board>>,
    passed: &mut u64,
) -> Result<Update, StateError> {
    let view = state::view(admin).await?;
    let after = *passed;
    let hops = admin.ask(|reply| Query::PassedHops { after, reply }).await?;
    *passed = hops.last().map_or(after, |hop| hop.number);
    let board = board.clone();
    let framed = tokio::task::spawn_blocking(move || lock(&board).frame(*view, &hops)).await;
    let frame = framed.map_err(|error| StateError::Encode(error.to_string()))?;
    let frame = frame.map_err(|error| StateError::Encode(error.to_string()))?;
    Ok(Update::Frame(Arc::new(frame)))
}

/// One open page.
struct Page {
    updates: watch::Receiver<Update>,
    stopping: watch::Receiver<bool>,
    since: Option<String>,
    until: Instant,
    follows: bool,
    _permit: OwnedSemaphorePermit,
}

impl Page {
    /// Sends events until the page is closed, its time is over, or the port stops.
    async fn run(mut self, events: mpsc::Sender<Bytes>) {
        // The head of the answer leaves with it, before the loop has been asked.
        if events.send(format!("retry: {RETRY_MS}\n\n").into()).await.is_err() {
            return;
        }
        // There is room when the last event was taken: a slow reader gets the newest one next.
        while let Ok(room) = events.reserve().await {
            tokio::select! {
                // The end first: a stop must not wait for an update.
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => {
                    return room.send("event: end\ndata: \n\n".into());
                }
                () = events.closed() => return,
                () = sleep_until(self.until) => return,
                changed = self.updates.changed() => if changed.is_err() { return },
            }
            let Some(event) = self.event() else { continue };
            room.send(event);
            if !self.follows {
                return;
            }
        }
    }

    /// What the last update means to this page.
    fn event(&mut self) -> Option<Bytes> {
        let update = self.updates.borrow_and_update().clone();
        match update {
            Update::None => None,
            Update::Trouble(why) => {
                Some(format!("event: trouble\ndata: {}\n\n", json!(*why)).into())
            }
            Update::Frame(frame) => {
                let event = frame.event(self.since.as_deref());
                self.since = Some(frame.id());
                Some(event)
            }
        }
    }
}

/// An event rather than a status: a browser's `EventSource` shows a page no more of a failed request.
fn refused(pages_max: usize) -> String {
    let seconds = REFUSED_RETRY_MS / 1_000;
    let why = match pages_max {
        0 => "this process has too few file descriptors for pages; see /state".to_owned(),
        1 => format!("another page is open, and no more may be; trying again every {seconds} s"),
        n => format!("{n} pages are open, and no more may be; trying again every {seconds} s"),
    };
    format!("retry: {REFUSED_RETRY_MS}\nevent: refused\ndata: {}\n\n", json!(why))
}
