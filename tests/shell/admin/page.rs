//! The live page: who may see it, what feeds it, and what it costs.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use expect_test::expect_file;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use throughline::config::StateAccess;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::http::{Server, get, get_as};
use crate::live_fleet::LiveFleet;

/// As it was built into the page, which an update of the file changes only in the next build.
const POLICY: &str = include_str!("../../../src/admin/page/policy");
const HTML: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
const EVENTS: &str = "text/event-stream";
/// As many pages as may be open at a time.
const PAGES_MAX: usize = 16;
const SOON: Duration = Duration::from_secs(10);

async fn serve(fleet: &LiveFleet) -> Server {
    let (server, asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    tokio::spawn(fleet.clone().answer(asked));
    server
}

/// An open page.
struct Page(BufReader<TcpStream>);

#[derive(Debug)]
struct Event {
    name: String,
    data: Value,
    bytes: usize,
}

impl Page {
    async fn open(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: {EVENTS}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event; `None` at the end.
    async fn try_next(&mut self) -> Option<Event> {
        let (mut name, mut bytes) = (String::new(), 0);
        loop {
            let mut line = String::new();
            let read = timeout(SOON, self.0.read_line(&mut line)).await.unwrap().unwrap();
            if read == 0 {
                return None;
            }
            bytes += read;
            let line = line.trim_end();
            if let Some(given) = line.strip_prefix("event: ") {
                given.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some(Event { name, data: serde_json::from_str(data).unwrap(), bytes });
            } else if line == "data:" {
                return Some(Event { name, data: Value::Null, bytes });
            }
        }
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
        assert!(answer.body.contains("/livez") && answer.body.contains("live page"), "{accept}");
    }
    let page = get(server.address, "/", HTML).await;
    assert_eq!((page.status, &*page.headers["cache-control"]), (200, "no-store"));
    assert!(page.headers["content-type"].starts_with("text/html"), "{:?}", page.headers);
    assert!(page.body.starts_with("<!doctype html>") && page.body.ends_with("</html>\n"));
    assert!(!page.body.contains("conn-1"), "the page itself holds nothing of the fleet");
    let mut stream = BufReader::new(TcpStream::connect(server.address).await.unwrap());
    let head = format!("HEAD / HTTP/1.1\r\nhost: {}\r\naccept: {HTML}\r\n\r\n", server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut lines = String::new();
    while stream.read_line(&mut lines).await.unwrap() > 0 {}
    assert!(lines.starts_with("HTTP/1.1 200") && lines.ends_with("\r\n\r\n"), "{lines}");
    assert_eq!(fleet.asked.load(Relaxed), 0, "the page alone asks the loop for nothing");
    server.stop().await;
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
    for unsafe_way in
        ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=\"", "://"]
    {
        let body =
            page.body.replace("http://www.w3.org/2000/svg", "").replace("http://ADDRESS", "");
        assert!(!body.contains(unsafe_way), "{unsafe_way}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_page_is_for_those_who_may_read_the_state() {
    let paths = [("/", HTML), ("/changes", EVENTS)];
    let start = async |ip: &str, access| {
        let (server, asked) = Server::start(ip, access).await;
        tokio::spawn(LiveFleet::of(1).answer(asked));
        server
    };
    let server = start("127.0.0.1", StateAccess::Off).await;
    for (path, accept) in paths {
        assert_eq!(get(server.address, path, accept).await.status, 404, "{path}");
    }
    server.stop().await;
    let server = start("127.0.0.1", StateAccess::Loopback).await;
    for (path, accept) in paths {
        let answer = get_as("page.example", server.address, path, accept).await;
        assert_eq!(answer.status, 421, "{path}: a page that gives itself our address");
        assert!(!answer.body.contains("conn-1"), "{}", answer.body);
    }
    server.stop().await;
    // From another address of this host, if it has one; connect() on UDP sends no packet.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let outside = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let Some(outside) = outside.ok().filter(|a| !a.ip().is_loopback()) else { return };
    let server = start("0.0.0.0", StateAccess::Loopback).await;
    let address = (outside.ip(), server.address.port()).into();
    for (path, accept) in paths {
        assert_eq!(get(address, path, accept).await.status, 403, "{path}");
    }
    assert!(get(address, "/", "*/*").await.body.contains("/livez"), "the list is for everybody");
    server.stop().await;
}

/// The next event that has this field.
async fn next_with(page: &mut Page, field: &str) -> Event {
    loop {
        let event = page.next().await;
        if event.data.get(field).is_some() {
            return event;
        }
    }
}

#[tokio::test]
async fn a_page_gets_the_fleet_and_then_only_what_changes() {
    let fleet = LiveFleet::of(40);
    let server = serve(&fleet).await;
    let mut page = Page::open(server.address, "/changes").await;
    let first = page.next().await;
    assert_eq!((&*first.name, first.data["connectors"].as_array().unwrap().len()), ("fleet", 40));
    assert_eq!((&first.data["counts"]["ok"], &first.data["problems"]), (&json!(40), &json!([])));
    assert!(first.data["instance"]["sinceMs"].is_u64(), "{}", first.data["instance"]);
    let still = page.next().await;
    assert_eq!((&*still.name, still.data.as_object().unwrap().len()), ("change", 1), "{still:?}");
    assert!(still.bytes < 120, "{still:?}");

    fleet.flip(7, false, 0);
    let event = next_with(&mut page, "connectors").await;
    let connectors = event.data["connectors"].as_array().unwrap();
    assert_eq!((connectors.len(), &connectors[0]["state"]), (1, &json!("pending")), "{event:?}");
    assert_eq!(event.data["hops"][0].as_array().unwrap()[1..3], [json!("upstream"), json!("up")]);
    assert_eq!(event.data["counts"]["pending"], 1);
    assert!(
        event.data.get("leader").is_none() && event.data.get("problems").is_none(),
        "{event:?}"
    );

    fleet.stall(8);
    let event = next_with(&mut page, "problems").await;
    let problem = &event.data["problems"][0];
    assert_eq!((&problem["cause"], &problem["count"]), (&json!("not_carried"), &json!(1)));

    fleet.change(|fleet| {
        drop(fleet["connectors"].as_array_mut().unwrap().remove(39));
        fleet["leader"] = json!({ "leads": false, "waitsUntilMs": 1 });
    });
    let event = next_with(&mut page, "removed").await;
    assert_eq!((&*event.name, &event.data["removed"]), ("change", &json!(["ns-shop/conn-40"])));
    assert_eq!(event.data["leader"], json!({ "leads": false, "waitsUntilMs": 1 }));
    drop(page);
    server.stop().await;
}

/// Whatever it had: the server keeps nothing of a page that has gone.
#[tokio::test]
async fn a_page_that_comes_again_gets_everything() {
    let fleet = LiveFleet::of(3);
    let server = serve(&fleet).await;
    let mut stays = Page::open(server.address, "/changes").await;
    for _ in 0..2 {
        let mut page = Page::open(server.address, "/changes").await;
        let first = page.next().await;
        assert_eq!(first.name, "fleet");
        assert_eq!(first.data["connectors"].as_array().unwrap().len(), 3);
        assert_eq!(first.data["hops"].as_array().unwrap().len(), 12, "those of the last minutes");
    }
    assert_eq!((&*stays.next().await.name, &*stays.next().await.name), ("fleet", "change"));
    drop(stays);
    // A client that does not ask for a stream gets one event.
    let answer = timeout(SOON, get(server.address, "/changes", "*/*")).await.expect("it ends");
    assert_eq!(answer.body.matches("event: ").count(), 1, "{}", answer.body);
    server.stop().await;
}

/// One task asks for all pages, and none when there is no page.
#[tokio::test]
async fn the_loop_is_asked_once_a_second_for_all_pages_and_never_without_one() {
    let fleet = LiveFleet::of(3);
    let server = serve(&fleet).await;
    let began = tokio::time::Instant::now();
    let mut pages = Vec::new();
    for _ in 0..5 {
        pages.push(Page::open(server.address, "/changes").await);
    }
    for _ in 0..4 {
        for page in &mut pages {
            page.next().await;
        }
    }
    let asked = fleet.asked.load(Relaxed);
    let most = began.elapsed().as_secs() as usize + 2;
    assert!((4..=most).contains(&asked), "{asked} times in {:?}", began.elapsed());
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
    server.stop().await;
}

#[tokio::test]
async fn so_many_pages_and_no_more_and_probes_are_answered_beside_them() {
    let server = serve(&LiveFleet::of(2)).await;
    let mut pages = Vec::new();
    for _ in 0..PAGES_MAX {
        let mut page = Page::open(server.address, "/changes").await;
        assert_eq!(page.next().await.name, "fleet");
        pages.push(page);
    }
    let mut refused = Page::open(server.address, "/changes").await;
    let event = refused.next().await;
    assert_eq!(event.name, "refused");
    assert!(event.data.as_str().unwrap().starts_with("16 pages are open"), "{event:?}");
    assert!(refused.try_next().await.is_none(), "it ends");
    for path in ["/livez", "/metrics", "/state"] {
        let answer = timeout(SOON, server.get(path)).await.expect("an answer");
        assert_eq!(answer.status, 200, "{path}");
    }
    pages.pop();
    // There is room once the port has noticed.
    let opened = async {
        while Page::open(server.address, "/changes").await.next().await.name != "fleet" {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(SOON, opened).await.expect("room for one more");
    timeout(SOON, server.stop()).await.expect("open pages do not hold up the stop");
}

#[tokio::test]
async fn a_stop_ends_open_pages_and_says_so() {
    let server = serve(&LiveFleet::of(2)).await;
    let mut page = Page::open(server.address, "/changes").await;
    assert_eq!(page.next().await.name, "fleet");
    let stopped = tokio::spawn(timeout(Duration::from_secs(5), server.stop()));
    loop {
        let event = page.next().await;
        if event.name == "end" {
            break;
        }
    }
    assert!(page.try_next().await.is_none());
    stopped.await.unwrap().expect("stopped");
}

#[tokio::test]
async fn a_page_learns_that_the_loop_hangs() {
    let (server, asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
    let mut page = Page::open(server.address, "/changes").await;
    let event = page.next().await;
    assert_eq!(event.name, "trouble");
    assert!(event.data.as_str().unwrap().contains("did not answer"), "{event:?}");
    drop(asked);
    loop {
        let event = page.next().await;
        if event.data.as_str().unwrap().contains("has ended") {
            break;
        }
    }
    server.stop().await;
}

/// The page asks for nothing else to say where a connector is stuck.
#[tokio::test]
async fn each_connector_comes_with_its_hops_their_causes_and_what_to_do() {
    let fleet = LiveFleet::of(3);
    fleet.stall(2);
    let server = serve(&fleet).await;
    let answer = get(server.address, "/changes", "*/*").await;
    let data = answer.body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let hops = data["connectors"][1]["hops"].as_array().unwrap();
    let names: Vec<_> = hops.iter().map(|hop| hop["hop"].as_str().unwrap()).collect();
    assert_eq!(names, ["upstream", "mirrored", "carried", "announced", "announced"]);
    let stuck = &hops[2];
    assert_eq!((&stuck["state"], &stuck["cause"]), (&json!("stuck"), &json!("not_carried")));
    assert!(stuck["message"].as_str().unwrap().contains("conn-2"), "{stuck:#}");
    assert!(stuck["remedy"].as_str().unwrap().contains("kubectl"), "{stuck:#}");
    assert_eq!(server.get("/trace").await.status, 404);
    server.stop().await;
}

/// What an open page costs with a large fleet, at rest and while a hundred connectors change each second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_connectors_cost_few_bytes() {
    let fleet = LiveFleet::of(5_000);
    let server = serve(&fleet).await;
    let mut page = Page::open(server.address, "/changes").await;
    let first = page.next().await;
    assert_eq!(first.data["connectors"].as_array().unwrap().len(), 5_000);
    let rest = page.next().await.bytes;
    for i in 1..=100 {
        fleet.flip(i, false, 3);
    }
    let mut busy = 0;
    while busy < 1_000 {
        busy = page.next().await.bytes;
    }
    println!(
        "5,000 connectors: {} bytes at first, {rest} in a second at rest, {busy} with 100 changes",
        first.bytes
    );
    assert!(rest < 120 && first.bytes < 8_000_000, "{rest} {}", first.bytes);
    assert!(busy < first.bytes / 10, "{busy}");
    drop(page);
    server.stop().await;
}
