//! The handle of a running server, for tests and the demo: inject faults, count requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Server;
use super::request::{ApiVerb, Resource};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMode {
    Serving,
    /// New and open connections are closed immediately: the cluster is down.
    Down,
    /// Connections and requests are accepted but never answered, and watches send nothing, not even
    /// bookmarks: the server hangs, or the network drops all packets.
    Frozen,
    /// The handle was dropped.
    Stopped,
}

/// A response that replaces the one a request would get.
#[derive(Clone, Debug)]
pub struct Fault {
    pub verbs: Vec<ApiVerb>,
    /// `None` means any resource.
    pub resource: Option<Resource>,
    /// The HTTP status, for example 429, or [`Fault::NO_RESPONSE`].
    pub code: u16,
    /// The header `Retry-After`, in seconds.
    pub retry_after_s: Option<u32>,
    /// Execute the request anyway, as if only the response got lost.
    pub executes: bool,
}

impl Fault {
    /// Instead of a status: the request hangs until the client gives it up.
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

/// A running server. Dropping it stops the server and closes its connections.
pub struct SimApiServerHandle {
    pub(super) server: Arc<Server>,
    pub(super) address: SocketAddr,
}

impl SimApiServerHandle {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL, for example `http://127.0.0.1:41234`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes the cluster down, freezes it, or brings it back. While it is down, the carrier cannot
    /// reach it either.
    pub fn set_mode(&self, mode: ServerMode) {
        self.server.lock().sim.set_reachable(&self.server.cluster, mode != ServerMode::Down);
        self.server.mode.send_replace(mode);
    }

    /// Breaks the running watches of one resource, or of all; new watches are accepted.
    pub fn cut_watches(&self, resource: Option<Resource>) {
        self.server.watch_cuts.send_modify(|cuts| {
            for one in Resource::ALL.into_iter().filter(|r| resource.is_none_or(|w| w == *r)) {
                cuts[one as usize] += 1;
            }
        });
    }

    /// Drops the history up to now, as an etcd compaction does: watches from earlier versions and
    /// further pages of running lists get a 410.
    pub fn compact(&self) {
        self.server.lock().compact();
    }

    /// Answers the next `times` matching requests with `fault`, after faults injected earlier.
    pub fn inject(&self, fault: &Fault, times: usize) {
        let mut cluster = self.server.lock();
        cluster.state.faults.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// Removes the faults that have not occurred yet.
    pub fn clear_faults(&self) {
        self.server.lock().state.faults.clear();
    }

    /// Delays the execution of every request; a watch is delayed once, at its start.
    pub fn set_latency(&self, latency: Duration) {
        self.server.latency.send_replace(latency);
    }

    /// Whether a resource is served; otherwise requests get a 404, as before its CRD is installed.
    /// Running watches continue.
    pub fn set_served(&self, resource: impl Into<Resource>, served: bool) {
        let mut cluster = self.server.lock();
        match (resource.into(), served) {
            (resource, true) => cluster.state.unserved.remove(&resource),
            (resource, false) => cluster.state.unserved.insert(resource),
        };
    }

    /// Requests since the start, by verb and resource, including those answered with a fault.
    /// Requests for unknown paths are not counted.
    pub fn requests(&self) -> BTreeMap<(ApiVerb, Resource), u64> {
        self.server.lock().state.request_counts.clone()
    }

    /// The number of write requests since the start.
    pub fn writes(&self) -> u64 {
        self.requests().iter().filter(|((verb, _), _)| verb.is_write()).map(|(_, n)| n).sum()
    }
}

impl Drop for SimApiServerHandle {
    fn drop(&mut self) {
        self.server.mode.send_replace(ServerMode::Stopped);
    }
}
