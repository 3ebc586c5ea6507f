//! The machine's promises, tested with generated clusters and schedules of changes and faults; what the
//! readers of logs and of other bytes from outside promise for any input ([`redaction`], [`fuzz`]); the
//! election in every state ([`leader_model`]); and how far any mistake reaches ([`blast_radius`]).
//!
//! They compute and never wait, so they share no program with tests that run against the clock.
//!
//! Each test names a promise. `PROPTEST_CASES` sets the number of cases for each. A failure prints its
//! seed and saves it in `tests/properties/regressions`.

#![allow(unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod blast_radius;
mod carry;
mod configured;
mod deferring;
mod failing;
mod fuzz;
mod generate;
mod leader_model;
mod leading;
mod leaving;
mod model;
mod oracle;
mod orphan_fleet;
mod orphans;
mod redaction;
mod settings;
mod sim;
mod touching;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::State;
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::contract::note::NoteKind;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::{Body, Object, UPSTREAM_STATUS};
use throughline::core::status::trigger::Trigger;
use throughline::event_log::LogReader;
use throughline::replay::{ReplayMode, ReplayOptions, replay};

use generate::{change, fault, other_writer, schedule, setup, write_faults};
use model::{Op, play};
use sim::{HOUR, SECOND, Sim};

fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let regressions = "tests/properties/regressions";
    ProptestConfig {
        cases: if asked { ProptestConfig::default().cases } else { cases },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        max_shrink_iters: 3_000,
        ..ProptestConfig::default()
    }
}

/// Ends all faults and checks that everything converges, and that nothing is written after that, even if
/// the machine forgets what it did. Where a status may have changed and changed back since a Gateway's last
/// touch, that is touched again.
fn converges(sim: &mut Sim, t: model::Topology) -> Result<(), TestCaseError> {
    sim.heal();
    sim.advance_by(4 * HOUR);
    let deviations = oracle::deviations(sim, t);
    let before = sim.actions.len();
    prop_assert!(
        deviations.is_empty(),
        "{deviations:#?}\n{}",
        sim.describe_actions(before.saturating_sub(25))
    );
    sim.advance_by(2 * HOUR);
    prop_assert!(
        sim.actions.len() == before,
        "actions after convergence:\n{}",
        sim.describe_actions(before)
    );
    prop_assert_eq!(sim.machine.poll_deadline(), None);
    sim.forget_memory();
    sim.advance_by(2 * HOUR);
    for recorded in &sim.actions[before..] {
        let action = &recorded.decision.action;
        let gateway = sim.clusters.get(&action.cluster, action.kind, &action.object);
        let says = gateway.and_then(|gateway| oracle::trigger_of(sim, gateway));
        let value = action.annotations.first().and_then(|(_, value)| value.as_deref());
        let repeats = value.and_then(Trigger::parse).map(|trigger| trigger.digest);
        let may = action.verb == Verb::Touch && says.map(|says| says.digest) == repeats;
        prop_assert!(may, "an empty memory plans writes:\n{}", sim.describe_actions(before));
    }
    Ok(())
}

/// The final values: mirrored texts and announced digests.
fn final_values(sim: &Sim, t: model::Topology) -> BTreeMap<String, String> {
    let mut said = BTreeMap::new();
    for replica in sim.clusters.objects(&t.hub(), Kind::Connector) {
        let text = replica.meta.annotations.get(UPSTREAM_STATUS);
        said.insert(format!("hub {}", replica.meta.key()), format!("{text:?}"));
    }
    for edge in t.edges() {
        for gateway in sim.clusters.objects(&edge, Kind::Gateway) {
            let digest = oracle::trigger_of(sim, gateway).map(|trigger| trigger.digest);
            said.insert(format!("{edge} {}", gateway.meta.key()), format!("{digest:x?}"));
        }
    }
    said
}

/// Every value that was mirrored.
fn mirrored(sim: &Sim) -> BTreeSet<String> {
    let actions = sim.actions.iter().map(|a| &a.decision.action);
    let mirrors = actions.filter(|a| a.verb == Verb::Mirror);
    mirrors.map(|a| format!("{} {:?}", a.object, a.annotations)).collect()
}

