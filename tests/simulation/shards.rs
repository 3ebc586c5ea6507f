//! Several shards, each with a standby: no object has two writers, every shard is led again soon after one of
//! its instances runs, and everything is right in the end. So it is over rollouts, too.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::assert_right;
use crate::discovery::Discovery;
use crate::fault_kind::FaultKind;
use crate::plan::{Plan, Report};
use crate::stage::{Stage, simulate_with};

/// A lease and a retry, by a clock that is slow.
const LED_WITHIN: Duration = Duration::from_secs(19);
/// A pod of a rollout is replaced so long after the one before.
const POD: Duration = Duration::from_secs(3);

/// What leaves the API servers as they are.
const RESTARTS: [FaultKind; 2] = [FaultKind::InstanceKilled, FaultKind::InstanceStopped];

const DISTURBED: [FaultKind; 10] = [
    FaultKind::InstanceKilled,
    FaultKind::InstanceStopped,
    FaultKind::InstanceFrozen,
    FaultKind::LinkSlow,
    FaultKind::LinkBlocked,
    FaultKind::RequestsLost,
    FaultKind::AnswersLost,
    FaultKind::ServerSlow,
    FaultKind::RequestsRefused,
    FaultKind::WriteAnswersHidden,
];

/// How long shards are not led while an instance of theirs runs, and none stops.
#[derive(Default)]
pub(crate) struct Unheld {
    since: BTreeMap<u16, Instant>,
    /// The instances of each shard that ran when it was last looked at.
    ran: BTreeMap<u16, Vec<u32>>,
    longest: Duration,
}

fn plan(seed: u64, instances: usize, lasts_s: u64, faults: &[FaultKind]) -> Plan {
    Plan {
        instances,
        upstreams: 3,
        edges: 2,
        connectors: 8,
        lasts_s,
        faults: faults.to_vec(),
        fault_every_ms: 6_000,
        change_every_ms: 1_000,
        discovery: Discovery::None,
        ..Plan::from_seed(seed)
    }
}

impl Stage {
    /// Looks for the leader of each shard.
    pub(crate) fn watch_shards(&mut self) {
        let shards = self.config.leader_election.shards;
        for shard in 0..if shards > 1 { shards } else { 0 } {
            let of_shard = self.instances.iter().skip(shard.into()).step_by(shards.into());
            let up: Vec<_> = of_shard.filter(|instance| instance.is_up()).collect();
            let run: Vec<_> = up.iter().map(|instance| instance.computer.client).collect();
            let ran = self.unheld.ran.insert(shard, run.clone()).unwrap_or_default();
            let has_stopped = ran.iter().any(|client| !run.contains(client));
            if up.is_empty() || has_stopped || up.iter().any(|instance| instance.leads()) {
                self.unheld.since.remove(&shard);
                continue;
            }
            let since = self.unheld.since.entry(shard).or_insert_with(Instant::now);
            self.unheld.longest = self.unheld.longest.max(since.elapsed());
        }
    }

    async fn ends_right(&mut self) {
        if !self.is_broken() {
            self.becomes_right().await;
            self.stays_right(Duration::from_secs(125), Duration::from_secs(30)).await;
        }
        self.ends(Duration::from_secs(15)).await;
    }

    /// Pods of another number of shards replace those that run, one after the other.
    async fn roll_out(&mut self, shards: u16, pods: usize) {
        self.config.leader_election.shards = shards;
        while self.instances.len() < pods {
            let instance = self.new_instance(self.instances.len());
            self.instances.push(instance);
        }
        for pod in (0..self.instances.len()).rev() {
            self.instances[pod].stop();
            let stopped = Instant::now();
            while stopped.elapsed() < POD || !self.instances[pod].has_ended() {
                self.step().await;
            }
            self.change();
            if pod < pods {
                self.restart(pod);
            } else {
                self.ended.extend(self.instances.pop());
            }
        }
    }
}

/// Four shards with standbys. Returns also how long a shard was not led while an instance of it ran.
fn four_shards(plan: &Plan) -> (Report, Duration) {
    let mut longest = Duration::ZERO;
    let report = simulate_with(
        plan,
        |config| config.leader_election.shards = 4,
        async |stage| {
            stage.ledger.lock().unwrap().oracle.numbers = vec![4];
            stage.happens().await;
            longest = stage.unheld.longest;
            stage.ends_right().await;
        },
    );
    (report, longest)
}

fn restarts(seed: u64, lasts_s: u64) {
    let (report, longest) = four_shards(&plan(seed, 8, lasts_s, &RESTARTS));
    assert_right(&report);
    println!("seed {seed}: a shard was not led for {longest:.1?}, while an instance of it ran");
    assert!(longest <= LED_WITHIN, "seed {seed}: a shard was not led for {longest:?}");
}

fn rollouts(seed: u64) {
    let report = simulate_with(
        &plan(seed, 4, 40, &DISTURBED),
        |config| config.leader_election.shards = 2,
        async |stage| {
            stage.ledger.lock().unwrap().oracle.numbers = vec![2, 4, 1];
            stage.happens().await;
            stage.roll_out(4, 8).await;
            stage.happens().await;
            stage.roll_out(1, 2).await;
            stage.ends_right().await;
        },
    );
    assert_right(&report);
}

#[test]
fn shards_are_led_again_and_each_object_has_one_writer() {
    restarts(1, 90);
}

#[test]
fn disturbed_shards_end_right() {
    assert_right(&four_shards(&plan(1, 8, 60, &DISTURBED)).0);
}

#[test]
fn rollouts_end_right() {
    (1..=2).for_each(rollouts);
}

#[test]
#[ignore = "takes minutes: make sim-shards"]
fn an_hour_of_shards_ends_right() {
    restarts(1_001, 3_600);
    assert_right(&four_shards(&plan(1_002, 8, 3_600, &DISTURBED)).0);
    (1_000..1_040).for_each(rollouts);
}
