//! A response body that holds its stream's place on the connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::http2::Slot;

/// A response body; its stream counts until it is dropped.
pub(in crate::client) struct PoolBody {
    body: Incoming,
    /// `None` over HTTP/1.1.
    slot: Option<Slot>,
}

impl PoolBody {
    pub(super) fn new(body: Incoming, slot: Option<Slot>) -> Self {
        Self { body, slot }
    }
}

impl Body for PoolBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(_))), Some(slot)) = (&polled, &self.slot) {
            slot.connection().heard();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
