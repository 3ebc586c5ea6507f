//! A world of one cluster, served.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::body::{Body, BodyDataStream};
use futures::StreamExt;
use http::{Request, Response};
use kube::Client;
use serde_json::Value;
use throughline::core::ids::{ClusterName, Role};
use throughline::core::objects::{Object, Wire};
use throughline::core::time::UnixMillis;
use throughline::event_log::ClusterSpec;
use throughline::front::{Front, FrontHandle, FrontSettings};
use throughline::world::{Tell, World};
use tokio::net::TcpListener;

pub(crate) const START: UnixMillis = UnixMillis(1_795_252_772_000);

pub(crate) struct Served {
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) cluster: ClusterName,
    pub(crate) front: FrontHandle,
    pub(crate) client: Client,
}

pub(crate) async fn serve(settings: FrontSettings) -> Served {
    let cluster = ClusterName::from("one");
    let roles = vec![Role::Upstream, Role::Edge];
    let mut world = World::new(&[ClusterSpec { name: cluster.clone(), roles }], 0);
    world.advance(START);
    start(Arc::new(Mutex::new(world)), cluster, settings).await
}

pub(crate) async fn serve_cluster(world: &Arc<Mutex<World>>, cluster: ClusterName) -> Served {
    start(world.clone(), cluster, FrontSettings::default()).await
}

async fn start(world: Arc<Mutex<World>>, cluster: ClusterName, settings: FrontSettings) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::start(world.clone(), cluster.clone(), listener, settings).unwrap();
    let mut config = kube::Config::new(front.url().parse().unwrap());
    // An answer is what the server says, not what it says at last.
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    Served { world, cluster, front, client }
}

impl Served {
    /// A kubeconfig for it, in `folder`.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let path = folder.join(self.cluster.as_str());
        let config = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": self.front.url()}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub(crate) fn put(&self, object: Value) -> u64 {
        let wire: Wire = serde_json::from_str(&object.to_string()).unwrap();
        let object = Object::try_from(wire).unwrap();
        let mut world = self.world.lock().unwrap();
        world.put(&self.cluster, object, "test", Tell::Applied).unwrap();
        world.version(&self.cluster)
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.answer(method, path, body).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await.unwrap();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, &Value::Null).await
    }

    pub(crate) async fn answer(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> kube::Result<Response<kube::client::Body>> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request =
            Request::builder().method(method).uri(path).header("content-type", content_type);
        self.client.send(request.body(kube::client::Body::from(body)).unwrap()).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Lines {
        let answer = self.answer("GET", path, &Value::Null).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        Lines { stream: Body::new(answer.into_body()).into_data_stream(), text: Vec::new() }
    }
}

/// The lines of a watch.
pub(crate) struct Lines {
    stream: BodyDataStream,
    text: Vec<u8>,
}

impl Lines {
    /// The next event, as its type and object; the end as `None`; a broken connection as an error.
    pub(crate) async fn next(&mut self) -> Option<Result<(String, Value), axum::Error>> {
        loop {
            if let Some(end) = self.text.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                let what = event["type"].as_str().unwrap().to_owned();
                return Some(Ok((what, event["object"].clone())));
            }
            match self.stream.next().await? {
                Ok(bytes) => self.text.extend_from_slice(&bytes),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next event, of which there must be one.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        self.next().await.unwrap().unwrap()
    }
}
