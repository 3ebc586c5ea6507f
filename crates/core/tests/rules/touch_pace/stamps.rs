//! What a platform stamp ends, and what it does not.

use super::*;

#[test]
fn a_stamp_on_one_gateway_ends_the_window_of_all_that_wait_for_its_connector() {
    let mut edge = Edge::settled(Settings::default(), 5, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 40);
    edge.stamp("g0003", "false/");
    assert_eq!(edge.touched(at), all_at(40, 5), "one bundle");
    // The stamps on the others show nothing new, whether they come before or after the window.
    for (ms, name) in [(43, "g0000"), (60, "g0001"), (90, "g0002"), (300, "g0004")] {
        edge.pass_to(at + ms);
        edge.stamp(name, "false/");
    }
    edge.pass_to(at + 5_000);
    assert_eq!(edge.touched(at), []);
    edge.pass_to(at + 5_040);
    assert_eq!(edge.touched(at), all_at(5_040, 5), "the first confirmation");
}

#[test]
fn a_stamp_ends_the_window_of_its_class() {
    let mut edge = Edge::settled(class_scope(), 5, 2);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 30);
    edge.stamp("g0004", "false/");
    assert_eq!(edge.touched(at), all_at(30, 1), "c0 is the connector of g0000, g0002 and g0004");
    for (ms, name) in [(40, "g0000"), (50, "g0002")] {
        edge.pass_to(at + ms);
        edge.stamp(name, "false/");
    }
    edge.pass_to(at + 5_000);
    assert_eq!(edge.touched(at), []);
}

/// The extension server sees Connectors in the same order as the watch: a stamp for the one that changed
/// last stands for the others, and one for an earlier one does not.
#[test]
fn in_a_class_the_stamp_for_the_latest_change_counts() {
    for (stamped, touched_at) in [("g0000", 120), ("g0001", 40)] {
        let mut edge = Edge::settled(class_scope(), 2, 2);
        let at = edge.now();
        edge.flip("c0", None);
        edge.pass_to(at + 20);
        edge.flip("c1", None);
        edge.pass_to(at + 40);
        edge.stamp(stamped, "false/");
        edge.pass_to(at + 1_000);
        assert_eq!(edge.touched(at), all_at(touched_at, 1), "{stamped}");
    }
}

#[test]
fn a_stamp_of_an_old_value_neither_ends_nor_prolongs_the_window() {
    for scope in [TouchScope::Gateway, TouchScope::GatewayClass] {
        let mut settings = Settings::default();
        settings.touch.scope = scope;
        let mut edge = Edge::settled(settings, 1, 1);
        let at = edge.now();
        edge.flip("c0", Some("n3"));
        for (ms, stamp) in [(30, "false/"), (60, "true/n2"), (90, "true/n1")] {
            edge.pass_to(at + ms);
            edge.stamp("g0000", stamp);
        }
        edge.pass_to(at + 1_000);
        assert_eq!(edge.touched(at), all_at(100, 1));
    }
}

#[test]
fn a_stamp_that_was_there_before_the_change_shows_nothing() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    let at = edge.now();
    // Away and back: the stamp still says what it said.
    edge.flip("c0", None);
    edge.flip("c0", Some("n1"));
    edge.pass_to(at + 99);
    assert_eq!(edge.touched(at), []);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at), all_at(100, 1));
}

#[test]
fn a_stamp_after_a_touch_that_nothing_had_shown_to_be_late_enough_touches_again() {
    let mut edge = Edge::settled(Settings::default(), 2, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at), all_at(100, 2));
    edge.pass_to(at + 400);
    edge.stamp("g0001", "false/");
    edge.stamp("g0000", "false/");
    assert_eq!(
        edge.touched(at).into_iter().collect::<std::collections::BTreeSet<_>>(),
        all_at(400, 2).into_iter().collect(),
        "the cache was late: both again, once"
    );
    edge.pass_to(at + 1_400);
    assert_eq!(edge.touched(at), []);
}

#[test]
fn a_stamp_for_one_connector_says_nothing_of_a_gateway_that_waits_for_another() {
    let site = |connectors: &[&str]| Site {
        connectors: connectors.iter().map(|&name| name.to_owned()).collect(),
        trigger: None,
        stamp: "true/n1".into(),
    };
    let gateways = [("g0000", site(&["c0", "c1"])), ("g0001", site(&["c1"]))];
    let gateways = gateways.into_iter().map(|(name, site)| (name.to_owned(), site)).collect();
    let mut edge = Edge::listed(Settings::default(), gateways, "", LISTED);
    edge.pass_to(1_000_000);
    edge.touches.clear();
    let at = edge.now();
    edge.flip("c1", None);
    edge.flip("c0", None);
    edge.pass_to(at + 20);
    edge.stamp("g0001", "false/");
    assert_eq!(edge.touched(at), [(20, "g0001".to_owned())], "g0000 waits for c0, too");
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at), [(100, "g0000".to_owned())]);
}
