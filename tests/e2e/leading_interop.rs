//! throughline and client-go's leaderelection take turns on the same Lease.

use std::process::Command;

use crate::cluster::apiserver::assets;
use crate::cluster::process::{Folder, Process};
use crate::leading::{ElectionTest, LEASE, endless, short};
use crate::prelude::*;

const LONGER_THAN_THE_LEASE: Duration = Duration::from_secs(5);

/// A candidate that uses client-go and does nothing as leader.
struct ClientGo {
    process: Process,
    identity: &'static str,
    _folder: Folder,
}

impl ClientGo {
    fn start(election: &ElectionTest, identity: &'static str, more: &Value) -> Self {
        let folder = Folder::new(identity);
        let seconds = |key: &str| format!("{}ms", more["election"][key]);
        let mut command = Command::new(assets().join("leaderelection"));
        command.arg("-kubeconfig").arg(election.testbed.hub().server.kubeconfig(THROUGHLINE));
        command.args(["-namespace", LEASE.0, "-name", LEASE.1, "-identity", identity]);
        command.args(["-lease", more["leaderElection"]["leaseDuration"].as_str().unwrap()]);
        command.args(["-renew", &seconds("renewDeadlineMs"), "-retry", &seconds("retryMs")]);
        let process = Process::start(identity, command, folder.path());
        Self { process, identity, _folder: folder }
    }

    async fn says(&self, line: &str) {
        eventually(&format!("{} says {line}", self.identity), SOON, async || {
            let said = self.process.log_tail();
            ensure(said.contains(line), || said)
        })
        .await;
    }

    /// SIGTERM; it releases the Lease.
    async fn stop(mut self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait(SOON).await.expect("client-go stops");
        assert!(ended.success(), "{ended}: {}", self.process.log_tail());
        self.says("stopped").await;
    }
}

/// While client-go leads, throughline touches and makes no leader-only write.
async fn follows(election: &ElectionTest, follower: usize, holder: &str) {
    let before = election.instances[follower].leader_writes().len();
    election.fleet.flip_all(1..5).await.unwrap();
    election.touches_without_leader(0).await;
    tokio::time::sleep(LONGER_THAN_THE_LEASE).await;
    let writes = election.instances[follower].leader_writes();
    assert_eq!(writes.len(), before, "it wrote while client-go leads: {:?}", writes.last());
    assert_eq!(election.lease().await["spec"]["holderIdentity"], json!(holder));
    let throughline = election.instances[follower].throughline();
    assert!(throughline.logged(&format!("\"holder\":\"{holder}\"")));
}

/// First by release, while the Lease does not expire; then by expiry.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn turns_are_taken_with_client_go() {
    let mut election = ElectionTest::with(Topology::Two, 1, endless()).await;
    election.provoked = &[Cause::NotMirrored, Cause::NoLeader];
    let first = election.somebody_leads().await;
    let theirs = ClientGo::start(&election, "client-go-a", &endless());
    election.stop(first).await;
    theirs.says("leading").await;

    election.more = short();
    let second = election.join().await;
    follows(&election, second, "client-go-a").await;
    theirs.stop().await;
    assert_eq!(election.somebody_leads().await, second);
    oracle::converges(&election.testbed).await;
    assert_eq!(election.lease().await["spec"]["leaseTransitions"], 3);

    // For longer than the Lease lasts, each sees that the other one renews it.
    let mut theirs = ClientGo::start(&election, "client-go-b", &short());
    tokio::time::sleep(LONGER_THAN_THE_LEASE).await;
    assert!(!theirs.process.log_tail().contains("leading"), "the Lease is renewed");
    election.kill(second);
    theirs.says("leading").await;
    assert_eq!(election.lease().await["spec"]["leaseTransitions"], 4);
    let third = election.join().await;
    follows(&election, third, "client-go-b").await;
    theirs.process.kill();
    assert_eq!(election.somebody_leads().await, third);
    oracle::converges(&election.testbed).await;
    election.only_holders_wrote();
    election.end().await;
}
