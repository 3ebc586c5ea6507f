//! Probes whether a host's HTTP/1.1 watches still get data.
//!
//! HTTP/1.1 has no ping, and a connection with a watch carries nothing else. A proxy that stopped
//! forwarding still acknowledges packets, so the kernel's keepalives do not detect it. Therefore a host
//! with watches over HTTP/1.1 has one more connection, which is probed as HTTP/2 connections are. If no
//! answer comes, all these watches end and are opened again.
//!
//! It detects a failure of all connections, not of a single one; no failure from before it was opened;
//! and none if the server closes idle connections sooner than it asks.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{Shared, WeakShared};
use futures::stream::try_unfold;
use futures::{FutureExt, StreamExt};
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt, BodyStream, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tower::BoxError;

use super::dial::Target;
use super::http2::{PING_AFTER, PING_TIMEOUT};
use super::{CONNECT_TIMEOUT, PoolBody, dial};
use crate::environment::spawn;

/// Any answer counts, even a refusal: the request has no credentials.
const PATH: &str = "/livez";

/// Ready once the host's HTTP/1.1 connections are dead. The probe runs while a watch holds it.
pub(super) type ProbeFailure = Shared<oneshot::Receiver<()>>;

/// The host's current probe.
pub(super) type WeakProbeFailure = WeakShared<oneshot::Receiver<()>>;

type Connection = SendRequest<Empty<Bytes>>;

/// The probe for one more watch; `forget` drops the host's idle connections once it fails.
pub(super) fn failure(
    present: &mut Option<WeakProbeFailure>,
    target: &Arc<Target>,
    forget: impl FnOnce() + Send + 'static,
) -> ProbeFailure {
    // A failed probe belongs to earlier watches.
    let running = present.as_ref().and_then(WeakProbeFailure::upgrade);
    let failure = running.filter(|failure| failure.peek().is_none()).unwrap_or_else(|| {
        let (fail, failed) = oneshot::channel();
        spawn(probe_until_dead(target.clone(), forget, fail));
        failed.shared()
    });
    *present = failure.downgrade();
    failure
}

/// The body of a watch, which ends with an error once the probe has failed.
pub(super) fn until_failure(body: Incoming, failure: ProbeFailure) -> PoolBody {
    let dead = Box::pin(async move {
        match failure.await {
            Ok(()) => io::Error::new(io::ErrorKind::TimedOut, "the host's connections are dead"),
            Err(_) => std::future::pending().await, // the probe ended without a result
        }
    });
    let body = BodyStream::new(body);
    let frames = try_unfold((body, dead), |(mut body, mut dead)| async move {
        tokio::select! {
            biased;
            frame = body.next() => Ok(frame.transpose()?.map(|frame| (frame, (body, dead)))),
            error = &mut dead => Err(BoxError::from(error)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

async fn probe_until_dead(
    target: Arc<Target>,
    forget: impl FnOnce(),
    mut fail: oneshot::Sender<()>,
) {
    tokio::select! {
        () = fail.closed() => return, // the last watch has ended
        () = until_silent(&target) => {}
    }
    // First, so that no watch is reopened on a dead idle connection.
    forget();
    // If it fails, the last watch ended just now.
    let _ = fail.send(());
}

/// Ends when a connection that worked before stops answering.
async fn until_silent(target: &Target) {
    let mut connection = None;
    loop {
        sleep(PING_AFTER).await;
        connection = match connection.take() {
            None => connect(target).await.ok(),
            Some(mut before) => match timeout(PING_TIMEOUT, ask(&mut before, target)).await {
                Ok(Ok(())) => Some(before),
                Ok(Err(_)) => connect(target).await.ok(), // the server closed it
                Err(_) => return,
            },
        };
    }
}

async fn connect(target: &Target) -> Result<Connection, BoxError> {
    let connecting = async {
        let stream = target.dial(false).await?;
        let (mut connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        spawn(driver);
        ask(&mut connection, target).await?;
        Ok(connection)
    };
    timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(dial::too_slow().into()))
}

async fn ask(connection: &mut Connection, target: &Target) -> Result<(), BoxError> {
    // Not the whole authority, which may contain a password.
    let host = target.url.host().unwrap_or_default();
    let port = target.url.port();
    let host = port.map_or(host.to_owned(), |port| format!("{host}:{port}"));
    connection.ready().await?;
    let request = Request::get(PATH).header(HOST, host).body(Empty::new())?;
    let mut body = connection.send_request(request).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
