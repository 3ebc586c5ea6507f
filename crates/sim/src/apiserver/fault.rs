//! The faults that a test can inject into a server.

use super::resource::{ApiVerb, Resource};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMode {
    Serving,
    /// New and open connections are closed immediately: the cluster is down.
    Down,
    /// Connections and requests are accepted but never answered, and watches send nothing, not even
    /// bookmarks: the server hangs, or the network drops all packets.
    Frozen,
    /// The server was dropped.
    Stopped,
}

/// A response that replaces the real one.
#[derive(Clone, Debug)]
pub struct Fault {
    pub verbs: Vec<ApiVerb>,
    /// `None` means any resource.
    pub resource: Option<Resource>,
    /// The HTTP status, for example 429, or [`Fault::NO_RESPONSE`].
    pub code: u16,
    /// The header `Retry-After`, in seconds.
    pub retry_after_s: Option<u32>,
    /// Executes the request nevertheless, as if only the response were lost.
    pub executes: bool,
}

impl Fault {
    /// Instead of a status: the request hangs until the client gives up.
    pub const NO_RESPONSE: u16 = 0;

    /// A status for all writes.
    pub fn on_writes(code: u16) -> Self {
        let verbs = vec![ApiVerb::Create, ApiVerb::Update, ApiVerb::Patch, ApiVerb::Delete];
        Self { verbs, resource: None, code, retry_after_s: None, executes: false }
    }

    /// A status for lists and watches of one resource.
    pub fn on_watches(resource: impl Into<Resource>, code: u16) -> Self {
        let verbs = vec![ApiVerb::List, ApiVerb::Watch];
        Self { verbs, resource: Some(resource.into()), code, retry_after_s: None, executes: false }
    }

    /// Adds the header `Retry-After`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// Executes the request anyway.
    #[must_use]
    pub fn but_executed(self) -> Self {
        Self { executes: true, ..self }
    }
}
