//! Who gets the state and the live page: by the client's address, and by the name under which it asks.

use std::net::UdpSocket;

use expect_test::expect_file;
use throughline::config::StateAccess;
use throughline::core::data::ids::Kind;

use super::page::HTML;
use crate::http::{self, Server, get, get_as};
use crate::live_fleet::LiveFleet;

/// What shows the fleet.
const GUARDED: [(&str, &str); 3] = [("/state", "*/*"), ("/", HTML), ("/changes", "*/*")];

/// Serves a fleet whose watch failed with an error that holds an address.
async fn serve(ip: &str, access: StateAccess) -> Server {
    let (server, asked) = Server::start(ip, access).await;
    tokio::spawn(LiveFleet::of(1).answer(asked));
    server.metrics.watch(&"a".into(), Kind::Connector).lost(&"dial 10.0.0.1: refused".into());
    server
}

#[tokio::test]
async fn by_default_the_state_is_served_to_this_host_only() {
    let server = serve("127.0.0.1", StateAccess::Off).await;
    for (path, accept) in GUARDED {
        assert_eq!(get(server.address, path, accept).await.status, 404, "{path}");
    }
    // A client from another address of this host, if it has one; connect() on UDP sends no packet.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let outside = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let Some(outside) = outside.ok().filter(|a| !a.ip().is_loopback()) else { return };
    for (access, expected) in [(StateAccess::Loopback, 403), (StateAccess::Everyone, 200)] {
        let server = serve("0.0.0.0", access).await;
        let address = (outside.ip(), server.address.port()).into();
        for (path, accept) in GUARDED {
            let answer = get(address, path, accept).await;
            assert_eq!(answer.status, expected, "{path}: {}", answer.body);
            assert_eq!(answer.body.contains("admin.state"), expected == 403, "{path}");
        }
        // Errors may hold addresses: only those who may see the state see them.
        let answer = get(address, "/readyz", "*/*").await;
        assert_eq!(answer.body.contains("10.0.0.1"), expected == 200, "{}", answer.body);
        assert!(get(address, "/", "*/*").await.body.contains("/livez"), "a list for everybody");
    }
}

/// The golden has a host in each line, and its answers with access for this host and for everyone.
#[tokio::test]
async fn a_host_that_a_stranger_can_own_is_not_ours() {
    let loopback = serve("127.0.0.1", StateAccess::Loopback).await;
    let everyone = serve("127.0.0.1", StateAccess::Everyone).await;
    let mut answers = String::new();
    for line in include_str!("hosts.txt").lines() {
        let host = line.split(' ').next().unwrap();
        answers += host;
        for server in [&loopback, &everyone] {
            let answer = get_as(host, server.address, "/state", "*/*").await;
            answers += &format!(" {}", answer.status);
        }
        answers += "\n";
    }
    expect_file!["hosts.txt"].assert_eq(&answers);
    // Only programs other than browsers send none; of two hosts none counts.
    let answer = http::send(loopback.address, "GET /state HTTP/1.0\r\n").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let two = "GET /state HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n";
    assert_eq!(http::send(everyone.address, two).await.status, 421);
    // A page of a stranger that gives itself our address.
    let page = "page.example:8080";
    for (path, accept) in GUARDED {
        let answer = get_as(page, loopback.address, path, accept).await;
        assert_eq!(answer.status, 421, "{path}");
        assert!(!answer.body.contains("conn-1"), "{}", answer.body);
        assert!(answer.body.contains("http://localhost:PORT/state"), "{}", answer.body);
    }
    let answer = get_as(page, loopback.address, "/readyz?verbose", "*/*").await;
    assert!(!answer.body.contains("10.0.0.1"), "{}", answer.body);
    // Probes and Prometheus may use any name.
    for path in ["/livez", "/metrics"] {
        assert_eq!(get_as(page, loopback.address, path, "*/*").await.status, 200);
    }
}
