//! The live page: what it may do, and what feeds it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use expect_test::expect_file;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use throughline::config::StateAccess;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::http::{Server, get, send};
use crate::live_fleet::LiveFleet;

/// As it was built into the page, which an update of the file changes only in the next build.
const POLICY: &str = include_str!("../../../src/admin/page/policy");
pub(super) const HTML: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
/// As many pages as may be open at a time.
const PAGES_MAX: usize = 16;
const SOON: Duration = Duration::from_secs(10);

async fn serve(fleet: &LiveFleet) -> Server {
    let (server, asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    tokio::spawn(fleet.clone().answer(asked));
    server
}

/// An open page.
struct Page(Lines<BufReader<TcpStream>>);

#[derive(Debug)]
struct Event {
    name: String,
    data: Value,
    bytes: usize,
}

impl Page {
    async fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET /changes HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Self(BufReader::new(stream).lines())
    }

    /// The next event; `None` at the end.
    async fn try_next(&mut self) -> Option<Event> {
        let (mut name, mut bytes) = (String::new(), 0);
        while let Some(line) = timeout(SOON, self.0.next_line()).await.unwrap().unwrap() {
            bytes += line.len() + 1;
            match line.split_once(':') {
                Some(("event", given)) => given.trim().clone_into(&mut name),
                Some(("data", data)) => {
                    let data = if data.is_empty() { "null" } else { data };
                    return Some(Event { name, data: serde_json::from_str(data).unwrap(), bytes });
                }
                _ => {}
            }
        }
        None
    }

    async fn next(&mut self) -> Event {
        self.try_next().await.unwrap()
    }
}

#[tokio::test]
async fn a_browser_gets_the_page_and_everybody_else_the_list_of_paths() {
    let fleet = LiveFleet::of(1);
    let server = serve(&fleet).await;
    for accept in ["*/*", "application/json", "text/plain, */*"] {
        let answer = get(server.address, "/", accept).await;
        assert_eq!((answer.status, &*answer.headers["vary"]), (200, "accept"), "{accept}");
        expect_file!["paths.txt"].assert_eq(&answer.body);
    }
    let unknown = server.get("/healthz").await;
    assert_eq!(unknown.status, 404);
    let (said, paths) = unknown.body.split_once('\n').unwrap();
    assert_eq!(said, "no such path: /healthz; these exist:");
    expect_file!["paths.txt"].assert_eq(paths);
    let page = get(server.address, "/", HTML).await;
    assert_eq!((page.status, &*page.headers["cache-control"]), (200, "no-store"));
    assert!(page.headers["content-type"].starts_with("text/html"), "{:?}", page.headers);
    assert!(page.body.starts_with("<!doctype html>") && page.body.ends_with("</html>\n"));
    assert!(!page.body.contains("conn-1"), "the page itself holds nothing of the fleet");
    let head = format!("HEAD / HTTP/1.1\r\nhost: {}\r\naccept: {HTML}\r\n", server.address);
    let head = send(server.address, &head).await;
    assert_eq!((head.status, &*head.body), (200, ""));
    assert_eq!(fleet.asked.load(Relaxed), 0, "the page alone asks the loop for nothing");
}

#[tokio::test]
async fn the_policy_allows_only_the_pages_own_style_and_script() {
    let server = serve(&LiveFleet::of(1)).await;
    let page = get(server.address, "/", HTML).await;
    let between = |from: &str, to: &str| {
        page.body.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned()
    };
    let hash = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let style = hash(&between("<style>", "</style>"));
    let script = hash(&between("<script>", "</script>"));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    );
    assert_eq!(page.headers["content-security-policy"], POLICY);
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/page/policy")].assert_eq(&policy);
    assert_eq!(page.body.matches("<script").count(), 1);
}

