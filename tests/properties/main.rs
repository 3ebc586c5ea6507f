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
mod deferring;
mod fuzz;
mod generate;
mod leader_model;
mod leading;
mod model;
mod oracle;
mod orphans;
#[path = "../support/read_log.rs"]
mod read_log;
mod redaction;
mod sim;
mod touching;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::cause::{Hop, State};
use throughline::core::contract::note::NoteKind;
use throughline::core::contract::settings::{Settings, TouchScope};
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
use throughline::core::data::objects::{Object, UPSTREAM_STATUS};
use throughline::core::status::trigger::Trigger;
use throughline::core::view::fleet::Source;
use throughline::event_log::LogReader;
use throughline::replay::ReplayMode;

use generate::{change, fault, other_writer, repetition, schedule, settings, setup, write_faults};
use model::Op;
use read_log::replayed;
use sim::{HOUR, SECOND, Sim, WriteFault};

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

fn no_deviations(sim: &Sim, deviations: &[String]) -> Result<(), TestCaseError> {
    let last = sim.describe_actions(sim.actions.len().saturating_sub(25));
    prop_assert!(deviations.is_empty(), "{deviations:#?}\n{last}");
    Ok(())
}

/// Ends all faults and checks that everything converges, and that nothing is written after that, even if
/// the machine forgets what it did. Where a status may have changed and changed back since a Gateway's last
/// touch, that is touched again.
fn converges(sim: &mut Sim) -> Result<(), TestCaseError> {
    sim.heal();
    sim.advance_by(4 * HOUR);
    no_deviations(sim, &sim.deviations())?;
    let before = sim.actions.len();
    sim.advance_by(2 * HOUR);
    prop_assert!(
        sim.actions.len() == before,
        "actions after convergence:\n{}",
        sim.describe_actions(before)
    );
    prop_assert_eq!(sim.machine.poll_deadline(), None);
    sim.forget_memory();
    sim.advance_by(2 * HOUR);
    for Decision { action, .. } in &sim.actions[before..] {
        let gateway = sim.clusters.get(&action.cluster, action.kind, &action.object);
        let says = gateway.and_then(|gateway| sim.trigger_of(gateway));
        let value = action.annotations.first().and_then(|(_, value)| value.as_deref());
        let repeats = value.and_then(Trigger::parse).map(|trigger| trigger.digest);
        let may = action.verb == Verb::Touch && says.map(|says| says.digest) == repeats;
        prop_assert!(may, "an empty memory plans writes:\n{}", sim.describe_actions(before));
    }
    Ok(())
}

/// Every value that was mirrored, and the final ones: mirrored texts and announced digests.
fn values(sim: &Sim) -> BTreeSet<String> {
    let mirrors = sim.decided(Verb::Mirror, 0).map(|decision| &decision.action);
    let mirrored = mirrors.map(|action| format!("{} {:?}", action.object, action.annotations));
    let mut values: BTreeSet<_> = mirrored.collect();
    for connector in sim.clusters.objects(&sim.topology.hub(), Kind::Connector) {
        let text = connector.meta.annotations.get(UPSTREAM_STATUS);
        values.insert(format!("in the end: {} {text:?}", connector.meta.key()));
    }
    for edge in sim.topology.edges() {
        for gateway in sim.clusters.objects(&edge, Kind::Gateway) {
            let digest = sim.trigger_of(gateway).map(|trigger| trigger.digest);
            values.insert(format!("in the end: {edge} {} {digest:x?}", gateway.meta.key()));
        }
    }
    values
}

