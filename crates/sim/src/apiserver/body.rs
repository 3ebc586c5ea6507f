//! Response bodies: complete, or a stream of chunks.

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

/// The connection ends without the last chunk, as after a crash of the server.
#[derive(Debug, thiserror::Error)]
#[error("the watch was cut")]
pub struct WatchCut;

pub type Body = UnsyncBoxBody<Bytes, WatchCut>;

pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn streamed(
    pieces: impl Stream<Item = Result<Bytes, WatchCut>> + Send + 'static,
) -> Body {
    StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
}
