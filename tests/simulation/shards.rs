//! Rollouts from one number of shards to another, with standbys: no object has two writers, and everything
//! is right in the end.

use std::time::Duration;

use throughline::config::Config;

use crate::assert_right;
use crate::discovery::Discovery;
use crate::fault_kind::FaultKind;
use crate::plan::Plan;
use crate::stage::{ENDS_WITHIN, Stage, simulate_with};

/// A pod of a rollout is replaced so long after the one before.
const POD: Duration = Duration::from_secs(3);

/// What leaves the API servers as they are.
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

impl Stage {
    /// Pods of another number of shards replace those that run, one after the other.
    async fn roll_out(&mut self, shards: u16, pods: usize) {
        self.config.leader_election.shards = shards;
        while self.instances.len() < pods {
            let instance = self.new_instance(self.instances.len());
            self.instances.push(instance);
        }
        for pod in (0..self.instances.len()).rev() {
            self.instances[pod].stop();
            self.pass(POD).await;
            while !self.instances[pod].has_ended() {
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

fn rollouts(seed: u64) {
    let plan = Plan {
        instances: 4,
        upstreams: 3,
        edges: 2,
        connectors: 8,
        lasts_s: 40,
        faults: DISTURBED.to_vec(),
        fault_every_ms: 6_000,
        change_every_ms: 1_000,
        discovery: Discovery::None,
        ..Plan::from_seed(seed)
    };
    let two_shards = |config: &mut Config| config.leader_election.shards = 2;
    let report = simulate_with(&plan, two_shards, async |stage: &mut Stage| {
        stage.ledger.lock().unwrap().oracle.numbers = vec![2, 4, 1];
        stage.happens().await;
        stage.roll_out(4, 8).await;
        stage.happens().await;
        stage.roll_out(1, 2).await;
        stage.settles().await;
        stage.ends(ENDS_WITHIN).await;
    });
    assert_right(&report);
}

#[test]
fn rollouts_end_right() {
    (1..=2).for_each(rollouts);
}

#[test]
#[ignore = "takes minutes: make sim-shards"]
fn many_rollouts_end_right() {
    (1_000..1_040).for_each(rollouts);
}
