//! The connections of clusters that share a host: HTTP/2 with a limit of streams, servers that shut
//! down, fall silent or refuse streams, and servers without HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use h2::{Reason, server};
use http::{Request, Response};
use serde_json::{Value, json};
use throughline::client::{
    CallError, ClusterClient, Connections, Frames, JSON, Server, frames, get,
};
use throughline_sim::apiserver::{Fault, ServerMode, SimApiServerSettings, SimMilo};
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::certificate::{Certificate, X509};
use crate::cluster::{connect, spec};
use crate::live::tls;
use crate::sim_apiserver::serve_milo;
use crate::waiting::until;

const NAMESPACES: &str = "/api/v1/namespaces";
const SECOND: Duration = Duration::from_secs(1);

/// A Milo behind one listener, and clients that share what they can.
struct Fleet {
    milo: SimMilo,
    /// Where clients reach it.
    url: String,
    ca: Vec<u8>,
    connections: Connections,
}

impl Fleet {
    async fn new(streams: u32, protocols: &[&str]) -> Self {
        let certificate = Certificate::self_signed("localhost", X509::V3);
        let settings =
            SimApiServerSettings { max_concurrent_streams: streams, ..Default::default() };
        let tls = certificate.acceptor(protocols);
        let (_, milo) = serve_milo(settings, Some(tls)).await;
        let url = milo.root.url();
        Self { milo, url, ca: certificate.der, connections: Connections::default() }
    }

    /// A project's control plane.
    fn project(&self, name: &str) -> Arc<ClusterClient> {
        self.milo.add_project(name, &[], true);
        let path = self.milo.project_url(name);
        let path = Server::Path(path.strip_prefix(&self.milo.root.url()).unwrap().to_owned());
        connect(name, spec(&self.url, Some(&self.ca), &json!({}), path), &self.connections)
    }

    fn connections(&self) -> usize {
        self.milo.root.load().connections
    }
}

async fn open_watch(client: &ClusterClient) -> Frames {
    let request = get(&format!("{NAMESPACES}?watch=true"), JSON).unwrap();
    frames(client.open(request, 10 * SECOND).await.unwrap().into_body())
}

async fn list(client: &ClusterClient) -> Result<(), CallError> {
    client.call(get(NAMESPACES, JSON).unwrap(), 5 * SECOND).await.map(drop)
}

/// A Namespace is created, which is a write.
async fn create(
    client: &ClusterClient,
    metadata: &Value,
    limit: Duration,
) -> Result<(), CallError> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    let request = Request::post(NAMESPACES).header("content-type", JSON);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.call(request, limit).await.map(drop)
}

async fn write(client: &ClusterClient, name: &str) -> Result<(), CallError> {
    create(client, &json!({"name": name}), 5 * SECOND).await
}

/// The watch shows this Namespace next.
async fn shows(watch: &mut Frames, name: &str) {
    let frame = timeout(5 * SECOND, watch.try_next()).await.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&frame).contains(name));
}

/// Opens a watch of each of so many projects.
async fn watch_all(fleet: &Fleet, count: usize) -> (Vec<Arc<ClusterClient>>, Vec<Frames>) {
    let clients: Vec<_> = (0..count).map(|i| fleet.project(&format!("p{i}"))).collect();
    let watches = join_all(clients.iter().map(|client| open_watch(client))).await;
    (clients, watches)
}

#[tokio::test]
async fn writes_pass_while_250_watches_share_3_connections() {
    let fleet = Fleet::new(100, &["h2", "http/1.1"]).await;
    let (clients, watches) = watch_all(&fleet, 250).await;
    assert_eq!(fleet.milo.root.load().watches, 250);
    assert_eq!(fleet.connections(), 3);
    let began = Instant::now();
    let writes = clients.iter().take(80).map(|client| write(client, "new"));
    for written in join_all(writes).await {
        written.unwrap();
    }
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    assert_eq!(fleet.connections(), 4, "short requests have one of their own");
    assert_eq!(
        fleet.milo.root.load().connections_max,
        4,
        "of those that wait for one, one connects"
    );
    drop(watches);
    until("the watches end", async || fleet.milo.root.load().watches == 0).await;
    list(&clients[0]).await.unwrap();
    // Nobody holds them any more.
    drop(clients);
    until("the connections end", async || fleet.connections() == 0).await;
}

