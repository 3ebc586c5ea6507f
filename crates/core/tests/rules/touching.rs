//! The touch rule, to the millisecond: when it writes, and how it takes outcomes, outages and other
//! writers.

use crate::stage::*;

/// The API server stores our trigger, another writer changes it, and the watch shows that before the answer
/// to our write comes: the answer is older than what is known.
#[test]
fn what_came_after_a_touch_counts_even_if_its_answer_comes_last() {
    for (is_foreign, after) in
        [(false, r#""other":"key""#.to_owned()), (true, format!(r#""{TRIGGER}":"foreign""#))]
    {
        for shows_own_write in [true, false] {
            let mut stage = Stage::settled(Settings::default());
            let touch = stage.leave("up").leave("hub").edge(OFFLINE).next_at(600_100);
            let stored = stage.version().to_string();
            if shows_own_write {
                stage.gateway(&carrying(&touch));
            }
            stage.gateway(&after);
            let again = stage.finish(&touch, applied(Some(&stored))).action_at(605_000);
            assert!(number_of(&again) > number_of(&touch), "no number is used twice");
            let required = &again.action.precondition;
            assert_eq!(required.resource_version.is_some(), is_foreign);
            let before = required.annotation.as_deref().map(|before| &before.value);
            assert_eq!(before, (!is_foreign).then_some(&None));
            stage.succeed(&again).gateway(&carrying(&again));
            assert_eq!(stage.settle_to(900_000).len(), 2, "two confirmations, and no other touch");
        }
    }
}

/// The number of the trigger that it writes.
fn number_of(touch: &Decision) -> u32 {
    Trigger::parse(written(touch).unwrap()).unwrap().n
}

/// The trigger that it writes, as a member of a JSON object.
fn carrying(touch: &Decision) -> String {
    format!(r#""{TRIGGER}":"{}""#, written(touch).unwrap())
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
    let is_open = |(has_begun, _): &(bool, Problem)| *has_begun;
    assert!(stage.problems().iter().all(is_open), "another carrier is no other problem");
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