#[tokio::test]
async fn a_page_gets_the_fleet_and_then_only_what_changes() {
    let fleet = LiveFleet::of(40);
    let server = serve(&fleet).await;
    let mut page = Page::open(server.address).await;
    let first = page.next().await;
    assert_eq!((&*first.name, first.data["connectors"].as_array().unwrap().len()), ("fleet", 40));
    assert_eq!((&first.data["counts"]["ok"], &first.data["problems"]), (&json!(40), &json!([])));
    assert!(first.data["instance"]["sinceMs"].is_u64(), "{}", first.data["instance"]);
    let still = page.next().await;
    assert_eq!((&*still.name, still.data.as_object().unwrap().len()), ("change", 1), "{still:?}");
    // docs/how-to/live-page.md says what a page costs.
    assert!(still.bytes < 120 && first.bytes < 40 * 3_000, "{} {}", still.bytes, first.bytes);

    fleet.flip(7, false, 0);
    let mut event = page.next().await;
    while event.data.get("connectors").is_none() {
        event = page.next().await;
    }
    let connectors = event.data["connectors"].as_array().unwrap();
    assert_eq!((connectors.len(), &connectors[0]["state"]), (1, &json!("pending")), "{event:?}");
    assert_eq!(event.data["hops"][0].as_array().unwrap()[1..3], [json!("upstream"), json!("up")]);
    assert_eq!(event.data["counts"]["pending"], 1);
    assert!(event.bytes < 3_000, "{}", event.bytes);
    let others = ["leader", "problems"].map(|field| event.data.get(field));
    assert_eq!(others, [None, None], "{event:?}");
    fleet.stall(8);
    while event.data.get("problems").is_none() {
        event = page.next().await;
    }
    assert_eq!(event.data["problems"][0]["cause"], "not_carried");

    // One that comes again gets everything; the server keeps nothing of a page that has gone.
    drop(page);
    let first = Page::open(server.address).await.next().await;
    assert_eq!((&*first.name, first.data["connectors"].as_array().unwrap().len()), ("fleet", 40));
    assert!(first.data["hops"].as_array().unwrap().len() > 100, "those of the last minutes");
    // A client that does not ask for a stream gets one event.
    let answer = timeout(SOON, get(server.address, "/changes", "*/*")).await.expect("it ends");
    assert_eq!(answer.body.matches("event: ").count(), 1, "{}", answer.body);
}

/// One task asks for all pages, and none when there is no page.
#[tokio::test]
async fn sixteen_pages_cost_one_question_a_second_and_hold_up_no_probe_and_no_stop() {
    let fleet = LiveFleet::of(2);
    let server = serve(&fleet).await;
    let began = tokio::time::Instant::now();
    let mut pages = Vec::new();
    for _ in 0..PAGES_MAX {
        let mut page = Page::open(server.address).await;
        assert_eq!(page.next().await.name, "fleet");
        pages.push(page);
    }
    for _ in 0..3 {
        for page in &mut pages {
            page.next().await;
        }
    }
    let asked = fleet.asked.load(Relaxed);
    let most = began.elapsed().as_secs() as usize + 2;
    assert!((4..=most).contains(&asked), "{asked} times in {:?}", began.elapsed());

    let mut refused = Page::open(server.address).await;
    let event = refused.next().await;
    assert_eq!(event.name, "refused");
    assert!(event.data.as_str().unwrap().starts_with("16 pages are open"), "{event:?}");
    assert!(refused.try_next().await.is_none(), "it ends");
    for path in ["/livez", "/metrics", "/state"] {
        let answer = timeout(SOON, server.get(path)).await.expect("an answer");
        assert_eq!(answer.status, 200, "{path}");
    }

    drop(pages);
    // The port notices closed connections when it writes to them.
    let mut former = fleet.asked.load(Relaxed);
    loop {
        sleep(Duration::from_millis(2_500)).await;
        let now = fleet.asked.load(Relaxed);
        if now == former {
            break;
        }
        assert!(now < asked + 10, "the loop is still asked");
        former = now;
    }
    let mut page = Page::open(server.address).await;
    assert_eq!(page.next().await.name, "fleet", "there is room again");
    let stopped = tokio::spawn(timeout(Duration::from_secs(5), server.stop()));
    while page.next().await.name != "end" {}
    assert!(page.try_next().await.is_none());
    stopped.await.unwrap().expect("open pages do not hold up the stop");
}

#[tokio::test]
async fn a_page_learns_that_the_loop_hangs() {
    let (server, asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    let mut page = Page::open(server.address).await;
    let event = page.next().await;
    assert_eq!(event.name, "trouble");
    assert!(event.data.as_str().unwrap().contains("did not answer"), "{event:?}");
    drop(asked);
    while !page.next().await.data.as_str().unwrap().contains("has ended") {}
}
