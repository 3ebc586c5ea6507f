//! Clusters as a configuration names them, and writes to them.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use serde_json::{Value, json};
use throughline::client::{
    ClusterClient, ConnectionSpec, Connections, Credentials, KubeconfigText, Server,
};
use throughline::config::ClusterConfig;
use throughline::core::contract::action::{AbsentObjects, Action, Precondition, Verb};
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, NamespacedName, Role};
use throughline::metrics::Metrics;
use throughline_sim::SimClusters;

use crate::sim_apiserver::{START, TestServer, kubeconfig, serve_cluster_with};
use crate::stage::{Tenant, UID, UP};

pub(crate) fn configured(
    name: impl Into<ClusterName>,
    roles: &[Role],
    kubeconfig: Option<&Path>,
) -> ClusterConfig {
    ClusterConfig {
        name: name.into(),
        roles: roles.to_vec(),
        kubeconfig: kubeconfig.map(Path::to_owned),
        context: None,
        in_cluster: false,
    }
}

pub(crate) fn client(config: ClusterConfig) -> Arc<ClusterClient> {
    let spec = config.connection();
    let metrics = Arc::new(Metrics::new());
    let connections = Connections::default();
    Arc::new(ClusterClient::new(config.name, config.roles, spec, &connections, metrics))
}

/// A client whose connections may be shared.
pub(crate) fn connect(
    name: &str,
    spec: ConnectionSpec,
    connections: &Connections,
) -> Arc<ClusterClient> {
    let (roles, metrics) = (vec![Role::Upstream, Role::Edge], Arc::new(Metrics::new()));
    Arc::new(ClusterClient::new(name.into(), roles, spec, connections, metrics))
}

/// How a server is reached, which shows this certificate if it has TLS.
pub(crate) fn spec(url: &str, ca: Option<&[u8]>, user: &Value, server: Server) -> ConnectionSpec {
    let text = KubeconfigText::parse(&kubeconfig(url, ca, user).to_string()).unwrap();
    ConnectionSpec { credentials: Credentials::Text(text), server }
}

/// A client of whatever is served there without TLS.
pub(crate) fn client_at(name: &str, url: &str) -> Arc<ClusterClient> {
    let spec = spec(url, None, &json!({}), Server::AsConfigured);
    connect(name, spec, &Connections::default())
}

/// The namespace of a project.
pub(crate) const SHOP: Tenant = Tenant { namespace: "shop", ..UP };

/// A project and its hub, served: `up`, which holds only the namespace, and `hub`, which is empty.
pub(crate) async fn project_and_hub() -> (TestServer, TestServer) {
    let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
    let mut sim = SimClusters::new(&[spec("up", Role::Upstream), spec("hub", Role::Hub)], 0);
    sim.advance(START);
    let sim = Arc::new(Mutex::new(sim));
    let up = serve_cluster_with(&sim, "up".into(), None).await;
    let hub = serve_cluster_with(&sim, "hub".into(), None).await;
    up.put(SHOP.namespace());
    (up, hub)
}

/// Serves this on loopback; returns its URL.
pub(crate) fn serve(app: Router) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

/// A write of one annotation in cluster `one`.
pub(crate) fn write(verb: Verb, kind: Kind, name: &str) -> Action {
    Action {
        id: ActionId(1),
        verb,
        cluster: ClusterName::from("one"),
        kind,
        object: NamespacedName::new("n", name),
        annotations: vec![("k".into(), Some("v".into()))],
        precondition: Precondition::default(),
        connectors: Vec::new(),
    }
}

/// The proof that a delete needs: these Gateways of the namespace `shop` are gone.
pub(crate) fn absent(upstream: &str, gateways: &[&str]) -> AbsentObjects {
    AbsentObjects {
        cluster: upstream.into(),
        namespace: "shop".into(),
        namespace_uid: Some(UID.into()),
        namespace_deleted: false,
        kind: Kind::Gateway,
        names: gateways.iter().map(|name| (*name).into()).collect(),
    }
}
