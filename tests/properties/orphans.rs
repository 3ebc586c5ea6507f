//! No route is deleted without complete evidence, and a true orphan is deleted.

use proptest::prelude::*;
use serde_json::{Value, json};

use throughline::core::contract::action::{Action, Verb};
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::objects::Object;
use throughline::core::data::time::UnixMillis;
use throughline_sim::WatchNotice;

use crate::config;
use crate::generate::{begin_deleting, fault, pause, topology, write_faults};
use crate::model::{Op, Topology};
use crate::sim::{HOUR, SECOND, START, Sim};

/// The labels that name the upstream object.
const LABELS: [&str; 5] = ["cluster-name", "group", "kind", "name", "namespace"];

/// A route, and everything that decides whether it is an orphan.
#[derive(Clone, Debug)]
struct Case {
    /// The Gateways that its parents name, and those that exist.
    parents: Vec<u8>,
    gateways: Vec<u8>,
    /// Which field of the first parent differs: kind, group or namespace.
    parent_form: u8,
    /// The label that is missing; then another kind, and another group.
    label: usize,
    cluster_known: bool,
    right_namespace: bool,
    protected: bool,
    finalizer: bool,
    deleting: bool,
    age_s: u64,
}

fn mostly(is: bool) -> impl Strategy<Value = bool> {
    prop_oneof![6 => Just(is), 1 => Just(!is)]
}

prop_compose! {
    fn case()(
        parents in prop::collection::vec(0..4_u8, 0..3),
        gateways in prop::collection::vec(0..4_u8, 0..3),
        parent_form in prop_oneof![6 => Just(0_u8), 4 => 1..6_u8],
        label in prop_oneof![8 => Just(9_usize), 2 => 0..7_usize],
        cluster_known in mostly(true),
        right_namespace in mostly(true),
        protected in mostly(false),
        finalizer in mostly(false),
        deleting in mostly(false),
        age_s in prop_oneof![4 => 400..1_000_u64, 1 => 0..300_u64],
    ) -> Case {
        Case {
            parents, gateways, parent_form, label, cluster_known, right_namespace, protected,
            finalizer, deleting, age_s,
        }
    }
}

impl Case {
    /// The uid of the upstream namespace.
    fn uid(&self, t: Topology) -> String {
        let other = "0000000b-0000-4000-8000-00000000aaaa".to_owned();
        if self.right_namespace { t.project(0).2 } else { other }
    }

    fn parents(&self, t: Topology) -> Vec<Value> {
        let parents = self.parents.iter().map(|g| json!({"name": format!("g{g}")}));
        let mut parents: Vec<_> = parents.collect();
        if let Some(first) = parents.first_mut() {
            match self.parent_form {
                1 => first["kind"] = "Service".into(),
                2 => first["group"] = "example.com".into(),
                3 => first["namespace"] = "another".into(),
                4 => first["namespace"] = t.project(0).1.into(),
                5 => {
                    first["kind"] = "Gateway".into();
                    first["group"] = "gateway.networking.k8s.io".into();
                }
                _ => {}
            }
        }
        parents
    }

    fn route(&self, t: Topology) -> Value {
        let mut route = t.route(0, "route", "");
        route["spec"]["parentRefs"] = self.parents(t).into();
        let meta = &mut route["metadata"];
        let created = UnixMillis(START - self.age_s * SECOND).to_string();
        if self.finalizer {
            meta["finalizers"] = json!(["example.com/mine"]);
        }
        if self.deleting {
            meta["deletionTimestamp"] = created.clone().into();
        }
        meta["creationTimestamp"] = created.into();
        let labels = meta["labels"].as_object_mut().unwrap();
        let label = |which: usize| format!("meta.datumapis.com/upstream-{}", LABELS[which]);
        if !self.cluster_known {
            labels.insert(label(0), "cluster-elsewhere".into());
        }
        match self.label {
            5 => drop(labels.insert(label(2), "GRPCRoute".into())),
            6 => drop(labels.insert(label(1), "example.com".into())),
            which if which < LABELS.len() => drop(labels.remove(&label(which))),
            _ => {}
        }
        if self.protected {
            let label = "resourcetemplate.karmada.io/deletion-protected";
            labels.insert(label.to_owned(), "Always".into());
        }
        route
    }
}

fn route_key(t: Topology) -> ObjectKey {
    ObjectKey::new(t.hub_namespace(0), "route")
}

fn route_exists(sim: &Sim) -> bool {
    let t = sim.topology;
    sim.clusters.get(&t.hub(), Kind::HttpRoute, &route_key(t)).is_some()
}

