//! Promises about touches.

use std::collections::BTreeMap;

use proptest::prelude::*;

use throughline::core::contract::action::{Action, Decision, Verb};
use throughline::core::contract::settings::TouchScope;
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
use throughline::core::status::trigger::Trigger;

use crate::generate::{Setup, change, fault, other_writer, place, schedule, setup, write_faults};
use crate::model::{ConnectorRef, GatewayRef, Op};
use crate::oracle::liveness_of;
use crate::sim::{SECOND, Sim};
use crate::{config, converges};

/// The longest time that a write of the simulation is under way.
const LONGEST_WRITE_MS: u64 = 1_000;

/// Every touch: when, which, and the value.
fn touches(sim: &Sim) -> Vec<(u64, &Action, Trigger)> {
    let touched = sim.decided(Verb::Touch, 0).map(|Decision { at, action, .. }| {
        let (key, value) = &action.annotations[0];
        assert_eq!(*key, sim.settings.touch.key);
        assert!(action.precondition.uid.is_some(), "a touch is of one object");
        (at.0, action, Trigger::parse(value.as_deref().unwrap()).unwrap())
    });
    touched.collect()
}

/// Every observed change of liveness: time, edge, connector.
fn changes(sim: &Sim) -> Vec<(u64, ClusterName, NamespacedName)> {
    let mut known = BTreeMap::new();
    let mut changes = Vec::new();
    for (at, cluster, object) in sim.shown().filter(|(.., o)| o.kind() == Kind::Connector) {
        let place = (cluster.clone(), object.meta.key());
        let liveness = liveness_of(object);
        let before = known.insert(place.clone(), liveness.clone()).unwrap_or_default();
        if before != liveness {
            changes.push((at, place.0, place.1));
        }
    }
    changes
}

/// Whether every span of time has at most a burst of these, and as many more as come `every_ms`.
fn keeps_pace(times: &[u64], burst: u64, (count, every_ms): (u64, u64)) -> bool {
    let has_pace = |since: &[u64]| {
        let mut counted = (1..).zip(since);
        counted.all(|(n, at)| n <= burst + (at - since[0]) * count / every_ms)
    };
    (0..times.len()).all(|i| has_pace(&times[i..]))
}

/// Touches keep to the turns of that which each is of: announcements take turns, and a confirmation
/// keeps its distance from the touch before it, so that there are at most twice as many touches as turns,
/// and never more than one confirmation an interval.
fn keep_to_their_turns<K: Ord>(sim: &Sim, of: impl Fn(&Action) -> K) -> Result<(), TestCaseError> {
    let settings = &sim.settings.touch;
    let interval = settings.min_interval_ms;
    // A class speaks for all its Gateways.
    let (every, burst) = match settings.scope {
        TouchScope::Gateway => (interval, u64::from(settings.burst)),
        TouchScope::GatewayClass => (200, 1),
    };
    let mut last_of: BTreeMap<K, (u64, Trigger)> = BTreeMap::new();
    let mut announced: BTreeMap<K, Vec<u64>> = BTreeMap::new();
    for (at, action, trigger) in touches(sim) {
        if let Some((before_at, before)) = last_of.insert(of(action), (at, trigger)) {
            prop_assert!(
                trigger.n > before.n,
                "{before:?} {trigger:?}\n{}",
                sim.describe_actions(0)
            );
            let is_near = trigger.c > 0 && at - before_at < interval;
            prop_assert!(!is_near, "{before:?} {trigger:?}");
        }
        if trigger.c == 0 {
            announced.entry(of(action)).or_default().push(at);
        }
    }
    for announced in announced.values() {
        prop_assert!(keeps_pace(announced, burst, (1, every)), "{announced:?}");
    }
    Ok(())
}

