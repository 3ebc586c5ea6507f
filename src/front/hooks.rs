//! What can be made to go wrong, and what was asked of the front: for tests and the demo.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Handler;
use super::route::{Resource, Verb};

/// How the front treats those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Requests are answered.
    Serving,
    /// Connections are closed at once, those that are open too: the cluster is down.
    Down,
    /// Connections and requests are taken and nothing is answered; watches say nothing, not even
    /// bookmarks: the server is stopped, or the network swallows everything.
    Frozen,
    /// The front is no more.
    Stopped,
}

/// An answer in place of the one a request should get.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which requests.
    pub verbs: Vec<Verb>,
    /// Of which resource; `None` of any.
    pub resource: Option<Resource>,
    /// The HTTP status, e.g. 429.
    pub code: u16,
    /// The header `Retry-After`, in seconds.
    pub retry_after_s: Option<u32>,
    /// The request is carried out all the same, as when the answer gets lost on its way back.
    pub carried_out: bool,
}

impl Fault {
    /// A status for writes of any kind.
    pub fn of_writes(code: u16) -> Self {
        let verbs = vec![Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
        Self { verbs, resource: None, code, retry_after_s: None, carried_out: false }
    }

    /// A status for lists and watches of one resource.
    pub fn of_watching(resource: impl Into<Resource>, code: u16) -> Self {
        let verbs = vec![Verb::List, Verb::Watch];
        Self {
            verbs,
            resource: Some(resource.into()),
            code,
            retry_after_s: None,
            carried_out: false,
        }
    }

    /// The same with the header `Retry-After`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// The same, but the request is carried out.
    #[must_use]
    pub fn carried_out(self) -> Self {
        Self { carried_out: true, ..self }
    }
}

/// A front that runs. It ends when this is dropped, and its connections with it.
pub struct FrontHandle {
    pub(super) shared: Handler,
    pub(super) address: SocketAddr,
}

impl FrontHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for a client's configuration, e.g. `http://127.0.0.1:41234`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes the cluster down, freezes it, or brings it back. While it is down the world's carrier
    /// can't reach it either.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.lock().world.set_reachable(&self.shared.cluster, mode != Mode::Down);
        self.shared.mode.send_replace(mode);
    }

    /// Breaks the running watches of a resource, or of all; new ones are taken.
    pub fn cut_watches(&self, resource: Option<Resource>) {
        self.shared.cuts.send_modify(|cuts| {
            for one in Resource::ALL.into_iter().filter(|r| resource.is_none_or(|w| w == *r)) {
                cuts[one as usize] += 1;
            }
        });
    }

    /// Forgets what changed up to now, as a compaction does: watches from before, and further
    /// pages of lists that were begun, get a 410.
    pub fn compact(&self) {
        self.shared.lock().compact();
    }

    /// Gives the next `times` requests that fit a fault's answer. Faults that were asked for
    /// earlier come first.
    pub fn fail(&self, fault: &Fault, times: usize) {
        let mut cluster = self.shared.lock();
        cluster.local.faults.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// Takes back the faults that nobody met.
    pub fn clear_faults(&self) {
        self.shared.lock().local.faults.clear();
    }

    /// Every request waits that long before it is carried out; a watch waits once, at its start.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.latency.send_replace(latency);
    }

    /// Whether a resource is served; a resource that is not answers 404, as before its CRD is
    /// installed. Running watches are not concerned.
    pub fn set_served(&self, resource: impl Into<Resource>, served: bool) {
        let mut cluster = self.shared.lock();
        match (resource.into(), served) {
            (resource, true) => cluster.local.hidden.remove(&resource),
            (resource, false) => cluster.local.hidden.insert(resource),
        };
    }

    /// Requests since the start, by what was asked of which resource. Those that got a fault's
    /// answer count as well; those without a path that is served do not.
    pub fn requests(&self) -> BTreeMap<(Verb, Resource), u64> {
        self.shared.lock().local.counts.clone()
    }

    /// Writes among the requests since the start.
    pub fn writes(&self) -> u64 {
        self.requests().iter().filter(|((verb, _), _)| verb.writes()).map(|(_, n)| n).sum()
    }
}

impl Drop for FrontHandle {
    fn drop(&mut self) {
        self.shared.mode.send_replace(Mode::Stopped);
    }
}
