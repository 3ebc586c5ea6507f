//! Serves a cluster of [`SimClusters`] over HTTP, with the part of the Kubernetes API that
//! throughline uses. A real client connects to it as to a real cluster.
//!
//! It serves throughline's five kinds, Lease and Event, and, if enabled, Milo's Project and
//! ProjectControlPlane: lists with pages, watches with bookmarks, single objects, create, update,
//! merge patch, JSON Patch, delete with preconditions, and the probes. Codes, reasons and messages
//! are those of kube-apiserver 1.36. One script of requests runs against both
//! (`tests/e2e/conformance.rs`). Known differences:
//!
//! - Objects keep only the fields that matter here; `generation` does not count up.
//! - Other patch types, field selectors, finalizers, dry run, admission, schemas, and the syntax of names
//!   and labels are not supported.
//! - A deleted Namespace is gone immediately, and its objects stay.
//! - `managedFields` keep a manager whose last field was taken over or removed, and count a removal
//!   as a write. API servers record only managers that own fields.
//! - Leases and Events exist as long as the server, not as the [`SimClusters`]. Events never
//!   expire.

mod body;
mod connection;
mod fault;
mod front;
mod json_patch;
mod list;
mod milo;
mod request;
mod resource;
mod selector;
mod sim_api_server;
mod sim_milo;
mod status;
mod store;
mod watch;
mod write;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::signal::Sender;
use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{Request, Response};
use serde_json::json;

pub use body::{Body, WatchCut};
pub use fault::{Fault, ServerMode};
pub use resource::{ApiVerb, Resource};
pub use sim_api_server::{ServerLoad, SimApiServer};
pub use sim_milo::SimMilo;
pub use status::reason_of;
pub use store::ServerBackup;

use crate::SimClusters;
use front::{Front, Gauge};
use request::{QueryParams, RequestTarget};
use status::{Failure, json_response};
use store::{LockedCluster, ServerState};
use throughline_core::data::ids::ClusterName;
use throughline_core::data::time::UnixMillis;

/// The limit of API servers for a request body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

#[derive(Clone)]
pub struct SimApiServerSettings {
    /// The interval of bookmarks on a watch that requests them.
    pub bookmark_every: Duration,
    /// The number of changes kept for each kind, for watches that resume.
    pub history_changes: usize,
    /// The simulated time follows this clock and advances before each request. `None`: the caller
    /// advances it.
    pub clock: Option<SimClock>,
    /// The highest number of concurrent requests, including watches, on one HTTP/2 connection
    /// (`SETTINGS_MAX_CONCURRENT_STREAMS`).
    pub max_concurrent_streams: u32,
    /// Called with every request and its response code.
    pub audit: Option<Audit>,
}

/// Returns the current time.
pub type SimClock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

/// Called with every request after its response.
pub type Audit = Arc<dyn Fn(&AuditedRequest) + Send + Sync>;

/// A request and its response code. Its effects are in the clusters.
#[derive(Clone, Debug)]
pub struct AuditedRequest {
    pub cluster: ClusterName,
    /// The number that [`SimApiServer::serve`] got for the connection; 0 with a listener.
    pub client: u32,
    pub request: Request<Bytes>,
    /// [`Fault::NO_RESPONSE`] for a request that hangs.
    pub code: u16,
    /// Whether it was executed: with success, or despite a fault in its response.
    pub executed: bool,
    /// A proxy's repetition of a write, for whose response no client waits.
    pub is_repeat: bool,
}

impl Default for SimApiServerSettings {
    /// One bookmark a minute and 100 streams, as on API servers.
    fn default() -> Self {
        Self {
            bookmark_every: Duration::from_secs(60),
            history_changes: 10_000,
            clock: None,
            max_concurrent_streams: 100,
            audit: None,
        }
    }
}

/// One served cluster.
struct Server {
    sim: Arc<Mutex<SimClusters>>,
    cluster: ClusterName,
    state: Mutex<ServerState>,
    front: Arc<Front>,
    /// How often the watches of each resource were cut.
    watch_cuts: Sender<[u64; Resource::ALL.len()]>,
    /// Running watches of each resource.
    watches: [Arc<Gauge>; Resource::ALL.len()],
}

