//! What routes nothing waits, arrives in the end, and never delays what routes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::Cause;
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::status::go_json::canonical;

use crate::generate::{change, schedule, setup, who};
use crate::model::{CONNECTORS, ConnectorRef, Op, PROJECTS, status};
use crate::oracle::liveness_of;
use crate::sim::{HOUR, Sim, WRITE_MS};
use crate::{config, no_deviations};

/// Each Connector at the hub whose annotation routes as its upstream Connector says.
fn routed(sim: &Sim) -> BTreeSet<(u8, u8)> {
    let t = sim.topology;
    let is_routed = |who: ConnectorRef| {
        let (cluster, key) = t.upstream_key(who);
        let upstream = sim.clusters.get(&cluster, Kind::Connector, &key);
        let hub = sim.clusters.get(&t.hub(), Kind::Connector, &t.hub_key(who));
        hub.is_some_and(|hub| {
            let has_status = upstream.is_some_and(|upstream| upstream.status().is_some());
            has_status == hub.meta.annotations.get(UPSTREAM_STATUS).is_some()
                && upstream.map(|u| liveness_of(u)).unwrap_or_default() == liveness_of(hub)
        })
    };
    let all = (0..PROJECTS).flat_map(|p| (0..CONNECTORS).map(move |c| (p, c)));
    all.filter(|(p, c)| is_routed(ConnectorRef(*p, *c))).collect()
}

proptest! {
    #![proptest_config(config(100))]

    /// Where one that routes comes while one that routes nothing is on its way, it waits for the answer
    /// of that write, as for any other.
    #[test]
    fn what_routes_is_never_later_than_with_the_rule_switched_off(
        setup in setup(),
        schedule in schedule(change(), 25),
    ) {
        let mut off = setup.build(|settings| settings.mirror.defer_ms = 0);
        off.start();
        let mut on = setup.begin();
        let look_ms = WRITE_MS + 5;
        let step = |off: &mut Sim, on: &mut Sim, ms: u64| -> Result<(), TestCaseError> {
            let mut before = routed(off);
            for looked_ms in (0..ms.min(20 * look_ms)).step_by(look_ms as usize) {
                let next_ms = look_ms.min(ms - looked_ms);
                off.advance_by(next_ms);
                on.advance_by(next_ms);
                let now = routed(off);
                let late: BTreeSet<_> =
                    (&now & &before).difference(&routed(on)).copied().collect();
                // The last span may be shorter than the answer of a write takes.
                prop_assert!(
                    late.is_empty() || next_ms < look_ms,
                    "{late:?} at {}\n{}\nwithout the rule\n{}",
                    on.now, on.describe_actions(0), off.describe_actions(0)
                );
                before = now;
            }
            let rest_ms = ms.saturating_sub(20 * look_ms);
            off.advance_by(rest_ms);
            on.advance_by(rest_ms);
            Ok(())
        };
        for (pause_ms, op) in &schedule {
            step(&mut off, &mut on, *pause_ms)?;
            off.apply(op);
            on.apply(op);
        }
        step(&mut off, &mut on, 10_000)?;
        prop_assert_eq!(on.mirror_deviations(), off.mirror_deviations(), "not in time");
        let mirrors = |sim: &Sim| sim.decided(Verb::Mirror, 0).count();
        prop_assert!(mirrors(&on) <= mirrors(&off), "the rule makes more writes");
    }

    /// The platform's replicator writes what upstream says, too, a little later: when the watch has shown it
    /// here.
    #[test]
    fn the_replicator_beside_it_causes_no_fight(
        setup in setup(),
        schedule in prop::collection::vec(
            (0..8_000_u64, who(), 1..7_u8, prop::option::of(50..7_000_u64)), 1..40),
    ) {
        let t = setup.topology;
        let mut sim = setup.begin();
        sim.advance_by(HOUR);
        let before = sim.actions.len();
        let (mut said, mut changes) = (BTreeMap::new(), 0_usize);
        for (pause_ms, who, says, replicated_ms) in schedule {
            sim.advance_by(pause_ms);
            changes += usize::from(said.insert((who.0, who.1), says) != Some(says));
            sim.apply(&Op::Status(who, says));
            if let Some(after_ms) = replicated_ms {
                sim.advance_by(after_ms);
                let (key, text) = (t.hub_key(who), status(says).as_deref().and_then(canonical));
                sim.annotate(&t.hub(), Kind::Connector, &key, UPSTREAM_STATUS, text);
            }
        }
        sim.advance_by(600_000);
        no_deviations(&sim, &sim.mirror_deviations())?;
        let mirrors = sim.decided(Verb::Mirror, before).count();
        prop_assert!(mirrors <= changes, "{mirrors} mirrors of {changes} changes");
        let is_contention =
            |note: &Note| matches!(&note.kind, NoteKind::Began(p) if p.cause == Cause::Overwritten);
        prop_assert!(!sim.notes.iter().any(is_contention));
    }
}
