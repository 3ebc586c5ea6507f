//! Upstream clusters leave and join at random: everything converges, nothing is removed or deleted because
//! a cluster left, and forgetting names changes no decision.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, Role};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;

use crate::generate::{Setup, change, fault, other_writer, pause, setup, write_faults};
use crate::model::{CONNECTORS, ConnectorRef, Op, PROJECTS, Topology, apply, put};
use crate::sim::{SECOND, START, Sim};
use crate::{config, converges};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    World(Op),
    /// An upstream cluster leaves, and one that left joins again.
    Leave(u8),
    Join(u8),
}

pub(crate) fn steps(
    op: impl Strategy<Value = Op>,
    most: usize,
) -> impl Strategy<Value = Vec<(u64, Step)>> {
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

pub(crate) fn play(sim: &mut Sim, t: Topology, steps: &[(u64, Step)]) {
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
pub(crate) fn deleting(setup: &Setup) -> Sim {
    let statuses = setup.statuses.iter().map(|status| (*status).max(1)).collect();
    let setup = Setup { statuses, ..setup.clone() };
    let mut sim = setup.build();
    sim.settings.orphans.mode = OrphanMode::Delete;
    sim.settings.orphans.share_from = 100;
    sim.machine = sim.machine.restarted(sim.settings.clone());
    sim.add_clusters();
    put_routes(&mut sim, setup.topology);
    sim.lead(true);
    sim.list_everything();
    sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
    sim
}

/// A decision without its number; what one moment brings may come in another order.
fn comparable(decision: &Decision) -> String {
    let mut decision = decision.clone();
    decision.action.id = ActionId(0);
    decision.action.connectors.sort_unstable();
    format!("{decision:?}")
}

/// Actions, notes and the deadline after an event, and the numbers of the actions.
fn drain(machine: &mut Machine) -> (Vec<String>, BTreeMap<String, ActionId>) {
    let (mut said, mut ids) = (Vec::new(), BTreeMap::new());
    while let Some(decision) = machine.poll_action() {
        let text = comparable(&decision);
        ids.insert(text.clone(), decision.action.id);
        said.push(text);
    }
    while let Some(note) = machine.poll_note() {
        said.push(format!("{note:?}"));
    }
    said.sort_unstable();
    said.push(format!("{:?} {}", machine.poll_deadline(), machine.in_flight()));
    (said, ids)
}

/// The view without the numbers of actions.
fn view(machine: &Machine) -> Value {
    fn forget_ids(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("inFlight");
                fields.values_mut().for_each(forget_ids);
            }
            Value::Array(entries) => entries.iter_mut().for_each(forget_ids),
            _ => {}
        }
    }
    let mut view = serde_json::to_value(machine.view()).unwrap();
    forget_ids(&mut view);
    view
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

    /// In both machines the same happens, at the same moment; one of them drops its unused names after
    /// every event, so that the symbols of both differ.
    #[test]
    fn a_machine_that_forgets_names_decides_as_one_that_never_does(
        setup in setup(),
        write_faults in write_faults(),
        steps in steps(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        let one_run = |(_, step): &&(u64, Step)| !matches!(step, Step::World(Op::Restart));
        let steps: Vec<_> = steps.iter().filter(one_run).cloned().collect();
        let mut sim = deleting(&setup);
        sim.write_faults = write_faults;
        play(&mut sim, setup.topology, &steps);
        sim.heal();
        sim.advance_by(300 * SECOND);

        let [mut keeps, mut forgets] = [(); 2].map(|()| {
            let mut machine = Machine::new(sim.settings.clone());
            for spec in &sim.cluster_specs {
                machine.handle_event(&Event { at: UnixMillis(START), kind: spec.added() });
            }
            machine
        });
        let mut numbers = BTreeMap::new();
        for (i, event) in sim.seen.iter().enumerate() {
            let mut same = event.clone();
            if let EventKind::ActionFinished { id, .. } = &mut same.kind {
                *id = numbers.get(id).copied().unwrap_or(*id);
            }
            keeps.handle_event(event);
            forgets.handle_event(&same);
            let (expected, ids) = drain(&mut keeps);
            let (found, other_ids) = drain(&mut forgets);
            prop_assert_eq!(expected, found, "event {}: {:?}", i, event);
            numbers.extend(ids.into_iter().map(|(text, id)| (id, other_ids[&text])));
            forgets.sweep_names();
            if i % 16 == 0 {
                prop_assert_eq!(view(&keeps), view(&forgets));
            }
        }
        prop_assert_eq!(view(&keeps), view(&forgets));
        prop_assert!(forgets.table_sizes().names <= keeps.table_sizes().names);
    }
}