/// Two Connectors that flap, and the stamps that the platform writes meanwhile.
fn flap() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (0..2_u8, 0..7_u8).prop_map(|(c, status)| Op::Status(ConnectorRef(0, c), status)),
        1 => (0..2_u8).prop_map(|g| Op::Stamp(GatewayRef(0, 0, g))),
    ]
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn no_trigger_value_is_used_twice_and_touches_of_a_gateway_keep_to_their_turns(
        setup in setup(),
        write_faults in write_faults(),
        mut schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
        flaps in prop::collection::vec((0..150_u64, flap()), 0..120),
    ) {
        schedule.retain(|(_, op)| match op {
            Op::Restart | Op::Rejoin(_) => false,
            // When the key is removed, the counter starts again; at its maximum it cannot grow.
            Op::OverwriteTrigger(_, value) => matches!(value, 2 | 4),
            _ => true,
        });
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        sim.play(&schedule);
        sim.heal();
        sim.play(&flaps);
        sim.advance_by(600 * SECOND);
        let gateway = |action: &Action| {
            (action.cluster.clone(), action.object.clone(), action.precondition.uid.clone())
        };
        keep_to_their_turns(&sim, gateway)?;
    }

    #[test]
    fn touches_of_an_edge_keep_its_pace_and_all_is_announced_in_the_end(
        setup in setup(),
        per_second in 1..4_u32,
        mut schedule in schedule(prop_oneof![4 => change(), 1 => other_writer(), 1 => fault()], 25),
    ) {
        schedule.retain(|(_, op)| !matches!(op, Op::Restart | Op::Rejoin(_)));
        let mut sim = setup.build(|settings| settings.touch.max_per_second = per_second);
        sim.start();
        sim.play(&schedule);
        converges(&mut sim)?;
        let mut of_edge: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for (at, Action { cluster, .. }, _) in touches(&sim) {
            of_edge.entry(cluster).or_default().push(at);
        }
        let per_second = u64::from(per_second);
        for touched in of_edge.values() {
            let keeps_pace = keeps_pace(touched, 4 * per_second, (per_second, 1_000));
            prop_assert!(keeps_pace, "{touched:?}\n{}", sim.describe_actions(0));
        }
    }

    #[test]
    fn a_change_at_the_edge_is_announced_soon_after_the_window(
        setup in setup(),
        has_stamps in any::<bool>(),
        mut schedule in schedule(prop_oneof![3 => change(), 1 => place().prop_map(Op::Stamp)], 25),
    ) {
        let setup = Setup { scope: TouchScope::Gateway, ..setup };
        schedule.retain(|(_, op)| matches!(op, Op::Status(..)) || (has_stamps && matches!(op, Op::Stamp(_))));
        let mut sim = setup.begin();
        sim.advance_by(300 * SECOND);
        let settled_at = sim.now.0;
        sim.play(&schedule);
        sim.advance_by(300 * SECOND);
        let window = sim.settings.touch.window_ms;
        let (touches, changes) = (touches(&sim), changes(&sim));
        for edge in setup.topology.edges() {
            for gateway in sim.clusters.objects(&edge, Kind::Gateway) {
                let key = gateway.meta.key();
                let changed = changes.iter().filter(|(at, e, connector)| {
                    *at > settled_at && *e == edge && sim.references(&edge, &key, connector)
                });
                let changed: Vec<u64> = changed.map(|(at, ..)| *at).collect();
                let announced = touches.iter().filter(|(at, touch, trigger)| {
                    *at > settled_at && touch.cluster == edge && touch.object == key && trigger.c == 0
                });
                let announced: Vec<u64> = announced.map(|(at, ..)| *at).collect();
                // While changes keep coming, a touch waits one interval after the first of them at
                // most. It may come before the last one's window has passed; then a confirmation
                // announces that one to caches that were late.
                let interval = sim.settings.touch.min_interval_ms;
                let is_overdue = |a: u64| {
                    let before = announced.iter().rev().find(|b| **b < a).copied().unwrap_or(settled_at);
                    changed.iter().any(|c| (before..=a.saturating_sub(interval)).contains(c))
                };
                for at in &changed {
                    // An interval after the first change at most, and the time that the touch before
                    // is under way.
                    let soon = announced.iter().any(|a| {
                        (at + window..=at + interval + window + LONGEST_WRITE_MS).contains(a)
                            || ((*at..at + window).contains(a) && (has_stamps || is_overdue(*a)))
                    });
                    prop_assert!(soon, "{key}: {changed:?} {announced:?}\n{}", sim.describe_actions(0));
                }
                let mut since = settled_at;
                for at in announced.into_iter().filter(|_| !has_stamps) {
                    let first = changed.iter().find(|c| (since..=at).contains(c));
                    let is_due = first.is_some_and(|first| at >= first + window);
                    prop_assert!(is_due, "{key}: {changed:?} {at}");
                    since = at;
                }
            }
        }
    }

    #[test]
    fn a_class_keeps_to_its_turns_and_converges(
        setup in setup(),
        mut schedule in schedule(prop_oneof![6 => change(), 1 => fault()], 25),
    ) {
        let setup = Setup { scope: TouchScope::GatewayClass, ..setup };
        let mut sim = setup.begin();
        schedule.retain(|(_, op)| !matches!(op, Op::Restart | Op::Rejoin(_)));
        for (_, op) in &mut schedule {
            if let Op::CreateGateway(GatewayRef(_, _, g), class) = op {
                *class = *g % 2;
            }
        }
        sim.play(&schedule);
        converges(&mut sim)?;
        // The name tells the class: g0 and g2 belong to one, g1 to the other.
        keep_to_their_turns(&sim, |touch| (touch.cluster.clone(), touch.object.name() == "g1"))?;
    }
}
