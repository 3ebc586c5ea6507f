//! One Gateway carries the trigger for its whole class. Where that one can't be written, another
//! does, so that a class never depends on a single object.

use crate::stage::*;

/// A Gateway of the class and its HTTPProxy, which references the connector.
fn add(stage: &mut Stage, name: &str, changes: Value) {
    stage.applied("edge", UP.proxy(name, &["lab"]));
    stage.applied("edge", with(UP.gateway(name, json!({})), changes));
}

fn carrying(trigger: Option<&str>) -> Value {
    let annotations = trigger.map_or(json!({}), |trigger| json!({ TRIGGER: trigger }));
    json!({"metadata": {"annotations": annotations}})
}

/// The listeners are programmed, or not.
fn programmed(trigger: Option<&str>, is_programmed: bool) -> Value {
    let value = if is_programmed { "True" } else { "False" };
    let conditions = json!([{"type": "Programmed", "status": value}]);
    with(carrying(trigger), json!({"status": {"listeners": [{"conditions": conditions}]}}))
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

/// Lets time pass. Every touch of a Gateway in `refuses` ends with `outcome`, and every other one well.
/// Returns when each touch was, after the start, and of which Gateway.
fn touches(
    stage: &mut Stage,
    to: u64,
    outcome: &Outcome,
    refuses: impl Fn(&str) -> bool,
) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    stage.run_to(to, |stage, touch| {
        if touch.action.cluster.as_str() != "edge" {
            return;
        }
        match refuses(name_of(touch)) {
            true => stage.finish(touch, outcome.clone()),
            false => stage.succeed(touch),
        };
        all.push((time_of(touch), name_of(touch).to_owned()));
    });
    all
}

#[test]
fn a_refusal_by_the_whole_class_is_tried_a_few_times_in_turn_and_then_every_30_s() {
    let mut stage = class(50);
    let touched = touches(stage.edge(OFFLINE), 690_000, &forbidden(), |_| true);
    let names: Vec<_> = touched.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names[..4], ["g00", "g01", "g02", "g03"]);
    assert!(touched[3].0 <= 600_700 && touched.len() <= 4 + 3, "{touched:?}");
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "each attempt is at another one");
    assert_eq!(stage.wrong(), [Cause::WriteRefused, Cause::NotCarried], "one for the class");
    // The permission is back.
    assert!(!touches(&mut stage, 706_000, &forbidden(), |_| false).is_empty());
}

#[test]
fn the_only_gateway_of_a_class_is_tried_again_every_30_s() {
    let mut stage = class(1);
    let touched = touches(stage.edge(OFFLINE), 646_000, &forbidden(), |_| true);
    assert_eq!(touched, [600_100, 630_100].map(|at| (at, "g00".to_owned())));
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

        let carried = with(carrying(written(of(stamped)[2])), in_class);
        for stamp in ["true/n1", "false/"] {
            let annotations = json!({"metadata": {"annotations": { STAMP: stamp }}});
            add(&mut stage, stamped, with(carried.clone(), annotations));
        }
        let touched = stage.pass_to(901_000).actions();
        assert_eq!(names(&touched), [stamped]);
    }
}

/// The Gateways that are touched until then, in order, and the last trigger.
fn touched_until(stage: &mut Stage, ms: u64) -> (Vec<String>, Option<String>) {
    let touches = stage.settle_to(ms);
    let last = touches.last().and_then(written).map(str::to_owned);
    (touches.iter().map(|touch| name_of(touch).to_owned()).collect(), last)
}

#[test]
fn a_programmed_gateway_carries_the_trigger_where_there_is_one() {
    let mut stage = class(2);
    // Neither is programmed, so the first by name carries it. `g01` becomes programmed.
    add(&mut stage, "g01", programmed(None, true));
    let (touched, trigger) = touched_until(&mut stage, 700_000);
    assert_eq!(touched, ["g01"; 3], "announced again, and confirmed");
    // So is `g00`, which comes first by name and carries the right digest, too.
    let of_g00 = format!("{}-9-2", trigger.unwrap().split('-').next().unwrap());
    add(&mut stage, "g00", programmed(Some(&of_g00), true));
    assert_eq!(touched_until(&mut stage, 800_000).0, [""; 0]);
    // It is no longer: what was announced on it may be lost, whatever `g01` carries.
    add(&mut stage, "g00", programmed(Some(&of_g00), false));
    let (touched, trigger) = touched_until(&mut stage, 900_000);
    assert_eq!(touched, ["g01"; 3]);
    // Nobody is: nothing is gained by an announcement on another.
    add(&mut stage, "g01", programmed(trigger.as_deref(), false));
    assert_eq!(touched_until(&mut stage, 1_000_000).0, [""; 0]);
}
