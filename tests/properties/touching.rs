//! Promises about touches.

use std::collections::BTreeMap;

use proptest::prelude::*;

use throughline::core::contract::action::Verb;
use throughline::core::contract::event::EventKind;
use throughline::core::contract::settings::TouchScope;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::Body;
use throughline::core::status::trigger::Trigger;

use crate::generate::{Setup, change, fault, other_writer, schedule, setup, write_faults};
use crate::model::{GatewayRef, Op, play};
use crate::sim::{SECOND, Sim};
use crate::{config, converges, oracle};

/// Every touch: time, edge, gateway, its uid, and the value.
fn touches(sim: &Sim) -> Vec<(u64, ClusterName, ObjectKey, String, Trigger)> {
    let touched = sim.actions.iter().filter(|a| a.decision.action.verb == Verb::Touch);
    let touch = |a: &crate::sim::RecordedAction| {
        let action = &a.decision.action;
        let (key, value) = &action.annotations[0];
        assert_eq!(*key, sim.settings.touch.key);
        let trigger = Trigger::parse(value.as_deref().unwrap()).unwrap();
        let uid = action.precondition.uid.clone().expect("a touch is of one object");
        (a.decision.at.0, action.cluster.clone(), action.object.clone(), uid, trigger)
    };
    touched.map(touch).collect()
}

/// Every observed change of liveness: time, edge, connector.
fn changes(sim: &Sim) -> Vec<(u64, ClusterName, ObjectKey)> {
    let mut known = BTreeMap::new();
    let mut changes = Vec::new();
    for event in &sim.seen {
        let (EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object }) =
            &event.kind
        else {
            continue;
        };
        if object.kind() == Kind::Connector {
            let place = (cluster.clone(), object.meta.key());
            let liveness = oracle::liveness(object);
            let before = known.insert(place.clone(), liveness.clone()).unwrap_or_default();
            if before != liveness {
                changes.push((event.at.0, place.0, place.1));
            }
        }
    }
    changes
}

fn references(sim: &Sim, edge: &ClusterName, gateway: &ObjectKey, connector: &ObjectKey) -> bool {
    gateway.namespace == connector.namespace
        && sim.clusters.get(edge, Kind::HttpProxy, gateway).is_some_and(|proxy| match &proxy.body {
            Body::HttpProxy { connectors } => connectors.iter().any(|c| **c == *connector.name),
            _ => false,
        })
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn no_trigger_value_is_used_twice_and_touches_of_a_gateway_keep_their_distance(
        setup in setup(),
        write_faults in write_faults(),
        schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        let may = |op: &Op| match op {
            Op::Restart | Op::Rejoin(_) => false,
            // When the key is removed, the counter starts again; at its maximum it cannot grow.
            Op::OverwriteTrigger(_, value) => matches!(value, 2 | 4),
            _ => true,
        };
        let schedule: Vec<_> = schedule.into_iter().filter(|(_, op)| may(op)).collect();
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        play(&mut sim, setup.topology, &schedule);
        sim.heal();
        sim.advance_by(600 * SECOND);
        let mut last = BTreeMap::new();
        for (at, cluster, gateway, uid, trigger) in touches(&sim) {
            let before = last.insert((cluster, gateway, uid), (at, trigger));
            if let Some((before_at, before)) = before {
                prop_assert!(trigger.n > before.n, "{before:?} {trigger:?}\n{}", sim.describe_actions(0));
                prop_assert!(at - before_at >= sim.settings.touch.min_interval_ms);
            }
        }
    }

    #[test]
    fn a_change_at_the_edge_is_announced_soon_after_the_window(
        setup in setup(),
        schedule in schedule(change(), 25),
    ) {
        let setup = Setup { scope: TouchScope::Gateway, ..setup };
        let flips: Vec<_> =
            schedule.into_iter().filter(|(_, op)| matches!(op, Op::Status(..))).collect();
        let mut sim = setup.begin();
        sim.advance_by(300 * SECOND);
        let settled_at = sim.now.0;
        play(&mut sim, setup.topology, &flips);
        sim.advance_by(300 * SECOND);
        let window = sim.settings.touch.window_ms;
        let (touches, changes) = (touches(&sim), changes(&sim));
        let changes: Vec<_> = changes.iter().filter(|c| c.0 > settled_at).collect();
        for edge in setup.topology.edges() {
            for gateway in sim.clusters.objects(&edge, Kind::Gateway) {
                let key = gateway.meta.key();
                let changed = changes
                    .iter()
                    .filter(|(_, e, connector)| *e == edge && references(&sim, &edge, &key, connector));
                let changed: Vec<u64> = changed.map(|(at, ..)| *at).collect();
                let announced = touches.iter().filter(|(at, e, g, _, trigger)| {
                    *at > settled_at && *e == edge && *g == key && trigger.c == 0
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
                    let soon = announced.iter().any(|a| {
                        (at + window..at + 2_500).contains(a)
                            || ((*at..at + window).contains(a) && is_overdue(*a))
                    });
                    prop_assert!(soon, "{key}: {changed:?} {announced:?}\n{}", sim.describe_actions(0));
                }
                let mut since = settled_at;
                for at in announced {
                    let first = changed.iter().find(|c| (since..=at).contains(c));
                    let Some(first) = first else {
                        return Err(TestCaseError::fail(format!("{key}: nothing to announce at {at}")));
                    };
                    prop_assert!(at >= first + window, "{key}: {changed:?} {at}");
                    since = at;
                }
            }
        }
    }

    #[test]
    fn a_class_is_touched_at_most_once_an_interval_and_converges(
        setup in setup(),
        schedule in schedule(prop_oneof![6 => change(), 1 => fault()], 25),
    ) {
        let setup = Setup { scope: TouchScope::GatewayClass, ..setup };
        let mut sim = setup.begin();
        let stay = |op: Op| match op {
            Op::CreateGateway(GatewayRef(e, p, g), _) => Some(Op::CreateGateway(GatewayRef(e, p, g), g % 2)),
            Op::Restart | Op::Rejoin(_) => None,
            op => Some(op),
        };
        let schedule: Vec<_> =
            schedule.into_iter().filter_map(|(ms, op)| Some((ms, stay(op)?))).collect();
        play(&mut sim, setup.topology, &schedule);
        converges(&mut sim, setup.topology)?;
        let mut last = BTreeMap::new();
        for (at, edge, gateway, _, trigger) in touches(&sim) {
            // The name tells the class: g0 and g2 belong to one, g1 to the other.
            let class = (edge, gateway.name == "g1");
            if let Some((before_at, before)) = last.insert(class, (at, trigger)) {
                let before: Trigger = before;
                prop_assert!(at - before_at >= sim.settings.touch.min_interval_ms);
                prop_assert!(trigger.n > before.n, "{before:?} {trigger:?}");
            }
        }
    }
}
