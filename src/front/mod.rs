//! A cluster of the [`world`](crate::world) over HTTP: the part of the API server's protocol that
//! throughline speaks. A real client connects to it as to a real cluster.
//!
//! Served are the five kinds, Lease and Event: lists with pages, watches with bookmarks, single objects,
//! create, update, merge patch, delete with preconditions, and the probes. Answers have the codes,
//! reasons and texts of kube-apiserver 1.36; one script of requests holds both to that
//! (`tests/conformance.rs`). What differs:
//!
//! - objects keep the fields that matter here and lose the others; `generation` is not counted
//! - there are no other ways to patch, no selectors, no finalizers, no dry run, no admission;
//!   objects are not held against a schema, names and labels not against their syntax
//! - a deleted Namespace is gone at once, and its objects stay
//! - `managedFields` keep a writer whose last field was taken over or removed, and take a removal for
//!   a write; API servers note only who set something
//! - Leases and Events last as long as the front, not the world; Events never expire

mod hooks;
mod list;
mod route;
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

pub use hooks::{Fault, FrontHandle, Mode};
pub use route::{Resource, Verb};

use crate::clock::Clock;
use crate::core::ids::ClusterName;
use crate::world::World;
use route::{Params, Target};
use status::{Failure, json_response};
use store::{Cluster, Local};

/// What API servers take in one request.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How a front behaves.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// From bookmark to bookmark of a watch that asked for them.
    pub bookmark_every: Duration,
    /// Changes kept for each kind, for watches that resume.
    pub history_changes: usize,
    /// What the world's time follows: it is moved on before each request is answered. `None`: the
    /// caller moves it.
    pub clock: Option<Clock>,
}

impl Default for FrontSettings {
    /// A bookmark a minute, as API servers send them.
    fn default() -> Self {
        Self { bookmark_every: Duration::from_secs(60), history_changes: 10_000, clock: None }
    }
}

/// What the connections of a front share.
struct Shared {
    world: Arc<Mutex<World>>,
    cluster: ClusterName,
    settings: FrontSettings,
    local: Mutex<Local>,
    mode: Sender<Mode>,
    latency: Sender<Duration>,
    /// How often the watches of each resource were cut.
    cuts: Sender<[u64; Resource::ALL.len()]>,
}

type Handler = Arc<Shared>;

impl Shared {
    /// The order of locks is the world's, then the front's own.
    fn lock(&self) -> Cluster<'_> {
        let mut cluster = Cluster::lock(&self.world, &self.local, &self.cluster);
        if let Some(clock) = self.settings.clock {
            cluster.world.advance(clock.now());
        }
        cluster
    }
}

/// One cluster of a world, served.
pub struct Front;

impl Front {
    /// Serves `cluster` on `listener` until the handle is dropped; needs a tokio runtime. The
    /// world keeps histories and managed fields from now on and gives no events any more; its
    /// recorded changes, and without a clock its time, are the caller's to move on.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start(
        world: Arc<Mutex<World>>,
        cluster: ClusterName,
        listener: TcpListener,
        settings: FrontSettings,
    ) -> std::io::Result<FrontHandle> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            world,
            cluster,
            local: Mutex::new(Local::new(settings.history_changes)),
            mode: Sender::new(Mode::Serving),
            latency: Sender::new(Duration::ZERO),
            cuts: Sender::new([0; Resource::ALL.len()]),
            settings,
        });
        {
            let mut cluster = shared.lock();
            cluster.world.keep_history(shared.settings.history_changes);
            cluster.world.keep_managed_fields();
        }
        tokio::spawn(accept(shared.clone(), listener));
        Ok(FrontHandle { shared, address })
    }
}

async fn accept(shared: Handler, listener: TcpListener) {
    let mut mode = shared.mode.subscribe();
    loop {
        tokio::select! {
            _ = mode.wait_for(|mode| *mode == Mode::Stopped) => return,
            accepted = listener.accept() => {
                // A client that went away before it was taken is no reason to stop.
                let Ok((stream, _)) = accepted else { continue };
                if *shared.mode.borrow() != Mode::Down {
                    tokio::spawn(serve(shared.clone(), stream));
                }
            }
        }
    }
}

async fn serve(shared: Handler, stream: TcpStream) {
    let mut mode = shared.mode.subscribe();
    // Small answers must not wait for each other; a socket that refuses this works all the same.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(shared.clone(), request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Whatever ended the connection, the client knows best.
        _ = connection => {}
        _ = mode.wait_for(|mode| matches!(mode, Mode::Down | Mode::Stopped)) => {}
    }
}

async fn answer(shared: Handler, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = to_bytes(Body::new(body), BODY_BYTES_MAX).await;
    let mut mode = shared.mode.subscribe();
    // Errors only when the front is gone, and then the connection is, too.
    let _ = mode.wait_for(|mode| *mode != Mode::Frozen).await;
    let latency = *shared.latency.borrow();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let answer = match body {
        Ok(body) => respond(&shared, &Request::from_parts(head, body)),
        Err(_) => Err(Failure::too_large(BODY_BYTES_MAX)),
    };
    Ok(answer.unwrap_or_else(|failure| failure.response()))
}

fn respond(shared: &Handler, request: &Request<Bytes>) -> Result<Response<Body>, Failure> {
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
    let target = Target::parse(request.uri().path())?;
    let params = Params::parse(request.uri())?;
    let verb = target.verb(request.method(), &params)?;
    let fault = {
        let mut cluster = shared.lock();
        *cluster.local.counts.entry((verb, target.resource)).or_default() += 1;
        if cluster.local.hidden.contains(&target.resource) {
            return Err(Failure::unknown_resource(target.resource.api_version()));
        }
        let fits =
            |f: &Fault| f.verbs.contains(&verb) && f.resource.is_none_or(|r| r == target.resource);
        let at = cluster.local.faults.iter().position(fits);
        at.and_then(|at| cluster.local.faults.remove(at))
    };
    if let Some(fault) = fault {
        if fault.carried_out {
            // Whether it can be carried out is not told.
            let _ = carry_out(shared, request, &target, &params, verb);
        }
        return Err(Failure::injected(fault.code, fault.retry_after_s));
    }
    carry_out(shared, request, &target, &params, verb)
}

fn carry_out(
    shared: &Handler,
    request: &Request<Bytes>,
    target: &Target,
    params: &Params,
    verb: Verb,
) -> Result<Response<Body>, Failure> {
    let write = write::Write { target, manager: manager(request, params) };
    let mut cluster = shared.lock();
    match verb {
        Verb::Get => {
            let key = target.key();
            let item = cluster.get(target.resource, &key);
            let item = item.ok_or_else(|| Failure::not_found(target.resource, &key.name))?;
            Ok(json_response(200, &item.to_value()))
        }
        Verb::Create => write.create(&mut cluster, request.body()),
        Verb::Update => write.update(&mut cluster, request.body()),
        Verb::Patch => write.patch(&mut cluster, request),
        Verb::Delete => write.delete(&mut cluster, request.body()),
        Verb::List => {
            drop(cluster);
            list::list(shared, target, params)
        }
        Verb::Watch => {
            drop(cluster);
            watch::watch(shared, target, params)
        }
    }
}

/// Who writes: as the query says, else as the client calls itself.
fn manager(request: &Request<Bytes>, params: &Params) -> String {
    if !params.field_manager.is_empty() {
        return params.field_manager.clone();
    }
    let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.and_then(|agent| agent.split('/').next()).unwrap_or("unknown").to_owned()
}
