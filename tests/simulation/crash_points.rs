//! An instance is killed at each point of a small scenario and restarted a moment later: each of these
//! runs ends right. A run without a crash counts the points; then each point has a run of its own.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use strum::VariantArray;
use throughline::config::Config;

use crate::fault_kind::FaultKind;
use crate::many::keep;
use crate::plan::{Plan, Report};
use crate::stage::{Stage, simulate_with};

/// Counts the points that an instance passes, and ends it at one of them: as it sends something; as a
/// server has answered, or sent a part of a watch; as it takes that; at each line of its log; at each write
/// to its disk.
#[derive(Default)]
pub(crate) struct CrashProbe(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of the point at which the instance ends.
    ends_at: Option<u64>,
    passed: u64,
    is_dead: bool,
}

impl CrashProbe {
    /// Counts from now on.
    pub(crate) fn arm(&self, ends_at: Option<u64>) {
        *self.0.lock().unwrap() = State { ends_at, ..State::default() };
    }

    /// Whether the instance lives on behind this point. Nothing that it does afterwards may show.
    pub(crate) fn pass(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        if !state.is_dead {
            state.passed += 1;
            state.is_dead = state.ends_at == Some(state.passed);
        }
        !state.is_dead
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.lock().unwrap().is_dead
    }

    pub(crate) fn passed(&self) -> u64 {
        self.0.lock().unwrap().passed
    }
}

/// A crashed instance starts again after this long.
const RESTART_AFTER: Duration = Duration::from_millis(300);

