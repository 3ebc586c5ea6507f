//! A promise about writes that an API server does not carry out.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::config;
use crate::generate::{change, schedule, setup};
use crate::sim::{RecordedAction, SECOND};
use crate::writes::WriteFault;

proptest! {
    #![proptest_config(config(60))]

    /// However long it lasted: right within a minute of its end, and confirmed a minute later. While it lasts,
    /// it costs a request every 30 s for each object. This found a write that failed, then waited for another
    /// queue, lost its turn there and never went.
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
        if write_fault == WriteFault::Refused {
            let mut counts = BTreeMap::<_, (u64, BTreeSet<_>)>::new();
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
        let is_late = |a: &RecordedAction| {
            a.decision.at > healthy.plus(60 * SECOND)
                && !a.decision.because.starts_with("touched again")
        };
        prop_assert!(!sim.actions.iter().any(is_late), "{}", sim.describe_actions(before));
        // The confirmation after the start of the watches may still be ahead.
        let mut deviations = sim.deviations();
        deviations.retain(|deviation| !deviation.starts_with("a timer is set"));
        prop_assert!(
            deviations.is_empty(), "{deviations:#?}\n{}",
            sim.describe_actions(sim.actions.len().saturating_sub(25))
        );
    }
}
