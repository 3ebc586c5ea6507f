//! Instances share the upstreams of a fleet. An instance keeps of the hub only what names upstreams of
//! the shards that it follows, and writes only for those that it leads. That an object is not kept
//! proves nothing: nothing is written, removed or deleted because of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "shards/any_order.rs"]
mod any_order;
#[path = "shards/fleet.rs"]
mod fleet;
#[path = "shards/touches.rs"]
mod touches;

use throughline::core::contract::action::Verb;
use throughline::core::contract::event::EventKind;
use throughline::core::contract::membership::{
    JoinRule, LeaveReason, Membership, OfferState, SourceName,
};
use throughline::core::contract::note::{NamingProblem, NoteKind};
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::Role;
use throughline::core::data::time::UnixMillis;

use fleet::{A, B, Fleet, START, both_held, deletes, name_in, uid, verbs};

#[test]
fn an_instance_mirrors_the_upstreams_of_the_shard_that_it_leads_alone() {
    let ups = [name_in(A, "up"), name_in(B, "up")];
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(A);
    fleet.hub_is_empty();
    for up in &ups {
        let connector = fleet.upstream_connector(up, "n1");
        fleet.join(up, &[connector]);
    }
    for up in &ups {
        let (connector, route) = (fleet.hub_connector(up, None), fleet.orphan(up, "r"));
        fleet.applied("hub", &connector);
        fleet.applied("hub", &route);
    }
    assert_eq!(fleet.hub_objects(), 2, "of B nothing is kept");
    let decided = fleet.decided();
    assert_eq!(verbs(&decided), [(Verb::Mirror, A)]);
    assert_eq!(decided[0].action.connectors[0].namespace, format!("ns-{}", uid(&ups[0])));
    // Nobody is warned of upstreams that are another instance's.
    fleet.pass(300_000);
    let notes = fleet.notes();
    assert!(!notes.iter().any(|note| matches!(note, NoteKind::Naming { .. })), "{notes:?}");
}

#[test]
fn a_flip_is_mirrored_while_the_gate_of_another_shard_is_closed() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::LeadershipLost { shard: B });
    for up in &ups {
        let flipped = fleet.upstream_connector(up, "n2");
        fleet.applied(up, &flipped);
    }
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Mirror, A)]);
    // Its turn comes when the gate opens again.
    fleet.event(EventKind::LeadershipAcquired { shard: B });
    let (decided, b) = (fleet.pass(1_000), format!("ns-{}", uid(&ups[1])));
    let of_b: Vec<_> = decided.iter().filter(|d| d.action.object.namespace == b).collect();
    assert_eq!(
        of_b.iter().map(|d| (d.action.verb, d.action.shard)).collect::<Vec<_>>(),
        [(Verb::Mirror, B)]
    );
}

#[test]
fn a_shard_that_is_left_is_forgotten_and_nothing_is_written() {
    let (mut fleet, ups) = both_held();
    // B's route is an orphan, and about to be deleted; a removal of its annotation is about to be due.
    let route = fleet.orphan(&ups[1], "r");
    fleet.applied("hub", &route);
    let gone = fleet.upstream_connector(&ups[1], "n1");
    fleet.line(&format!(r#""event":"deleted","cluster":"{}","object":{gone}"#, ups[1]));
    fleet.notes();
    fleet.event(EventKind::ShardLeft { shard: B });
    assert_eq!(fleet.hub_objects(), 1);
    // What the shell does next, in either order with what the hub still shows.
    let late = fleet.hub_connector(&ups[1], Some("n1"));
    fleet.applied("hub", &late);
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    fleet.applied("hub", &late);
    assert_eq!(fleet.pass(600_000), []);
    assert_eq!(fleet.hub_objects(), 1);
    let notes = fleet.notes();
    let tells = |note: &NoteKind| {
        matches!(
            note,
            NoteKind::Naming { over: false, .. } | NoteKind::Anomaly(_) | NoteKind::Stalled(_)
        )
    };
    assert!(!notes.iter().any(tells), "{notes:?}");
    // The other shard is as it was.
    let flipped = fleet.upstream_connector(&ups[0], "n2");
    fleet.applied(&ups[0], &flipped);
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Mirror, A)]);
}

#[test]
fn a_shard_that_is_followed_again_is_caught_up() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::ShardLeft { shard: B });
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    fleet.pass(60_000);
    fleet.hold(B);
    let connector = fleet.upstream_connector(&ups[1], "n2");
    fleet.join(&ups[1], &[connector]);
    // The watch shows some of it before: a part of it would say the wrong thing about its share.
    let (early, route) = (fleet.hub_connector(&ups[1], Some("n1")), fleet.orphan(&ups[1], "r"));
    fleet.applied("hub", &early);
    fleet.applied("hub", &route);
    assert_eq!(fleet.pass(60_000), [], "the hub is not listed yet");
    assert_eq!(fleet.hub_objects(), 1);
    let connectors: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
    fleet.list("hub", "Connector", &connectors);
    let decided = fleet.pass(1_000);
    assert_eq!(verbs(&decided), [(Verb::Mirror, B)]);
    assert!(fleet.machine.table_sizes().hub_objects == 2);
}

#[test]
fn a_list_of_the_hub_without_a_followed_shard_removes_and_deletes_nothing() {
    let (mut fleet, ups) = both_held();
    // A filter that is a step behind: the list lacks B, which is followed.
    let connector = fleet.hub_connector(&ups[0], Some("n1"));
    fleet.list("hub", "Connector", &[connector]);
    fleet.list("hub", "HTTPRoute", &[]);
    assert_eq!(fleet.pass(600_000), []);
    let connectors: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
    fleet.list("hub", "Connector", &connectors);
    assert_eq!(fleet.pass(600_000), []);
    assert_eq!(fleet.hub_objects(), 2);
}