/// Whether the route is an orphan, by the true state of the clusters.
fn is_orphan(sim: &Sim, case: &Case, at_delete: bool) -> bool {
    let t = sim.topology;
    let (up, namespace, _) = t.project(0);
    let route = sim.clusters.get(&t.hub(), Kind::HttpRoute, &route_key(t));
    let Some(route) = route else { return false };
    let found = sim.clusters.get(&up, Kind::Namespace, &ObjectKey::new("", namespace));
    let exists = |g: &u8| {
        let key = ObjectKey::new(namespace, format!("g{g}"));
        sim.clusters.get(&up, Kind::Gateway, &key).is_some()
    };
    case.label > 6
        && case.cluster_known
        && case.right_namespace
        && !case.protected
        && !case.finalizer
        && route.meta.deletion_timestamp.is_none()
        && !case.parents.is_empty()
        && !matches!(case.parent_form, 1..=3)
        && !case.parents.iter().any(exists)
        // A namespace that was seen deleted is evidence, too.
        && (at_delete || found.is_some_and(|found| *found.meta.uid == *case.uid(t)))
        && sim.now.since(route.meta.creation_timestamp.unwrap()) >= 300 * SECOND
}

/// Whether the machine had complete evidence when it decided on a delete.
fn evidence(sim: &Sim, action: &Action) -> Result<(), String> {
    let (up, hub) = (sim.topology.project(0).0, sim.topology.hub());
    for (cluster, kind) in [(&up, Kind::Gateway), (&up, Kind::Namespace), (&hub, Kind::HttpRoute)] {
        if !sim.live.contains(&(cluster.clone(), kind)) {
            return Err(format!("the watch of {kind} in {cluster} is not live"));
        }
    }
    if !sim.leads {
        return Err("it does not lead".into());
    }
    let must = &action.precondition;
    if must.uid.is_none() || must.resource_version.is_none() || must.absent.is_none() {
        return Err(format!("preconditions are incomplete: {must:?}"));
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Fault(Op),
    Create(u8),
    Delete(u8),
    /// Deletes the namespace and creates it again, with the same or another uid.
    Namespace(bool),
    MarkDeleted,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        6 => fault().prop_map(Step::Fault),
        2 => (0..4_u8).prop_map(Step::Create),
        3 => (0..4_u8).prop_map(Step::Delete),
        1 => any::<bool>().prop_map(Step::Namespace),
        1 => Just(Step::MarkDeleted),
    ];
    prop::collection::vec((pause(), step), 0..20)
}

fn take(sim: &mut Sim, case: &Case, step: &Step) {
    let t = sim.topology;
    match step {
        Step::Fault(op) => sim.apply(op),
        Step::Create(g) => sim.put_parent(0, &format!("g{g}")),
        Step::Delete(g) => sim.remove_parent(0, &format!("g{g}")),
        Step::Namespace(same) => {
            let (up, namespace, _) = t.project(0);
            sim.clusters.remove(&up, Kind::Namespace, &ObjectKey::new("", namespace));
            let other = "0000000c-0000-4000-8000-00000000aaaa".to_owned();
            sim.put_namespaces(0, &if *same { case.uid(t) } else { other });
        }
        Step::MarkDeleted => {
            if let Some(route) = sim.clusters.get(&t.hub(), Kind::HttpRoute, &route_key(t)) {
                let mut route = Object::clone(route);
                route.meta.deletion_timestamp = Some(sim.now);
                sim.clusters.put(&t.hub(), route, "somebody", WatchNotice::Applied);
            }
        }
    }
    sim.collect();
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn no_route_is_deleted_without_complete_evidence(
        t in topology(),
        case in case(),
        write_faults in write_faults(),
        steps in steps(),
        delays in prop::collection::vec(0..40_u8, 1..8),
    ) {
        let mut sim = begin_deleting(t, Settings::default(), delays, write_faults, |sim| {
            sim.put_namespaces(0, &case.uid(t));
            case.gateways.iter().for_each(|g| sim.put_parent(0, &format!("g{g}")));
            sim.put(&t.hub(), &case.route(t));
        });
        let mut checked = 0;
        let mut check = |sim: &Sim| -> Result<(), TestCaseError> {
            for recorded in &sim.actions[checked..] {
                let action = &recorded.decision.action;
                if action.verb == Verb::Delete {
                    let evidence = evidence(sim, action);
                    prop_assert!(evidence.is_ok(), "{evidence:?}: {:?}", recorded.decision);
                    prop_assert!(recorded.led);
                }
            }
            checked = sim.actions.len();
            Ok(())
        };
        for (pause_ms, step) in &steps {
            // In steps, so that the evidence is checked in the state in which it was used.
            let end = sim.now.plus(*pause_ms);
            while sim.now < end {
                let (is_orphan, existed) = (is_orphan(&sim, &case, true), route_exists(&sim));
                sim.advance_once(end);
                check(&sim)?;
                prop_assert!(
                    is_orphan || !existed || route_exists(&sim),
                    "a route was deleted that was not an orphan: {}", sim.describe_actions(0)
                );
            }
            take(&mut sim, &case, step);
            check(&sim)?;
        }
        sim.heal();
        let was_orphan = is_orphan(&sim, &case, false);
        sim.advance_by(HOUR);
        check(&sim)?;
        prop_assert!(!(was_orphan && route_exists(&sim)), "an orphan stays");
        let is_left = is_orphan(&sim, &case, false);
        prop_assert!(!is_left, "an orphan that reached the minimum age stays: {}", sim.describe_actions(0));
        sim.advance_by(HOUR);
        prop_assert_eq!(sim.machine.poll_deadline(), None);
    }
}