impl Stage {
    pub(crate) fn kill_crashed(&mut self) {
        let is_dead = |instance: &mut usize| self.instances[*instance].computer.probe.is_dead();
        let Some(instance) = self.crash.take_if(is_dead) else { return };
        self.instances[instance].kill();
        let end = move |stage: &mut Self| stage.restart(instance);
        self.until(FaultKind::InstanceKilled, RESTART_AFTER, end);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum Scenario {
    /// The recorded incident: a connector with three Gateways flips.
    Incident,
    FirstInstall,
    /// The leader stops while a connector flips; it is the leader that crashes.
    LeaderStops,
    /// The same; it is the next leader that crashes.
    LeaderFollows,
    OrphanDelete,
    /// An upstream leaves and joins again while its connector flips.
    ConfigReload,
    Restore,
    /// The hub's etcd is empty for two seconds, the Lease included.
    EtcdLost,
}

/// Times that make a run short.
fn shorten(config: &mut Config) {
    config.leader_election.lease_duration = Duration::from_secs(6);
    config.constants.election.renew_deadline_ms = Some(5_000);
    config.constants.election.retry_ms = Some(1_000);
    config.constants.executor.timeout_ms = 1_000;
    let settings = &mut config.constants.settings;
    settings.touch.confirm_after_ms = vec![1_000, 3_000];
    settings.touch.confirm_after_outage_ms = 5_000;
    settings.mirror.restored_settle_ms = 5_000;
    settings.mirror.contention_quiet_ms = 10_000;
    config.events.enabled = true;
}

/// After this, the last confirmations have been made.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(14);
const QUIET_FOR: Duration = Duration::from_secs(4);
const ENDS_WITHIN: Duration = Duration::from_secs(4);

impl Scenario {
    fn plan(self) -> Plan {
        // What the scenario is to the clusters.
        let fault = match self {
            Self::Incident | Self::FirstInstall => FaultKind::InstanceKilled,
            Self::LeaderStops | Self::LeaderFollows => FaultKind::InstanceStopped,
            Self::OrphanDelete => FaultKind::TenantLeaves,
            Self::ConfigReload => FaultKind::UpstreamLeaves,
            Self::Restore => FaultKind::UpstreamRestored,
            Self::EtcdLost => FaultKind::EtcdLost,
        };
        // Three Gateways for each connector, and a route with two parents that may be deleted.
        let (seed, upstreams) = if self == Self::ConfigReload { (182, 2) } else { (17, 1) };
        Plan {
            seed,
            instances: 2,
            upstreams,
            edges: 1,
            connectors: upstreams,
            page_size: 500,
            faults: vec![FaultKind::InstanceKilled, fault],
            ..Plan::default()
        }
    }

    async fn play(self, stage: &mut Stage, crashes_at: Option<u64>) -> u64 {
        let victim = usize::from(self == Self::LeaderFollows);
        if self != Self::FirstInstall {
            stage.becomes_right().await;
            wait(stage, 5_000).await;
        }
        let follows = matches!(self, Self::FirstInstall | Self::LeaderFollows);
        assert_eq!(stage.instances[victim].leads(), !follows, "{self:?}");
        let computer = stage.instances[victim].computer.clone();
        computer.probe.arm(crashes_at);
        stage.crash = Some(victim);
        match self {
            Self::FirstInstall => {}
            Self::Incident => {
                stage.world.flip(0);
                wait(stage, 700).await;
                stage.world.flip(0);
            }
            Self::LeaderStops | Self::LeaderFollows => {
                stage.world.flip(0);
                wait(stage, 30).await;
                stage.instances[0].stop();
                wait(stage, 3_000).await;
                if self == Self::LeaderFollows || !computer.probe.is_dead() {
                    stage.restart(0);
                }
            }
            Self::OrphanDelete => stage.world.empty_site(0),
            Self::ConfigReload => {
                let upstream = stage.world.connectors[0].upstream;
                stage.reload_without(Some(upstream));
                wait(stage, 500).await;
                stage.world.flip(0);
                wait(stage, 500).await;
                stage.reload_without(None);
            }
            Self::Restore => {
                stage.backups = stage.servers.iter().map(|s| s.backup().unwrap()).collect();
                stage.world.flip(0);
                wait(stage, 1_500).await;
                assert!(stage.restore(0));
                wait(stage, 500).await;
                stage.world.report(0);
            }
            Self::EtcdLost => {
                stage.lose_etcd(1);
                wait(stage, 2_000).await;
                stage.world.flip(0);
                stage.bring_etcd_back(1);
            }
        }
        stage.becomes_right().await;
        wait(stage, 4_000).await;
        // With a crash, the run is the same up to there: that was at one of these points.
        let passed = computer.probe.passed();
        // An instance that crashed during a restore may have missed it.
        stage.restart_deceived();
        stage.becomes_right().await;
        stage.stays_right(CONFIRMED_WITHIN, QUIET_FOR).await;
        stage.ends(ENDS_WITHIN).await;
        passed
    }

    fn run(self, crashes_at: Option<u64>) -> (Report, u64) {
        let mut points = 0;
        let report = simulate_with(&self.plan(), shorten, async |stage: &mut Stage| {
            points = self.play(stage, crashes_at).await;
        });
        (report, points)
    }

    /// Tries every `nth` point, and says how many there are. Returns those that do not end right.
    fn failing_points(self, nth: usize) -> Vec<(Self, u64)> {
        let (report, points) = self.run(None);
        assert!(report.broken.is_empty(), "{self:?} without a crash: {}", report.broken.join("\n"));
        let mut failing = Vec::new();
        for at in (1..=points).step_by(nth) {
            let (report, _) = self.run(Some(at));
            if !report.broken.is_empty() {
                println!("{self:?}, point {at}: {}", report.broken.join("\n"));
                keep(&report, &format!("crash-{self:?}-{at}"));
                failing.push((self, at));
            }
        }
        println!("{self:?}: {points} points, one in {nth} tried; {} failed", failing.len());
        failing
    }
}

/// Tries every `nth` point of each scenario, one scenario a thread.
fn assert_survived(nth: usize) {
    let failing: Vec<_> = thread::scope(|scope| {
        let scenarios = Scenario::VARIANTS.iter();
        let threads = scenarios.map(|scenario| scope.spawn(move || scenario.failing_points(nth)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failing.is_empty(), "points that do not end right: {failing:?}");
}

async fn wait(stage: &mut Stage, ms: u64) {
    stage.note_truth();
    stage.pass(Duration::from_millis(ms)).await;
}

#[test]
fn some_crashes_end_right() {
    assert_survived(61);
}

#[test]
#[ignore = "takes minutes: make crash-points"]
fn every_crash_ends_right() {
    assert_survived(1);
}
