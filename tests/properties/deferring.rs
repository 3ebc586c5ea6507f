//! What routes nothing waits, arrives in the end, and never delays what routes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use throughline::core::contract::action::{Urgency, Verb};
use throughline::core::contract::cause::Cause;
use throughline::core::contract::note::NoteKind;
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::status::go_json::canonical;

use crate::config;
use crate::generate::{Setup, change, pause, schedule, setup};
use crate::model::{CONNECTORS, ConnectorRef, Op, PROJECTS, Topology, annotate, apply, status};
use crate::oracle;
use crate::sim::{HOUR, Sim};

/// More than a watch event, a mirror and the carrier take together.
const BRIEF_MS: u64 = 400;

fn begin(setup: &Setup, change: impl FnOnce(&mut Settings)) -> Sim {
    let mut sim = setup.build();
    change(&mut sim.settings);
    sim.machine = throughline::core::machine::Machine::new(sim.settings.clone());
    sim.add_clusters();
    sim.lead(true);
    sim.list_everything();
    sim
}

fn connectors() -> impl Iterator<Item = ConnectorRef> {
    (0..PROJECTS).flat_map(|p| (0..CONNECTORS).map(move |c| ConnectorRef(p, c)))
}

fn connector() -> impl Strategy<Value = ConnectorRef> {
    (0..PROJECTS, 0..CONNECTORS).prop_map(|(p, c)| ConnectorRef(p, c))
}

/// Two statuses of one node.
fn same_node() -> impl Strategy<Value = Op> {
    (connector(), prop_oneof![Just(2_u8), Just(4)]).prop_map(|(who, s)| Op::Status(who, s))
}

/// Each Connector at the hub whose annotation routes as its upstream Connector says.
fn routed(sim: &Sim, t: Topology) -> BTreeSet<(u8, u8)> {
    let is_routed = |ConnectorRef(p, c): ConnectorRef| {
        let (cluster, namespace, _) = t.project(p);
        let name = format!("c{c}");
        let key = ObjectKey::new(namespace, &*name);
        let upstream = sim.clusters.get(&cluster, Kind::Connector, &key);
        let key = ObjectKey::new(t.hub_namespace(p), name);
        let hub = sim.clusters.get(&t.hub(), Kind::Connector, &key);
        hub.is_some_and(|hub| {
            let has_status = upstream.is_some_and(|upstream| upstream.status().is_some());
            has_status == hub.meta.annotations.get(UPSTREAM_STATUS).is_some()
                && upstream.map(|u| oracle::liveness(u)).unwrap_or_default()
                    == oracle::liveness(hub)
        })
    };
    connectors().filter(|who| is_routed(*who)).map(|ConnectorRef(p, c)| (p, c)).collect()
}

