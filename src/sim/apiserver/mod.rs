//! A cluster of [`SimClusters`] over HTTP: the part of the Kubernetes API that throughline uses. A
//! real client connects to it as to a real cluster.
//!
//! It serves our five kinds, Lease and Event: lists with pages, watches with bookmarks, single
//! objects, create, update, merge patch, JSON Patch, delete with preconditions, and the probes. Codes, reasons
//! and messages are those of kube-apiserver 1.36; one script of requests runs against both
//! (`tests/conformance.rs`). Known differences:
//!
//! - Objects keep only the fields that matter here; `generation` is not counted.
//! - Other patch types, selectors, finalizers, dry run, admission, schemas, and the syntax of names
//!   and labels are not supported.
//! - A deleted Namespace is gone immediately, and its objects stay.
//! - `managedFields` keep a manager whose last field was taken over or removed, and count a removal
//!   as a write; API servers record only who set a field.
//! - Leases and Events live as long as the server, not as the [`SimClusters`]; Events never expire.

mod handle;
mod json_patch;
mod list;
mod request;
mod status;
mod store;
mod watch;
mod write;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use http::header::USER_AGENT;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::Sender;

pub use handle::{Fault, ServerMode, SimApiServerHandle};
pub use request::{ApiVerb, Resource};
pub use status::reason_of;

use crate::clock::Clock;
use crate::core::data::ids::ClusterName;
use crate::sim::SimClusters;
use request::{QueryParams, RequestTarget};
use status::{Failure, json_response};
use store::{LockedCluster, ServerState};

/// The limit of API servers for a request body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct SimApiServerSettings {
    /// The interval of bookmarks on a watch that asked for them.
    pub bookmark_every: Duration,
    /// Changes kept per kind, for watches that resume.
    pub history_changes: usize,
    /// The simulated time follows this clock: it advances before each request. `None`: the caller
    /// advances it.
    pub clock: Option<Clock>,
}

impl Default for SimApiServerSettings {
    /// One bookmark a minute, as API servers send them.
    fn default() -> Self {
        Self { bookmark_every: Duration::from_secs(60), history_changes: 10_000, clock: None }
    }
}

/// Shared by all connections of a server.
struct Server {
    sim: Arc<Mutex<SimClusters>>,
    cluster: ClusterName,
    settings: SimApiServerSettings,
    state: Mutex<ServerState>,
    mode: Sender<ServerMode>,
    latency: Sender<Duration>,
    /// How often the watches of each resource have been cut.
    watch_cuts: Sender<[u64; Resource::ALL.len()]>,
}

impl Server {
    /// Locks the simulated clusters, then the server's own state; always in this order.
    fn lock(&self) -> LockedCluster<'_> {
        let mut cluster = LockedCluster::lock(&self.sim, &self.state, &self.cluster);
        if let Some(clock) = self.settings.clock {
            cluster.sim.advance(clock.now());
        }
        cluster
    }
}

/// Serves one simulated cluster.
pub struct SimApiServer;

impl SimApiServer {
    /// Serves `cluster` on `listener` until the handle is dropped; needs a tokio runtime. From now
    /// on the clusters keep histories and managed fields, and [`SimClusters::poll_event`] returns
    /// nothing. The caller plays changes into them and, without a clock, advances their time.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start(
        sim: Arc<Mutex<SimClusters>>,
        cluster: ClusterName,
        listener: TcpListener,
        settings: SimApiServerSettings,
    ) -> std::io::Result<SimApiServerHandle> {
        let address = listener.local_addr()?;
        let server = Arc::new(Server {
            sim,
            cluster,
            state: Mutex::new(ServerState::new(settings.history_changes)),
            mode: Sender::new(ServerMode::Serving),
            latency: Sender::new(Duration::ZERO),
            watch_cuts: Sender::new([0; Resource::ALL.len()]),
            settings,
        });
        {
            let mut cluster = server.lock();
            cluster.sim.keep_history(server.settings.history_changes);
            cluster.sim.keep_managed_fields();
        }
        tokio::spawn(accept(server.clone(), listener));
        Ok(SimApiServerHandle { server, address })
    }
}

async fn accept(server: Arc<Server>, listener: TcpListener) {
    let mut mode = server.mode.subscribe();
    loop {
        tokio::select! {
            _ = mode.wait_for(|mode| *mode == ServerMode::Stopped) => return,
            accepted = listener.accept() => {
                // Fails if the client is already gone; keep accepting others.
                let Ok((stream, _)) = accepted else { continue };
                if *server.mode.borrow() != ServerMode::Down {
                    tokio::spawn(serve(server.clone(), stream));
                }
            }
        }
    }
}

async fn serve(server: Arc<Server>, stream: TcpStream) {
    let mut mode = server.mode.subscribe();
    // Without it, small responses wait for each other; the server works all the same.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| respond(server.clone(), request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // If the connection failed, the client reports it.
        _ = connection => {}
        _ = mode.wait_for(|mode| matches!(mode, ServerMode::Down | ServerMode::Stopped)) => {}
    }
}

async fn respond(
    server: Arc<Server>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = to_bytes(Body::new(body), BODY_BYTES_MAX).await;
    let mut mode = server.mode.subscribe();
    // Fails only if the server is gone, and then the connection is gone too.
    let _ = mode.wait_for(|mode| *mode != ServerMode::Frozen).await;
    let latency = *server.latency.borrow();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let response = match body {
        Ok(body) => handle_request(&server, &Request::from_parts(head, body)),
        Err(_) => Err(Failure::too_large(BODY_BYTES_MAX)),
    };
    match response {
        Err(failure) if failure.code() == Fault::NO_RESPONSE => std::future::pending().await,
        response => Ok(response.unwrap_or_else(|failure| failure.response())),
    }
}

fn handle_request(
    server: &Arc<Server>,
    request: &Request<Bytes>,
) -> Result<Response<Body>, Failure> {
    match (request.method().as_str(), request.uri().path()) {
        ("GET", "/livez" | "/readyz" | "/healthz") => return Ok(Response::new(Body::from("ok"))),
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
    let target = RequestTarget::parse(request.uri().path())?;
    let params = QueryParams::parse(request.uri())?;
    let verb = target.verb(request.method(), &params)?;
    let fault = {
        let mut cluster = server.lock();
        *cluster.state.request_counts.entry((verb, target.resource)).or_default() += 1;
        if cluster.state.unserved.contains(&target.resource) {
            return Err(Failure::unknown_resource(target.resource.api_version()));
        }
        let matches =
            |f: &Fault| f.verbs.contains(&verb) && f.resource.is_none_or(|r| r == target.resource);
        let at = cluster.state.faults.iter().position(matches);
        at.and_then(|at| cluster.state.faults.remove(at))
    };
    if let Some(fault) = fault {
        if fault.executes {
            // The fault hides the outcome from the client.
            let _ = execute(server, request, &target, &params, verb);
        }
        return Err(Failure::injected(fault.code, fault.retry_after_s));
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
            let object = object.ok_or_else(|| Failure::not_found(target.resource, &key.name))?;
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

/// The query parameter `fieldManager`, or else the name in the User-Agent.
fn field_manager(request: &Request<Bytes>, params: &QueryParams) -> String {
    if !params.field_manager.is_empty() {
        return params.field_manager.clone();
    }
    let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.and_then(|agent| agent.split('/').next()).unwrap_or("unknown").to_owned()
}
