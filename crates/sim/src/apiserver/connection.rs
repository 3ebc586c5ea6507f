//! Connections: accepts them, with TLS if the caller provides it, and serves HTTP/1.1, or HTTP/2 if
//! the client agrees to it (ALPN).

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as HttpBody;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::body::Body;
use super::fault::{Fault, ServerMode};
use super::front::Front;
use super::milo::Milo;
use super::status::Failure;
use super::{AuditedRequest, BODY_BYTES_MAX, Server, handle_request};

#[derive(Clone)]
pub(super) enum Site {
    Cluster(Arc<Server>),
    Milo(Arc<Milo>),
}

impl Site {
    fn front(&self) -> &Arc<Front> {
        match self {
            Site::Cluster(server) => &server.front,
            Site::Milo(milo) => milo.front(),
        }
    }
}

pub(super) async fn accept(site: Site, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let mut mode = site.front().mode.subscribe();
    loop {
        tokio::select! {
            biased;
            () = mode.wait_for(|mode| *mode == ServerMode::Stopped) => return,
            accepted = listener.accept() => {
                // Fails if the client is already gone; keep accepting others.
                let Ok((stream, _)) = accepted else { continue };
                // Without this option, small responses wait for each other; the server works
                // nevertheless.
                let _ = stream.set_nodelay(true);
                if site.front().mode.get() != ServerMode::Down {
                    tokio::spawn(serve(site.clone(), stream, tls.clone(), 0));
                }
            }
        }
    }
}

pub(super) async fn serve(
    site: Site,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    tls: Option<TlsAcceptor>,
    client: u32,
) {
    let front = site.front().clone();
    let _counted = front.connections.count();
    let mut mode = front.mode.subscribe();
    let connection = async {
        let Some(tls) = tls else { return serve_http1(site, stream, client).await };
        // If the handshake fails, the client reports it.
        let Ok(stream) = tls.accept(stream).await else { return };
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => serve_http2(site, stream, client).await,
            _ => serve_http1(site, stream, client).await,
        }
    };
    tokio::select! {
        biased;
        () = connection => {}
        () = mode.wait_for(|mode| matches!(mode, ServerMode::Down | ServerMode::Stopped)) => {}
    }
}

async fn serve_http1(site: Site, stream: impl AsyncRead + AsyncWrite + Unpin, client: u32) {
    let service = service_fn(|request| respond(site.clone(), client, request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // If the connection failed, the client reports it.
    let _ = connection.await;
}

async fn serve_http2(site: Site, stream: impl AsyncRead + AsyncWrite + Unpin, client: u32) {
    let mut goaways = site.front().goaways.subscribe();
    let service = service_fn(|request| respond(site.clone(), client, request));
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(site.front().settings.max_concurrent_streams)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = goaways.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers a request as the server behaves now; a request that gets no response waits for ever.
pub(super) async fn respond(
    site: Site,
    client: u32,
    request: Request<impl HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>>,
) -> Result<Response<Body>, Infallible> {
    let front = site.front().clone();
    let _counted = front.requests.count();
    let (head, body) = request.into_parts();
    let arrived = Instant::now();
    let within = timeout_of(&head.uri);
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let mut mode = front.mode.subscribe();
    mode.wait_for(|mode| *mode != ServerMode::Frozen).await;
    let latency = front.latency.get();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let response = match body {
        // In a frozen API server, the request's context expires meanwhile, so the request fails.
        Ok(_) if within.is_some_and(|within| arrived.elapsed() > within) => {
            Err(Failure::timed_out())
        }
        Ok(body) => answer(&site, client, Request::from_parts(head, body.to_bytes())),
        Err(_) => Err(Failure::too_large(BODY_BYTES_MAX)),
    };
    match response {
        Err(failure) if failure.code() == Fault::NO_RESPONSE => std::future::pending().await,
        response => Ok(response.unwrap_or_else(|failure| failure.response())),
    }
}

/// The time limit of a request: `timeout=5000ms`.
fn timeout_of(uri: &Uri) -> Option<Duration> {
    let timeout = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    timeout.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
}

/// Handles a request, and repeats it later if a repetition was set.
fn answer(site: &Site, client: u32, request: Request<Bytes>) -> Result<Response<Body>, Failure> {
    let server = match site {
        Site::Cluster(server) => server,
        Site::Milo(milo) => {
            let (server, path) = milo.route(request.uri().path());
            return answer_once(&server, client, (path, &request), false);
        }
    };
    let response = answer_once(server, client, (request.uri().path(), &request), false);
    let is_write = request.method() != Method::GET;
    let after = if is_write { server.lock().state.repeats.pop_front() } else { None };
    if let Some(after) = after {
        let server = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // No client waits for this response.
            drop(answer_once(&server, client, (request.uri().path(), &request), true));
        });
    }
    response
}

fn answer_once(
    server: &Arc<Server>,
    client: u32,
    (path, request): (&str, &Request<Bytes>),
    is_repeat: bool,
) -> Result<Response<Body>, Failure> {
    let response = handle_request(server, path, request);
    if let Some(audit) = &server.front.settings.audit {
        let (code, executed) = match &response {
            Ok(response) => (response.status().as_u16(), true),
            Err(failure) => (failure.code(), failure.is_executed()),
        };
        let cluster = server.cluster.clone();
        let request = request.clone();
        audit(&AuditedRequest { cluster, client, request, code, executed, is_repeat });
    }
    response
}
