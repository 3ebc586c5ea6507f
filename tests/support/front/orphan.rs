//! A project and its hub, served; and what an orphan is made of.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::core::ids::Role;
use throughline::event_log::ClusterSpec;
use throughline::world::World;

use super::{START, Served, serve_cluster};

/// The uid of the project's namespace, `shop`.
pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

/// `up`, with the namespace alone, and `hub`, which is empty.
pub(crate) async fn project_and_hub() -> (Served, Served) {
    let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
    let mut world = World::new(&[spec("up", Role::Upstream), spec("hub", Role::Downstream)], 0);
    world.advance(START);
    let world = Arc::new(Mutex::new(world));
    let up = serve_cluster(&world, "up".into()).await;
    let hub = serve_cluster(&world, "hub".into()).await;
    up.put(namespace(UID));
    (up, hub)
}

/// The project's namespace.
pub(crate) fn namespace(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": uid}})
}

/// The namespace's own at the hub.
pub(crate) fn ns() -> String {
    format!("ns-{UID}")
}

/// A replica HTTPRoute, old enough for anything.
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