/// An earlier version of an object, with another value.
fn stale(object: &Object) -> Option<Object> {
    let version: u64 = object.meta.resource_version.parse().unwrap();
    let mut old = object.clone();
    old.meta.resource_version = (version - 1).to_string().into();
    match &mut old.body {
        Body::Connector { status } => {
            *status =
                model::status(3).map(|s| serde_json::value::RawValue::from_string(s).unwrap());
            old.meta.annotations.set(UPSTREAM_STATUS, model::status(3).as_deref());
        }
        Body::HttpProxy { connectors } => *connectors = vec!["c0".into(), "c2".into()],
        Body::Gateway { .. } => {
            let key = "gateway.envoyproxy.io/connector-liveness";
            old.meta.annotations.set(key, Some("0123456789abcdef-3-0"));
        }
        Body::HttpRoute { .. } | Body::Namespace => return None,
    }
    (version > 1).then_some(old)
}

/// How the machine gets a known fact again.
#[derive(Clone, Debug)]
enum Repetition {
    Relist(u8),
    Twice(u8, u8),
    Stale(u8, u8),
}

fn repetition() -> impl Strategy<Value = Repetition> {
    prop_oneof![
        any::<u8>().prop_map(Repetition::Relist),
        any::<(u8, u8)>().prop_map(|(w, o)| Repetition::Twice(w, o)),
        any::<(u8, u8)>().prop_map(|(w, o)| Repetition::Stale(w, o)),
    ]
}

fn repeat(sim: &mut Sim, listed: &[(ClusterName, Kind)], again: &Repetition) {
    let (Repetition::Relist(which) | Repetition::Twice(which, _) | Repetition::Stale(which, _)) =
        *again;
    let (cluster, kind) = listed[usize::from(which) % listed.len()].clone();
    let objects: Vec<_> = sim.clusters.objects(&cluster, kind).cloned().collect();
    let pick =
        |o: u8| (!objects.is_empty()).then(|| objects[usize::from(o) % objects.len()].clone());
    let object = match again {
        Repetition::Relist(_) => {
            sim.list(&cluster, kind);
            None
        }
        Repetition::Twice(_, o) => pick(*o),
        Repetition::Stale(_, o) => pick(*o).and_then(|o| stale(&o)).map(Arc::new),
    };
    // Only what the watch has shown before can be repeated.
    let known = |o: &Arc<Object>| {
        sim.seen.iter().any(|e| match &e.kind {
            EventKind::Listed { object, .. } | EventKind::Applied { object, .. } => {
                object.meta.uid == o.meta.uid
            }
            _ => false,
        })
    };
    if let Some(object) = object.filter(known) {
        sim.feed(Event { at: sim.now, kind: EventKind::Applied { cluster, object } });
    }
}

