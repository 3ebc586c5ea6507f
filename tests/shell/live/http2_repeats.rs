//! Requests that got no answer over HTTP/2: those that the server cannot have handled are sent again,
//! and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use h2::{Reason, server};
use http::{Request, Response};
use serde_json::json;
use throughline::client::{CallError, ClusterClient, Connections, JSON, Server};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::certificate::{Certificate, X509};
use crate::cluster::{connect, spec};

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
async fn serve(first: First) -> (Arc<ClusterClient>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let certificate = Certificate::self_signed("localhost", X509::V3);
    let tls = certificate.acceptor(&["h2"]);
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
    let spec = spec(&url, Some(&certificate.der), &json!({}), Server::AsConfigured);
    (connect("one", spec, &Connections::default()), requests, connections)
}

async fn patch(client: &ClusterClient) -> Result<(), CallError> {
    let request = Request::patch("/api/v1/namespaces/n").header("content-type", JSON);
    let request = request.body(b"{}".to_vec()).unwrap();
    client.call(request, Duration::from_secs(10)).await.map(drop)
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
        let (client, requests, connections) = serve(first).await;
        let error = patch(&client).await.err();
        assert_eq!(error.is_none(), is_repeated, "{first:?}: {error:?}");
        assert!(error.is_none_or(|e| matches!(e, CallError::Unreachable(_))), "{first:?}");
        assert_eq!(requests.load(SeqCst), 1 + usize::from(is_repeated), "{first:?}");
        assert_eq!(connections.load(SeqCst), 1, "{first:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_every_stream_gets_few_of_them() {
    let (client, requests, connections) = serve(First::RefuseAll).await;
    let meanwhile = async {
        sleep(REFUSED_FOR).await;
        (requests.load(SeqCst), connections.load(SeqCst))
    };
    // As many at a time as the executor sends, without the pause that the machine makes.
    let written = stream::iter(0..WRITES)
        .for_each_concurrent(16, async |_| while patch(&client).await.is_err() {});
    let both = async { tokio::join!(meanwhile, written).0 };
    let (streams, dials) = timeout(REFUSED_FOR + Duration::from_secs(15), both).await.unwrap();
    assert!(streams <= 400 && dials <= 10, "{streams} streams on {dials} connections");
}
