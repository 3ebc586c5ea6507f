//! How fast touches leave: when a platform stamp ends the window, what the limit of one object allows,
//! what one edge takes, and what a start or a Gateway that comes back costs.

mod edge;

use crate::stage::*;
use edge::{Edge, LISTED, OWNS_ANNOTATION, OWNS_LABEL, Site, assert_paced, wrote};

const SCOPES: [TouchScope; 2] = [TouchScope::Gateway, TouchScope::GatewayClass];

/// The first `gateways` are touched at one moment.
fn all_at(at: u64, gateways: usize) -> Vec<(u64, String)> {
    (0..gateways).map(|n| (at, format!("g{n:04}"))).collect()
}

/// Offline and online in turn.
fn flipped(n: u64) -> Option<&'static str> {
    if n % 2 == 1 { N1 } else { OFFLINE }
}

#[test]
fn a_connector_that_flaps_for_a_minute_costs_64_touches_and_ends_right() {
    // A class speaks for all its Gateways: five a second.
    for (scope, costs) in SCOPES.into_iter().zip([60..=64, 295..=300]) {
        let mut edge = Edge::settled(with_scope(scope), 1, 1);
        for n in 0..600 {
            edge.pass_to(n * 100).flip("c0", flipped(n));
            // The extension server keeps up, which makes each flip due 20 ms later.
            let stamp = if n % 2 == 1 { "true/n1" } else { "false/" };
            edge.pass_to(n * 100 + 20).stamp("g0000", stamp);
        }
        let touches = edge.pass_to(60_000).touches.len();
        assert!(costs.contains(&touches), "{touches}");
        let values: BTreeSet<_> =
            edge.touches.iter().map(|(.., trigger)| trigger.to_string()).collect();
        assert_eq!(values.len(), touches, "no value is used twice");
        assert_eq!(edge.pass_to(200_000).touches.last().unwrap().2.c, 2, "{scope:?}");
        assert_eq!(edge.stage.hop(Hop::Announced).state, State::Ok);
    }
}

#[test]
fn while_changes_fill_the_pace_one_touch_in_sixteen_is_another() {
    let mut edge = Edge::settled(Settings::default(), 401, 401);
    edge.flip("c400", OFFLINE);
    // Every Gateway changes each second: more than the edge takes.
    for second in 0..30 {
        edge.pass_to(4_500 + second * 1_000);
        (0..400).for_each(|n| _ = edge.flip(&format!("c{n}"), flipped(second)));
    }
    let mut touches = edge.touches.iter();
    let confirmed = touches.find(|(_, name, t)| name == "g0400" && t.c == 1).unwrap();
    assert!(confirmed.0 <= 6_000, "{}", confirmed.0);
}

#[test]
fn a_touch_that_is_not_due_does_not_wait_for_the_edge() {
    let mut edge = Edge::settled(Settings::default(), 1_000, 2);
    edge.flip("c0", OFFLINE).pass_to(1_000).flip("c1", OFFLINE);
    let causes = |edge: &Edge| {
        let fleet = edge.stage.fleet();
        let changed = fleet.connectors.iter().find(|c| c.name.as_ref().unwrap().name == "c1");
        let hops = changed.unwrap().hops_of(Hop::Announced).map(|hop| (hop.state, hop.cause));
        hops.collect::<BTreeSet<_>>()
    };
    let pending = |cause| (State::Pending, cause);
    assert_eq!(causes(&edge), [pending(None)].into());
    edge.pass_to(1_100);
    assert!(causes(&edge).contains(&pending(Some(Cause::TouchesQueued))));
    // What waits is one problem for all, and late for none.
    assert_eq!(edge.pass_to(6_000).stage.wrong(), [Cause::TouchesQueued]);
    let message = edge.stage.fleet().connectors[0].worst().unwrap().message.clone().unwrap();
    assert!(message.contains("touches wait at edge; they take about"), "{message}");
    assert_eq!(edge.pass_to(60_000).stage.wrong(), []);
}

#[test]
fn without_a_limit_all_leave_at_once() {
    let mut edge = Edge::settled(settings(|s| s.touch.max_per_second = 0), 1_000, 1);
    assert_eq!(edge.flip("c0", OFFLINE).pass_to(100).touched(), all_at(100, 1_000));
}

