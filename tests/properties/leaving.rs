//! Upstream clusters leave and join at random: everything converges, nothing is removed or deleted because
//! a cluster left.

use proptest::prelude::*;
use serde_json::json;

use throughline::core::contract::action::Verb;
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ClusterName, Kind, Role};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;

use crate::generate::{Setup, change, fault, other_writer, pause, setup, write_faults};
use crate::model::{CONNECTORS, ConnectorRef, Op, PROJECTS, Topology, apply, put};
use crate::sim::{SECOND, START, Sim};
use crate::{config, converges};

#[derive(Clone, Debug)]
enum Step {
    World(Op),
    /// An upstream cluster leaves, and one that left joins again.
    Leave(u8),
    Join(u8),
}

fn steps(op: impl Strategy<Value = Op>, most: usize) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        4 => op.prop_map(Step::World),
        2 => any::<u8>().prop_map(Step::Leave),
        2 => any::<u8>().prop_map(Step::Join),
    ];
    prop::collection::vec((pause(), step), 1..most)
}

fn upstreams(sim: &Sim) -> Vec<ClusterName> {
    let upstreams = sim.cluster_specs.iter().filter(|c| c.roles.contains(&Role::Upstream));
    upstreams.map(|c| c.name.clone()).collect()
}

fn play(sim: &mut Sim, t: Topology, steps: &[(u64, Step)]) {
    let upstreams = upstreams(sim);
    let pick = |which: u8| &upstreams[usize::from(which) % upstreams.len()];
    for (pause_ms, step) in steps {
        sim.advance_by(*pause_ms);
        match step {
            Step::World(op) => apply(sim, t, op),
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

/// A Gateway and a namespace in each project, and the hub's routes to those Gateways.
fn put_routes(sim: &mut Sim, t: Topology) {
    for project in 0..PROJECTS {
        let (cluster, namespace, _) = t.project(project);
        let meta = json!({"namespace": namespace, "name": "app"});
        put(sim, &cluster, &json!({"kind": "Gateway", "metadata": meta}));
        let labels = json!({
            "meta.datumapis.com/upstream-cluster-name": format!("cluster-{cluster}").replace('/', "_"),
            "meta.datumapis.com/upstream-group": "gateway.networking.k8s.io",
            "meta.datumapis.com/upstream-kind": "HTTPRoute",
            "meta.datumapis.com/upstream-name": "app",
            "meta.datumapis.com/upstream-namespace": namespace});
        let created = UnixMillis(START - 1_000 * SECOND).to_string();
        let meta = json!({"namespace": t.hub_namespace(project), "name": "app", "labels": labels,
            "creationTimestamp": created});
        let spec = json!({"parentRefs": [{"name": "app"}]});
        put(sim, &t.hub(), &json!({"kind": "HTTPRoute", "metadata": meta, "spec": spec}));
    }
}

/// The fleet of `setup`, with routes, where orphans are deleted and every Connector has a status.
fn deleting(setup: &Setup) -> Sim {
    let statuses = setup.statuses.iter().map(|status| (*status).max(1)).collect();
    let setup = Setup { statuses, ..setup.clone() };
    let mut sim = setup.build();
    sim.settings.orphans.mode = OrphanMode::Delete;
    sim.settings.orphans.share_from = 100;
    sim.machine = Machine::new(sim.settings.clone());
    sim.add_clusters();
    put_routes(&mut sim, setup.topology);
    sim.lead(true);
    sim.list_everything();
    sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
    sim
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn clusters_that_leave_and_join_converge_and_then_nothing_is_written(
        setup in setup(),
        write_faults in write_faults(),
        steps in steps(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        play(&mut sim, setup.topology, &steps);
        converges(&mut sim, setup.topology)?;
    }

    #[test]
    fn nothing_is_removed_or_deleted_because_a_cluster_left(
        setup in setup(),
        steps in steps(no_absence(), 25),
    ) {
        let t = setup.topology;
        let mut sim = deleting(&setup);
        play(&mut sim, t, &steps);
        sim.advance_by(900 * SECOND);
        sim.heal();
        sim.advance_by(900 * SECOND);
        for recorded in &sim.actions {
            let action = &recorded.decision.action;
            let removes = |(key, value): &(String, Option<String>)| key == UPSTREAM_STATUS && value.is_none();
            let takes_away = action.verb == Verb::Delete || action.annotations.iter().any(removes);
            prop_assert!(!takes_away, "{:?}", recorded.decision);
        }
        for project in 0..PROJECTS {
            let hub = t.hub();
            let routes = sim.clusters.objects(&hub, Kind::HttpRoute);
            let ns = t.hub_namespace(project);
            prop_assert_eq!(routes.filter(|route| *route.meta.namespace == ns).count(), 1);
        }
    }
}
