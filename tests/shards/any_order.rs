//! Shards come and go in any order with what the hub shows.

use proptest::prelude::*;
use throughline::core::contract::action::Verb;
use throughline::core::contract::event::EventKind;
use throughline::core::data::shard::Shard;

use crate::fleet::{A, B, both_held, uid};

/// Whatever may happen to the shards, in any order with what the hub shows.
#[derive(Clone, Debug)]
enum Step {
    Followed(u16),
    Left(u16),
    Acquired(u16),
    Lost(u16),
    /// A list of the hub that brings the objects of these shards only.
    Listed([bool; 2]),
    Shown(usize),
    Flip(usize),
    LeaseApi(bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let shard = 0..2_u16;
    prop_oneof![
        shard.clone().prop_map(Step::Followed),
        shard.clone().prop_map(Step::Left),
        shard.clone().prop_map(Step::Acquired),
        shard.prop_map(Step::Lost),
        any::<[bool; 2]>().prop_map(Step::Listed),
        (0..2_usize).prop_map(Step::Shown),
        (0..2_usize).prop_map(Step::Flip),
        any::<bool>().prop_map(Step::LeaseApi),
        (0..120_000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_written_without_its_shard_nor_removed_in_any_order(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let (mut fleet, ups) = both_held();
        let mut led = [true, true];
        let mut says = ["n1".to_owned(), "n1".to_owned()];
        for (number, step) in steps.into_iter().enumerate() {
            let mut decided = Vec::new();
            match step {
                Step::Followed(shard) => fleet.event(EventKind::ShardFollowed { shard: Shard(shard) }),
                Step::Left(shard) => {
                    fleet.event(EventKind::ShardLeft { shard: Shard(shard) });
                    led[usize::from(shard)] = false;
                }
                Step::Acquired(shard) => {
                    fleet.event(EventKind::LeadershipAcquired { shard: Shard(shard) });
                    led[usize::from(shard)] = true;
                }
                Step::Lost(shard) => {
                    fleet.event(EventKind::LeadershipLost { shard: Shard(shard) });
                    led[usize::from(shard)] = false;
                }
                Step::Listed(shown) => {
                    let shown = ups.iter().zip(shown).filter(|(_, is_shown)| *is_shown);
                    let shown: Vec<_> = shown.map(|(up, _)| up.clone()).collect();
                    let objects: Vec<_> =
                        shown.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
                    fleet.list("hub", "Connector", &objects);
                }
                Step::Shown(up) => {
                    let object = fleet.hub_connector(&ups[up], Some("n1"));
                    fleet.applied("hub", &object);
                }
                Step::Flip(up) => {
                    says[up] = format!("n{number}");
                    let object = fleet.upstream_connector(&ups[up], &says[up]);
                    fleet.applied(&ups[up], &object);
                }
                Step::LeaseApi(true) => fleet.event(EventKind::LeaseApiLost),
                Step::LeaseApi(false) => fleet.event(EventKind::LeaseApiReachable),
                Step::Pass(ms) => decided = fleet.pass(ms),
            }
            decided.extend(fleet.decided());
            for decision in &decided {
                let action = &decision.action;
                prop_assert!(led[usize::from(action.shard.0)], "{action:?}");
                prop_assert_eq!(action.verb, Verb::Mirror);
                prop_assert!(action.annotations.iter().all(|(_, value)| value.is_some()), "{action:?}");
                fleet.succeed(decision);
            }
        }
        // Held again and listed in full, everything is caught up.
        fleet.pass(600_000);
        [A, B].into_iter().for_each(|shard| fleet.hold(shard));
        let objects: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("old"))).collect();
        fleet.list("hub", "Connector", &objects);
        let mirrored = fleet.pass(600_000);
        for (up, says) in ups.iter().zip(&says) {
            let ns = format!("ns-{}", uid(up));
            let mut of_up =
                mirrored.iter().rev().filter(|decision| decision.action.object.namespace == ns);
            let last = of_up.next().map(|decision| decision.action.annotations[0].1.clone());
            let is_caught_up = last.flatten().is_some_and(|text| text.contains(&format!("\"{says}\"")));
            prop_assert!(is_caught_up, "{} says {}: {:?}", up, says, mirrored);
        }
    }
}