/// Gateways whose trigger a new process must not trust: after throughline wrote the gateway, another
/// writer changed one of its connectors, by the API server's clock.
fn distrusted(sim: &Sim, t: model::Topology) -> BTreeSet<(ClusterName, ObjectKey)> {
    let mut distrusted = BTreeSet::new();
    for edge in t.edges() {
        let wrote = |o: &Object, ours: bool| {
            let fields = o.meta.managed_fields.iter();
            fields.filter(|f| (f.manager == "throughline") == ours).filter_map(|f| f.time).max()
        };
        let class_wide = sim.settings.touch.scope_of(&edge)
            == throughline::core::contract::settings::TouchScope::GatewayClass;
        for gateway in sim.clusters.objects(&edge, Kind::Gateway) {
            let ours = wrote(gateway, true);
            let newer = sim.clusters.objects(&edge, Kind::Connector).any(|c| {
                let referenced = || {
                    let proxy = sim.clusters.get(&edge, Kind::HttpProxy, &gateway.meta.key());
                    proxy.is_some_and(|p| match &p.body {
                        Body::HttpProxy { connectors } => connectors.contains(&c.meta.name),
                        _ => false,
                    }) && c.meta.namespace == gateway.meta.namespace
                };
                (class_wide || referenced()) && ours.is_some() && wrote(c, false) > ours
            });
            if newer {
                distrusted.insert((edge.clone(), gateway.meta.key()));
            }
        }
    }
    distrusted
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn everything_converges_once_writes_stop_failing_and_then_nothing_is_written(
        setup in setup(),
        write_faults in write_faults(),
        schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        play(&mut sim, setup.topology, &schedule);
        converges(&mut sim, setup.topology)?;
    }

    #[test]
    fn a_restart_on_settled_clusters_gives_no_action(
        setup in setup(),
        schedule in schedule(change(), 12),
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        play(&mut sim, t, &schedule);
        converges(&mut sim, t)?;
        let distrusted = distrusted(&sim, t);
        for times in 0..2 {
            let before = sim.actions.len();
            sim.restart();
            sim.advance_by(HOUR);
            let is_stuck = |note: &NoteKind| {
                matches!(note, NoteKind::Began(p) if p.cause.info().state == Some(State::Stuck))
            };
            prop_assert!(!sim.notes.iter().any(|note| is_stuck(&note.kind)));
            for recorded in &sim.actions[before..] {
                let action = &recorded.decision.action;
                let place = (action.cluster.clone(), action.object.clone());
                let may = times == 0 && action.verb == Verb::Touch && distrusted.contains(&place);
                prop_assert!(may, "restart {times}:\n{}", sim.describe_actions(before));
            }
            prop_assert!(sim.actions.len() - before <= 3 * distrusted.len());
            prop_assert!(oracle::deviations(&sim, t).is_empty());
        }
    }

    #[test]
    fn any_order_repetition_or_relist_of_the_same_facts_ends_in_the_same_values(
        setup in setup(),
        order in prop::collection::vec(any::<u16>(), 20),
        again in prop::collection::vec((0..3_000_u64, repetition()), 0..20),
    ) {
        let t = setup.topology;
        let mut straight = setup.begin();
        straight.advance_by(600 * SECOND);

        let mut sim = setup.build();
        sim.add_clusters();
        let names: Vec<_> = sim.cluster_specs.iter().map(|c| c.name.clone()).collect();
        let mut lists: Vec<(u16, ClusterName, Kind)> = Vec::new();
        for name in &names {
            for kind in sim.kinds(name) {
                lists.push((order[lists.len() % order.len()], name.clone(), kind));
            }
        }
        lists.sort();
        let (mut listed, mut again) = (Vec::new(), again.iter());
        let leader_after = usize::from(order[0]) % lists.len();
        for (i, (_, cluster, kind)) in lists.into_iter().enumerate() {
            sim.list(&cluster, kind);
            listed.push((cluster, kind));
            if i == leader_after {
                sim.lead(true);
            }
            if let Some((pause_ms, fact)) = again.next() {
                sim.advance_by(*pause_ms);
                repeat(&mut sim, &listed, fact);
            }
        }
        for (pause_ms, fact) in again {
            sim.advance_by(*pause_ms);
            repeat(&mut sim, &listed, fact);
        }
        sim.advance_by(600 * SECOND);
        prop_assert_eq!(final_values(&sim, t), final_values(&straight, t), "{}", sim.describe_actions(0));
        prop_assert_eq!(mirrored(&sim), mirrored(&straight));
        let deviations = oracle::deviations(&sim, t);
        prop_assert!(deviations.is_empty(), "{deviations:#?}");
    }

    #[test]
    fn the_same_log_gives_the_same_bytes(
        setup in setup(),
        write_faults in write_faults(),
        schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 20),
    ) {
        let t = setup.topology;
        let mut sim = setup.build();
        sim.keep_log();
        sim.add_clusters();
        sim.lead(true);
        sim.list_everything();
        sim.write_faults = write_faults;
        let one_run = schedule.iter().filter(|(_, op)| !matches!(op, Op::Restart));
        play(&mut sim, t, &one_run.cloned().collect::<Vec<_>>());
        sim.heal();
        sim.advance_by(1_000 * SECOND);
        let log = sim.log.take().unwrap().into_inner();
        let mut reader = LogReader::new("log", log.as_slice()).unwrap();
        let options = ReplayOptions { mode: Some(ReplayMode::Verify), ..ReplayOptions::default() };
        let mut again = Vec::new();
        let replayed =
            replay(&mut reader, "log", |_| Ok(()), &options, Some(&mut again), |_| ()).unwrap();
        prop_assert!(replayed.verdict.good, "{:#?}", replayed.verdict.problems);
        prop_assert_eq!(replayed.actions.len(), sim.actions.len());
        prop_assert_eq!(replayed.notes, sim.notes);
        prop_assert!(again == log, "the log written again differs");
    }
}
