//! No route is deleted without complete evidence, and a true orphan is deleted.

use proptest::prelude::*;
use serde_json::{Value, json};

use throughline::core::contract::action::{Action, Verb};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::{Body, Object};
use throughline::core::data::time::UnixMillis;

use crate::config;
use crate::generate::{fault, pause, topology, write_faults};
use crate::model::{Op, Topology, apply, put};
use crate::sim::{SECOND, START, Sim};

const NAMESPACE_UID: &str = "0000000a-0000-4000-8000-00000000aaaa";

/// A route, and everything that decides whether it is an orphan.
#[derive(Clone, Debug)]
struct Case {
    /// The Gateways that its parents name, and those that exist.
    parents: Vec<u8>,
    gateways: Vec<u8>,
    /// Which field of the first parent differs: kind, group or namespace.
    parent_form: u8,
    label_missing: u8,
    cluster_known: bool,
    right_namespace: bool,
    protected: bool,
    finalizer: bool,
    deleting: bool,
    age_s: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let mostly = |yes: u32| prop_oneof![yes => Just(true), 1 => Just(false)];
    (
        prop::collection::vec(0..4_u8, 0..3),
        prop::collection::vec(0..4_u8, 0..3),
        prop_oneof![6 => Just(0_u8), 4 => 1..6_u8],
        prop_oneof![8 => Just(9_u8), 2 => 0..7_u8],
        mostly(6),
        mostly(6),
        mostly(6).prop_map(|yes| !yes),
        mostly(6).prop_map(|yes| !yes),
        mostly(6).prop_map(|yes| !yes),
        prop_oneof![4 => 400..1_000_u64, 1 => 0..300_u64],
    )
        .prop_map(
            |(
                parents,
                gateways,
                parent_form,
                label_missing,
                known,
                right,
                protected,
                finalizer,
                deleting,
                age_s,
            )| {
                Case {
                    parents,
                    gateways,
                    parent_form,
                    label_missing,
                    cluster_known: known,
                    right_namespace: right,
                    protected,
                    finalizer,
                    deleting,
                    age_s,
                }
            },
        )
}

fn upstream(t: Topology) -> ClusterName {
    t.project(0).0
}

/// Creates the route and the objects around it.
fn build(sim: &mut Sim, t: Topology, case: &Case) {
    let (up, hub) = (upstream(t), t.hub());
    put(
        sim,
        &up,
        &json!({"kind": "Namespace", "metadata": {"name": "shop", "uid": NAMESPACE_UID}}),
    );
    let ns = namespace(case);
    put(
        sim,
        &hub,
        &json!({"kind": "Namespace", "metadata": {
        "name": ns, "labels": {"meta.datumapis.com/upstream-namespace": "shop"}}}),
    );
    for gateway in &case.gateways {
        create_gateway(sim, t, *gateway);
    }
    let cluster = if case.cluster_known { up.to_string() } else { "elsewhere".to_owned() };
    let labels = [
        (
            "meta.datumapis.com/upstream-cluster-name",
            format!("cluster-{cluster}").replace('/', "_"),
        ),
        ("meta.datumapis.com/upstream-group", "gateway.networking.k8s.io".into()),
        ("meta.datumapis.com/upstream-kind", "HTTPRoute".into()),
        ("meta.datumapis.com/upstream-name", "route".into()),
        ("meta.datumapis.com/upstream-namespace", "shop".into()),
    ];
    let mut map = serde_json::Map::new();
    for (i, (key, value)) in labels.into_iter().enumerate() {
        match usize::from(case.label_missing) {
            missing if missing == i => {}
            5 if key.ends_with("kind") => drop(map.insert(key.into(), "GRPCRoute".into())),
            6 if key.ends_with("group") => drop(map.insert(key.into(), "example.com".into())),
            _ => drop(map.insert(key.into(), value.into())),
        }
    }
    if case.protected {
        map.insert("resourcetemplate.karmada.io/deletion-protected".into(), "Always".into());
    }
    let mut parents: Vec<Value> =
        case.parents.iter().map(|g| json!({"name": format!("g{g}")})).collect();
    if let Some(first) = parents.first_mut() {
        match case.parent_form {
            1 => first["kind"] = "Service".into(),
            2 => first["group"] = "example.com".into(),
            3 => first["namespace"] = "another".into(),
            4 => first["namespace"] = "shop".into(),
            5 => {
                first["kind"] = "Gateway".into();
                first["group"] = "gateway.networking.k8s.io".into();
            }
            _ => {}
        }
    }
    let created = UnixMillis(START - case.age_s * SECOND).to_string();
    let mut meta = json!({"namespace": ns, "name": "route", "labels": map,
        "creationTimestamp": created});
    if case.finalizer {
        meta["finalizers"] = json!(["example.com/mine"]);
    }
    if case.deleting {
        meta["deletionTimestamp"] = created.into();
    }
    put(
        sim,
        &hub,
        &json!({"kind": "HTTPRoute", "metadata": meta, "spec": {"parentRefs": parents}}),
    );
}

fn namespace(case: &Case) -> String {
    let uid = if case.right_namespace { NAMESPACE_UID } else { "0000000b-0000-4000-8000-0" };
    format!("ns-{uid}")
}

fn create_gateway(sim: &mut Sim, t: Topology, gateway: u8) {
    put(
        sim,
        &upstream(t),
        &json!({"kind": "Gateway",
        "metadata": {"namespace": "shop", "name": format!("g{gateway}")}}),
    );
}

