//! How fast touches leave: when a platform stamp ends the window, what the limit of one object allows,
//! and what one edge takes.

mod edge;
mod returns;
mod stamps;
mod starts;

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
fn four_flips_of_a_gateway_are_announced_as_they_come_and_then_one_a_second() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    for n in 0..6 {
        edge.pass_to(n * 150).flip("c0", flipped(n));
    }
    let times = edge.pass_to(4_000).times();
    assert_eq!(times, [100, 250, 400, 550, 1_100], "the last two flips in one");
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
fn confirmations_take_no_turn_from_announcements() {
    let mut edge = Edge::settled(settings(|s| s.touch.burst = 1), 1, 1);
    edge.flip("c0", OFFLINE).pass_to(5_100).flip("c0", N1);
    let times = edge.pass_to(5_200).times();
    assert_eq!(times, [100, 5_100, 5_200], "announced, confirmed, announced");
}

#[test]
fn a_confirmation_that_would_follow_within_the_window_goes_along() {
    let mut edge = Edge::settled(Settings::default(), 2, 2);
    edge.flip("c0", OFFLINE).pass_to(4_930).flip("c1", OFFLINE).pass_to(6_000);
    let first = |n: usize, ms| (ms, format!("g{n:04}"));
    assert_eq!(edge.touched(), [first(0, 100), first(0, 5_030), first(1, 5_030)]);
}

#[test]
fn three_hundred_gateways_of_one_flip_leave_in_an_even_stream() {
    let mut edge = Edge::settled(Settings::default(), 300, 1);
    edge.flip("c0", OFFLINE);
    for (ms, touches) in [(100, 200), (1_100, 50), (2_100, 50)] {
        assert_eq!(edge.pass_to(ms).touched().len(), touches, "the burst, and 50 a second");
    }
    let queued =
        edge.stage.problems().into_iter().map(|(began, problem)| (began, problem.sentence()));
    let sentence = "100 touches wait at edge; they take about 2 s.";
    assert_eq!(queued.collect::<Vec<_>>(), [true, false].map(|began| (began, sentence.to_owned())));
}

#[test]
fn a_flip_goes_ahead_of_what_a_start_finds_and_of_confirmations() {
    let mut edge = Edge::new(Settings::default(), 2_000, 2_000);
    let before = edge.pass_to(LISTED + 10_000).touched().len();
    assert!((590..=600).contains(&before), "{before}");
    // The last one in the stream, and one that is touched already: both have room at once.
    let at = edge.now() + 100;
    let touched = edge.flip("c1999", OFFLINE).flip("c0", OFFLINE).pass_to(at).touched();
    for name in ["g1999", "g0000"] {
        assert!(touched.contains(&(at, name.to_owned())), "{name}: {touched:?}");
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
fn touches_that_wait_for_the_edge_are_one_problem_and_not_late_each() {
    let mut edge = Edge::settled(Settings::default(), 1_000, 1);
    edge.flip("c0", OFFLINE).pass_to(5_000);
    assert_eq!(edge.stage.wrong(), [Cause::TouchesQueued]);
    let queued = (State::Pending, Hop::Announced, Some(Cause::TouchesQueued));
    assert_eq!(edge.stage.worst(), queued);
    let connector = edge.stage.connector();
    let waiting: Vec<_> =
        connector.hops_of(Hop::Announced).filter(|hop| hop.state == State::Pending).collect();
    assert!(waiting.iter().all(|hop| hop.cause == Some(Cause::TouchesQueued)));
    assert_eq!(waiting.len(), 555);
    let message = waiting[0].message.as_deref();
    assert!(message.unwrap().contains("touches wait at edge; they take about"), "{message:?}");
    assert_eq!(edge.pass_to(60_000).stage.wrong(), []);
    assert_eq!(edge.stage.connector().state, State::Ok);
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
}

#[test]
fn without_a_limit_all_leave_at_once() {
    let mut edge = Edge::settled(settings(|s| s.touch.max_per_second = 0), 1_000, 1);
    assert_eq!(edge.flip("c0", OFFLINE).pass_to(100).touched(), all_at(100, 1_000));
}
