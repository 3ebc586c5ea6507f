//! The clusters of docs/tutorial.md: three API servers with a small fleet in them, a stand-in for
//! the carrier, a kubeconfig for the reader and a configuration for throughline. They run until
//! Ctrl-C. `make tutorial` starts it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example may panic and print")]

#[path = "../tests/support/cluster/mod.rs"]
mod cluster;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cluster::apiserver::{ADMIN, ApiServer, THROUGHLINE, token};
use cluster::carrier::Carrier;
use cluster::objects::{META, UPSTREAM_STATUS, connector, gateway, proxy, with_upstream_labels};
use cluster::process::free_port;
use cluster::rest::{CONNECTORS, GATEWAYS, NAMESPACES, PROXIES, Rest};
use cluster::testbed::{Testbed, Topology};
use cluster::{SOON, ensure, eventually};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// The upstream cluster's name, which the labels of hub Connectors carry.
const PROJECT: &str = "project-a";
/// The namespace of the upstream Connectors.
const NAMESPACE: &str = "default";

struct Sample {
    name: &'static str,
    online: bool,
    node_id: &'static str,
    /// The sites behind it: an HTTPProxy and a Gateway each.
    sites: [&'static str; 2],
}

const SAMPLES: [Sample; 2] = [
    Sample {
        name: "home-lab",
        online: false,
        node_id: "8c5d1f3b9a7e42f0",
        sites: ["app", "photos"],
    },
    Sample { name: "office", online: true, node_id: "2f81c04d6be95a37", sites: ["shop", "wiki"] },
];

#[tokio::main]
async fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1).map_or("target/tutorial".into(), PathBuf::from);
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        () = run(&folder) => {}
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
    // `run` is dropped by now, and with it the API servers, their data and the files.
    println!("\nThe API servers are stopped, and their data is removed.");
    ExitCode::SUCCESS
}

async fn run(folder: &Path) {
    println!("Starting three API servers, each with an etcd of its own. This takes half a minute.");
    let names = [PROJECT, "hub", "edge-1"];
    let testbed = Testbed::start_named(Topology::Three, &names, true).await;
    create_fleet(&testbed).await;
    let files = Files::write(folder, &testbed);
    describe(&testbed, &files);
    watch_stop_file(testbed.carrier(), &files.carrier_stopped).await;
}

/// Creates the fleet as the platform leaves it: the hub's annotations are right, and no Gateway
/// carries a trigger yet.
async fn create_fleet(testbed: &Testbed) {
    // `throughline trace` names the last writer of each hop, so the writers need names.
    let upstream = testbed.upstream().server.rest_as("platform").await;
    let hub = testbed.hub().server.rest_as("replicator").await;
    let edge = testbed.edge().server.rest_as("platform").await;
    let namespace = create_namespaces(&upstream, [&hub, &edge]).await;
    for sample in SAMPLES {
        let status = status(&sample);
        upstream.create(CONNECTORS, connector(NAMESPACE, sample.name)).await.unwrap();
        upstream.merge_status(CONNECTORS, (NAMESPACE, sample.name), &status).await.unwrap();

        let kind = ("networking.datumapis.com", "Connector");
        let made_from = (NAMESPACE, sample.name);
        let mut object =
            with_upstream_labels(connector(&namespace, sample.name), PROJECT, kind, made_from);
        object["metadata"]["annotations"] = json!({ UPSTREAM_STATUS: status.to_string() });
        hub.create(CONNECTORS, object).await.unwrap();

        for site in sample.sites {
            edge.create(PROXIES, proxy(&namespace, site, &[sample.name])).await.unwrap();
            edge.create(GATEWAYS, gateway(&namespace, site)).await.unwrap();
        }
    }
    let expected = u64::try_from(SAMPLES.len()).unwrap();
    eventually("the Connectors are carried to the edge", SOON, async || {
        let carried = testbed.carrier().carried_count();
        ensure(carried >= expected, || format!("{carried} of {expected}"))
    })
    .await;
}

