//! Upstream clusters leave and join at random.

use proptest::prelude::*;

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;

use crate::generate::{Setup, fault, other_writer, schedule, setup, who, write_faults};
use crate::model::{Op, PROJECTS};
use crate::sim::SECOND;
use crate::{config, converges};

/// Changes of statuses, none of which takes a status away, other writers, and faults.
fn no_absence() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (who(), 1..7_u8).prop_map(|(who, s)| Op::Status(who, s)),
        4 => fault(),
        2 => other_writer(),
        6 => (0..PROJECTS).prop_map(Op::Leave),
        6 => (0..PROJECTS).prop_map(Op::Join),
    ]
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn nothing_is_removed_or_deleted_because_a_cluster_left(
        setup in setup(),
        write_faults in write_faults(),
        schedule in schedule(no_absence(), 25),
    ) {
        // Every Connector has a status, and each project a route and its parent.
        let statuses = setup.statuses.iter().map(|status| (*status).max(1)).collect();
        let setup = Setup { statuses, ..setup };
        let t = setup.topology;
        let mut sim = setup.build(|settings| {
            settings.orphans.mode = OrphanMode::Delete;
            settings.orphans.share_from = 100;
        });
        for project in 0..PROJECTS {
            sim.put_parent(project, 0);
            sim.put(&t.hub(), &t.route(project, 0, 0));
        }
        sim.start();
        sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
        sim.write_faults = write_faults;
        sim.play(&schedule);
        sim.advance_by(900 * SECOND);
        sim.heal();
        sim.advance_by(900 * SECOND);
        sim.next_bookmark = None;
        converges(&mut sim)?;
        for Decision { action, .. } in &sim.actions {
            let removes = |(key, value): &(String, Option<String>)| key == UPSTREAM_STATUS && value.is_none();
            let takes_away = action.verb == Verb::Delete || action.annotations.iter().any(removes);
            prop_assert!(!takes_away, "{action:?}");
        }
        let routes = sim.clusters.objects(&t.hub(), Kind::HttpRoute).count();
        prop_assert_eq!(routes, usize::from(PROJECTS));
    }
}
