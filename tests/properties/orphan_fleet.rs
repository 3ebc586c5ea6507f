//! Many routes: never more deletes than the limits allow, and never a route whose parent exists.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::Cause;
use throughline::core::contract::event::{EventKind, Outcome};
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings};
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;

use crate::config;
use crate::generate::{fault, pause, topology, write_faults};
use crate::model::{Op, Topology, apply, put};
use crate::sim::{SECOND, START, Sim};

const UID: &str = "0000000a-0000-4000-8000-00000000aaaa";
const ROUTES: usize = 16;

#[derive(Clone, Debug)]
enum TestStep {
    Fault(Op),
    /// Creates or deletes the Gateways of these routes.
    Gateways(Vec<usize>, bool),
    /// Gives the route another parent.
    Edit(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<(u64, TestStep)>> {
    let some = || prop::collection::vec(0..ROUTES, 0..ROUTES);
    let test_step = prop_oneof![
        4 => fault().prop_map(TestStep::Fault),
        4 => (some(), any::<bool>()).prop_map(|(which, there)| TestStep::Gateways(which, there)),
        1 => (0..ROUTES, 0..ROUTES).prop_map(|(route, parent)| TestStep::Edit(route, parent)),
    ];
    prop::collection::vec((pause(), test_step), 1..16)
}

fn upstream(t: Topology) -> ClusterName {
    t.project(0).0
}

fn name(i: usize) -> String {
    format!("app-{i}")
}

fn key(i: usize) -> ObjectKey {
    ObjectKey::new(format!("ns-{UID}"), name(i))
}

fn put_gateway(sim: &mut Sim, t: Topology, i: usize) {
    let meta = json!({"namespace": "shop", "name": name(i)});
    put(sim, &upstream(t), &json!({"kind": "Gateway", "metadata": meta}));
}

fn put_route(sim: &mut Sim, t: Topology, i: usize, parent: usize) {
    let labels = json!({
        "meta.datumapis.com/upstream-cluster-name":
            format!("cluster-{}", upstream(t)).replace('/', "_"),
        "meta.datumapis.com/upstream-group": "gateway.networking.k8s.io",
        "meta.datumapis.com/upstream-kind": "HTTPRoute",
        "meta.datumapis.com/upstream-name": name(i),
        "meta.datumapis.com/upstream-namespace": "shop"});
    let created = UnixMillis(START - 1_000 * SECOND).to_string();
    let meta = json!({"namespace": format!("ns-{UID}"), "name": name(i), "labels": labels,
        "creationTimestamp": created});
    let spec = json!({"parentRefs": [{"name": name(parent)}]});
    put(sim, &t.hub(), &json!({"kind": "HTTPRoute", "metadata": meta, "spec": spec}));
}

fn build(sim: &mut Sim, t: Topology) {
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "shop", "uid": UID}});
    put(sim, &upstream(t), &namespace);
    let labels = json!({"meta.datumapis.com/upstream-namespace": "shop"});
    let meta = json!({"name": format!("ns-{UID}"), "labels": labels});
    put(sim, &t.hub(), &json!({"kind": "Namespace", "metadata": meta}));
    for i in 0..ROUTES {
        put_gateway(sim, t, i);
        put_route(sim, t, i, i);
    }
}