/// Creates `ns-<uid>` at hub and edge; returns its name.
async fn create_namespaces(upstream: &Rest, hub_and_edge: [&Rest; 2]) -> String {
    // A new API server creates `default` itself, a moment after it is ready.
    eventually("the namespace default exists", SOON, async || {
        upstream.read(NAMESPACES, "", NAMESPACE).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let namespace = upstream.read(NAMESPACES, "", NAMESPACE).await.unwrap();
    let name = format!("ns-{}", namespace["metadata"]["uid"].as_str().unwrap());
    let labels = json!({
        format!("{META}/upstream-cluster-name"): format!("cluster-{PROJECT}"),
        format!("{META}/upstream-namespace"): NAMESPACE,
    });
    for rest in hub_and_edge {
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        rest.create(NAMESPACES, object).await.unwrap();
    }
    name
}

fn status(sample: &Sample) -> Value {
    let (ready, reason, message) = if sample.online {
        ("True", "ConnectorReady", "The connector is ready to tunnel traffic.")
    } else {
        ("False", "ConnectorNotReady", "Connector lease has expired. Agent may be offline.")
    };
    json!({
        "conditions": [{
            "type": "Ready", "status": ready, "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-20T07:00:00Z",
        }],
        "connectionDetails": {
            "type": "PublicKey",
            "publicKey": {
                "id": sample.node_id,
                "homeRelay": "https://relay.example.test",
                "addresses": [{ "address": "198.51.100.7", "port": 41641 }],
            },
        },
    })
}

/// The files for the reader, removed when dropped. The event log of `throughline run` stays.
struct Files {
    folder: PathBuf,
    kubeconfig: PathBuf,
    throughline_kubeconfig: PathBuf,
    config: PathBuf,
    /// While this file exists, the carrier is stopped.
    carrier_stopped: PathBuf,
}

impl Files {
    fn write(folder: &Path, testbed: &Testbed) -> Self {
        fs::create_dir_all(folder).unwrap();
        let absolute = fs::canonicalize(folder).unwrap();
        let file = |name: &str| absolute.join(name);
        let files = Self {
            folder: folder.to_owned(),
            kubeconfig: file("kubeconfig"),
            throughline_kubeconfig: file("throughline.kubeconfig"),
            config: file("throughline.yaml"),
            carrier_stopped: file("carrier-stopped"),
        };
        let _ = fs::remove_file(&files.carrier_stopped);
        write_kubeconfig(&files.kubeconfig, testbed, ADMIN);
        write_kubeconfig(&files.throughline_kubeconfig, testbed, THROUGHLINE);
        let event_log = file("events.jsonl");
        fs::write(&files.config, config(&files.throughline_kubeconfig, &event_log)).unwrap();
        files
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let files =
            [&self.kubeconfig, &self.throughline_kubeconfig, &self.config, &self.carrier_stopped];
        for file in files {
            let _ = fs::remove_file(file);
        }
        // Fails while an event log is in it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Writes a kubeconfig with a context for each cluster; the first is the current one.
fn write_kubeconfig(path: &Path, testbed: &Testbed, user: &str) {
    let named = |what: &str, of: &dyn Fn(&ApiServer) -> Value| -> Vec<Value> {
        testbed.clusters.iter().map(|c| json!({ "name": c.name, what: of(&c.server) })).collect()
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", &|server| {
            json!({ "server": server.url(), "certificate-authority": server.ca() })
        }),
        "users": [{ "name": user, "user": { "token": token(user) } }],
        "contexts": named("context", &|server| json!({ "cluster": server.name(), "user": user })),
        "current-context": PROJECT,
    });
    fs::write(path, serde_json::to_vec_pretty(&config).unwrap()).unwrap();
}

fn config(kubeconfig: &Path, event_log: &Path) -> String {
    let kubeconfig = kubeconfig.display();
    format!(
        "\
clusters:
  - name: {PROJECT}
    roles: [upstream]
    kubeconfig: {kubeconfig}
    context: {PROJECT}
  - name: hub
    roles: [hub]
    kubeconfig: {kubeconfig}
    context: hub
  - name: edge-1
    roles: [edge]
    kubeconfig: {kubeconfig}
    context: edge-1
eventLog:
  file: {event_log}
admin: # probes, metrics and /state
  address: 127.0.0.1:{port}
log:
  format: text
",
        event_log = event_log.display(),
        port = free_port(),
    )
}

fn describe(testbed: &Testbed, files: &Files) {
    let contents = [
        "upstream Connectors home-lab (offline) and office (online)",
        "hub Connectors made from them",
        "edge Connectors; Gateways app and photos (home-lab), shop and wiki (office)",
    ];
    println!();
    for (cluster, contents) in testbed.clusters.iter().zip(contents) {
        println!("{:<10} {}  {contents}", cluster.name, cluster.server.url());
    }
    let folder = files.folder.display();
    println!();
    println!("{folder}/kubeconfig        kubectl contexts project-a, hub, edge-1");
    println!("{folder}/throughline.yaml  throughline's configuration");
    println!("{folder}/carrier-stopped   create this file to stop the carrier");
    println!();
    println!(
        "Ready. Leave this running and continue in a second terminal. Ctrl-C removes everything."
    );
}

/// Stops the carrier while the file exists; never returns.
async fn watch_stop_file(carrier: &Carrier, stop_file: &Path) {
    let mut was_stopped = false;
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    loop {
        every_second.tick().await;
        let is_stopped = stop_file.exists();
        if is_stopped == was_stopped {
            continue;
        }
        was_stopped = is_stopped;
        if is_stopped {
            carrier.pause();
            println!("The carrier is stopped: changes at the hub do not reach edge-1.");
        } else {
            carrier.resume();
            println!("The carrier runs again: it carries what changed meanwhile.");
        }
    }
}