#[test]
fn a_stamp_on_one_gateway_ends_the_window_of_all_that_wait_for_its_connector() {
    let mut edge = Edge::settled(Settings::default(), 5, 1);
    edge.flip("c0", OFFLINE).pass_to(40).stamp("g0003", "false/");
    assert_eq!(edge.touched(), all_at(40, 5), "one bundle");
    // The stamps on the others show nothing new, whether they come before or after the window.
    for (ms, name) in [(43, "g0000"), (60, "g0001"), (90, "g0002"), (300, "g0004")] {
        edge.pass_to(ms).stamp(name, "false/");
    }
    assert_eq!(edge.pass_to(5_040).touched(), all_at(5_040, 5), "the first confirmation");
}

/// The extension server sees Connectors in the same order as the watch: a stamp for the one that changed
/// last stands for the others, and one for an earlier one does not.
#[test]
fn in_a_class_the_stamp_for_the_latest_change_counts() {
    for (stamped, touched_at) in [("g0000", 120), ("g0001", 40)] {
        let mut edge = Edge::settled(with_scope(TouchScope::GatewayClass), 2, 2);
        edge.flip("c0", OFFLINE).pass_to(20).flip("c1", OFFLINE);
        edge.pass_to(40).stamp(stamped, "false/").pass_to(1_000);
        assert_eq!(edge.touched(), all_at(touched_at, 1), "{stamped}");
    }
}

#[test]
fn a_stamp_of_an_old_value_neither_ends_nor_prolongs_the_window() {
    for scope in SCOPES {
        let mut edge = Edge::settled(with_scope(scope), 1, 1);
        edge.flip("c0", N3);
        for (ms, stamp) in [(30, "false/"), (60, "true/n2"), (90, "true/n1")] {
            edge.pass_to(ms).stamp("g0000", stamp);
        }
        assert_eq!(edge.pass_to(1_000).touched(), all_at(100, 1));
    }
}

#[test]
fn a_stamp_for_one_connector_says_nothing_of_a_gateway_that_waits_for_another() {
    let gateways = [("g0000", Site::of(&["c0", "c1"])), ("g0001", Site::of(&["c1"]))];
    let gateways = gateways.into_iter().map(|(name, site)| (name.to_owned(), site)).collect();
    let mut edge = Edge::listed(Settings::default(), gateways, &[], LISTED);
    edge.settle();
    edge.flip("c1", OFFLINE).flip("c0", OFFLINE).pass_to(20).stamp("g0001", "false/");
    assert_eq!(edge.touched(), [(20, "g0001".to_owned())], "g0000 waits for c0, too");
    assert_eq!(edge.pass_to(100).touched(), [(100, "g0000".to_owned())]);
}

/// When each Gateway was touched, and the number of the confirmation.
fn touches_of(edge: &Edge) -> Vec<(u64, u32)> {
    edge.touches.iter().map(|(at, _, trigger)| (*at, trigger.c)).collect()
}

#[test]
fn a_gateway_that_vanishes_and_comes_back_with_its_trigger_is_announced_and_confirmed_twice() {
    let expected = [(10_100, 0), (15_100, 1), (70_100, 2)];
    for scope in SCOPES {
        let mut edge = Edge::settled(with_scope(scope), 1, 1);
        let names = edge.names();
        edge.relist(&[]).pass_to(10_000).relist(&names).pass_to(400_000);
        assert_eq!(touches_of(&edge), expected, "{scope:?}");
    }
    // A watch shows it.
    let mut edge = Edge::settled(Settings::default(), 2, 1);
    let gateway = edge.gateway("g0000");
    edge.stage.deleted("edge", &gateway);
    edge.pass_to(10_000).stage.applied("edge", &gateway);
    assert_eq!(touches_of(edge.pass_to(400_000)), expected);
}

/// The first list breaks off after some Gateways, and the second one is complete: all are found at the start.
#[test]
fn gateways_that_only_the_second_attempt_at_the_first_list_shows_are_trusted() {
    let gateways = Edge::settled(Settings::default(), 4, 2).gateways;
    let mut edge = Edge::unlisted(Settings::default(), gateways, 2_000_000);
    edge.list_connectors(&[wrote("carrier", 0, OWNS_ANNOTATION)]);
    let first = edge.gateway("g0000");
    edge.stage.list_started("edge", "Gateway").listed("edge", first).lost("edge", "Gateway");
    let names = edge.names();
    assert_eq!(edge.relist(&names).pass_to(3_000_000).touches, []);
}

