//! A list takes the memory of an object, not of its pages: an API server that answers with 200 MiB
//! must not cost a pod its life.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use throughline::client::{
    ClusterClient, ConnectionSpec, Connections, Credentials, KubeconfigText, Server,
};
use throughline::config::WatchConstants;
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::{ClusterName, Kind, Role};
use throughline::metrics::Metrics;
use throughline::watch::{WatchShared, WatchTask};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::{ALONE, MIB, growth, reset_peak};

const LIST_BYTES: usize = 200 * MIB;

/// Measured: 8 MiB. With a whole page in memory, between 200 and 600 MiB.
const GROWTH_BYTES_MAX: usize = 30 * MIB;

/// A Connector of about 90 KiB, most of it in a field that nothing reads.
fn connector(number: usize, padding: &str) -> String {
    format!(
        "{{\"metadata\":{{\"namespace\":\"default\",\"name\":\"c{number}\",\"uid\":\"u\",\
         \"resourceVersion\":\"5\"}},\"spec\":{{\"padding\":\"{padding}\"}},\
         \"status\":{{\"conditions\":[{{\"type\":\"Ready\",\"status\":\"True\"}}]}}}}"
    )
}

/// Answers every list with one page, of which it keeps nothing, and a watch with silence.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    if String::from_utf8_lossy(&request).contains("watch=") {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        return std::future::pending().await;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
                {\"kind\":\"ConnectorList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[";
    stream.write_all(head.as_bytes()).await?;
    let padding = "xxxx{\\\"}".repeat(10_000);
    let (mut sent, mut number) = (0, 0);
    while sent < LIST_BYTES {
        let item = connector(number, &padding);
        stream.write_all(if number == 0 { b"" } else { b"," }).await?;
        stream.write_all(item.as_bytes()).await?;
        (sent, number) = (sent + item.len(), number + 1);
    }
    stream.write_all(b"]}").await?;
    stream.shutdown().await
}

#[tokio::test]
async fn a_list_of_200_mib_takes_little_memory() {
    let _alone = ALONE.lock().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    let credentials = Credentials::Text(KubeconfigText::parse(&config.to_string()).unwrap());
    let spec = ConnectionSpec { credentials, server: Server::AsConfigured };
    let (name, metrics) = (ClusterName::from("one"), Arc::new(Metrics::new()));
    let (roles, connections) = (vec![Role::Upstream], Connections::default());
    let cluster = ClusterClient::new(name, roles, spec, &connections, metrics.clone());
    let (bus, mut events) = mpsc::channel(64);
    let watch = WatchConstants { timeout_ms: 300_000, ..WatchConstants::default() };
    let shared = Arc::new(WatchShared::new(watch, bus));
    tokio::spawn(WatchTask::new(Arc::new(cluster), Kind::Connector, shared, &metrics).run());

    let before = reset_peak();
    let mut objects = 0;
    loop {
        let next = tokio::time::timeout(Duration::from_mins(5), events.recv()).await;
        match next.unwrap().unwrap().kind {
            EventKind::ListStarted { .. } => {}
            EventKind::Listed { .. } => objects += 1,
            EventKind::ListFinished { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    let grown = growth(before);
    println!("{objects} objects: {} KiB", grown / 1024);
    assert!(objects > 2_000, "{objects}");
    assert!(grown < GROWTH_BYTES_MAX, "{} MiB", grown / MIB);
}