#[test]
fn a_hub_connector_that_comes_to_name_another_shard_is_forgotten() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::ShardLeft { shard: B });
    let moved = fleet
        .hub_connector(&ups[0], Some("n1"))
        .replace(&format!("cluster-{}\"", ups[0]), &format!("cluster-{}\"", ups[1]));
    fleet.applied("hub", &moved);
    assert_eq!(fleet.hub_objects(), 0);
    assert_eq!(fleet.pass(600_000), []);
}

#[test]
fn deletes_wait_with_the_leadership_of_their_shard() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::LeadershipLost { shard: B });
    for up in &ups {
        let route = fleet.orphan(up, "r");
        fleet.applied("hub", &route);
    }
    let decided = fleet.pass(60_000);
    assert_eq!(verbs(&decided), [(Verb::Delete, A)]);
    assert_eq!(decided[0].action.object.namespace, format!("ns-{}", uid(&ups[0])));
}

#[test]
fn the_fleets_deletes_in_a_minute_are_shared_out_as_the_shards_are() {
    for (led, at_most) in [(vec![A, B], 4), (vec![B], 2)] {
        let mut settings = deletes();
        settings.orphans.max_per_minute = 4;
        let up = name_in(B, "up");
        let mut fleet = Fleet::new(settings);
        led.into_iter().for_each(|shard| fleet.hold(shard));
        fleet.hub_is_empty();
        fleet.join(&up, &[]);
        for i in 0..8 {
            let route = fleet.orphan(&up, &format!("r{i}"));
            fleet.applied("hub", &route);
        }
        assert_eq!(fleet.pass(59_000).len(), at_most);
    }
}

#[test]
fn discovered_clusters_join_and_leave_with_their_shard() {
    let ups = [name_in(A, "up"), name_in(B, "up")];
    let mut fleet = Fleet::new(Settings::default());
    let source = SourceName::Milo;
    fleet.hold(A);
    fleet.event(EventKind::DiscoveryStarted { source, join: JoinRule::All });
    for up in &ups {
        let (cluster, uid) = (up.as_str().into(), uid(up));
        let (roles, state) = (vec![Role::Upstream], OfferState::Ready);
        fleet.event(EventKind::ClusterOffered { source, cluster, uid, roles, state });
    }
    fleet.event(EventKind::DiscoveryFinished { source });
    let joins = |fleet: &mut Fleet| {
        let changes = std::iter::from_fn(|| fleet.machine.poll_membership());
        let name = |change| match change {
            Membership::Join { cluster, .. } => (cluster.to_string(), None),
            Membership::Leave { cluster, reason } => (cluster.to_string(), Some(reason)),
        };
        changes.map(name).collect::<Vec<_>>()
    };
    assert_eq!(joins(&mut fleet), [(ups[0].clone(), None)]);
    fleet.event(EventKind::ShardFollowed { shard: B });
    assert_eq!(joins(&mut fleet), [(ups[1].clone(), None)]);
    fleet.event(EventKind::ClusterAdded {
        cluster: ups[1].as_str().into(),
        roles: vec![Role::Upstream],
    });
    fleet.event(EventKind::ShardLeft { shard: B });
    assert_eq!(joins(&mut fleet), [(ups[1].clone(), Some(LeaveReason::ShardLeft))]);
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    fleet.pass(600_000);
    assert_eq!(joins(&mut fleet), []);
}

#[test]
fn the_state_says_which_shards_are_followed_and_led_and_since_when() {
    let (mut fleet, _) = both_held();
    fleet.event(EventKind::LeadershipLost { shard: B });
    let view = fleet.machine.view();
    let followed = || view.shards.iter().filter(|shard| shard.followed_since_ms.is_some());
    let seen: Vec<_> = followed().map(|s| (s.shard, s.led_since_ms)).collect();
    assert_eq!(seen, [(A, Some(UnixMillis(START))), (B, None)]);
    assert!(followed().all(|shard| shard.followed_since_ms == Some(UnixMillis(START))));
    let numbers: Vec<_> = view.shards.iter().map(|shard| shard.shard).collect();
    assert_eq!(numbers, fleet.machine.settings().shards.all().collect::<Vec<_>>());
    assert!(view.leads);
}

#[test]
fn the_state_has_the_connectors_of_the_shards_that_are_followed() {
    let (mut fleet, ups) = both_held();
    let all = fleet.machine.view();
    assert_eq!(all.connectors.len(), 2);
    // The edge still has those of both.
    fleet.event(EventKind::ShardLeft { shard: B });
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    let view = fleet.machine.view();
    let clusters: Vec<_> = view.connectors.iter().map(|c| c.upstream.as_ref().unwrap()).collect();
    assert_eq!(clusters.iter().map(|u| u.cluster.as_str()).collect::<Vec<_>>(), [&*ups[0]]);
    assert_eq!(view.phases, fleet.machine.phases());
    assert_eq!(view.phases.values().sum::<u64>(), 1);
}

#[test]
fn one_upstream_of_a_followed_shard_that_is_not_configured_is_reported() {
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(A);
    fleet.hub_is_empty();
    for up in [name_in(A, "up"), name_in(B, "up")] {
        let connector = fleet.hub_connector(&up, None);
        fleet.applied("hub", &connector);
    }
    fleet.pass(120_000);
    let unconfigured = fleet.notes().into_iter().find_map(|note| match note {
        NoteKind::Naming { problem: NamingProblem::Unconfigured, upstreams, .. } => Some(upstreams),
        _ => None,
    });
    let named: Vec<_> = unconfigured.unwrap().into_iter().map(|u| u.cluster.to_string()).collect();
    assert_eq!(named, [name_in(A, "up")]);
}