/// The routes that exist, and whether each has a parent.
fn routes(sim: &Sim, t: Topology) -> Vec<(usize, bool)> {
    let parent = |i| {
        let route = sim.clusters.get(&t.hub(), Kind::HttpRoute, &key(i))?;
        let throughline::core::data::objects::Body::HttpRoute { parents } = &route.body else {
            return None;
        };
        let gateway = ObjectKey::new("shop", &parents[0].name);
        Some((i, sim.clusters.get(&upstream(t), Kind::Gateway, &gateway).is_some()))
    };
    (0..ROUTES).filter_map(parent).collect()
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn deletes_never_exceed_their_limits(
        t in topology(),
        most in 1..6_u32,
        share in prop_oneof![Just(1_000_u16), Just(300)],
        write_faults in write_faults(),
        steps in steps(),
        delays in prop::collection::vec(0..40_u8, 1..8),
    ) {
        let mut settings = Settings::default();
        settings.orphans.mode = OrphanMode::Delete;
        settings.orphans.max_per_minute = most;
        settings.orphans.max_share = Fraction::per_mille(share);
        settings.orphans.share_from = 4;
        let mut sim = Sim::new(&t.clusters(), &settings, 50);
        sim.next_bookmark = Some(sim.now.plus(60 * SECOND));
        build(&mut sim, t);
        while sim.clusters.poll_event().is_some() {}
        sim.add_clusters();
        sim.watch_delays_ms = delays;
        sim.write_faults = write_faults;
        sim.lead(true);
        sim.list_everything();
        let mut runs = Vec::new();
        // Those that changed nothing don't count.
        let mut given_back = BTreeSet::new();
        let mut seen = 0;
        let mut step = |sim: &mut Sim, ms: u64| -> Result<(), TestCaseError> {
            let end = sim.now.plus(ms);
            while sim.now < end {
                let before = routes(sim, t);
                let decided = sim.actions.len();
                sim.advance_by(sim.step_ms(end));
                // The limit counts for each process.
                let run = sim.run;
                runs.extend(sim.actions[decided..].iter().map(|a| (run, a.decision.clone())));
                let finished = sim.seen[seen..].iter().filter_map(|event| match &event.kind {
                    EventKind::ActionFinished {
                        id,
                        outcome:
                            Outcome::Refused { .. } | Outcome::NotFound | Outcome::Conflict { .. },
                    } => Some((run, *id)),
                    _ => None,
                });
                given_back.extend(finished);
                seen = sim.seen.len();
                let after = routes(sim, t);
                for (i, alive) in before {
                    let stands = after.iter().any(|(j, _)| *j == i);
                    prop_assert!(stands || !alive, "route {i} was deleted although it had a parent: {}", sim.describe_actions(0));
                }
            }
            Ok(())
        };
        for (pause_ms, test_step) in &steps {
            step(&mut sim, *pause_ms)?;
            match test_step {
                TestStep::Fault(op) => apply(&mut sim, t, op),
                TestStep::Gateways(which, true) => which.iter().for_each(|i| put_gateway(&mut sim, t, *i)),
                TestStep::Gateways(which, false) => {
                    sim.clusters.advance(sim.now);
                    for i in which {
                        let gateway = ObjectKey::new("shop", name(*i));
                        sim.clusters.remove(&upstream(t), Kind::Gateway, &gateway);
                    }
                }
                TestStep::Edit(i, parent) => {
                    if sim.clusters.get(&t.hub(), Kind::HttpRoute, &key(*i)).is_some() {
                        put_route(&mut sim, t, *i, *parent);
                    }
                }
            }
            sim.collect();
        }
        sim.heal();
        // By then, late writes are applied.
        step(&mut sim, 200 * SECOND)?;
        let standing = routes(&sim, t);
        let orphans = |r: &[(usize, bool)]| r.iter().filter(|(_, alive)| !alive).count();
        let (all, dead) = (standing.len(), orphans(&standing));
        let held = all > 4 && dead * 1_000 > all * usize::from(share);
        let before = deletes(&sim);
        step(&mut sim, 3_600 * SECOND)?;
        let left = orphans(&routes(&sim, t));
        if held {
            prop_assert_eq!(deletes(&sim), before, "deleted although too many routes are orphans");
            prop_assert_eq!(left, dead);
            let is_held = |n: &&Note| matches!(&n.kind, NoteKind::Began(p) if p.cause == Cause::DeletesHeld);
            let is_reported = sim.notes.iter().any(|n| is_held(&n));
            prop_assert!(is_reported);
        } else {
            prop_assert_eq!(left, 0, "{}", sim.describe_actions(0));
        }
        let mut at: Vec<(u32, UnixMillis)> = runs
            .iter()
            .filter(|(run, d)| {
                d.action.verb == Verb::Delete && !given_back.contains(&(*run, d.action.id))
            })
            .map(|(run, d)| (*run, d.at))
            .collect();
        at.sort_unstable();
        let most = usize::try_from(most).unwrap();
        for window in at.windows(most + 1) {
            let same_run = window[0].0 == window[most].0;
            let apart = window[most].1.since(window[0].1);
            prop_assert!(!same_run || apart >= 60 * SECOND, "{window:?}");
        }
    }
}

fn deletes(sim: &Sim) -> usize {
    sim.actions.iter().filter(|a| a.decision.action.verb == Verb::Delete).count()
}
