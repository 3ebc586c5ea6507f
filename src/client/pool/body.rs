//! A response body that keeps its stream's slot on the connection, and ends when the host's connections
//! are dead.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tower::BoxError;

use super::http2::Slot;
use super::probe::ProbeFailure;

/// A response body; its stream counts until it is dropped.
pub(in crate::client) struct PoolBody {
    body: Incoming,
    /// `None` over HTTP/1.1.
    slot: Option<Slot>,
    /// Set for a watch over HTTP/1.1.
    probe_failure: Option<ProbeFailure>,
}

impl PoolBody {
    pub(super) fn over_http2(body: Incoming, slot: Slot) -> Self {
        Self { body, slot: Some(slot), probe_failure: None }
    }

    pub(super) fn over_http1(body: Incoming, probe_failure: Option<ProbeFailure>) -> Self {
        Self { body, slot: None, probe_failure }
    }
}

impl PoolBody {
    fn is_dead(&mut self, cx: &mut Context<'_>) -> bool {
        let polled = self.probe_failure.as_mut().map(|failure| failure.poll_unpin(cx));
        let Some(Poll::Ready(failed)) = polled else { return false };
        self.probe_failure = None;
        failed.is_ok()
    }
}

impl Body for PoolBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(_))), Some(slot)) = (&polled, &self.slot) {
            slot.connection().heard();
        }
        if polled.is_pending() && self.is_dead(cx) {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the host's connections are dead");
            return Poll::Ready(Some(Err(error.into())));
        }
        polled.map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
