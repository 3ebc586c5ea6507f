//! Turns with client-go's own leaderelection on the same Lease.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::apiserver::{THROUGHLINE, assets};
use crate::cluster::process::{Folder, Process, Signal};
use crate::cluster::rest::LEASES;
use crate::cluster::world::Topology;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::leading::{LEASE, Party, endless, short, took};

/// A candidate that leads nothing.
struct ClientGo {
    process: Process,
    identity: &'static str,
    _folder: Folder,
}

impl ClientGo {
    fn start(party: &Party, identity: &'static str, more: &Value) -> Self {
        let folder = Folder::new(identity);
        let seconds = |key: &str| format!("{}ms", more["leaderElection"][key]);
        let mut command = Command::new(assets().join("leaderelection"));
        command.arg("-kubeconfig").arg(party.world.hub().server.kubeconfig(THROUGHLINE));
        command.args(["-namespace", LEASE.0, "-name", LEASE.1, "-identity", identity]);
        command.args(["-lease", &seconds("leaseDurationMs")]);
        command.args(["-renew", &seconds("renewDeadlineMs"), "-retry", &seconds("retryPeriodMs")]);
        let process = Process::start(identity, command, folder.path());
        Self { process, identity, _folder: folder }
    }

    async fn says(&self, line: &str) {
        eventually(&format!("{} says {line}", self.identity), SOON, async || {
            let said = self.process.last_words();
            ensure(said.contains(line), || said)
        })
        .await;
    }

    /// SIGTERM: it releases the Lease.
    async fn stop(mut self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait(SOON).await.expect("client-go goes on");
        assert!(ended.success(), "{ended}: {}", self.process.last_words());
        self.says("stopped").await;
    }
}

/// What `kubectl get lease` prints, and the times as client-go reads them.
async fn is_readable(party: &Party, holder: &str) {
    let path = format!("{}/{}", LEASES.path(LEASE.0), LEASE.1);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get(path).header("accept", table).body(Vec::new()).unwrap();
    let table: Value = party.world.hub().rest().0.request(request).await.unwrap();
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(columns, ["Name", "Holder", "Age"]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1]), (&json!(LEASE.1), &json!(holder)));

    let spec = party.lease().await;
    for field in ["renewTime", "acquireTime"] {
        let time = spec[field].as_str().unwrap_or_else(|| panic!("{field} of {spec}"));
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{field} is {time}");
    }
}

/// client-go leads: throughline does what every replica does, and nothing of a leader's.
async fn follows(party: &Party, follower: usize, holder: &str) {
    let before = party.replicas[follower].leader_writes().len();
    party.fleet.flip_all(1..5).await.unwrap();
    party.touches_without_leader(0).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let writes = party.replicas[follower].leader_writes();
    assert_eq!(writes.len(), before, "written while client-go leads: {:?}", writes.last());
    assert_eq!(party.lease().await["holderIdentity"], json!(holder));
    assert!(party.replicas[follower].said(&format!("\"holder\":\"{holder}\"")) > 0);
    is_readable(party, holder).await;
}

/// By releases alone: the Lease lasts for longer than the test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn turns_are_taken_with_client_go() {
    let mut party = Party::with(Topology::Two, 1, endless()).await;
    let first = party.somebody_leads().await;
    is_readable(&party, &party.replicas[first].identity.clone()).await;

    let theirs = ClientGo::start(&party, "client-go-a", &endless());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!theirs.process.last_words().contains("leading"), "it leads a Lease that is held");
    let began = Instant::now();
    party.stop(first).await;
    theirs.says("leading").await;
    took("client-go led after the SIGTERM of throughline", began);

    let second = party.join().await;
    follows(&party, second, "client-go-a").await;
    let began = Instant::now();
    theirs.stop().await;
    assert_eq!(party.somebody_leads().await, second);
    took("throughline led after the SIGTERM of client-go", began);
    oracle::converges(&party.world).await;
    is_readable(&party, &party.replicas[second].identity.clone()).await;
    assert_eq!(party.lease().await["leaseTransitions"], 3);

    let theirs = ClientGo::start(&party, "client-go-b", &endless());
    party.stop(second).await;
    theirs.says("leading").await;
    assert_eq!(party.lease().await["leaseTransitions"], 4);
    theirs.stop().await;
    let third = party.join().await;
    assert_eq!(party.somebody_leads().await, third);
    party.only_holders_wrote();
    party.end().await;
}

/// By expiry: each is killed in its turn.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_killed_client_go_is_followed_and_follows() {
    let mut party = Party::with(Topology::Two, 1, short()).await;
    let first = party.somebody_leads().await;
    let mut theirs = ClientGo::start(&party, "client-go-c", &short());
    let began = Instant::now();
    party.kill(first);
    theirs.says("leading").await;
    took("client-go led after the SIGKILL of throughline", began);
    let second = party.join().await;
    follows(&party, second, "client-go-c").await;
    let began = Instant::now();
    theirs.process.kill();
    assert_eq!(party.somebody_leads().await, second);
    took("throughline led after the SIGKILL of client-go", began);
    oracle::converges(&party.world).await;
    party.only_holders_wrote();
    party.end().await;
}
