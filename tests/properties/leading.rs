//! Promises about leadership and about nudges, which only the leader sends.

use std::collections::BTreeMap;

use proptest::prelude::*;

use throughline::core::contract::action::Verb;
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
use throughline::core::data::objects::UPSTREAM_STATUS;

use crate::generate::{Setup, change, fault, other_writer, schedule, setup, who, write_faults};
use crate::model::{self, ConnectorRef, Op, PROJECTS, Topology};
use crate::sim::{HOUR, SECOND, Sim};
use crate::{config, no_deviations};

/// What the machine has observed of hub and edges, derived independently of its code.
#[derive(Default)]
struct Observed {
    /// What Connectors say at the hub, and at edges whose watch is live.
    says: BTreeMap<(ClusterName, NamespacedName), Option<serde_json::Value>>,
    /// Since when an edge with a live watch differs from the hub.
    apart: BTreeMap<(ClusterName, NamespacedName), u64>,
}

impl Observed {
    fn observe(&mut self, at: u64, kind: &EventKind, hub: &ClusterName) {
        match kind {
            EventKind::ListStarted { cluster, kind: Kind::Connector }
            | EventKind::WatchLost { cluster, kind: Kind::Connector, .. } => {
                self.says.retain(|(c, _), _| c != cluster || c == hub);
            }
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object }
                if object.kind() == Kind::Connector =>
            {
                let value = object.meta.annotations.get(UPSTREAM_STATUS);
                let value = value.map(|v| v.parse().unwrap_or(serde_json::Value::from("?")));
                let place = (cluster.clone(), object.meta.key());
                let before = self.says.insert(place, value.clone());
                if cluster == hub && before.as_ref() != Some(&value) {
                    // A new value at the hub: the edges have to follow again.
                    self.apart.retain(|(_, key), _| *key != object.meta.key());
                }
            }
            EventKind::Deleted { cluster, object } if object.kind() == Kind::Connector => {
                self.says.remove(&(cluster.clone(), object.meta.key()));
            }
            _ => return,
        }
        self.apart.retain(|place, _| self.says.contains_key(place));
        for (place, value) in &self.says {
            let template = self.says.get(&(hub.clone(), place.1.clone()));
            if template.is_some_and(|template| template != value) {
                self.apart.entry(place.clone()).or_insert(at);
            } else {
                self.apart.remove(place);
            }
        }
    }

    fn longest_apart(&self, now: u64, key: &NamespacedName) -> Option<u64> {
        let apart = self.apart.iter().filter(|((_, k), _)| k == key);
        apart.map(|(_, since)| now - since).max()
    }
}

fn nudges_are_due(sim: &Sim) -> Result<(), TestCaseError> {
    let mut observed = Observed::default();
    let mut events = sim.seen.iter().peekable();
    // When each was nudged, and the pause before that.
    let mut nudged: BTreeMap<NamespacedName, (u64, u64)> = BTreeMap::new();
    for decision in sim.decided(Verb::Nudge, 0) {
        let (at, key) = (decision.at.0, &decision.action.object);
        // Events of the nudge's own millisecond are left out: they may have come before it or after.
        while let Some(event) = events.next_if(|e| e.at.0 < at) {
            observed.observe(event.at.0, &event.kind, &sim.topology.hub());
        }
        let apart = observed.longest_apart(at, key);
        // The machine knows its own write from the outcome, up to 40 ms before the watch shows it.
        let waited = apart.is_some_and(|ms| ms + 40 >= sim.settings.mirror.nudge_after_ms);
        prop_assert!(waited, "{key} nudged after {apart:?} ms\n{}", sim.describe_actions(0));
        let mut last_pause = 0;
        if let Some((nudged_at, before)) = nudged.get(key) {
            let pause = at - nudged_at;
            if apart.is_some_and(|ms| ms >= pause) {
                prop_assert!(pause > *before, "{key}: {before} ms, then {pause} ms");
                last_pause = pause;
            }
        }
        nudged.insert(key.clone(), (at, last_pause));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn leader_only_actions_need_leadership_and_touches_do_not(
        setup in setup(),
        write_faults in write_faults(),
        schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 4 => fault()], 25),
        status in 0..7_u8,
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        sim.write_faults = write_faults;
        sim.play(&schedule);
        sim.heal();
        sim.lead(false);
        sim.advance_by(HOUR);
        // Another instance leads and mirrors.
        for project in 0..PROJECTS {
            let (key, text) = (t.hub_key(ConnectorRef(project, 1)), model::status(status));
            sim.annotate(&t.hub(), Kind::Connector, &key, UPSTREAM_STATUS, text);
        }
        sim.advance_by(HOUR);
        // `Sim` asserts of each other action that the leader decided on it.
        no_deviations(&sim, &sim.touch_deviations())?;
    }

    #[test]
    fn nudges_come_only_while_a_live_edge_differs_for_long_with_growing_pauses(
        setup in setup(),
        mut schedule in schedule(prop_oneof![4 => change(), 4 => other_writer(), 3 => fault()], 25),
        (stuck, edge, status) in (who(), 0..2_u8, 0..7_u8),
    ) {
        let setup = Setup { topology: Topology::Three, ..setup };
        let mut sim = setup.begin();
        // While a watch of hub or upstream is lost, the machine cannot notice arrivals at the edge. Leave
        // those faults out.
        schedule.retain(|(_, op)| match op {
            Op::Restart | Op::Rejoin(_) => false,
            Op::Lose(cluster, _) | Op::CutOff(cluster) => *cluster > 2,
            _ => true,
        });
        sim.play(&schedule);
        sim.apply(&Op::Status(stuck, status));
        sim.advance_by(30);
        sim.apply(&Op::StickCarrier(stuck, edge));
        sim.advance_by(HOUR);
        sim.heal();
        sim.advance_by(600 * SECOND);
        nudges_are_due(&sim)?;
    }
}
