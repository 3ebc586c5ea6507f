//! Many clients at once, slow ones and strangers among them: probes are still answered, few
//! descriptors are used, and the loop keeps most of its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use throughline::admin::Query;
use throughline::config::StateAccess;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::stage;
use crate::http::{Server, answer_queries, get};

/// As many as the port serves at a time.
const CONNECTIONS_MAX: usize = 64;

async fn half_open(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: ").await.unwrap();
    stream
}

/// How many of these the server has not closed yet.
async fn count_open(streams: &mut [TcpStream]) -> usize {
    let mut open = 0;
    for stream in streams {
        let read = timeout(Duration::from_millis(2), stream.read(&mut [0; 1024])).await;
        // A request that never ended may be answered with 408 or 400 before the end.
        open += usize::from(read.is_err());
    }
    open
}

#[tokio::test]
async fn half_open_connections_are_few_and_hinder_no_probe_and_no_stop() {
    let server = Server::with_loop(stage().machine).await;
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(half_open(&server).await);
    }
    for path in ["/livez", "/metrics"] {
        let answer = timeout(Duration::from_secs(10), server.get(path)).await;
        assert_eq!(answer.expect("an answer").status, 200);
    }
    let open = count_open(&mut crowd).await;
    assert!(open <= CONNECTIONS_MAX, "{open} connections are open");

    // Those that were left alone are closed once their request's head is overdue.
    let all_are_closed = async { while count_open(&mut crowd).await > 0 {} };
    timeout(Duration::from_secs(30), all_are_closed).await.expect("half-open connections end");
    // Nor do they delay a stop.
    let _crowd = [half_open(&server).await, half_open(&server).await];
    assert_eq!(server.get("/livez").await.status, 200);
    timeout(Duration::from_secs(4), server.stop()).await.expect("stopped");
}

/// How long the loop takes to build an answer.
const BUILDING: Duration = Duration::from_millis(20);

/// A loop that takes its time for the counts and the state, and how often it was asked for them.
async fn slow_loop() -> (Server, Arc<AtomicU32>) {
    let (server, mut asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    let (forward, forwarded) = tokio::sync::mpsc::channel(4);
    tokio::spawn(answer_queries(forwarded, stage().machine));
    let built = Arc::new(AtomicU32::new(0));
    let count = built.clone();
    tokio::spawn(async move {
        while let Some(query) = asked.recv().await {
            if matches!(query, Query::Counts(_) | Query::State(_)) {
                count.fetch_add(1, Relaxed);
                std::thread::sleep(BUILDING);
            }
            drop(forward.send(query).await);
        }
    });
    (server, built)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_on_the_metrics_leave_the_loop_most_of_its_time() {
    const TIME: Duration = Duration::from_secs(2);
    let (server, built) = slow_loop().await;
    let (began, address) = (Instant::now(), server.address);
    let crowd = (0..6).map(|_| {
        tokio::spawn(async move {
            let mut answers = 0;
            while began.elapsed() < TIME {
                assert_eq!(get(address, "/metrics", "*/*").await.status, 200);
                answers += 1;
            }
            answers
        })
    });
    let crowd: Vec<_> = crowd.collect();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < TIME {
        let asked = Instant::now();
        assert_eq!(server.get("/livez").await.status, 200);
        slowest = slowest.max(asked.elapsed());
    }
    for answers in crowd {
        assert!(answers.await.unwrap() >= 4, "those that ask together share a scrape");
    }
    // The share of the loop's time.
    let share = |built: u32, began: Instant| {
        (BUILDING * built).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    let metrics = share(built.load(Relaxed), began);
    assert!(metrics < 0.2, "{metrics:.2} of the loop's time; slowest probe {slowest:?}");
    assert!(slowest < Duration::from_secs(1), "a probe took {slowest:?}");

    // So do requests for the state.
    let (before, began) = (built.load(Relaxed), Instant::now());
    let crowd = (0..20).map(|_| tokio::spawn(get(address, "/state", "application/json")));
    for answer in crowd.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    let state = share(built.load(Relaxed) - before, began);
    assert!(state < 0.2, "{state:.2} of the loop's time");
}
