//! What absence proves. Orphaned routes: none is deleted without complete evidence, a true one is deleted, and
//! deletes keep to their limits. A cluster that leaves is unknown, not empty.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::cause::Cause;
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings};
use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::time::UnixMillis;

use crate::generate::{Setup, fault, other_writer, schedule, setup, topology, who, write_faults};
use crate::model::{Op, PROJECTS, Topology, uid};
use crate::sim::{HOUR, SECOND, START, Sim, WriteFault};
use crate::{config, converges};

const ROUTES: u8 = 16;

/// A leader that deletes orphans, among objects that `put` creates.
fn begin(
    topology: Topology,
    mut settings: Settings,
    watch_delays_ms: Vec<u8>,
    write_faults: Vec<WriteFault>,
    put: impl FnOnce(&mut Sim),
) -> Sim {
    settings.orphans.mode = OrphanMode::Delete;
    let mut sim = Sim::new(topology, settings, 50);
    sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
    put(&mut sim);
    sim.watch_delays_ms = watch_delays_ms;
    sim.write_faults = write_faults;
    sim.start();
    sim
}

/// The routes that exist, and whether a Gateway exists that each names as its parent.
fn routes(sim: &Sim) -> BTreeMap<String, bool> {
    let hub = sim.topology.hub();
    let routes = sim.clusters.objects(&hub, Kind::HttpRoute);
    routes.map(|route| (route.meta.name.to_string(), sim.has_parent(0, route))).collect()
}

/// A route, and everything that decides whether it is an orphan.
#[derive(Clone, Debug)]
struct Case {
    /// The Gateways that its parents name, and those that exist.
    parents: Vec<u8>,
    gateways: u16,
    /// Which of [`kept_by`] it has.
    kept_by: Option<usize>,
    /// Its first parent says what is the default.
    is_explicit: bool,
    /// The number of the upstream namespace; 0 is the right one.
    namespace: u8,
    age_s: u64,
}

/// Some of so many, as a mask.
fn some(of: u8, most: usize) -> impl Strategy<Value = u16> {
    let mask = |which: Vec<u8>| which.iter().fold(0_u16, |mask, n| mask | 1_u16 << n);
    prop::collection::vec(0..of, 0..most).prop_map(mask)
}

prop_compose! {
    fn case()(
        parents in prop::collection::vec(0..4_u8, 0..3),
        gateways in some(4, 3),
        kept_by in prop::option::of(0..KEPT_BY),
        is_explicit in any::<bool>(),
        namespace in prop_oneof![6 => Just(0_u8), 1 => Just(11)],
        age_s in prop_oneof![4 => 400..1_000_u64, 1 => 0..300_u64],
    ) -> Case {
        Case { parents, gateways, kept_by, is_explicit, namespace, age_s }
    }
}

const KEPT_BY: usize = 14;

/// Where in a route there is what keeps it, whatever else holds; null removes a label.
fn kept_by(created: &str) -> [(&'static str, &'static str, Value); KEPT_BY] {
    const PARENT: &str = "/spec/parentRefs/0";
    const LABELS: &str = "/metadata/labels";
    [
        (PARENT, "kind", json!("Service")),
        (PARENT, "group", json!("example.com")),
        (PARENT, "namespace", json!("another")),
        ("/metadata", "finalizers", json!(["example.com/mine"])),
        ("/metadata", "deletionTimestamp", json!(created)),
        (LABELS, "resourcetemplate.karmada.io/deletion-protected", json!("Always")),
        (LABELS, "meta.datumapis.com/upstream-cluster-name", json!("cluster-elsewhere")),
        (LABELS, "meta.datumapis.com/upstream-kind", json!("GRPCRoute")),
        (LABELS, "meta.datumapis.com/upstream-group", json!("example.com")),
        (LABELS, "meta.datumapis.com/upstream-cluster-name", Value::Null),
        (LABELS, "meta.datumapis.com/upstream-kind", Value::Null),
        (LABELS, "meta.datumapis.com/upstream-group", Value::Null),
        (LABELS, "meta.datumapis.com/upstream-name", Value::Null),
        (LABELS, "meta.datumapis.com/upstream-namespace", Value::Null),
    ]
}

impl Case {
    fn route(&self, t: Topology) -> Value {
        let mut route = t.route(0, 0, 0);
        let parents = self.parents.iter().map(|g| json!({"name": format!("g{g}")}));
        let mut parents: Vec<_> = parents.collect();
        if let Some(first) = parents.first_mut().filter(|_| self.is_explicit) {
            first["kind"] = "Gateway".into();
            first["group"] = "gateway.networking.k8s.io".into();
            first["namespace"] = t.project(0).1.into();
        }
        route["spec"]["parentRefs"] = parents.into();
        let created = UnixMillis(START - self.age_s * SECOND).to_string();
        if let Some(which) = self.kept_by {
            let (path, field, value) = kept_by(&created)[which].clone();
            if let Some(part) = route.pointer_mut(path) {
                part[field] = value;
            }
        }
        if let Some(labels) = route["metadata"]["labels"].as_object_mut() {
            labels.retain(|_, value| !value.is_null());
        }
        route["metadata"]["creationTimestamp"] = created.into();
        route
    }

