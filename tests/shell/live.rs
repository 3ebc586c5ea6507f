//! The parts of the live path against simulated API servers over HTTP: fast, and with faults that real
//! API servers can't be made to show. `tests/e2e` covers the same path with real API servers.

mod answers;
mod client_certificate;
mod connection;
mod events;
mod events_fleet;
mod executor;
mod fleet;
mod http2;
mod http2_repeats;
mod lists;
mod mixed;
mod pacing;
mod pausing;
mod queues;
mod reload;
mod starting;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::json;
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::{ClusterName, Kind, Role};
use throughline::metrics::Metrics;
use throughline::watch::WatchConstants;
use throughline::watch::{MembershipId, WatchMessage, WatchShared, WatchTask};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{Certificate, X509};
use crate::sim_apiserver;

/// What a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// HTTP/1.1 without TLS.
    Http1,
    /// HTTP/2, and HTTP/1.1 for those who ask for it.
    Http2,
}

impl Over {
    const BOTH: [Self; 2] = [Self::Http1, Self::Http2];

    /// A new certificate with its TLS; none for HTTP/1.1.
    fn tls(self) -> Option<(TlsAcceptor, Vec<u8>)> {
        let certificate = || Certificate::self_signed("localhost", X509::V3);
        (self == Self::Http2)
            .then(certificate)
            .map(|certificate| (certificate.acceptor(&["h2", "http/1.1"]), certificate.der))
    }
}

/// The events of a watch of a server that answers as a test wants.
struct Watched {
    events: mpsc::Receiver<WatchMessage>,
    _kubeconfig: Kubeconfig,
}

impl Watched {
    async fn start(router: Router, kind: Kind, config: WatchConstants) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = Kubeconfig::to(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let cluster = ClusterConfig {
            name: ClusterName::from("one"),
            roles: vec![Role::Upstream],
            kubeconfig: Some(kubeconfig.0.clone()),
            context: None,
            in_cluster: false,
        };
        let client = Arc::new(ClusterClient::new(cluster, Arc::new(Metrics::new())));
        let (bus, events) = mpsc::channel(64);
        tokio::spawn(watch_task(client, kind, config, bus).run());
        Self { events, _kubeconfig: kubeconfig }
    }

    async fn next(&mut self) -> EventKind {
        let next = timeout(Duration::from_secs(20), self.events.recv()).await;
        next.expect("an event").expect("the watch continues").kind
    }
}

/// A kubeconfig file that is deleted on drop.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn of(served: &sim_apiserver::TestServer) -> Self {
        let port = served.handle.address().port();
        let path =
            std::env::temp_dir().join(format!("throughline-{}-{port}.yaml", std::process::id()));
        served.write_kubeconfig(&path);
        Self(path)
    }

    /// Leads to whatever listens there.
    fn to(address: SocketAddr) -> Self {
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        let name = format!("throughline-{}-{}.yaml", std::process::id(), address.port());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, config.to_string()).unwrap();
        Self(path)
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A served cluster in a configuration.
fn configured(
    served: &sim_apiserver::TestServer,
    roles: Vec<Role>,
    kubeconfig: &Kubeconfig,
) -> ClusterConfig {
    ClusterConfig {
        name: served.cluster.clone(),
        roles,
        kubeconfig: Some(kubeconfig.0.clone()),
        context: None,
        in_cluster: false,
    }
}

/// A watch that sends to `bus`.
fn watch_task(
    cluster: Arc<ClusterClient>,
    kind: Kind,
    config: WatchConstants,
    bus: mpsc::Sender<WatchMessage>,
) -> WatchTask {
    let shared = Arc::new(WatchShared::new(config, bus, 8));
    WatchTask::new(cluster, kind, MembershipId::default(), shared, &Metrics::new())
}

fn cluster(served: &sim_apiserver::TestServer, kubeconfig: &Kubeconfig) -> Arc<ClusterClient> {
    let config = ClusterConfig {
        name: served.cluster.clone(),
        roles: vec![Role::Upstream, Role::Edge],
        kubeconfig: Some(kubeconfig.0.clone()),
        context: None,
        in_cluster: false,
    };
    Arc::new(ClusterClient::new(config, Arc::new(Metrics::new())))
}
