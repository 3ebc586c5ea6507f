//! HTTP/1.1, one request at a time on a connection: hyper-util's pool.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use tokio::time::{Instant, timeout};
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use super::CONNECT_TIMEOUT;
use super::dial::{DialError, Stream, Target, too_slow};
use crate::environment::HereExecutor;

pub(super) type Http1 = Client<BoxCloneSyncService<Uri, TokioIo<Stream>, DialError>, Body>;

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);

/// A connection that waited longer for its first request may be closed by now.
const SPARE_FOR: Duration = Duration::from_secs(2);

/// Connects for hyper-util.
#[derive(Clone)]
pub(super) struct Http1Connector {
    target: Arc<Target>,
    /// The connection that showed that the server does not speak HTTP/2.
    spare: Arc<Mutex<Option<(Instant, Stream)>>>,
}

impl Http1Connector {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self { target, spare: Arc::default() }
    }

    pub(super) fn client(&self) -> Http1 {
        let connector = self.clone();
        let connect = service_fn(move |_: Uri| connector.clone().connect());
        Client::builder(HereExecutor)
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(BoxCloneSyncService::new(connect))
    }

    pub(super) fn keep(&self, stream: Stream) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), stream));
    }

    fn spare(&self) -> Option<Stream> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.filter(|(since, _)| since.elapsed() < SPARE_FOR).map(|(_, stream)| stream)
    }

    async fn connect(self) -> Result<TokioIo<Stream>, DialError> {
        if let Some(stream) = self.spare() {
            return Ok(TokioIo::new(stream));
        }
        let dialled = timeout(CONNECT_TIMEOUT, self.target.dial(false)).await;
        dialled.unwrap_or_else(|_| Err(too_slow())).map(TokioIo::new)
    }
}
