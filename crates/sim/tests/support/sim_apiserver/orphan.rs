//! A project and its hub, served, and the objects that make an orphan.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline_core::contract::event::ClusterSpec;
use throughline_core::data::ids::Role;
use throughline_sim::SimClusters;

use super::{START, TestServer, serve_cluster_with};

/// The uid of the project's namespace `shop`.
pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

/// `up`, which holds only the namespace, and `hub`, which is empty.
pub(crate) async fn project_and_hub() -> (TestServer, TestServer) {
    let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
    let mut sim = SimClusters::new(&[spec("up", Role::Upstream), spec("hub", Role::Hub)], 0);
    sim.advance(START);
    let sim = Arc::new(Mutex::new(sim));
    let up = serve_cluster_with(&sim, "up".into(), None).await;
    let hub = serve_cluster_with(&sim, "hub".into(), None).await;
    up.put(namespace(UID));
    (up, hub)
}

/// The project's namespace, upstream.
pub(crate) fn namespace(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": uid}})
}

/// The name of the project's namespace at the hub.
pub(crate) fn ns() -> String {
    format!("ns-{UID}")
}

/// An HTTPRoute at the hub, old enough to be an orphan.
pub(crate) fn route(name: &str, parents: &[&str]) -> Value {
    let parents: Vec<_> = parents.iter().map(|name| json!({ "name": name })).collect();
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": ns(), "name": name, "uid": format!("u-{name}"),
            "creationTimestamp": "2020-01-02T03:04:05Z",
            "labels": {
                "meta.datumapis.com/upstream-cluster-name": "cluster-up",
                "meta.datumapis.com/upstream-group": "gateway.networking.k8s.io",
                "meta.datumapis.com/upstream-kind": "HTTPRoute",
                "meta.datumapis.com/upstream-name": name,
                "meta.datumapis.com/upstream-namespace": "shop",
            }},
        "spec": {"parentRefs": parents}})
}
