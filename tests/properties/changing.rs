//! Settings change while the machine runs: in the end everything is as if it had started with the last
//! ones.

use proptest::prelude::*;

use throughline::core::contract::action::Verb;
use throughline::core::contract::note::Hop;
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings, TouchScope};

use crate::config;
use crate::generate::{change, fault, other_writer, pause, setup, write_faults};
use crate::model::{Op, apply};
use crate::sim::{HOUR, Sim};
use crate::{converges, final_values};

#[derive(Clone, Debug)]
enum Step {
    World(Op),
    Settings(Box<Settings>),
}

fn settings() -> impl Strategy<Value = Settings> {
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
            settings.stall.mirrored_ms = [1_000, 5_000, 9_000][times.0];
            settings.stall.touched_ms = [1_000, 5_000, 9_000][times.1];
            settings.stall.arrived_ms = [1_000, 10_000, 20_000][times.2];
            settings.mirror.defer_ms = [0, 5_000, 1_000][times.1];
            settings.mirror.deferrable_per_second = [0, 8, 1][times.2];
            settings.mirror.absent_grace_ms = [0, 5_000, 20_000][times.2];
            (settings.mirror.share_from, settings.mirror.max_share) =
                [(10, Fraction::per_mille(300)), (1, Fraction::per_mille(0))][times.3];
            settings.orphans.mode = if deletes { OrphanMode::Delete } else { OrphanMode::Report };
            settings
        })
}

/// Settings with which everything ends right.
fn last_settings() -> impl Strategy<Value = Settings> {
    settings().prop_map(|mut settings| {
        (settings.mirror.enabled, settings.mirror.nudge) = (true, true);
        settings.touch.enabled = true;
        settings.mirror.share_from = 10;
        settings
    })
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let op = prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()];
    let step = prop_oneof![
        4 => op.prop_map(Step::World),
        1 => settings().prop_map(|settings| Step::Settings(Box::new(settings))),
    ];
    prop::collection::vec((pause(), step), 1..25)
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn after_a_change_of_settings_everything_converges_and_what_is_off_writes_nothing(
        setup in setup(),
        write_faults in write_faults(),
        steps in steps(),
        last in last_settings(),
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        let mut since = 0;
        for (pause_ms, step) in &steps {
            sim.advance_by(*pause_ms);
            match step {
                Step::World(op) => apply(&mut sim, t, op),
                Step::Settings(settings) => {
                    since = sim.actions.len();
                    sim.change_settings(settings);
                }
            }
            let (mirror, touch) = (&sim.settings.mirror, &sim.settings.touch);
            for recorded in &sim.actions[since..] {
                let is_on = match recorded.decision.action.verb {
                    Verb::Mirror => mirror.enabled,
                    Verb::Nudge => mirror.enabled && mirror.nudge,
                    Verb::Touch => touch.enabled,
                    Verb::Delete => true,
                };
                prop_assert!(is_on, "{:?}", recorded.decision);
            }
            for stall in sim.machine.view().connectors.iter().flat_map(|c| &c.stalls) {
                let is_on = if stall.hop == Hop::Touched { touch.enabled } else { mirror.enabled };
                prop_assert!(is_on, "{stall:?}");
            }
        }
        sim.change_settings(&last);
        converges(&mut sim, t)?;
    }

    /// The values in the clusters, and what `/state` shows of them.
    #[test]
    fn it_ends_as_a_machine_that_started_with_the_new_settings(
        setup in setup(),
        first in settings(),
        last in last_settings(),
        pause_ms in pause(),
    ) {
        let t = setup.topology;
        let begin = |settings: &Settings| {
            let mut sim = setup.build();
            sim.settings = settings.clone();
            sim.machine = throughline::core::machine::Machine::new(settings.clone());
            sim.add_clusters();
            sim.lead(true);
            sim.list_everything();
            sim
        };
        let mut straight = begin(&last);
        straight.advance_by(HOUR);
        let mut changed = begin(&first);
        changed.advance_by(pause_ms);
        changed.change_settings(&last);
        changed.advance_by(HOUR);
        let phases = [changed.machine.phases(), straight.machine.phases()];
        prop_assert_eq!(&phases[0], &phases[1]);
        converges(&mut changed, t)?;
        let hub = |sim: &Sim| {
            let mut values = final_values(sim, t);
            // A Gateway that the platform had announced is touched by some settings only.
            values.retain(|key, _| key.starts_with("hub "));
            values
        };
        prop_assert_eq!(hub(&changed), hub(&straight));
    }
}
