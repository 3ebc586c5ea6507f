//! What a platform stamp ends, and what it does not.

use super::*;

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

#[test]
fn a_stamp_ends_the_window_of_its_class() {
    let mut edge = Edge::settled(with_scope(TouchScope::GatewayClass), 5, 2);
    edge.flip("c0", OFFLINE).pass_to(30).stamp("g0004", "false/");
    assert_eq!(edge.touched(), all_at(30, 1), "c0 is the connector of g0000, g0002 and g0004");
    edge.pass_to(40).stamp("g0000", "false/").pass_to(50).stamp("g0002", "false/");
    assert_eq!(edge.pass_to(5_000).touched(), []);
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
fn a_stamp_that_was_there_before_the_change_shows_nothing() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    // Away and back: the stamp still says what it said.
    edge.flip("c0", OFFLINE).flip("c0", N1).pass_to(100);
    assert_eq!(edge.touched(), all_at(100, 1));
}

#[test]
fn a_stamp_after_a_touch_that_nothing_had_shown_to_be_late_enough_touches_again() {
    let mut edge = Edge::settled(Settings::default(), 2, 1);
    assert_eq!(edge.flip("c0", OFFLINE).pass_to(100).touched(), all_at(100, 2));
    let mut touched = edge.pass_to(400).stamp("g0001", "false/").stamp("g0000", "false/").touched();
    touched.sort();
    assert_eq!(touched, all_at(400, 2), "the cache was late: both again, once");
    assert_eq!(edge.pass_to(1_400).touched(), []);
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
