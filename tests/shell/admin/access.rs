//! Under which names of this host the state is served.

use throughline::config::StateAccess;

use super::stage;
use crate::http::{self, Server, answer_queries, get_as};

#[tokio::test]
async fn a_host_that_a_stranger_can_own_is_not_ours() {
    let servers = [StateAccess::Loopback, StateAccess::Everyone].map(async |access| {
        let (server, asked) = Server::start("127.0.0.1", access).await;
        tokio::spawn(answer_queries(asked, stage().machine));
        server
    });
    let [loopback, everyone] = servers;
    let (loopback, everyone) = (loopback.await, everyone.await);
    for (host, with_loopback, with_everyone) in [
        ("localhost:8080", true, true),
        ("LocalHost.", true, true),
        ("throughline.localhost", true, true),
        ("127.0.0.1:8080", true, true),
        ("[::1]:8080", true, true),
        ("10.4.0.7", true, true),
        ("throughline:8080", false, true),
        ("throughline.system.svc:8080", false, true),
        ("throughline.system.svc.cluster.local", false, true),
        ("throughline.system", false, false),
        ("evil.example:8080", false, false),
        ("127.0.0.1.evil.example", false, false),
        ("localhost.evil.example:80", false, false),
        ("evil.example:80:80", false, false),
        ("[::1].evil.example", false, false),
        ("evilsvc.com", false, false),
        ("", false, false),
        (":8080", false, false),
    ] {
        for (server, is_own) in [(&loopback, with_loopback), (&everyone, with_everyone)] {
            let answer = get_as(host, server.address, "/state", "*/*").await;
            assert_eq!(answer.status, if is_own { 200 } else { 421 }, "{host}: {}", answer.body);
        }
    }
    // Only programs other than browsers send none; of two hosts none counts.
    let answer = http::send(loopback.address, "GET /state HTTP/1.0\r\n").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let two = "GET /state HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n";
    assert_eq!(http::send(everyone.address, two).await.status, 421);
    loopback.stop().await;
    everyone.stop().await;
}