/// Gateways whose trigger a new process must not trust: after throughline wrote the gateway, another
/// writer changed one of its connectors, by the API server's clock.
fn distrusted(sim: &Sim) -> BTreeSet<(ClusterName, NamespacedName)> {
    let mut distrusted = BTreeSet::new();
    for edge in sim.topology.edges() {
        let wrote = |o: &Object, ours: bool| {
            let fields = o.meta.managed_fields.iter();
            fields.filter(|f| (f.manager == "throughline") == ours).filter_map(|f| f.time).max()
        };
        let class_wide = sim.settings.touch.scope_of(&edge) == TouchScope::GatewayClass;
        for gateway in sim.clusters.objects(&edge, Kind::Gateway) {
            let ours = wrote(gateway, true);
            let newer = sim.clusters.objects(&edge, Kind::Connector).any(|c| {
                (class_wide || sim.references(&edge, &gateway.meta.key(), &c.meta.key()))
                    && ours.is_some()
                    && wrote(c, false) > ours
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
        sim.play(&schedule);
        converges(&mut sim)?;
    }

    #[test]
    fn under_any_settings_what_is_off_writes_nothing_and_the_rest_converges(
        setup in setup(),
        write_faults in write_faults(),
        settings in settings(),
        schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        let mut sim = setup.build(|of_setup| of_setup.clone_from(&settings));
        sim.start();
        sim.write_faults = write_faults;
        let Settings { mirror, touch, .. } = &settings;
        for (pause_ms, op) in &schedule {
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

    #[test]
    fn a_restart_on_settled_clusters_gives_no_action(
        setup in setup(),
        schedule in schedule(change(), 12),
    ) {
        let mut sim = setup.begin();
        sim.play(&schedule);
        converges(&mut sim)?;
        let distrusted = distrusted(&sim);
        for times in 0..2 {
            let before = sim.actions.len();
            sim.restart();
            sim.advance_by(HOUR);
            let is_stuck = |note: &NoteKind| {
                matches!(note, NoteKind::Began(p) if p.cause.info().state == Some(State::Stuck))
            };
            prop_assert!(!sim.notes.iter().any(|note| is_stuck(&note.kind)));
            for Decision { action, .. } in &sim.actions[before..] {
                let place = (action.cluster.clone(), action.object.clone());
                let may = times == 0 && action.verb == Verb::Touch && distrusted.contains(&place);
                prop_assert!(may, "restart {times}:\n{}", sim.describe_actions(before));
            }
            prop_assert!(sim.actions.len() - before <= 3 * distrusted.len());
            no_deviations(&sim, &sim.deviations())?;
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

        let mut sim = setup.build(|_| ());
        sim.add_clusters();
        let mut lists: Vec<(u16, ClusterName, Kind)> = Vec::new();
        for cluster in t.clusters() {
            for kind in sim.kinds(&cluster.name) {
                lists.push((order[lists.len() % order.len()], cluster.name.clone(), kind));
            }
        }
        lists.sort();
        let leader_after = usize::from(order[0]) % lists.len();
        for (i, (_, cluster, kind)) in lists.iter().enumerate() {
            sim.list(cluster, *kind);
            if i == leader_after {
                sim.lead(true);
            }
            sim.play(again.get(i..=i).unwrap_or_default());
        }
        sim.play(again.get(lists.len()..).unwrap_or_default());
        sim.advance_by(600 * SECOND);
        prop_assert_eq!(values(&sim), values(&straight), "{}", sim.describe_actions(0));
        no_deviations(&sim, &sim.deviations())?;
    }

    #[test]
    fn the_same_log_gives_the_same_bytes(
        setup in setup(),
        write_faults in write_faults(),
        mut schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 20),
    ) {
        let mut sim = setup.build(|_| ());
        sim.keep_log();
        sim.start();
        sim.write_faults = write_faults;
        schedule.retain(|(_, op)| !matches!(op, Op::Restart));
        sim.play(&schedule);
        sim.heal();
        sim.advance_by(1_000 * SECOND);
        let log = sim.log.take().unwrap().into_inner();
        let reader = LogReader::new("log", &log[..]);
        let (replayed, again) = replayed(reader, ReplayMode::Verify, |_| {});
        prop_assert!(replayed.is_good(), "{:#?}", replayed.problems);
        prop_assert_eq!(replayed.actions.len(), sim.actions.len());
        prop_assert_eq!(replayed.notes, sim.notes);
        prop_assert!(again.as_bytes() == log, "the log written again differs");
    }
}

proptest! {
    #![proptest_config(config(60))]

    /// However long it lasted: right within a minute of its end, and confirmed a minute later. This found a
    /// write that failed, then waited for another queue, lost its turn there and never went.
    #[test]
    fn what_an_api_server_refuses_for_long_is_written_soon_after_it_no_longer_does(
        setup in setup(),
        schedule in schedule(change(), 12),
        write_fault in prop_oneof![
            Just(WriteFault::Refused), Just(WriteFault::NotFound),
            Just(WriteFault::Failed), Just(WriteFault::Throttled)],
        outage_s in 1..900_u64,
    ) {
        let mut sim = setup.begin();
        sim.write_faults = vec![write_fault];
        sim.play(&schedule);
        let before = sim.actions.len();
        sim.advance_by(outage_s * SECOND);
        sim.write_faults.clear();
        let healthy = sim.now;
        sim.advance_by(150 * SECOND);
        let is_late = |decision: &Decision| {
            decision.at > healthy.plus(60 * SECOND)
                && !decision.because.starts_with("touched again")
        };
        prop_assert!(!sim.actions.iter().any(is_late), "{}", sim.describe_actions(before));
        // The confirmation after the start of the watches may still be ahead.
        let mut deviations = sim.deviations();
        deviations.retain(|deviation| !deviation.starts_with("a timer is set"));
        no_deviations(&sim, &deviations)?;
    }
}
