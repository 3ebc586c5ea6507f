//! A simulated cluster served over HTTP, and a client for it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyDataStream, BodyExt};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use throughline_core::contract::event::ClusterSpec;
use throughline_core::data::ids::{ClusterName, Role};
use throughline_core::data::objects::{Object, WireObject};
use throughline_core::data::time::UnixMillis;
use throughline_sim::apiserver::{SimApiServer, SimApiServerSettings, SimMilo};
use throughline_sim::{SimClusters, WatchNotice};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) const START: UnixMillis = UnixMillis(1_795_252_772_000);

pub(crate) struct TestServer {
    pub(crate) sim: Arc<Mutex<SimClusters>>,
    pub(crate) cluster: ClusterName,
    pub(crate) handle: SimApiServer,
    pub(crate) client: Client,
    /// The certificate of a server with TLS, in DER.
    ca: Option<Vec<u8>>,
}

/// Serves one cluster that is upstream and edge.
pub(crate) async fn serve(settings: SimApiServerSettings) -> TestServer {
    serve_with(settings, None).await
}

/// The same; with TLS if there is an acceptor, which shows this certificate (DER).
pub(crate) async fn serve_with(
    settings: SimApiServerSettings,
    tls: Option<(TlsAcceptor, Vec<u8>)>,
) -> TestServer {
    let cluster = ClusterName::from("one");
    let roles = vec![Role::Upstream, Role::Edge];
    let mut sim = SimClusters::new(&[ClusterSpec { name: cluster.clone(), roles }], 0);
    sim.advance(START);
    start(Arc::new(Mutex::new(sim)), cluster, settings, tls).await
}

/// Serves one of several clusters; with TLS if there is an acceptor, which shows this certificate (DER).
pub(crate) async fn serve_cluster_with(
    sim: &Arc<Mutex<SimClusters>>,
    cluster: ClusterName,
    tls: Option<(TlsAcceptor, Vec<u8>)>,
) -> TestServer {
    start(sim.clone(), cluster, SimApiServerSettings::default(), tls).await
}

async fn start(
    sim: Arc<Mutex<SimClusters>>,
    cluster: ClusterName,
    settings: SimApiServerSettings,
    tls: Option<(TlsAcceptor, Vec<u8>)>,
) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (name, clusters) = (cluster.clone(), sim.clone());
    let (acceptor, ca) = tls.unzip();
    let handle = SimApiServer::start(clusters, name, listener, acceptor, settings).unwrap();
    let client = client(&handle.url(), ca.clone());
    TestServer { sim, cluster, handle, client, ca }
}

/// Serves a Milo without projects; with TLS if there is an acceptor.
pub(crate) async fn serve_milo(
    settings: SimApiServerSettings,
    tls: Option<TlsAcceptor>,
) -> (Arc<Mutex<SimClusters>>, SimMilo) {
    let mut sim = SimClusters::new(&[], 0);
    sim.advance(START);
    let sim = Arc::new(Mutex::new(sim));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let handle = SimMilo::start(sim.clone(), listener, tls, settings).unwrap();
    (sim, handle)
}

/// A kubeconfig of this user for a server that shows this certificate (DER), if it has TLS.
pub(crate) fn kubeconfig(url: &str, ca: Option<&[u8]>, user: &Value) -> Value {
    let mut cluster = json!({"server": url});
    if let Some(ca) = ca {
        let pem = pem::encode(&pem::Pem::new("CERTIFICATE", ca));
        cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "users": [{"name": "u", "user": user}]})
}

/// A client of a server that shows this certificate (DER), if it has TLS.
pub(crate) fn client(url: &str, ca: Option<Vec<u8>>) -> Client {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = ca.map(|ca| vec![ca]);
    // Tests look at single responses, so the client must not retry.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Creates or replaces an object without a request; returns its resourceVersion.
pub(crate) fn put(sim: &Mutex<SimClusters>, cluster: &ClusterName, object: impl Display) -> u64 {
    let wire: WireObject = serde_json::from_str(&object.to_string()).unwrap();
    let object = Object::try_from(wire).unwrap();
    let mut sim = sim.lock().unwrap();
    sim.put(cluster, object, "test", WatchNotice::Applied).unwrap();
    sim.version(cluster)
}

impl TestServer {
    /// Writes a kubeconfig for this server.
    pub(crate) fn write_kubeconfig(&self, file: &Path) {
        let config = kubeconfig(&self.handle.url(), self.ca.as_deref(), &json!({}));
        std::fs::write(file, config.to_string()).unwrap();
    }

    /// Writes a kubeconfig into a folder, under the cluster's name.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let file = folder.join(self.cluster.as_str());
        self.write_kubeconfig(&file);
        file
    }

    pub(crate) fn put(&self, object: impl Display) -> u64 {
        put(&self.sim, &self.cluster, object)
    }

    /// Sends a request; returns the status and the body.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        body_of(answer(&self.client, method, path, body).await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, &Value::Null).await
    }

    pub(crate) async fn watch(&self, path: &str) -> WatchEvents {
        watch(&self.client, path).await
    }
}

pub(crate) async fn answer(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> kube::Result<Response<Body>> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    answer_typed(client, method, path, body, None).await
}

/// Without a Content-Type, the body has the usual one for the method.
pub(crate) async fn answer_typed(
    client: &Client,
    method: &str,
    path: &str,
    body: String,
    content_type: Option<&str>,
) -> kube::Result<Response<Body>> {
    let content_type = content_type.unwrap_or(match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    });
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    client.send(request.body(Body::from(body.into_bytes())).unwrap()).await
}

/// The status and the body of a response.
pub(crate) async fn body_of(answer: Response<Body>) -> (u16, Value) {
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    let text = || Value::String(String::from_utf8_lossy(&bytes).trim().to_owned());
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

/// The resourceVersion of an object or a list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub(crate) async fn watch(client: &Client, path: &str) -> WatchEvents {
    let answer = answer(client, "GET", path, &Value::Null).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    WatchEvents::of(answer)
}

/// The events of a watch.
pub(crate) struct WatchEvents {
    stream: BodyDataStream<Body>,
    text: Vec<u8>,
}

impl WatchEvents {
    pub(crate) fn of(answer: Response<Body>) -> Self {
        Self { stream: answer.into_body().into_data_stream(), text: Vec::new() }
    }

    /// The next event as its type and object; `None` at the end, an error if the connection broke.
    pub(crate) async fn next(&mut self) -> Option<Result<(String, Value), kube::Error>> {
        loop {
            if let Some(end) = self.text.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                let kind = event["type"].as_str().unwrap().to_owned();
                return Some(Ok((kind, event["object"].clone())));
            }
            match self.stream.next().await? {
                Ok(bytes) => self.text.extend_from_slice(&bytes),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next event; panics if there is none.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        self.next().await.unwrap().unwrap()
    }
}
