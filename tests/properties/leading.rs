//! What is promised of leadership, and of nudges, which only a leader sends.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use throughline::core::action::Verb;
use throughline::core::event::Happened;
use throughline::core::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::objects::UPSTREAM_STATUS;

use crate::generate::{Setup, change, fates, fault, schedule, setup, spoiler};
use crate::model::{Op, PROJECTS, Topology, Who, annotate, apply, play};
use crate::sim::{SECOND, Sim};
use crate::{config, oracle};

/// What the machine was told of hub and edges, kept by rules of its own.
#[derive(Default)]
struct Told {
    live: BTreeSet<ClusterName>,
    says: BTreeMap<(ClusterName, ObjectKey), Option<serde_json::Value>>,
    /// Since when an edge that is seen says something else than the hub.
    apart: BTreeMap<(ClusterName, ObjectKey), u64>,
}

impl Told {
    fn hear(&mut self, at: u64, what: &Happened, t: Topology) {
        let connector = Kind::Connector;
        match what {
            Happened::ListFinished { cluster, kind } if *kind == connector => {
                self.live.insert(cluster.clone());
            }
            Happened::ListStarted { cluster, kind } | Happened::WatchLost { cluster, kind, .. }
                if *kind == connector =>
            {
                self.live.remove(cluster);
            }
            Happened::Listed { cluster, object } | Happened::Applied { cluster, object } => {
                if object.kind() != connector {
                    return;
                }
                let value = object.meta.annotations.get(UPSTREAM_STATUS);
                let value = value.map(|v| v.parse().unwrap_or(serde_json::Value::from("?")));
                let place = (cluster.clone(), object.meta.key());
                let before = self.says.insert(place, value.clone());
                if *cluster == t.hub() && before.as_ref() != Some(&value) {
                    // The hub says something new: the edges have to follow anew.
                    self.apart.retain(|(_, key), _| *key != object.meta.key());
                }
            }
            Happened::Deleted { cluster, object } if object.kind() == connector => {
                self.says.remove(&(cluster.clone(), object.meta.key()));
            }
            _ => return,
        }
        let hub = t.hub();
        for edge in t.edges() {
            for ((_, key), value) in self.says.iter().filter(|((c, _), _)| *c == edge) {
                let template = self.says.get(&(hub.clone(), key.clone()));
                let place = (edge.clone(), key.clone());
                if self.live.contains(&edge) && template.is_some_and(|t| t != value) {
                    self.apart.entry(place).or_insert(at);
                } else {
                    self.apart.remove(&place);
                }
            }
        }
    }

    fn longest_apart(&self, now: u64, key: &ObjectKey) -> Option<u64> {
        let apart = self.apart.iter().filter(|((_, k), _)| k == key);
        apart.map(|(_, since)| now - since).max()
    }
}

fn nudges_are_due(sim: &Sim, t: Topology) -> Result<usize, TestCaseError> {
    let mut told = Told::default();
    let mut events = sim.seen.iter().peekable();
    let mut nudged: BTreeMap<ObjectKey, (u64, u64)> = BTreeMap::new();
    let mut count = 0;
    for acted in sim.actions.iter().filter(|a| a.decision.action.verb == Verb::Nudge) {
        let (at, key) = (acted.decision.at.0, &acted.decision.action.object);
        // What came in the same millisecond after the nudge may be heard too early: the nudge was
        // decided by what came before, or by this.
        while let Some(event) = events.next_if(|e| e.at.0 < at) {
            told.hear(event.at.0, &event.what, t);
        }
        let apart = told.longest_apart(at, key);
        // The machine knows its own write from the outcome, up to 40 ms before a watch tells.
        let waited = apart.is_some_and(|ms| ms + 40 >= sim.settings.mirror.nudge_after_ms);
        prop_assert!(waited, "{key} nudged after {apart:?} ms\n{}", sim.story(0));
        let pause = nudged.get(key).map(|(before, pause)| (at - before, *pause));
        if let Some((pause, before)) = pause {
            let same = apart.is_some_and(|ms| ms >= pause);
            prop_assert!(!same || pause > before, "{key}: {before} ms, then {pause} ms");
            nudged.insert(key.clone(), (at, if same { pause } else { 0 }));
        } else {
            nudged.insert(key.clone(), (at, 0));
        }
        count += 1;
    }
    Ok(count)
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn leader_only_actions_need_leadership_and_touches_do_not(
        setup in setup(),
        fates in fates(),
        schedule in schedule(prop_oneof![4 => change(), 2 => spoiler(), 4 => fault()], 25),
        status in 0..7_u8,
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        sim.fates = fates;
        play(&mut sim, t, &schedule);
        sim.heal();
        sim.lead(false);
        sim.pass(3_600 * SECOND);
        // Another process leads, and mirrors.
        for project in 0..PROJECTS {
            let key = ObjectKey::new(t.replica_namespace(project), "c1");
            let text = crate::model::status(status);
            annotate(&mut sim, &t.hub(), Kind::Connector, &key, UPSTREAM_STATUS, text.as_deref());
        }
        sim.pass(3_600 * SECOND);
        let held = sim.actions.iter().find(|a| a.decision.action.is_leader_only() && !a.led);
        prop_assert!(held.is_none(), "{:?}", held.map(|a| &a.decision));
        let wrongs = oracle::touch_wrongs(&sim, t);
        prop_assert!(wrongs.is_empty(), "{wrongs:#?}\n{}", sim.story(0));
    }

    #[test]
    fn a_nudge_comes_only_when_a_live_edge_is_wrong_for_long_and_then_ever_more_rarely(
        setup in setup(),
        schedule in schedule(prop_oneof![4 => change(), 4 => spoiler(), 3 => fault()], 25),
        stuck in (0..PROJECTS, 0..3_u8, 0..2_u8, 0..7_u8),
    ) {
        let setup = Setup { topology: Topology::Three, ..setup };
        let t = setup.topology;
        let mut sim = setup.begin();
        // While hub or upstream are out of sight, arrivals at the edge are not noticed: not this.
        let one_run = |op: &Op| match op {
            Op::Restart | Op::Rejoin(_) => false,
            Op::Lose(cluster, _) | Op::CutOff(cluster) => *cluster > 2,
            _ => true,
        };
        let schedule: Vec<_> = schedule.into_iter().filter(|(_, op)| one_run(op)).collect();
        play(&mut sim, t, &schedule);
        let (project, c, edge, status) = stuck;
        apply(&mut sim, t, &Op::Status(Who(project, c), status));
        sim.pass(30);
        apply(&mut sim, t, &Op::Stick(Who(project, c), edge));
        sim.pass(3_600 * SECOND);
        sim.heal();
        sim.pass(600 * SECOND);
        nudges_are_due(&sim, t)?;
    }
}