    /// Whether the route is an orphan, by the true state of the clusters, if its namespace is right.
    fn is_orphan(&self, sim: &Sim) -> bool {
        let hub = sim.topology.hub();
        let Some(route) = sim.clusters.objects(&hub, Kind::HttpRoute).next() else { return false };
        self.kept_by.is_none()
            && route.meta.deletion_timestamp.is_none()
            && !self.parents.is_empty()
            && routes(sim).values().all(|has_parent| !has_parent)
            && sim.now.since(route.meta.creation_timestamp.unwrap()) >= 300 * SECOND
    }
}

/// Faults, and changes of what a route depends on.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => fault(),
        2 => (0..4_u8).prop_map(|g| Op::Parents(1 << g, true)),
        3 => (0..4_u8).prop_map(|g| Op::Parents(1 << g, false)),
        1 => prop_oneof![Just(0_u8), Just(12)].prop_map(Op::Namespace),
        1 => Just(Op::EndRoutes),
    ]
}

/// Faults, and changes of many routes and their parents.
fn op_of_many() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => fault(),
        4 => (some(ROUTES, 16), any::<bool>()).prop_map(|(which, exist)| Op::Parents(which, exist)),
        1 => (0..ROUTES, 0..ROUTES).prop_map(|(route, parent)| Op::Route(route, parent)),
    ]
}

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
    #![proptest_config(config(400))]

    #[test]
    fn no_route_is_deleted_without_complete_evidence(
        t in topology(),
        case in case(),
        write_faults in write_faults(),
        schedule in schedule(op(), 20),
        delays in prop::collection::vec(0..40_u8, 1..8),
    ) {
        let mut sim = begin(t, Settings::default(), delays, write_faults, |sim| {
            sim.put_namespaces(0, &uid(case.namespace));
            sim.apply(&Op::Parents(case.gateways, true));
            sim.put(&t.hub(), &case.route(t));
        });
        let mut was_right = sim.has_namespace(0);
        for (pause_ms, op) in &schedule {
            // `Sim` asserts of each delete that the watches behind it are live.
            let end = sim.now.plus(*pause_ms);
            while sim.now < end {
                // A namespace that was seen deleted is evidence, too.
                let may_go = routes(&sim).is_empty() || (was_right && case.is_orphan(&sim));
                sim.advance_once(end);
                prop_assert!(
                    may_go || !routes(&sim).is_empty(),
                    "a route was deleted that was not an orphan: {}", sim.describe_actions(0)
                );
            }
            sim.apply(op);
            was_right |= sim.has_namespace(0);
        }
        sim.heal();
        let was_orphan = sim.has_namespace(0) && case.is_orphan(&sim);
        sim.advance_by(HOUR);
        prop_assert!(routes(&sim).is_empty() || !was_orphan, "an orphan stays");
        let is_left = sim.has_namespace(0) && case.is_orphan(&sim);
        prop_assert!(!is_left, "an orphan that reached the minimum age stays: {}", sim.describe_actions(0));
        sim.advance_by(HOUR);
        prop_assert_eq!(sim.machine.poll_deadline(), None);
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn deletes_never_exceed_their_limits(
        t in topology(),
        most in 1..6_u32,
        share in prop_oneof![Just(1_000_u16), Just(300)],
        write_faults in write_faults(),
        schedule in schedule(op_of_many(), 16),
        delays in prop::collection::vec(0..40_u8, 1..8),
    ) {
        let mut settings = Settings::default();
        settings.orphans.max_per_minute = most;
        settings.orphans.max_share = Fraction::per_mille(share);
        settings.orphans.share_from = 5;
        let mut sim = begin(t, settings, delays, write_faults, |sim| {
            sim.put_namespaces(0, &uid(0));
            sim.apply(&Op::Parents(u16::MAX, true));
            (0..ROUTES).for_each(|i| sim.put(&t.hub(), &t.route(0, i, i)));
        });
        // `Sim` asserts of each delete that the route has no parent.
        sim.play(&schedule);
        sim.heal();
        // By then, late writes are applied.
        sim.advance_by(200 * SECOND);
        let orphans = |sim: &Sim| routes(sim).values().filter(|has_parent| !**has_parent).count();
        let (all, dead) = (routes(&sim).len(), orphans(&sim));
        let is_held = all >= 5 && dead * 1_000 > all * usize::from(share);
        let before = sim.actions.len();
        sim.advance_by(HOUR);
        if is_held {
            let deletes = sim.decided(Verb::Delete, before).count();
            prop_assert_eq!(deletes, 0, "deleted although too many routes are orphans");
            prop_assert_eq!(orphans(&sim), dead);
            let says = |n: &Note| matches!(&n.kind, NoteKind::Began(p) if p.cause == Cause::DeletesHeld);
            prop_assert!(sim.notes.iter().any(says));
        } else {
            prop_assert_eq!(orphans(&sim), 0, "{}", sim.describe_actions(0));
        }
        let mut at: Vec<_> = sim.deletes.iter().map(|((run, _), at)| (*run, *at)).collect();
        at.sort_unstable();
        let most = usize::try_from(most).unwrap();
        for window in at.windows(most + 1) {
            let same_run = window[0].0 == window[most].0;
            let apart = window[most].1.since(window[0].1);
            prop_assert!(!same_run || apart >= 60 * SECOND, "{window:?}");
        }
    }
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