/// Whether the route is an orphan, by the true state of the clusters.
fn is_orphan(sim: &Sim, t: Topology, case: &Case, at_delete: bool) -> bool {
    let now = sim.now;
    let (up, key) = (upstream(t), ObjectKey::new(namespace(case), "route"));
    let Some(route) = sim.clusters.get(&t.hub(), Kind::HttpRoute, &key) else { return false };
    let namespace = sim.clusters.get(&up, Kind::Namespace, &ObjectKey::new("", "shop"));
    let exists = |g: &u8| {
        let key = ObjectKey::new("shop", format!("g{g}"));
        sim.clusters.get(&up, Kind::Gateway, &key).is_some()
    };
    case.label_missing > 6
        && case.cluster_known
        && case.right_namespace
        && !case.protected
        && !case.finalizer
        && route.meta.deletion_timestamp.is_none()
        && !case.parents.is_empty()
        && !matches!(case.parent_form, 1..=3)
        && !case.parents.iter().any(exists)
        // The last live check before a delete reads only the parents.
        && (at_delete || namespace.is_some_and(|n| *n.meta.uid == *NAMESPACE_UID))
        && now.since(route.meta.creation_timestamp.unwrap()) >= 300 * SECOND
}

/// Whether the machine had complete evidence when it decided on a delete.
fn evidence(sim: &Sim, t: Topology, action: &Action) -> Result<(), String> {
    let (up, hub) = (upstream(t), t.hub());
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
enum TestStep {
    Fault(Op),
    Create(u8),
    Delete(u8),
    Namespace(bool),
    MarkDeleted,
}

fn steps() -> impl Strategy<Value = Vec<(u64, TestStep)>> {
    let test_step = prop_oneof![
        6 => fault().prop_map(TestStep::Fault),
        2 => (0..4_u8).prop_map(TestStep::Create),
        3 => (0..4_u8).prop_map(TestStep::Delete),
        1 => any::<bool>().prop_map(TestStep::Namespace),
        1 => Just(TestStep::MarkDeleted),
    ];
    prop::collection::vec((pause(), test_step), 0..20)
}

fn act(sim: &mut Sim, t: Topology, case: &Case, test_step: &TestStep) {
    let up = upstream(t);
    match test_step {
        TestStep::Fault(op) => apply(sim, t, op),
        TestStep::Create(g) => create_gateway(sim, t, *g),
        TestStep::Delete(g) => {
            sim.clusters.advance(sim.now);
            sim.clusters.remove(&up, Kind::Gateway, &ObjectKey::new("shop", format!("g{g}")));
        }
        TestStep::Namespace(same) => {
            // Deletes the namespace and creates it again, with the same or another uid.
            sim.clusters.advance(sim.now);
            sim.clusters.remove(&up, Kind::Namespace, &ObjectKey::new("", "shop"));
            let uid = if *same { NAMESPACE_UID } else { "0000000c-0000-4000-8000-00000000aaaa" };
            let object = json!({"kind": "Namespace", "metadata": {"name": "shop", "uid": uid}});
            put(sim, &up, &object);
        }
        TestStep::MarkDeleted => {
            let key = ObjectKey::new(namespace(case), "route");
            if let Some(route) = sim.clusters.get(&t.hub(), Kind::HttpRoute, &key) {
                let mut route = Object::clone(route);
                route.meta.deletion_timestamp = Some(sim.now);
                assert!(matches!(route.body, Body::HttpRoute { .. }));
                let notice = throughline_sim::WatchNotice::Applied;
                sim.clusters.put(&t.hub(), route, "somebody", notice);
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
        let mut settings = throughline::core::contract::settings::Settings::default();
        settings.orphans.mode = OrphanMode::Delete;
        let mut sim = Sim::new(&t.clusters(), &settings, 50);
        sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
        build(&mut sim, t, &case);
        while sim.clusters.poll_event().is_some() {}
        sim.add_clusters();
        sim.watch_delays_ms = delays;
        sim.write_faults = write_faults;
        sim.lead(true);
        sim.list_everything();
        let mut checked = 0;
        let mut check = |sim: &Sim| -> Result<(), TestCaseError> {
            for recorded in &sim.actions[checked..] {
                let action = &recorded.decision.action;
                if action.verb == Verb::Delete {
                    let evidence = evidence(sim, t, action);
                    prop_assert!(evidence.is_ok(), "{evidence:?}: {:?}", recorded.decision);
                    prop_assert!(recorded.led);
                }
            }
            checked = sim.actions.len();
            Ok(())
        };
        for (pause_ms, test_step) in &steps {
            // In steps, so that the evidence is checked in the state in which it was used.
            let end = sim.now.plus(*pause_ms);
            while sim.now < end {
                let at_delete = is_orphan(&sim, t, &case, true);
                let stood = route_exists(&sim, t, &case);
                sim.advance_by(sim.step_ms(end));
                check(&sim)?;
                let gone = stood && !route_exists(&sim, t, &case);
                prop_assert!(!gone || at_delete, "a route was deleted that was not an orphan: {}", sim.describe_actions(0));
            }
            act(&mut sim, t, &case, test_step);
            check(&sim)?;
        }
        sim.heal();
        let orphan = is_orphan(&sim, t, &case, false);
        sim.advance_by(3_600 * SECOND);
        check(&sim)?;
        prop_assert!(!(orphan && route_exists(&sim, t, &case)), "an orphan stays");
        let still = is_orphan(&sim, t, &case, false);
        prop_assert!(!still, "an orphan that reached the minimum age stays: {}", sim.describe_actions(0));
        sim.advance_by(3_600 * SECOND);
        prop_assert_eq!(sim.machine.poll_deadline(), None);
    }
}

fn route_exists(sim: &Sim, t: Topology, case: &Case) -> bool {
    let key = ObjectKey::new(namespace(case), "route");
    sim.clusters.get(&t.hub(), Kind::HttpRoute, &key).is_some()
}
