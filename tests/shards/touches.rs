//! The instance that leads an edge's shard touches first.

use throughline::core::contract::action::Verb;
use throughline::core::contract::event::EventKind;
use throughline::core::contract::settings::Settings;
use throughline::core::data::shard::Shard;

use crate::fleet::{A, B, Fleet, uid, verbs};

/// An edge with a Gateway whose connector goes online now.
fn with_a_change_at_the_edge(fleet: &mut Fleet) {
    let (ns, edge) = (format!("ns-{}", uid("up")), fleet.edge.clone());
    let v = fleet.version();
    let object = |kind: &str, name: &str, rest: &str| {
        format!(
            r#"{{"kind":"{kind}","metadata":{{"namespace":"{ns}","name":"{name}","uid":"e-{kind}","resourceVersion":"{v}"}}{rest}}}"#
        )
    };
    let backends = r#","spec":{"rules":[{"backends":[{"connector":{"name":"lab"}}]}]}"#;
    fleet.applied(&edge, &object("Connector", "lab", ""));
    fleet.applied(&edge, &object("HTTPProxy", "app", backends));
    fleet.applied(&edge, &object("Gateway", "app", r#","spec":{"gatewayClassName":"edge"}"#));
}

#[test]
fn the_leader_of_an_edges_shard_touches_first_and_others_stand_in() {
    let shard = A;
    // The leader at once.
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(shard);
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Touch, Shard::FIRST)]);
    // Another one after `touch.standInMs`.
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(B);
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(fleet.pass(2_900), []);
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Touch, Shard::FIRST)]);
    // At once when nobody can know the leader.
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(B);
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(fleet.pass(500), []);
    fleet.event(EventKind::LeaseApiLost);
    assert_eq!(verbs(&fleet.pass(500)), [(Verb::Touch, Shard::FIRST)]);
    // And when it comes to lead.
    let mut fleet = Fleet::new(Settings::default());
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(fleet.pass(500), []);
    fleet.hold(shard);
    assert_eq!(verbs(&fleet.pass(500)), [(Verb::Touch, Shard::FIRST)]);
}

#[test]
fn nobody_stands_in_for_what_the_gateway_announces_by_then() {
    let mut leader = Fleet::new(Settings::default());
    leader.hold(A);
    let mut other = Fleet::new(Settings::default());
    other.hold(B);
    [&mut leader, &mut other].into_iter().for_each(with_a_change_at_the_edge);
    let touch = leader.pass(1_000).remove(0);
    assert_eq!(other.pass(1_000), []);
    let (key, value) = touch.action.annotations[0].clone();
    let (ns, v) = (format!("ns-{}", uid("up")), 1_000);
    let value = serde_json::to_string(&value.unwrap()).unwrap();
    let edge = other.edge.clone();
    other.applied(&edge, &format!(
        r#"{{"kind":"Gateway","metadata":{{"namespace":"{ns}","name":"app","uid":"e-Gateway","resourceVersion":"{v}","annotations":{{"{key}":{value}}}}},"spec":{{"gatewayClassName":"edge"}}}}"#
    ));
    // The leader confirms after 5 s; so long nobody else writes.
    assert_eq!(other.pass(4_000), []);
}