/// An API server that shows no Gateways once, and then all of them again, costs a touch and two
/// confirmations for each at the edge's pace. A change does not wait behind them.
#[test]
fn an_edge_that_was_empty_once_is_announced_at_its_pace_and_behind_changes() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::settled(Settings::default(), COUNT, 1_000);
    let names = edge.names();
    edge.relist(&[]).pass_to(1_000).relist(&names).pass_to(11_000);
    edge.flip("c7", OFFLINE).pass_to(12_200);
    let is_of_c7 = |(at, name, _): &&(_, String, _)| *at >= 11_000 && name.ends_with("007");
    let changed = edge.touches.iter().filter(is_of_c7).count();
    assert_eq!(changed, 5, "those of c7, before thousands that wait");
    assert_paced(&edge.pass_to(1_000_000).touches);
    let first = edge.touches.iter().filter(|(.., trigger)| trigger.c == 0).count();
    assert!((COUNT..=COUNT + 5).contains(&first), "{first}");
    assert!(edge.touches.len() <= 3 * (COUNT + 5), "{}", edge.touches.len());
    let last = edge.touches.last().unwrap().0;
    assert!(last <= 400_000, "{last}");
    let confirmed = edge.touches.iter().filter(|(.., trigger)| trigger.c == 2);
    let confirmed: BTreeSet<_> = confirmed.map(|(_, name, _)| name).collect();
    assert_eq!(confirmed.len(), COUNT, "each is confirmed to the end");
}

/// What 5,000 Gateways cost: at a first install; after a restart; after a label on every Connector and a
/// restart; after the status annotation of every Connector was written and a restart.
#[test]
fn five_thousand_gateways_cost_two_touches_each_at_a_first_install_and_none_after_a_label() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::new(Settings::default(), COUNT, 1_000);
    assert_paced(&edge.pass_to(400_000).touches);
    assert_eq!(edge.touches.len(), 2 * COUNT, "one touch and one confirmation");
    let all_done = edge.touches.last().unwrap().0;
    assert!(all_done <= 200_000, "{all_done}");

    let annotation = wrote("carrier", 0, OWNS_ANNOTATION);
    let label = wrote("kubectl-label", 500_000, OWNS_LABEL);
    let again = wrote("carrier", 500_000, OWNS_ANNOTATION);
    for (fields, touches) in [
        (vec![annotation.clone()], 0),
        (vec![annotation, label.clone()], 0),
        (vec![again, label], 2 * COUNT),
    ] {
        let gateways = edge.gateways.clone();
        let mut restarted = Edge::listed(Settings::default(), gateways, &fields, 600_000);
        assert_paced(&restarted.pass_to(1_000_000).touches);
        assert_eq!(restarted.touches.len(), touches, "{fields:?}");
    }
}

/// Times of writes are whole seconds. A confirmation may have come before another write of its second: the
/// instance that wrote it had not seen that the connector went online and offline again, and ended.
#[test]
fn a_confirmation_in_the_second_of_another_write_is_not_trusted_after_a_restart() {
    let edge = Edge::settled(Settings::default(), 1, 1);
    let (trigger, confirmed_at) = edge.gateways["g0000"].trigger.unwrap();
    assert!(trigger.c > 0);
    let second = confirmed_at / 1_000 * 1_000;
    for (written_at, touches) in [(second - 1_000, 0), (second, 2), (second + 1_000, 2)] {
        let fields = [wrote("carrier", written_at, OWNS_ANNOTATION)];
        let restart = |gateways, at| {
            let mut edge = Edge::listed(Settings::default(), gateways, &fields, at);
            edge.pass_to(at + 500_000);
            edge
        };
        let restarted = restart(edge.gateways.clone(), 2_000_000);
        assert_eq!(restarted.touches.len(), touches, "written at {written_at}");
        assert_eq!(restart(restarted.gateways, 3_000_000).touches, [], "once is enough");
    }
}

#[test]
fn a_confirmation_that_would_follow_within_the_window_goes_along() {
    let mut edge = Edge::settled(Settings::default(), 2, 2);
    edge.flip("c0", OFFLINE).pass_to(4_930).flip("c1", OFFLINE).pass_to(6_000);
    let first = |n: usize, ms| (ms, format!("g{n:04}"));
    assert_eq!(edge.touched(), [first(0, 100), first(0, 5_030), first(1, 5_030)]);
}
