//! Upstream clusters leave and join at random: everything converges, and nothing is removed or deleted because
//! a cluster left.

use proptest::prelude::*;

use throughline::core::contract::action::Verb;
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ClusterName, Kind, Role};
use throughline::core::data::objects::UPSTREAM_STATUS;

use crate::generate::{Setup, change, fault, other_writer, pause, setup, write_faults};
use crate::model::{CONNECTORS, ConnectorRef, Op, PROJECTS};
use crate::sim::{SECOND, Sim};
use crate::{config, converges};

#[derive(Clone, Debug)]
enum Step {
    World(Op),
    /// An upstream cluster leaves, and one that left joins again.
    Leave(u8),
    Join(u8),
}

fn steps(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        4 => op.prop_map(Step::World),
        2 => any::<u8>().prop_map(Step::Leave),
        2 => any::<u8>().prop_map(Step::Join),
    ];
    prop::collection::vec((pause(), step), 1..25)
}

fn play(sim: &mut Sim, steps: &[(u64, Step)]) {
    let upstreams: Vec<ClusterName> = sim.clusters.with_role(Role::Upstream).cloned().collect();
    let pick = |which: u8| &upstreams[usize::from(which) % upstreams.len()];
    for (pause_ms, step) in steps {
        sim.advance_by(*pause_ms);
        match step {
            Step::World(op) => sim.apply(op),
            Step::Leave(which) => sim.leave(pick(*which)),
            Step::Join(which) => sim.join(pick(*which)),
        }
    }
}

/// Changes of statuses, none of which takes a status away, and faults.
fn no_absence() -> impl Strategy<Value = Op> {
    let status = (0..PROJECTS, 0..CONNECTORS, 1..7_u8);
    prop_oneof![
        3 => status.prop_map(|(p, c, s)| Op::Status(ConnectorRef(p, c), s)),
        2 => fault(),
    ]
}

/// The fleet of `setup`, where orphans are deleted and every Connector has a status, with a route in each
/// project and its parent.
fn deleting(setup: &Setup) -> Sim {
    let statuses = setup.statuses.iter().map(|status| (*status).max(1)).collect();
    let setup = Setup { statuses, ..setup.clone() };
    let mut settings = setup.settings();
    settings.orphans.mode = OrphanMode::Delete;
    settings.orphans.share_from = 100;
    let (mut sim, t) = (setup.build(&settings), setup.topology);
    for project in 0..PROJECTS {
        sim.put_parent(project, "app");
        sim.put(&t.hub(), &t.route(project, "app", "app"));
    }
    sim.start();
    sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
    sim
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn clusters_that_leave_and_join_converge_and_then_nothing_is_written(
        setup in setup(),
        write_faults in write_faults(),
        steps in steps(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()]),
    ) {
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        play(&mut sim, &steps);
        converges(&mut sim)?;
    }

    #[test]
    fn nothing_is_removed_or_deleted_because_a_cluster_left(
        setup in setup(),
        steps in steps(no_absence()),
    ) {
        let mut sim = deleting(&setup);
        play(&mut sim, &steps);
        sim.advance_by(900 * SECOND);
        sim.heal();
        sim.advance_by(900 * SECOND);
        for recorded in &sim.actions {
            let action = &recorded.decision.action;
            let removes = |(key, value): &(String, Option<String>)| key == UPSTREAM_STATUS && value.is_none();
            let takes_away = action.verb == Verb::Delete || action.annotations.iter().any(removes);
            prop_assert!(!takes_away, "{:?}", recorded.decision);
        }
        let hub = setup.topology.hub();
        let routes = sim.clusters.objects(&hub, Kind::HttpRoute).count();
        prop_assert_eq!(routes, usize::from(PROJECTS));
    }
}
