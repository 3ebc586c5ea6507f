//! Generators of initial states, schedules and write faults.

use proptest::prelude::*;

use throughline::core::contract::settings::{Fraction, OrphanMode, Settings, TouchScope};

use crate::model::{CONNECTORS, ConnectorRef, GATEWAYS, GatewayRef, Op, PROJECTS, Topology};
use crate::sim::{SECOND, Sim, WriteFault};

/// The initial state of the simulated clusters.
#[derive(Clone, Debug)]
pub struct Setup {
    pub topology: Topology,
    pub statuses: Vec<u8>,
    pub proxies: Vec<u8>,
    pub watch_delays_ms: Vec<u8>,
    pub carrier_delay_ms: u64,
    pub managed_fields: bool,
    pub scope: TouchScope,
}

impl Setup {
    /// The clusters with all their objects; nothing is listed yet.
    pub fn build(&self, change: impl FnOnce(&mut Settings)) -> Sim {
        let mut settings = Settings::default();
        settings.touch.scope = self.scope;
        change(&mut settings);
        let mut sim = Sim::new(self.topology, settings, self.carrier_delay_ms);
        sim.watch_delays_ms.clone_from(&self.watch_delays_ms);
        if self.managed_fields {
            sim.clusters.keep_managed_fields();
        }
        for cluster in self.topology.clusters() {
            for kind in sim.kinds(&cluster.name) {
                // No watch is open before the first list.
                sim.clusters.lose_watch(&cluster.name, kind, "not listed yet");
            }
        }
        for project in 0..PROJECTS {
            sim.put_namespaces(project, &self.topology.project(project).2);
            for c in 0..CONNECTORS {
                let status = self.statuses[usize::from(project * CONNECTORS + c)];
                sim.apply(&Op::CreateUpstream(ConnectorRef(project, c), status));
            }
            for e in 0..self.topology.edges().len() as u8 {
                for g in 0..GATEWAYS {
                    let at = GatewayRef(e, project, g);
                    let i = (e * PROJECTS + project) * GATEWAYS + g;
                    sim.apply(&Op::Proxy(at, self.proxies[usize::from(i)]));
                    sim.apply(&Op::CreateGateway(at, g % 2));
                }
            }
        }
        sim.clusters.advance(sim.now.plus(SECOND));
        sim
    }

    /// The clusters, and a leader that has listed everything.
    pub fn begin(&self) -> Sim {
        let mut sim = self.build(|_| ());
        sim.start();
        sim
    }
}

pub fn topology() -> impl Strategy<Value = Topology> {
    prop_oneof![Just(Topology::One), Just(Topology::Two), Just(Topology::Three)]
}

pub fn who() -> impl Strategy<Value = ConnectorRef> {
    (0..PROJECTS, 0..CONNECTORS).prop_map(|(p, c)| ConnectorRef(p, c))
}

pub fn place() -> impl Strategy<Value = GatewayRef> {
    (0..2_u8, 0..PROJECTS, 0..GATEWAYS).prop_map(|(e, p, g)| GatewayRef(e, p, g))
}

/// What users and the platform do, none of which is a fault.
pub fn change() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (who(), 0..7_u8).prop_map(|(w, s)| Op::Status(w, s)),
        1 => (who(), any::<bool>()).prop_map(|(w, r)| Op::DeleteUpstream(w, r)),
        2 => (who(), 0..7_u8).prop_map(|(w, s)| Op::CreateUpstream(w, s)),
        2 => (place(), 0..8_u8).prop_map(|(p, m)| Op::Proxy(p, m)),
        1 => place().prop_map(Op::DeleteGateway),
        2 => (place(), 0..2_u8).prop_map(|(p, c)| Op::CreateGateway(p, c)),
        1 => place().prop_map(Op::Stamp),
    ]
}

/// Other writers that overwrite throughline's values.
pub fn other_writer() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (who(), 0..6_u8).prop_map(|(w, v)| Op::OverwriteHub(w, v)),
        2 => (who(), 0..2_u8, 0..6_u8).prop_map(|(w, e, v)| Op::OverwriteEdge(w, e, v)),
        2 => (place(), 0..6_u8).prop_map(|(p, v)| Op::OverwriteTrigger(p, v)),
    ]
}

