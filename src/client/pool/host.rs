//! The connections to one host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::FutureExt;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use kube::client::Body;
use rustls::pki_types::ServerName;
use tokio::time::{Instant, sleep, timeout};
use tower::BoxError;

use super::dial::{DialError, Target, dial_error, too_slow};
use super::http1::{Http1, Http1Connector};
use super::http2::{self, Retry, Slot};
use super::lane::{Connections, Dialling, Lane};
use super::probe::{self, WeakProbeFailure};
use super::{CONNECT_TIMEOUT, PoolBody};
use crate::client::tls::Tls;
use crate::environment::{is_simulated, random, spawn};

/// How long to use HTTP/1.1 after a server did not offer HTTP/2.
const HTTP1_FOR: Duration = Duration::from_secs(600);

/// How often a request may be sent while no server handles it.
const SENT_MAX: usize = 4;

/// The pause before a refused request is sent again; with jitter, up to twice as long.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// The factor from one pause to the next. All pauses together take less time than a write may.
const REFUSED_FACTOR: f32 = 4.0;

/// A request fails after this many connections that ended before it could be sent.
const ENDED_AT_ONCE_MAX: usize = 3;

/// A host, for one set of certificates.
pub(in crate::client) struct Host {
    name: Arc<str>,
    target: Arc<Target>,
    state: Mutex<State>,
    connector: Http1Connector,
}

#[derive(Default)]
struct State {
    watches: Connections,
    short: Connections,
    /// When the server last chose HTTP/1.1.
    http1_since: Option<Instant>,
    http1: Option<Http1>,
    /// The probe of the watches over HTTP/1.1.
    probe: Option<WeakProbeFailure>,
}

impl State {
    fn lane(&mut self, lane: Lane) -> &mut Connections {
        match lane {
            Lane::Watches => &mut self.watches,
            Lane::Short => &mut self.short,
        }
    }
}

impl Host {
    /// # Errors
    /// No certificate can be issued for the host's name.
    pub(in crate::client) fn new(url: &Uri, tls: Arc<Tls>) -> Result<Self, String> {
        let tls = if url.scheme_str() == Some("https") {
            let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
            let name = tls.server_name.as_deref().unwrap_or(host);
            let name = ServerName::try_from(name.to_owned());
            Some((name.map_err(|e| format!("the server's name: {e}"))?, tls))
        } else {
            None
        };
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let told = format!("{}://{authority}", url.scheme_str().unwrap_or_default()).into();
        let target = Arc::new(Target { url: url.clone(), tls });
        let connector = Http1Connector::new(target.clone());
        Ok(Self { name: told, target, state: Mutex::default(), connector })
    }

    /// Scheme, host and port.
    pub(in crate::client) fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// Sends a request; waits for a connection, and then for the response's head.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<PoolBody>, BoxError> {
        let lane = Lane::of(&request);
        let (head, body) = request.into_parts();
        let mut sent = 0;
        let mut pauses = None;
        loop {
            let Some(mut slot) = self.slot(lane).await? else {
                return self.send_http1(Request::from_parts(head, body), lane).await;
            };
            let copy = body.try_clone().ok_or("a request's body is no text")?;
            sent += 1;
            match slot.send(Request::from_parts(head.clone(), copy)).await {
                Ok(response) => return Ok(response.map(|body| slot.body(body))),
                Err(failed) if failed.retry == Retry::Never || sent == SENT_MAX => {
                    return Err(failed.error.into());
                }
                Err(failed) if failed.retry == Retry::Later => {
                    // Other requests may use its slot meanwhile.
                    drop(slot);
                    let pauses = pauses.get_or_insert_with(refused_pauses);
                    sleep(pauses.next().unwrap_or_default()).await;
                }
                Err(_) => {}
            }
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        request: Request<Body>,
        lane: Lane,
    ) -> Result<Response<PoolBody>, BoxError> {
        let client = self.state().http1.get_or_insert_with(|| self.connector.client()).clone();
        let response = client.request(request).await?;
        // A simulation needs no probe: its network closes the connections that it cuts.
        if lane == Lane::Short || is_simulated() {
            return Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()));
        }
        let host = Arc::downgrade(self);
        let forget = move || {
            if let Some(host) = host.upgrade() {
                host.forget_http1();
            }
        };
        let failure = probe::failure(&mut self.state().probe, &self.target, forget);
        Ok(response.map(|body| probe::until_failure(body, failure)))
    }

    /// A slot on an HTTP/2 connection; `None` if the server speaks HTTP/1.1.
    async fn slot(self: &Arc<Self>, lane: Lane) -> Result<Option<Slot>, DialError> {
        if self.target.tls.is_none() {
            return Ok(None);
        }
        let mut dials = 0;
        loop {
            let dialling = {
                let mut state = self.state();
                if state.http1_since.is_some_and(|since| since.elapsed() < HTTP1_FOR) {
                    return Ok(None);
                }
                let connections = state.lane(lane);
                if let Some(slot) = connections.take() {
                    return Ok(Some(slot));
                }
                if dials >= ENDED_AT_ONCE_MAX && connections.is_empty() {
                    return Err(dial_error("the server closes each connection at once"));
                }
                let begin = || self.begin_dialling(lane);
                connections.dialling.get_or_insert_with(begin).clone()
            };
            dialling.await?;
            dials += 1;
        }
    }

    /// Connects in a separate task: if the first caller gives up, the others still wait.
    fn begin_dialling(self: &Arc<Self>, lane: Lane) -> Dialling {
        let host = self.clone();
        let task = spawn(async move {
            let dialled = timeout(CONNECT_TIMEOUT, host.dial(lane)).await;
            let dialled = dialled.unwrap_or_else(|_| Err(too_slow()));
            host.state().lane(lane).dialling = None;
            dialled
        });
        task.map(|ended| ended.unwrap_or_else(|e| Err(dial_error(e)))).boxed().shared()
    }

    async fn dial(self: &Arc<Self>, lane: Lane) -> Result<(), DialError> {
        let stream = self.target.dial(true).await?;
        if !stream.is_h2 {
            self.connector.keep(stream);
            self.state().http1_since = Some(Instant::now());
            return Ok(());
        }
        let (connection, driver) = http2::begin(stream, lane.windows()).await?;
        let host = Arc::downgrade(self);
        let tidy = move || {
            if let Some(host) = host.upgrade() {
                host.state().lane(lane).tidy();
            }
        };
        spawn(http2::drive(driver, Arc::downgrade(&connection), tidy));
        let mut state = self.state();
        state.http1_since = None;
        state.lane(lane).add(connection);
        Ok(())
    }

    /// Drops the HTTP/1.1 connections, which are dead: no idle one carries another request.
    fn forget_http1(&self) {
        let mut state = self.state();
        state.http1 = None;
        state.probe = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused_pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(REFUSED_PAUSE)
        .with_factor(REFUSED_FACTOR)
        .with_max_times(SENT_MAX)
        .with_jitter()
        .with_jitter_seed(random())
        .build()
}
