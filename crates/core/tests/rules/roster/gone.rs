//! The deletes of routes of deleted projects.

use super::stage::{deletes, with_gone};
use crate::stage::*;

/// Why the only route of the project is kept; `orphan` if it is one.
fn kept(fleet: &Stage) -> &'static str {
    let candidates = fleet.machine.candidates();
    assert_eq!(candidates.len(), 1);
    candidates[0].kept.map_or("orphan", |kept| kept.as_str())
}

#[test]
fn every_rail_of_a_delete_holds_for_it() {
    type Change = fn(&mut Settings);
    let rails: [(&str, &str, Change); 4] = [
        ("the setting", "project_missing", |s| s.orphans.deleted_projects = false),
        ("the mode", "orphan", |s| s.orphans.mode = OrphanMode::Report),
        ("the age", "route_settling", |s| s.orphans.min_age_ms = 100 * HOUR),
        ("the share", "deletes_held", |s| s.orphans.share_from = 0),
    ];
    for (rail, verdict, change) in rails {
        let mut fleet = with_gone(deletes(change));
        assert_eq!(fleet.pass(HOUR).actions(), [], "{rail}");
        assert_eq!(kept(&fleet), verdict, "{rail}");
    }
    type Happens = fn(&mut Stage);
    let keeps: [(&str, &str, Happens); 5] = [
        ("the leader", "orphan", |f| _ = f.leads(false)),
        ("the source", "route_unproven", |f| _ = f.discovery_lost()),
        ("the source's list", "route_unproven", |f| _ = f.started(JoinRule::All)),
        ("the hub", "route_unproven", |f| _ = f.lost("hub", "HTTPRoute")),
        ("the project", "upstream_unknown", |f| _ = f.offer("a", "9", OfferState::NotReady)),
    ];
    for (rail, verdict, happens) in keeps {
        let mut fleet = with_gone(deletes(|_| ()));
        happens(fleet.pass(1_000));
        assert_eq!(fleet.pass(10 * MINUTE).actions(), [], "{rail}");
        assert_eq!(kept(&fleet), verdict, "{rail}");
    }
    // The settling time starts again.
    let mut fleet = with_gone(deletes(|_| ()));
    fleet.pass(29_000).discovery_lost().pass(1_000).discovery_resumed();
    let at = fleet.time() + 30_000;
    fleet.next_at(at);
}