/// Faults between the machine and its clusters.
pub fn fault() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => any::<bool>().prop_map(Op::Lead),
        3 => (0..5_u8, 0..5_u8).prop_map(|(c, k)| Op::Lose(c, k)),
        4 => (0..5_u8, 0..5_u8).prop_map(|(c, k)| Op::List(c, k)),
        1 => (0..5_u8).prop_map(Op::CutOff),
        2 => (0..5_u8).prop_map(Op::Reach),
        2 => (who(), 0..2_u8).prop_map(|(w, e)| Op::StickCarrier(w, e)),
        1 => (0..5_u8).prop_map(Op::Rejoin),
        1 => Just(Op::Restart),
    ]
}

/// Facts that the machine has got before.
pub fn repetition() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (0..5_u8, 0..5_u8).prop_map(|(c, k)| Op::List(c, k)),
        2 => (any::<u16>(), any::<bool>()).prop_map(|(which, stale)| Op::ShowAgain(which, stale)),
    ]
}

/// A pause in milliseconds, mostly short, so that events overlap.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..30_u64,
        4 => 30..1_500_u64,
        3 => 1_500..12_000_u64,
        1 => 12_000..200_000_u64,
    ]
}

pub fn schedule(
    op: impl Strategy<Value = Op>,
    most: usize,
) -> impl Strategy<Value = Vec<(u64, Op)>> {
    prop::collection::vec((pause(), op), 1..most)
}

pub fn write_faults() -> impl Strategy<Value = Vec<WriteFault>> {
    let write_fault = prop_oneof![
        6 => Just(WriteFault::None),
        1 => Just(WriteFault::AnsweredTwice),
        2 => Just(WriteFault::Failed),
        2 => Just(WriteFault::FailedButApplied),
        1 => Just(WriteFault::Throttled),
        2 => Just(WriteFault::Conflict),
        1 => Just(WriteFault::Refused),
        1 => Just(WriteFault::NotFound),
        1 => Just(WriteFault::Superseded),
        1 => Just(WriteFault::AnsweredLate),
        1 => Just(WriteFault::AppliedLate),
    ];
    prop::collection::vec(write_fault, 1..20)
}

/// Any settings, in which some parts may be switched off.
pub fn settings() -> impl Strategy<Value = Settings> {
    let mostly = || prop_oneof![2 => Just(true), 1 => Just(false)];
    let scope = || prop_oneof![Just(TouchScope::Gateway), Just(TouchScope::GatewayClass)];
    let times = (0..3_usize, 0..3_usize, 0..3_usize, 0..2_usize);
    ((mostly(), mostly(), mostly()), (scope(), prop::option::of(scope())), times, any::<bool>())
        .prop_map(|((mirrors, touches, nudges), (scope, other_scope), times, deletes)| {
            let mut settings = Settings::default();
            (settings.mirror.enabled, settings.mirror.nudge) = (mirrors, nudges);
            settings.touch.enabled = touches;
            settings.touch.scope = scope;
            settings.touch.edge_scopes =
                other_scope.map(|s| ("edge-2".into(), s)).into_iter().collect();
            settings.touch.window_ms = [50, 100, 700][times.0];
            settings.touch.min_interval_ms = [400, 1_000, 3_000][times.1];
            settings.touch.confirm_after_ms =
                [vec![5_000, 60_000], vec![2_000, 20_000], vec![9_000, 90_000]][times.2].clone();
            settings.late.mirrored_ms = [1_000, 5_000, 9_000][times.0];
            settings.late.announced_ms = [1_000, 5_000, 9_000][times.1];
            settings.late.carried_ms = [1_000, 10_000, 20_000][times.2];
            settings.mirror.defer_ms = [0, 5_000, 1_000][times.1];
            settings.mirror.deferrable_per_second = [0, 8, 1][times.2];
            settings.mirror.absent_grace_ms = [0, 5_000, 20_000][times.2];
            (settings.mirror.share_from, settings.mirror.max_share) =
                [(10, Fraction::per_mille(300)), (1, Fraction::per_mille(0))][times.3];
            settings.orphans.mode = if deletes { OrphanMode::Delete } else { OrphanMode::Report };
            settings
        })
}

prop_compose! {
    pub fn setup()(
        topology in topology(),
        statuses in prop::collection::vec(0..7_u8, 6),
        proxies in prop::collection::vec(0..8_u8, 12),
        watch_delays_ms in prop::collection::vec(0..40_u8, 1..8),
        carrier_delay_ms in 0..300_u64,
        managed_fields in any::<bool>(),
        scope in prop_oneof![3 => Just(TouchScope::Gateway), 1 => Just(TouchScope::GatewayClass)],
    ) -> Setup {
        Setup {
            topology, statuses, proxies, watch_delays_ms, carrier_delay_ms, managed_fields, scope,
        }
    }
}
