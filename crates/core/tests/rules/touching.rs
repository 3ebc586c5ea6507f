//! The touch rule, to the millisecond: when it writes, and how it takes outcomes, outages and other
//! writers.

use throughline_core::status::trigger::{connector_part, digest};

use crate::stage::*;

fn announces(online: bool, node: &str) -> u64 {
    digest([connector_part("lab", online, node)])
}

/// The trigger that announces that the connector is offline.
fn offline(n: u32, c: u32) -> Trigger {
    Trigger { digest: announces(false, ""), n, c }
}

fn value(decision: &Decision) -> Trigger {
    assert_eq!(decision.action.verb, Verb::Touch);
    assert_eq!(decision.action.annotations[0].0, TRIGGER);
    Trigger::parse(written(decision).unwrap()).unwrap()
}

fn carrying(trigger: Trigger) -> String {
    format!(r#""{TRIGGER}":"{trigger}""#)
}

/// The edge's Gateways are listed, with the only one as it is.
fn relist(stage: &mut Stage, trigger: Trigger) -> &mut Stage {
    let gateway = stage.gateway(&carrying(trigger));
    stage.list("edge", "Gateway", [gateway])
}

/// An edge whose Gateway announces that the connector is online on n1. Its trigger has number 4
/// and is confirmed twice; more than a minute has passed since.
fn settled(settings: Settings) -> Stage {
    let mut stage = Stage::before_the_edge(settings);
    stage.list("edge", "Connector", []).list("edge", "HTTPProxy", []);
    stage.edge(N1).proxy(&["lab"]);
    // What the edge's first list shows is trusted.
    relist(&mut stage, found()).quiet_to(100_000);
    stage.notes();
    stage
}

fn found() -> Trigger {
    Trigger { digest: announces(true, "n1"), n: 4, c: 2 }
}

fn went_offline() -> (Stage, Decision) {
    let mut stage = settled(Settings::default());
    let touch = stage.edge(OFFLINE).next_at(100_100);
    (stage, touch)
}

#[test]
fn beyond_the_burst_touches_of_one_gateway_are_a_second_apart_and_the_last_state_wins() {
    let mut stage = settled(settings(|s| s.touch.burst = 1));
    let first = stage.edge(OFFLINE).action_at(100_100);
    stage.succeed(&first).pass_to(100_200).edge(N2).pass_to(100_600).edge(OFFLINE);
    let second = stage.pass_to(100_950).edge(N3).next_at(101_100);
    assert_eq!(value(&second), Trigger { digest: announces(true, "n3"), n: 6, c: 0 });
}

#[test]
fn a_connector_that_never_stops_changing_is_still_announced() {
    let mut stage = settled(Settings::default());
    let mut touched = Vec::new();
    for n in 0..40 {
        stage.pass_to(100_000 + n * 50).edge(Some(&status(Some(&format!("m{n}")))));
        touched.extend(stage.actions().iter().map(time_of));
    }
    assert_eq!(touched, [101_000], "a second after the first change; it stays in flight");
}

#[test]
fn after_an_outage_only_announcements_made_around_it_are_confirmed_again() {
    // Announced at 100.1 s. The outage begins `after_ms` later and lasts 10 s.
    for (after_ms, confirmed_again) in [(60_000, true), (60_001, false)] {
        let (mut stage, touch) = went_offline();
        stage.succeed(&touch);
        let lost_at = 100_100 + after_ms;
        if confirmed_again {
            // The last confirmation is due at the time of the outage, which comes first.
            stage.settle_to(lost_at - 1);
            stage.now = START + lost_at;
        } else {
            stage.settle_to(lost_at);
        }
        stage.lost("edge", "Gateway").quiet_to(lost_at + 10_000);
        relist(&mut stage, offline(7, 2)).quiet_to(lost_at + 189_999);
        let confirmed = stage.pass_to(lost_at + 190_000).actions();
        assert_eq!(confirmed.len(), usize::from(confirmed_again), "{after_ms} ms");
        for decision in &confirmed {
            assert_eq!(value(decision).c, 3);
            assert!(decision.because.contains("outage"));
        }
    }
}

/// The API server stores our trigger, another writer changes it, and the watch shows that before the answer
/// to our write comes: the answer is older than what is known.
#[test]
fn what_came_after_a_touch_counts_even_if_its_answer_comes_last() {
    for (is_foreign, after) in
        [(false, r#""other":"key""#.to_owned()), (true, format!(r#""{TRIGGER}":"foreign""#))]
    {
        for shows_own_write in [true, false] {
            let (mut stage, touch) = went_offline();
            let stored = stage.version().to_string();
            if shows_own_write {
                stage.gateway(&carrying(value(&touch)));
            }
            stage.gateway(&after);
            let again = stage.finish(&touch, applied(Some(&stored))).action_at(105_000);
            let required = &again.action.precondition;
            assert_eq!(required.resource_version.is_some(), is_foreign);
            let before = required.annotation.as_deref().map(|before| &before.value);
            assert_eq!(before, (!is_foreign).then_some(&None));
            stage.succeed(&again).gateway(&carrying(value(&again)));
            assert_eq!(stage.settle_to(400_000).len(), 2, "two confirmations, and no other touch");
        }
    }
}

/// A Gateway of the class and its HTTPProxy, which references the connector.
fn add(stage: &mut Stage, name: &str, changes: Value) {
    stage.applied("edge", UP.proxy(name, &["lab"]));
    stage.applied("edge", with(UP.gateway(name, json!({})), changes));
}

/// A class of Gateways `g00`, `g01` and so on. Everything is announced, by the first of them.
fn class(count: usize) -> Stage {
    let mut stage = Stage::new(with_scope(TouchScope::GatewayClass));
    stage.upstream(N1).hub(N1).edge(N1);
    (0..count).for_each(|n| add(&mut stage, &format!("g{n:02}"), json!({})));
    stage.settle_to(600_000);
    stage.notes();
    stage
}

#[test]
fn a_refusal_by_the_whole_class_is_tried_a_few_times_in_turn_and_then_every_30_s() {
    let mut stage = class(50);
    let mut touched = Vec::new();
    stage.edge(OFFLINE).run_to(690_000, |stage, touch| {
        if touch.action.verb == Verb::Touch {
            touched.push((time_of(touch), name_of(touch).to_owned()));
            stage.finish(touch, forbidden());
        }
    });
    let names: Vec<_> = touched.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names[..4], ["g00", "g01", "g02", "g03"]);
    assert!(touched[3].0 <= 600_700 && touched.len() <= 4 + 3, "{touched:?}");
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "each attempt is at another one");
    assert_eq!(stage.wrong(), [Cause::WriteRefused, Cause::NotCarried], "one for the class");
    // The permission is back.
    assert!(stage.settle_to(706_000).iter().any(|touch| touch.action.verb == Verb::Touch));
}

/// After its last confirmation a class is at rest: the extension server stamps other classes whenever it
/// translates them.
#[test]
fn after_the_last_confirmation_only_a_stamp_on_a_gateway_of_the_class_touches_it_again() {
    for (stamped, class_name) in [("other", "internal"), ("g00", "edge")] {
        let in_class = json!({"spec": {"gatewayClassName": class_name}});
        let mut stage = class(1);
        add(&mut stage, "other", json!({"spec": {"gatewayClassName": "internal"}}));
        stage.settle_to(800_000);
        let touches = stage.edge(OFFLINE).settle_to(900_000);
        let of = |name: &str| -> Vec<_> {
            touches.iter().filter(|touch| name_of(touch) == name).collect()
        };
        assert_eq!((of("g00").len(), of("other").len()), (3, 3));

        for stamp in ["true/n1", "false/"] {
            let annotations = json!({ TRIGGER: written(of(stamped)[2]), STAMP: stamp });
            let carried = json!({"metadata": { "annotations": annotations }});
            add(&mut stage, stamped, with(carried, in_class.clone()));
        }
        let touched = stage.pass_to(901_000).actions();
        assert_eq!(names(&touched), [stamped]);
    }
}
