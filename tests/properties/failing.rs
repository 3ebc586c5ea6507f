//! Promises about writes that meet another writer, or an API server that does not carry them out.

use std::collections::BTreeMap;

use proptest::prelude::*;

use throughline::core::contract::action::Verb;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;

use crate::carry::WriteFault;
use crate::generate::{change, schedule, setup};
use crate::model::{ConnectorRef, Op, annotate, apply, play, status};
use crate::sim::{SECOND, Sim};
use crate::{config, oracle};

const CHANGED: ConnectorRef = ConnectorRef(0, 0);

/// What the hub's annotation of [`CHANGED`] says.
fn says(sim: &Sim, hub: &ClusterName, key: &ObjectKey) -> Option<serde_json::Value> {
    let object = sim.clusters.get(hub, Kind::Connector, key)?;
    serde_json::from_str(object.meta.annotations.get(UPSTREAM_STATUS)?).ok()
}

/// Advances time while another writer changes another annotation of a hub Connector.
fn advance_busily(sim: &mut Sim, hub: &ClusterName, key: &ObjectKey, every_ms: u64, ms: u64) {
    let end = sim.now.plus(ms);
    while sim.now < end {
        let value = sim.now.0.to_string();
        annotate(sim, hub, Kind::Connector, key, "somebody/else", Some(&value));
        sim.advance_by(every_ms);
    }
}

proptest! {
    #![proptest_config(config(60))]

    /// The object is never in the same version from a decision to its write.
    #[test]
    fn a_hub_connector_that_changes_faster_than_a_write_takes_is_mirrored_all_the_same(
        setup in setup(),
        write_ms in 20..1_500_u64,
        // How often it changes, in percent of the time that a write takes.
        pace in 5..100_u64,
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        apply(&mut sim, t, &Op::CreateUpstream(CHANGED, 1));
        sim.advance_by(600 * SECOND);
        let (hub, key) = (t.hub(), ObjectKey::new(t.hub_namespace(CHANGED.0), "c0"));
        sim.write_ms = write_ms;
        let every_ms = (write_ms * pace / 100).max(1);
        advance_busily(&mut sim, &hub, &key, every_ms, 3 * write_ms);
        for which in [3, 2, 3] {
            let before = sim.actions.len();
            apply(&mut sim, t, &Op::Status(CHANGED, which));
            // Three writes that meet a conflict, each after a look at the object, and the fourth.
            advance_busily(&mut sim, &hub, &key, every_ms, 4 * write_ms + 4 * every_ms + 500);
            let want: serde_json::Value = serde_json::from_str(&status(which).unwrap()).unwrap();
            prop_assert_eq!(says(&sim, &hub, &key), Some(want), "{}", sim.describe_actions(before));
            let mirrors = sim.actions[before..].iter().map(|a| &a.decision.action);
            let mirrors = mirrors.filter(|a| a.verb == Verb::Mirror && a.object == key).count();
            prop_assert!(mirrors <= 4, "{}", sim.describe_actions(before));
        }
    }

    /// However long it lasted: right within a minute of its end, and confirmed a minute later. And while it
    /// lasts, it costs a request every 30 s for each object.
    #[test]
    fn what_an_api_server_refuses_for_long_is_written_soon_after_it_no_longer_does(
        setup in setup(),
        schedule in schedule(change(), 12),
        write_fault in prop_oneof![
            Just(WriteFault::Refused), Just(WriteFault::NotFound),
            Just(WriteFault::Failed), Just(WriteFault::Throttled)],
        outage_s in 1..900_u64,
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        sim.write_faults = vec![write_fault];
        play(&mut sim, t, &schedule);
        let before = sim.actions.len();
        sim.advance_by(outage_s * SECOND);
        if write_fault == WriteFault::Refused {
            let mut counts = BTreeMap::<_, (u64, std::collections::BTreeSet<_>)>::new();
            for action in sim.actions[before..].iter().map(|a| &a.decision.action) {
                let (count, objects) =
                    counts.entry((action.cluster.clone(), action.kind)).or_default();
                *count += 1;
                objects.insert(action.object.clone());
            }
            for (group, (count, objects)) in counts {
                // A first attempt may still be due, and a class tries a few of its Gateways.
                let own = objects.len() as u64 * (2 + outage_s / 30) + 4;
                prop_assert!(
                    count <= own,
                    "{group:?}: {count} in {outage_s} s\n{}", sim.describe_actions(before)
                );
            }
        }
        sim.write_faults.clear();
        let healthy = sim.now;
        sim.advance_by(150 * SECOND);
        let is_late = |a: &&crate::sim::RecordedAction| {
            a.decision.at > healthy.plus(60 * SECOND)
                && !a.decision.because.starts_with("touched again")
        };
        prop_assert!(!sim.actions.iter().any(|a| is_late(&a)), "{}", sim.describe_actions(before));
        // The confirmation after the start of the watches may still be ahead.
        let mut deviations = oracle::deviations(&sim, t);
        deviations.retain(|deviation| !deviation.starts_with("a timer is set"));
        prop_assert!(
            deviations.is_empty(), "{deviations:#?}\n{}",
            sim.describe_actions(sim.actions.len().saturating_sub(25))
        );
    }
}
