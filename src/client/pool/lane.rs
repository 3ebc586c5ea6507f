//! The HTTP/2 connections of one host for one class of requests.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use http::Request;

use super::dial::DialError;
use super::http2::{Http2, Slot, Windows};

/// An unused connection is kept for this long.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// An unused connection is kept this long if another one has room.
const SURPLUS_IDLE_MAX: Duration = Duration::from_secs(15);

/// The class of a request, which selects its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Requests that last for minutes.
    Watches,
    /// All other requests: they never wait for a watch whose reader is slow.
    Short,
}

/// Completes when a connection was made or failed.
pub(super) type Dialling = Shared<BoxFuture<'static, Result<(), DialError>>>;

/// The connections of one class.
#[derive(Default)]
pub(super) struct Connections {
    open: Vec<Arc<Http2>>,
    pub(super) dialling: Option<Dialling>,
}

impl Lane {
    /// A watch has `watch` in its query, as API servers require.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = |part: &str| matches!(part, "watch=true" | "watch=1" | "watch");
        if query.split('&').any(is_watch) { Lane::Watches } else { Lane::Short }
    }

    /// A watch's events are small and its lists short; a list of 8 MB with a round trip of 50 ms takes a
    /// fifth of a second with 2 MB, and seven seconds with HTTP/2's default of 64 kB.
    pub(super) fn windows(self) -> Windows {
        match self {
            Lane::Watches => Windows { stream: 256 << 10, connection: 1 << 20 },
            Lane::Short => Windows { stream: 2 << 20, connection: 8 << 20 },
        }
    }
}

impl Connections {
    /// A slot on the fullest connection with room, so that others become unused.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.open.retain(|connection| !connection.is_gone());
        let with_room = self.open.iter().filter(|connection| connection.has_room());
        with_room.max_by_key(|connection| connection.streams()).map(Http2::take)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn add(&mut self, connection: Arc<Http2>) {
        self.open.push(connection);
    }

    /// Drops connections that ended, and unused ones.
    pub(super) fn tidy(&mut self) {
        self.open.retain(|connection| !connection.is_gone());
        let mut with_room = self.open.iter().filter(|connection| connection.has_room()).count();
        self.open.retain(|connection| {
            let others = with_room - usize::from(connection.has_room());
            let idle_max = if others > 0 { SURPLUS_IDLE_MAX } else { IDLE_MAX };
            let keeps = connection.idle().is_none_or(|idle| idle < idle_max);
            if !keeps {
                with_room = others;
            }
            keeps
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_known_by_its_query() {
        let lane = |uri: &str| Lane::of(&Request::get(uri).body(()).unwrap());
        assert_eq!(lane("/api/v1/namespaces?watch=true&resourceVersion=7"), Lane::Watches);
        assert_eq!(lane("/api/v1/namespaces?limit=7&watch=1"), Lane::Watches);
        assert_eq!(lane("/api/v1/namespaces?limit=7&watch=false"), Lane::Short);
        assert_eq!(lane("/api/v1/namespaces/watch"), Lane::Short);
    }
}
