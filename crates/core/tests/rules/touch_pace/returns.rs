//! Gateways that vanish and come back with what they carried.

use super::*;

impl Edge {
    /// The edge's Gateways are listed: these.
    fn relist(&mut self, names: &[String]) {
        let list: Vec<_> = names.iter().map(|name| self.gateway(name)).collect();
        let list: Vec<_> = list.iter().map(String::as_str).collect();
        self.stage.list("edge", "Gateway", &list);
        self.take();
    }

    fn names(&self) -> Vec<String> {
        self.gateways.keys().cloned().collect()
    }
}

/// When each Gateway was touched, and the number of the confirmation.
fn touches_of(edge: &Edge, since: u64) -> Vec<(u64, u32)> {
    edge.touches.iter().map(|(at, _, trigger)| (at - since, trigger.c)).collect()
}

#[test]
fn a_gateway_that_vanishes_and_comes_back_with_its_trigger_is_announced_and_confirmed_twice() {
    for scope in [TouchScope::Gateway, TouchScope::GatewayClass] {
        let mut settings = Settings::default();
        settings.touch.scope = scope;
        let mut edge = Edge::settled(settings, 1, 1);
        let at = edge.now();
        edge.relist(&[]);
        edge.pass_to(at + 10_000);
        let names = edge.names();
        edge.relist(&names);
        edge.pass_to(at + 400_000);
        let touches = touches_of(&edge, at + 10_000);
        assert_eq!(touches, [(100, 0), (5_100, 1), (60_100, 2)], "{scope:?}");
    }
}

#[test]
fn a_gateway_that_a_watch_shows_again_is_announced_again() {
    let mut edge = Edge::settled(Settings::default(), 2, 1);
    let at = edge.now();
    let gone = edge.gateway("g0000");
    edge.stage.deleted("edge", &gone);
    edge.pass_to(at + 10_000);
    assert_eq!(edge.touches, []);
    let back = edge.gateway("g0000");
    edge.stage.applied("edge", &back);
    edge.pass_to(at + 10_200);
    let [(_, name, trigger)] = &edge.touches[..] else { panic!("{:?}", edge.touches) };
    assert_eq!((name.as_str(), trigger.c), ("g0000", 0));
}

#[test]
fn gateways_that_are_only_listed_again_are_not_touched() {
    let mut edge = Edge::settled(Settings::default(), 50, 5);
    let names = edge.names();
    edge.relist(&names);
    edge.pass_to(edge.now() + 1_000_000);
    assert_eq!(edge.touches, []);
}

/// The first list breaks off after some Gateways, and the second one is complete: all are found at the start.
#[test]
fn gateways_that_only_the_second_attempt_at_the_first_list_shows_are_trusted() {
    let gateways = Edge::settled(Settings::default(), 4, 2).gateways;
    let stage = Stage::before_the_edge(Settings::default());
    let mut edge = Edge { stage, gateways, touches: Vec::new() };
    edge.stage.pass_to(2_000_000);
    let names = edge.names();
    let wrote = wrote("carrier", 0, OWNS_ANNOTATION);
    let connectors = ["c0", "c1"].map(|name| connector(name, 10, Some("n1"), &wrote));
    let proxies: Vec<_> = names.iter().map(|name| edge.proxy(name)).collect();
    let connectors: Vec<_> = connectors.iter().map(String::as_str).collect();
    edge.stage.list("edge", "Connector", &connectors);
    let proxies: Vec<_> = proxies.iter().map(String::as_str).collect();
    edge.stage.list("edge", "HTTPProxy", &proxies);
    let first = edge.gateway("g0000");
    edge.stage.list_started("edge", "Gateway");
    edge.stage.listed("edge", &first);
    edge.stage.lost("edge", "Gateway");
    edge.relist(&names);
    edge.pass_to(3_000_000);
    assert_eq!(edge.touches, []);
}

/// An API server that shows no Gateways once, and then all of them again, costs a touch and two
/// confirmations for each at the edge's pace. A change does not wait behind them.
#[test]
fn an_edge_that_was_empty_once_is_announced_at_its_pace_and_behind_changes() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::settled(Settings::default(), COUNT, 1_000);
    let at = edge.now();
    let names = edge.names();
    edge.relist(&[]);
    edge.pass_to(at + 1_000);
    edge.relist(&names);
    edge.pass_to(at + 11_000);
    edge.flip("c7", None);
    edge.pass_to(at + 12_200);
    let changed: Vec<_> = edge
        .touches
        .iter()
        .filter(|(time, name, _)| *time >= at + 11_000 && name.ends_with("007"))
        .collect();
    assert_eq!(changed.len(), 5, "those of c7, before thousands that wait: {changed:?}");
    edge.pass_to(at + 1_000_000);
    assert_paced(&edge.touches);
    let first = edge.touches.iter().filter(|(.., trigger)| trigger.c == 0).count();
    assert!((COUNT..=COUNT + 5).contains(&first), "{first}");
    let last = touches_of(&edge, at).last().copied();
    assert!(edge.touches.len() <= 3 * (COUNT + 5), "{}", edge.touches.len());
    assert!(last.is_some_and(|(after, _)| after <= 400_000), "{last:?}");
    let announced: std::collections::BTreeSet<_> = edge
        .touches
        .iter()
        .filter(|(.., trigger)| trigger.c == 2)
        .map(|(_, name, _)| name)
        .collect();
    assert_eq!(announced.len(), COUNT, "each is confirmed to the end");
}
