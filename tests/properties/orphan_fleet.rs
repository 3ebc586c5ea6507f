//! Many routes: never more deletes than the limits allow, and never a route whose parent exists.

use std::collections::BTreeMap;

use proptest::prelude::*;

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::cause::Cause;
use throughline::core::contract::event::{EventKind, Outcome};
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::contract::settings::{Fraction, Settings};
use throughline::core::data::ids::{ActionId, Kind, ObjectKey};
use throughline::core::data::objects::Body;
use throughline::core::data::time::UnixMillis;

use crate::config;
use crate::generate::{begin_deleting, fault, pause, topology, write_faults};
use crate::model::Op;
use crate::sim::{HOUR, SECOND, Sim};

const ROUTES: usize = 16;

#[derive(Clone, Debug)]
enum Step {
    Fault(Op),
    /// Creates or deletes the Gateways of these routes.
    Gateways(Vec<usize>, bool),
    /// Gives the route another parent.
    Edit(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let some = || prop::collection::vec(0..ROUTES, 0..ROUTES);
    let step = prop_oneof![
        4 => fault().prop_map(Step::Fault),
        4 => (some(), any::<bool>()).prop_map(|(which, there)| Step::Gateways(which, there)),
        1 => (0..ROUTES, 0..ROUTES).prop_map(|(route, parent)| Step::Edit(route, parent)),
    ];
    prop::collection::vec((pause(), step), 1..16)
}

fn name(i: usize) -> String {
    format!("app-{i}")
}

fn put_route(sim: &mut Sim, i: usize, parent: usize) {
    let t = sim.topology;
    sim.put(&t.hub(), &t.route(0, &name(i), &name(parent)));
}

/// The routes that exist, and whether each has a parent.
fn routes(sim: &Sim) -> Vec<(usize, bool)> {
    let (up, namespace, _) = sim.topology.project(0);
    let parent = |i| {
        let key = ObjectKey::new(sim.topology.hub_namespace(0), name(i));
        let route = sim.clusters.get(&sim.topology.hub(), Kind::HttpRoute, &key)?;
        let Body::HttpRoute { parents } = &route.body else { return None };
        let gateway = ObjectKey::new(namespace, &parents[0].name);
        Some((i, sim.clusters.get(&up, Kind::Gateway, &gateway).is_some()))
    };
    (0..ROUTES).filter_map(parent).collect()
}

fn take(sim: &mut Sim, step: &Step) {
    match step {
        Step::Fault(op) => sim.apply(op),
        Step::Gateways(which, true) => which.iter().for_each(|i| sim.put_parent(0, &name(*i))),
        Step::Gateways(which, false) => which.iter().for_each(|i| sim.remove_parent(0, &name(*i))),
        Step::Edit(i, parent) => {
            if routes(sim).iter().any(|(route, _)| route == i) {
                put_route(sim, *i, *parent);
            }
        }
    }
}

/// The deletes that were decided and changed something: the run of the machine, which the limit counts for,
/// the action, and when.
#[derive(Default)]
struct Deletes {
    at: BTreeMap<(u32, ActionId), UnixMillis>,
    seen: usize,
}

impl Deletes {
    /// Advances time, in which no route goes that has a parent.
    fn advance(&mut self, sim: &mut Sim, ms: u64) -> Result<(), TestCaseError> {
        let end = sim.now.plus(ms);
        while sim.now < end {
            let (before, decided, run) = (routes(sim), sim.actions.len(), sim.run);
            sim.advance_once(end);
            for Decision { action, at, .. } in sim.actions[decided..].iter().map(|a| &a.decision) {
                if action.verb == Verb::Delete {
                    self.at.insert((run, action.id), *at);
                }
            }
            for event in &sim.seen[self.seen..] {
                let EventKind::ActionFinished { id, outcome } = &event.kind else { continue };
                if matches!(
                    outcome,
                    Outcome::Refused { .. } | Outcome::NotFound | Outcome::Conflict { .. }
                ) {
                    self.at.remove(&(run, *id));
                }
            }
            self.seen = sim.seen.len();
            let after = routes(sim);
            for (i, has_parent) in before {
                let exists = after.iter().any(|(other, _)| *other == i);
                prop_assert!(
                    exists || !has_parent,
                    "route {i} was deleted although it had a parent: {}",
                    sim.describe_actions(0)
                );
            }
        }
        Ok(())
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
        steps in steps(),
        delays in prop::collection::vec(0..40_u8, 1..8),
    ) {
        let mut settings = Settings::default();
        settings.orphans.max_per_minute = most;
        settings.orphans.max_share = Fraction::per_mille(share);
        settings.orphans.share_from = 4;
        let mut sim = begin_deleting(t, settings, delays, write_faults, |sim| {
            sim.put_namespaces(0, &t.project(0).2);
            for i in 0..ROUTES {
                sim.put_parent(0, &name(i));
                put_route(sim, i, i);
            }
        });
        let mut deletes = Deletes::default();
        for (pause_ms, step) in &steps {
            deletes.advance(&mut sim, *pause_ms)?;
            take(&mut sim, step);
        }
        sim.heal();
        // By then, late writes are applied.
        deletes.advance(&mut sim, 200 * SECOND)?;
        let orphans = |sim: &Sim| routes(sim).iter().filter(|(_, has_parent)| !has_parent).count();
        let (all, dead) = (routes(&sim).len(), orphans(&sim));
        let is_held = all > 4 && dead * 1_000 > all * usize::from(share);
        let before = sim.actions.len();
        deletes.advance(&mut sim, HOUR)?;
        if is_held {
            let deleted = sim.actions[before..].iter().any(|a| a.decision.action.verb == Verb::Delete);
            prop_assert!(!deleted, "deleted although too many routes are orphans");
            prop_assert_eq!(orphans(&sim), dead);
            let says = |n: &Note| matches!(&n.kind, NoteKind::Began(p) if p.cause == Cause::DeletesHeld);
            prop_assert!(sim.notes.iter().any(says));
        } else {
            prop_assert_eq!(orphans(&sim), 0, "{}", sim.describe_actions(0));
        }
        let mut at: Vec<_> = deletes.at.iter().map(|((run, _), at)| (*run, *at)).collect();
        at.sort_unstable();
        let most = usize::try_from(most).unwrap();
        for window in at.windows(most + 1) {
            let same_run = window[0].0 == window[most].0;
            let apart = window[most].1.since(window[0].1);
            prop_assert!(!same_run || apart >= 60 * SECOND, "{window:?}");
        }
    }
}
