//! `/log`: the event log of the run, compressed. It may be large, so it is sent as it is read.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, mpsc};

use super::Admin;
use super::access::{StateReader, may_see_state};
use crate::config::StateAccess;
use crate::event_log::export::LogExport;

/// How much is read ahead of a slow client, in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES: usize = 4;

/// One export at a time: each takes a thread and the memory of a compressor.
#[derive(Clone, Debug)]
pub(super) struct Exports(Arc<Semaphore>);

impl Default for Exports {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// Served to this host only, whatever `admin.state` says: a log holds more than the state.
pub(super) async fn export(
    State(admin): State<Admin>,
    _: StateReader,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> Response {
    if !may_see_state(StateAccess::Loopback, peer.ip()) {
        let why = "the event log is served to this host only; use kubectl port-forward, which counts \
                   as this host\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let Some(file) = admin.event_log.clone() else {
        let why = "this run writes no event log; set eventLog.file\n";
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    let Ok(permit) = admin.exports.0.clone().try_acquire_owned() else {
        let why = "another export of the event log is running; try again when it has ended\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let opened = tokio::task::spawn_blocking(move || LogExport::open(&file)).await;
    let opened = opened.map_err(anyhow::Error::from).and_then(|opened| Ok(opened?));
    let export = match opened {
        Ok(export) => export,
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response();
        }
    };
    if export.missing_parts() > 0 {
        let why =
            "parts of the event log are missing between its first and its last; copy its files\n";
        return (StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
    }
    let (pieces, mut body) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut out = io::BufWriter::with_capacity(PIECE_BYTES, Pieces(pieces.clone()));
        let written = export.write_compressed(&mut out).and_then(|()| out.flush());
        if let Err(error) = written {
            // The client sees a body that breaks off. If it has gone, nobody needs to know.
            let _ = pieces.blocking_send(Err(error));
        }
    });
    let body = futures::stream::poll_fn(move |context| body.poll_recv(context));
    let kind = [(header::CONTENT_TYPE, "application/zstd")];
    (kind, Body::from_stream(body)).into_response()
}

/// Sends what is written to the client.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
