//! Under whatever settings: what is off writes nothing, and the rest converges.

use proptest::prelude::*;

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::cause::{Hop, State};
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings, TouchScope};
use throughline::core::view::fleet::Source;

use crate::generate::{change, fault, other_writer, pause, setup, write_faults};
use crate::{config, converges};

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

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn under_any_settings_what_is_off_writes_nothing_and_the_rest_converges(
        setup in setup(),
        write_faults in write_faults(),
        settings in settings(),
        steps in prop::collection::vec(
            (pause(), prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()]),
            1..25,
        ),
    ) {
        let mut sim = setup.build(|of_setup| of_setup.clone_from(&settings));
        sim.start();
        sim.write_faults = write_faults;
        let Settings { mirror, touch, .. } = &settings;
        for (pause_ms, op) in &steps {
            sim.advance_by(*pause_ms);
            sim.apply(op);
            let fleet = sim.machine.fleet(Source::Instance, &|_| None);
            for hop in fleet.connectors.iter().flat_map(|connector| &connector.hops) {
                let is_on = if hop.hop == Hop::Announced { touch.enabled } else { mirror.enabled };
                prop_assert!(is_on || hop.state != State::Stuck, "{hop:?}");
            }
        }
        for Decision { action, .. } in &sim.actions {
            let is_on = match action.verb {
                Verb::Mirror => mirror.enabled,
                Verb::Nudge => mirror.enabled && mirror.nudge,
                Verb::Touch => touch.enabled,
                Verb::Delete => true,
            };
            prop_assert!(is_on, "{action:?}");
        }
        if mirror.enabled && mirror.nudge && touch.enabled && mirror.share_from == 10 {
            converges(&mut sim)?;
        }
    }
}