/// When each deferrable mirror was decided.
fn deferrable(sim: &Sim) -> Vec<u64> {
    let mirrors = sim.actions.iter().map(|recorded| &recorded.decision);
    mirrors.filter(|d| d.urgency == Urgency::Deferrable).map(|d| d.at.0).collect()
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn every_status_arrives_within_the_wait_and_a_little(
        setup in setup(),
        defer_ms in prop_oneof![Just(0_u64), Just(1_000), Just(5_000)],
        schedule in prop::collection::vec((pause(), (connector(), 1..7_u8)), 1..40),
    ) {
        let t = setup.topology;
        let mut sim = begin(&setup, |settings| settings.mirror.defer_ms = defer_ms);
        sim.advance_by(600_000);
        // No Connector without a status: that one is removed, after a time of its own.
        for who in connectors() {
            apply(&mut sim, t, &Op::Status(who, 1));
        }
        for (pause_ms, (who, s)) in schedule {
            sim.advance_by(pause_ms);
            apply(&mut sim, t, &Op::Status(who, s));
        }
        sim.advance_by(defer_ms + 2 * BRIEF_MS);
        let deviations = oracle::mirror_deviations(&sim, t);
        prop_assert!(deviations.is_empty(), "{deviations:#?}\n{}", sim.describe_actions(0));
    }

    #[test]
    fn deferrable_mirrors_keep_to_the_budget_in_any_span_of_time(
        setup in setup(),
        per_second in 1..4_u32,
        schedule in prop::collection::vec((0..700_u64, same_node()), 10..120),
    ) {
        let t = setup.topology;
        let mut sim = begin(&setup, |settings| {
            (settings.mirror.defer_ms, settings.mirror.deferrable_per_second) = (200, per_second);
        });
        for (pause_ms, op) in schedule {
            sim.advance_by(pause_ms);
            apply(&mut sim, t, &op);
        }
        sim.advance_by(HOUR);
        prop_assert!(oracle::mirror_deviations(&sim, t).is_empty());
        let at = deferrable(&sim);
        for (i, from) in at.iter().enumerate() {
            for (j, to) in at.iter().enumerate().skip(i) {
                let room = f64::from(2 * per_second)
                    + f64::from(per_second) * (to - from) as f64 / 1_000.0;
                let written = (j - i + 1) as f64;
                prop_assert!(written <= room, "{written} in {} ms", to - from);
            }
        }
    }

    /// Where one that routes comes while one that routes nothing is on its way, it waits for the answer
    /// of that write, as for any other.
    #[test]
    fn what_routes_is_never_later_than_with_the_rule_switched_off(
        setup in setup(),
        schedule in schedule(change(), 25),
    ) {
        let t = setup.topology;
        let mut off = begin(&setup, |settings| settings.mirror.defer_ms = 0);
        let mut on = begin(&setup, |_| ());
        let look_ms = off.write_ms + 5;
        let step = |off: &mut Sim, on: &mut Sim, ms: u64| -> Result<(), TestCaseError> {
            let mut before = routed(off, t);
            for looked_ms in (0..ms.min(20 * look_ms)).step_by(look_ms as usize) {
                let next_ms = look_ms.min(ms - looked_ms);
                off.advance_by(next_ms);
                on.advance_by(next_ms);
                let now = routed(off, t);
                let late: BTreeSet<_> =
                    (&now & &before).difference(&routed(on, t)).copied().collect();
                // The last span may be shorter than the answer of a write takes.
                prop_assert!(
                    late.is_empty() || next_ms < look_ms,
                    "{late:?} at {}\n{}\nwithout the rule\n{}",
                    on.now, on.describe_actions(0), off.describe_actions(0)
                );
                before = now;
            }
            let rest_ms = ms.saturating_sub(20 * look_ms);
            off.advance_by(rest_ms);
            on.advance_by(rest_ms);
            Ok(())
        };
        for (pause_ms, op) in &schedule {
            step(&mut off, &mut on, *pause_ms)?;
            apply(&mut off, t, op);
            apply(&mut on, t, op);
        }
        step(&mut off, &mut on, 10_000)?;
        let mirrors = |sim: &Sim| {
            sim.actions.iter().filter(|a| a.decision.action.verb == Verb::Mirror).count()
        };
        prop_assert!(mirrors(&on) <= mirrors(&off), "the rule makes more writes");
    }

    /// The platform's replicator writes what upstream says, too, a little later.
    #[test]
    fn the_replicator_beside_it_causes_no_fight(
        setup in setup(),
        schedule in prop::collection::vec(
            (0..8_000_u64, connector(), 1..7_u8, prop::option::of(50..7_000_u64)), 1..40),
    ) {
        let t = setup.topology;
        let mut sim = begin(&setup, |_| ());
        sim.advance_by(600_000);
        let before = sim.actions.len();
        // By its time: who, and whether it is the replicator's turn.
        let mut plan: BTreeMap<(u64, usize), (ConnectorRef, Option<u8>)> = BTreeMap::new();
        let mut at_ms = 0;
        for (i, (pause_ms, who, s, replicated_ms)) in schedule.iter().enumerate() {
            at_ms += pause_ms;
            plan.insert((at_ms, 2 * i), (*who, Some(*s)));
            if let Some(after_ms) = replicated_ms {
                plan.insert((at_ms + after_ms, 2 * i + 1), (*who, None));
            }
        }
        let (mut now_ms, mut said, mut changes) = (0, BTreeMap::new(), 0_usize);
        for ((at_ms, _), (who, says)) in plan {
            sim.advance_by(at_ms - now_ms);
            now_ms = at_ms;
            let ConnectorRef(p, c) = who;
            let (cluster, namespace, _) = t.project(p);
            let key = ObjectKey::new(namespace, format!("c{c}"));
            if let Some(says) = says {
                if sim.clusters.get(&cluster, Kind::Connector, &key).is_some() {
                    changes += usize::from(said.insert((p, c), (says, at_ms)).map(|(s, _)| s) != Some(says));
                    apply(&mut sim, t, &Op::Status(who, says));
                }
            } else if let Some((says, since_ms)) = said.get(&(p, c))
                && at_ms - since_ms >= 50
            {
                // By then the watch has shown it here, too.
                let text = status(*says).as_deref().and_then(canonical);
                let key = ObjectKey::new(t.hub_namespace(p), format!("c{c}"));
                annotate(&mut sim, &t.hub(), Kind::Connector, &key, UPSTREAM_STATUS, text.as_deref());
            }
        }
        sim.advance_by(600_000);
        prop_assert!(oracle::mirror_deviations(&sim, t).is_empty());
        let mirrors =
            sim.actions[before..].iter().filter(|a| a.decision.action.verb == Verb::Mirror).count();
        prop_assert!(mirrors <= changes, "{mirrors} mirrors of {changes} changes");
        let is_contention = |kind: &NoteKind| {
            matches!(kind, NoteKind::Began(problem) if problem.cause == Cause::Overwritten)
        };
        prop_assert!(!sim.notes.iter().any(|note| is_contention(&note.kind)));
    }
}