impl Server {
    fn new(sim: Arc<Mutex<SimClusters>>, cluster: ClusterName, front: Arc<Front>) -> Self {
        let history_changes = front.settings.history_changes;
        let server = Self {
            sim,
            cluster,
            state: Mutex::new(ServerState::new(history_changes)),
            front,
            watch_cuts: Sender::new([0; Resource::ALL.len()]),
            watches: Default::default(),
        };
        {
            let mut cluster = server.lock();
            cluster.sim.keep_history(history_changes);
            cluster.sim.keep_managed_fields();
        }
        server
    }

    /// Locks the simulated clusters, then the server's own state; always in this order.
    fn lock(&self) -> LockedCluster<'_> {
        let sim = self.sim.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cluster = LockedCluster { sim, state, name: &self.cluster };
        if let Some(now) = &self.front.settings.clock {
            cluster.sim.advance(now());
        }
        cluster
    }

    fn cut_watches(&self, resource: Option<Resource>) {
        self.watch_cuts.modify(|cuts| {
            for one in Resource::ALL.into_iter().filter(|r| resource.is_none_or(|w| w == *r)) {
                cuts[one as usize] += 1;
            }
        });
    }
}

fn handle_request(
    server: &Arc<Server>,
    path: &str,
    request: &Request<Bytes>,
) -> Result<Response<Body>, Failure> {
    match (request.method().as_str(), path) {
        ("GET", "/livez" | "/readyz" | "/healthz") => return Ok(Response::new(body::whole("ok"))),
        ("GET", "/version") => {
            let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4",
                "platform": "memory"});
            return Ok(json_response(200, &version));
        }
        (_, "/livez" | "/readyz" | "/healthz" | "/version") => {
            return Err(Failure::method_not_allowed());
        }
        _ => {}
    }
    let target = RequestTarget::parse(path)?;
    let params = QueryParams::parse(request.uri())?;
    let verb = target.verb(request.method(), &params)?;
    let fault = {
        let mut cluster = server.lock();
        *cluster.state.request_counts.entry((verb, target.resource)).or_default() += 1;
        if !cluster.state.lets_in(request.headers().get(AUTHORIZATION)) {
            return Err(Failure::injected(401, None));
        }
        if cluster.state.unserved.contains(&target.resource) {
            return Err(Failure::unknown_resource(target.resource.api_version()));
        }
        if cluster.state.is_initializing(target.resource, Instant::now()) {
            return Err(Failure::initializing());
        }
        let matches =
            |f: &Fault| f.verbs.contains(&verb) && f.resource.is_none_or(|r| r == target.resource);
        let at = cluster.state.faults.iter().position(matches);
        at.and_then(|at| cluster.state.faults.remove(at))
    };
    if let Some(fault) = fault {
        let failure = Failure::injected(fault.code, fault.retry_after_s);
        // The fault hides the outcome from the client.
        let is_executed =
            fault.executes && execute(server, request, &target, &params, verb).is_ok();
        return Err(if is_executed { failure.but_executed() } else { failure });
    }
    execute(server, request, &target, &params, verb)
}

fn execute(
    server: &Arc<Server>,
    request: &Request<Bytes>,
    target: &RequestTarget,
    params: &QueryParams,
    verb: ApiVerb,
) -> Result<Response<Body>, Failure> {
    let write = write::ObjectWrite { target, manager: field_manager(request, params) };
    let mut cluster = server.lock();
    match verb {
        ApiVerb::Get => {
            let key = target.key();
            let object = cluster.get(target.resource, &key);
            let object = object.ok_or_else(|| Failure::not_found(target.resource, key.name()))?;
            Ok(json_response(200, &object.to_value()))
        }
        ApiVerb::Create => write.create(&mut cluster, request.body()),
        ApiVerb::Update => write.update(&mut cluster, request.body()),
        ApiVerb::Patch => write.patch(&mut cluster, request),
        ApiVerb::Delete => write.delete(&mut cluster, request.body()),
        ApiVerb::List => {
            drop(cluster);
            list::list(server, target, params)
        }
        ApiVerb::Watch => {
            drop(cluster);
            watch::watch(server, target, params)
        }
    }
}

/// The query parameter `fieldManager`, or the name in the User-Agent.
fn field_manager(request: &Request<Bytes>, params: &QueryParams) -> String {
    if !params.field_manager.is_empty() {
        return params.field_manager.clone();
    }
    let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.and_then(|agent| agent.split('/').next()).unwrap_or("unknown").to_owned()
}