#[tokio::test]
async fn a_lower_limit_of_the_server_is_kept_and_surplus_connections_end_after_a_while() {
    let fleet = Fleet::new(20, &["h2"]).await;
    let (_clients, mut watches) = watch_all(&fleet, 35).await;
    assert_eq!(fleet.milo.root.load().watches, 35);
    assert_eq!(fleet.connections(), 4, "10 of 20 streams are used on each");
    // Watches end, and the rest fits on fewer connections.
    watches.truncate(3);
    until("one is enough", async || fleet.milo.root.load().watches == 3).await;
    until("the others end", async || fleet.connections() == 1).await;
    assert_eq!(fleet.milo.root.load().watches, 3);
}

#[tokio::test]
async fn after_a_goaway_new_requests_use_a_new_connection_and_running_ones_go_on() {
    let fleet = Fleet::new(100, &["h2"]).await;
    let (clients, mut watches) = watch_all(&fleet, 2).await;
    list(&clients[0]).await.unwrap();
    fleet.milo.root.send_goaway();
    sleep(Duration::from_millis(50)).await;
    // The connection without a running request ends, and the other carries its watches on.
    write(&clients[0], "after").await.unwrap();
    shows(&mut watches[0], "after").await;
    let _another = open_watch(&clients[1]).await;
    assert_eq!(fleet.milo.root.load().watches, 3);
    assert_eq!(fleet.connections(), 3);
}

/// A fleet behind a proxy, which forwards until the test makes it silent; then it keeps its connections
/// open, and swallows what clients send.
async fn behind_proxy(protocol: &str) -> (Fleet, watch::Sender<bool>) {
    let mut fleet = Fleet::new(100, &[protocol]).await;
    let to = fleet.milo.root.address();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fleet.url = format!("https://{}", listener.local_addr().unwrap());
    let silent = watch::Sender::new(false);
    let silence = silent.clone();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(to).await.unwrap();
            let mut silent = silence.subscribe();
            tokio::spawn(async move {
                tokio::select! {
                    _ = silent.wait_for(|silent| *silent) => {}
                    _ = copy_bidirectional(&mut near, &mut far) => return,
                }
                let _ = copy(&mut near, &mut sink()).await;
            });
        }
    });
    (fleet, silent)
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_noticed_within_20_s() {
    let (fleet, silent) = behind_proxy("h2").await;
    let client = fleet.project("p");
    let mut watch = open_watch(&client).await;
    silent.send_replace(true);
    let began = Instant::now();
    timeout(20 * SECOND, watch.try_next()).await.expect("an error within 20 s").unwrap_err();
    assert!(began.elapsed() > 5 * SECOND, "a pause of the server is no end: {:?}", began.elapsed());
}

/// The proxy acknowledges what it gets and forwards nothing, but on new connections. The probe's
/// connection is there after 10 s.
#[tokio::test]
async fn so_are_http1_connections_that_fall_silent() {
    let (fleet, silent) = behind_proxy("http/1.1").await;
    let client = fleet.project("p");
    let mut watch = open_watch(&client).await;
    list(&client).await.unwrap(); // leaves an idle connection
    timeout(12 * SECOND, watch.try_next()).await.expect_err("nothing happens");
    silent.send_replace(true);
    sleep(SECOND).await;
    silent.send_replace(false);
    let error = timeout(20 * SECOND, watch.try_next()).await.expect("an error within 20 s");
    assert!(error.unwrap_err().to_string().contains("connections are dead"));
    drop(watch);
    let mut watch = open_watch(&client).await;
    write(&client, "after").await.unwrap();
    shows(&mut watch, "after").await;
    drop((watch, client));
    until("the probe ends", async || fleet.connections() == 0).await;
}

/// A server that does not answer one request may be gone: pings take longer to show it.
#[tokio::test]
async fn a_request_in_vain_sends_the_next_ones_to_another_connection() {
    let fleet = Fleet::new(100, &["h2"]).await;
    let client = fleet.project("p");
    list(&client).await.unwrap();
    assert_eq!(fleet.connections(), 1);
    fleet.milo.inject("p", &Fault::on_writes(Fault::NO_RESPONSE), 1);
    let limit = Duration::from_millis(1_200);
    let error = create(&client, &json!({"name": "n"}), limit).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut(_)), "{error}");
    list(&client).await.unwrap();
    assert_eq!(fleet.connections(), 2);
}

/// The server may send 1 MB ahead on the connection of the watches; nobody reads it.
#[tokio::test]
async fn requests_pass_while_the_reader_of_a_watch_is_slow() {
    let fleet = Fleet::new(100, &["h2"]).await;
    let client = fleet.project("p");
    let _unread = open_watch(&client).await;
    let annotations = json!({"long": "x".repeat(60_000)});
    for i in 0..60 {
        let metadata = json!({"name": format!("n{i}"), "annotations": annotations});
        create(&client, &metadata, 5 * SECOND).await.unwrap();
    }
    list(&client).await.unwrap();
}

