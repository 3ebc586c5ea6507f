//! An upstream cluster and a hub that is the edge as well, in memory, and the program looking at them.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::clock::wall_clock_now;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::Role;
use throughline_sim::SimClusters;

use crate::program::{Place, Running};
use crate::sim_apiserver::{TestServer, serve_cluster};

const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

/// One connector, `default/lab`, which is online upstream and not mirrored yet.
pub(crate) struct Environment {
    pub(crate) up: TestServer,
    pub(crate) down: TestServer,
    pub(crate) place: Place,
}

pub(crate) fn connector(name: &str) -> Value {
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "default", "name": name, "uid": format!("u-{name}")}})
}

impl Environment {
    pub(crate) async fn new() -> Self {
        let spec = |name: &str, roles| ClusterSpec { name: name.into(), roles };
        let both = vec![Role::Hub, Role::Edge];
        let mut clusters =
            SimClusters::new(&[spec("up", vec![Role::Upstream]), spec("down", both)], 0);
        clusters.advance(wall_clock_now());
        let clusters = Arc::new(Mutex::new(clusters));
        let up = serve_cluster(&clusters, "up".into()).await;
        let down = serve_cluster(&clusters, "down".into()).await;
        let config = json!({"leaderElection": {"enabled": false}, "touch": {"confirmAfterMs": []},
            "admin": {"address": "127.0.0.1:0"}, "log": {"format": "json"}});
        let place = Place::new(&[(&up, &["upstream"]), (&down, &["hub", "edge"])], config);

        up.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "default", "uid": UID}}));
        let mut online = connector("lab");
        online["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}],
            "connectionDetails": {"type": "PublicKey", "publicKey": {"id": "node"}}});
        up.put(online);
        let at_hub = |version: &str, kind: &str, name: &str| {
            json!({"apiVersion": version, "kind": kind,
                "metadata": {"namespace": format!("ns-{UID}"), "name": name, "uid": name}})
        };
        let mut copy = at_hub("networking.datumapis.com/v1alpha1", "Connector", "lab");
        copy["metadata"]["labels"] = json!({"meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-name": "lab", "meta.datumapis.com/upstream-namespace": "default"});
        let mut proxy = at_hub("networking.datumapis.com/v1alpha", "HTTPProxy", "app");
        proxy["spec"] = json!({"rules": [{"backends": [{"connector": {"name": "lab"}}]}]});
        let mut gateway = at_hub("gateway.networking.k8s.io/v1", "Gateway", "app");
        gateway["spec"] = json!({"gatewayClassName": "edge"});
        for object in [copy, proxy, gateway] {
            down.put(object);
        }
        Self { up, down, place }
    }

    /// Starts an instance; returns it with the URL of its admin port.
    pub(crate) async fn start_instance(&self) -> (Running, String) {
        let mut running = self.place.start(&["run"]);
        let lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
        let found = tokio::task::spawn_blocking(move || {
            let mut lines =
                lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            let found = lines.find(|line| line["message"] == "admin port listening").unwrap();
            std::thread::spawn(move || lines.for_each(drop));
            found["address"].as_str().unwrap().to_owned()
        });
        (running, format!("http://{}", found.await.unwrap()))
    }
}