#[tokio::test]
async fn a_server_with_or_without_http2_is_served_and_its_return_is_noticed_at_once() {
    for protocols in [&["h2"][..], &["http/1.1"], &[]] {
        let fleet = Fleet::new(100, protocols).await;
        let client = fleet.project("p");
        list(&client).await.unwrap();
        write(&client, "n").await.unwrap();
        assert_eq!(fleet.connections(), 1, "also the connection that showed it is used");
        let _watch = open_watch(&client).await;
        list(&client).await.unwrap();
        assert_eq!(fleet.connections(), 2);
        fleet.milo.root.set_mode(ServerMode::Down);
        list(&client).await.unwrap_err();
        fleet.milo.root.set_mode(ServerMode::Serving);
        list(&client).await.unwrap();
    }
}

/// How long a server refuses what it gets, and how many writes wait for it.
const REFUSED_FOR: Duration = Duration::from_secs(5);
const WRITES: usize = 200;

/// What the server does with its first request. It answers all others.
#[derive(Clone, Copy, Debug)]
enum First {
    Reset(Reason),
    /// Not with the first alone: all are refused for [`REFUSED_FOR`].
    RefuseAll,
    /// Ends the connection with a GOAWAY that names no stream as handled.
    GoAway,
    /// Ends the connection without a word.
    Die,
}

/// A client of a server of HTTP/2; counts requests and connections.
async fn serve_first(first: First) -> (Arc<ClusterClient>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (tls, ca) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (requests, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, opened) = (requests.clone(), connections.clone());
    let began = Instant::now();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = tls.accept(stream).await.unwrap();
            opened.fetch_add(1, SeqCst);
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut connection = server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    match (seen.fetch_add(1, SeqCst), first) {
                        (0, First::Reset(reason)) => respond.send_reset(reason),
                        (_, First::RefuseAll) if began.elapsed() < REFUSED_FOR => {
                            respond.send_reset(Reason::REFUSED_STREAM);
                        }
                        (0, First::GoAway) => {
                            connection.abrupt_shutdown(Reason::NO_ERROR);
                        }
                        (0, First::Die) => return,
                        _ => {
                            let mut body = respond.send_response(Response::new(()), false).unwrap();
                            body.send_data(Bytes::from_static(b"{}"), true).unwrap();
                        }
                    }
                }
            });
        }
    });
    let spec = spec(&url, Some(&ca), &json!({}), Server::AsConfigured);
    (connect("one", spec, &Connections::default()), requests, connections)
}

#[tokio::test]
async fn only_what_the_server_disclaims_is_sent_again() {
    for (first, is_repeated) in [
        (First::Reset(Reason::REFUSED_STREAM), true),
        // What the server may have handled.
        (First::Reset(Reason::INTERNAL_ERROR), false),
        (First::Die, false),
        // h2's server names the last stream that it has seen.
        (First::GoAway, false),
    ] {
        let (client, requests, connections) = serve_first(first).await;
        let began = Instant::now();
        let error = write(&client, "n").await.err();
        assert_eq!(error.is_none(), is_repeated, "{first:?}: {error:?}");
        // A refused request waits before it is sent again.
        let waited = began.elapsed();
        assert!(!is_repeated || waited >= Duration::from_millis(100), "{first:?}: {waited:?}");
        assert!(error.is_none_or(|e| matches!(e, CallError::Unreachable(_))), "{first:?}");
        assert_eq!(requests.load(SeqCst), 1 + usize::from(is_repeated), "{first:?}");
        assert_eq!(connections.load(SeqCst), 1, "{first:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_every_stream_gets_few_of_them() {
    let (client, requests, connections) = serve_first(First::RefuseAll).await;
    let meanwhile = async {
        sleep(REFUSED_FOR).await;
        (requests.load(SeqCst), connections.load(SeqCst))
    };
    // As many at a time as the executor sends, without the pause that the machine makes.
    let written = stream::iter(0..WRITES)
        .for_each_concurrent(16, async |_| while write(&client, "n").await.is_err() {});
    let both = async { tokio::join!(meanwhile, written).0 };
    let (streams, dials) = timeout(REFUSED_FOR + Duration::from_secs(15), both).await.unwrap();
    assert!(streams <= 400 && dials <= 10, "{streams} streams on {dials} connections");
}
