//! One Gateway carries the trigger for its whole class. Where that one can't be written, another
//! does, so that a class never depends on a single object.

use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::error_cause::{ErrorCause, RequestFailure};
use throughline_core::contract::event::Outcome;
use throughline_core::contract::note::{Anomaly, AnomalyKind, NoteKind};
use throughline_core::contract::settings::{Settings, TouchScope};

use crate::stage::{START, Stage, UID, status};

fn forbidden() -> Outcome {
    Outcome::Refused { error: RequestFailure::new(ErrorCause::Forbidden, "403 Forbidden: no") }
}

/// A Gateway of the class and its HTTPProxy, which references the connector.
fn add(stage: &mut Stage, name: &str, trigger: Option<&str>) {
    let annotations = trigger.map_or(String::new(), |trigger| {
        format!(r#""gateway.envoyproxy.io/connector-liveness":"{trigger}""#)
    });
    add_to_class(stage, name, "edge", &annotations);
}

fn add_to_class(stage: &mut Stage, name: &str, class: &str, annotations: &str) {
    add_with_status(stage, name, class, annotations, "null");
}

/// The same with its listeners programmed, or not.
fn add_programmed(stage: &mut Stage, name: &str, trigger: Option<&str>, is_programmed: bool) {
    let annotations = trigger.map_or(String::new(), |trigger| {
        format!(r#""gateway.envoyproxy.io/connector-liveness":"{trigger}""#)
    });
    let programmed = if is_programmed { "True" } else { "False" };
    let status = format!(
        r#"{{"listeners":[{{"conditions":[{{"type":"Programmed","status":"{programmed}"}}]}}]}}"#
    );
    add_with_status(stage, name, "edge", &annotations, &status);
}

fn add_with_status(stage: &mut Stage, name: &str, class: &str, annotations: &str, status: &str) {
    let v = stage.version();
    stage.applied("edge", &format!(r#"{{"kind":"HTTPProxy","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-p-{name}","resourceVersion":"{v}"}},"spec":{{"rules":[{{"backends":[{{"connector":{{"name":"lab"}}}}]}}]}}}}"#));
    stage.applied("edge", &format!(r#"{{"kind":"Gateway","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{v}","annotations":{{{annotations}}}}},"spec":{{"gatewayClassName":"{class}"}},"status":{status}}}"#));
}

/// A class of Gateways `g00`, `g01` and so on. Everything is announced, by the first of them.
fn class(count: usize) -> Stage {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    let mut stage = Stage::new(settings);
    let online = status(Some("n1"));
    stage.upstream(Some(&online));
    stage.hub(Some(&online));
    stage.edge(Some(&online));
    for n in 0..count {
        add(&mut stage, &format!("g{n:02}"), None);
    }
    stage.settle_to(600_000);
    stage.notes();
    stage
}

/// Lets time pass. Every touch of a Gateway in `refuse` ends with `outcome`, and every other one well.
/// Returns when each touch was, after the start, and of which Gateway.
fn touches(
    stage: &mut Stage,
    to: u64,
    outcome: &Outcome,
    refuses: impl Fn(&str) -> bool,
) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while stage.now < START + to {
        let next = stage.machine.poll_deadline().map_or(u64::MAX, |(at, _)| at.0);
        stage.pass_to(next.min(START + to) - START);
        let touches: Vec<Decision> = stage
            .actions()
            .into_iter()
            .filter(|action| &*action.action.cluster.to_string() == "edge")
            .collect();
        for touch in touches {
            let name = touch.action.object.name.to_string();
            match refuses(&name) {
                true => stage.finish(&touch, outcome.clone()),
                false => stage.succeed(&touch),
            }
            all.push((touch.at.0 - START, name));
        }
    }
    all
}

#[test]
fn a_gateway_that_cannot_be_written_is_replaced_by_the_next_of_its_class() {
    for outcome in [forbidden(), Outcome::NotFound] {
        let mut stage = class(5);
        stage.edge(Some(&status(None)));
        let touched = touches(&mut stage, 661_200, &outcome, |name| name == "g00");
        let (first, second) = (&touched[0], &touched[1]);
        assert_eq!((first.0, &*first.1), (600_100, "g00"), "{outcome:?}");
        assert_eq!((second.0, &*second.1), (600_300, "g01"), "the next turn after the refusal");
        // The confirmations stay with the Gateway that works.
        let rest: Vec<_> = touched[2..].iter().map(|(_, name)| &**name).collect();
        assert_eq!(rest, ["g01", "g01"]);
        // So does the next change.
        stage.edge(Some(&status(Some("n1"))));
        let touched = touches(&mut stage, 700_000, &outcome, |name| name == "g00");
        assert!(
            touched.iter().all(|(_, name)| name == "g01") && !touched.is_empty(),
            "{touched:?}"
        );
    }
}

#[test]
fn a_refusal_by_the_whole_class_is_tried_a_few_times_in_turn_and_then_every_30_s() {
    let mut stage = class(50);
    stage.edge(Some(&status(None)));
    let touched = touches(&mut stage, 690_000, &forbidden(), |_| true);
    let names: Vec<_> = touched.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names[..4], ["g00", "g01", "g02", "g03"]);
    assert!(touched[3].0 <= 600_700, "{touched:?}");
    assert!(touched.len() <= 4 + 3, "{touched:?}");
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "each attempt is at another one");
    let details = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::Anomaly(Anomaly { anomaly: AnomalyKind::Refused, detail, .. }) => Some(detail),
        _ => None,
    });
    let details: Vec<_> = details.collect();
    assert!(
        details[0].ends_with("another Gateway of its class is written instead"),
        "{details:#?}"
    );
    // The permission is back.
    let touched = touches(&mut stage, 706_000, &forbidden(), |_| false);
    assert!(!touched.is_empty());
}

#[test]
fn the_only_gateway_of_a_class_is_tried_again_every_30_s() {
    let mut stage = class(1);
    stage.edge(Some(&status(None)));
    let touched = touches(&mut stage, 646_000, &forbidden(), |_| true);
    let at: Vec<_> = touched.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [600_100, 630_100]);
}

/// After its last confirmation a class is at rest: the extension server stamps other classes whenever it
/// translates them.
#[test]
fn after_the_last_confirmation_only_a_stamp_on_a_gateway_of_the_class_touches_it_again() {
    const KEY: &str = "gateway.envoyproxy.io/connector-liveness";
    const STAMP: &str = "networking.datumapis.com/connector-ready-generation";
    for (stamped, touched) in [("other", vec!["other"]), ("g00", vec!["g00"])] {
        let mut stage = class(1);
        add_to_class(&mut stage, "other", "internal", "");
        stage.settle_to(800_000);
        stage.edge(Some(&status(None)));
        let touches = stage.settle_to(900_000);
        let of = |name: &str| -> Vec<_> {
            touches.iter().filter(|touch| touch.action.object.name == name).collect()
        };
        assert_eq!((of("g00").len(), of("other").len()), (3, 3));

        let trigger = of(stamped)[2].action.annotations[0].1.clone().unwrap();
        let class = if stamped == "g00" { "edge" } else { "internal" };
        let annotations = format!(r#""{KEY}":"{trigger}","{STAMP}":"#);
        for stamp in ["true/n1", "false/"] {
            let annotations = format!(r#"{annotations}"{stamp}""#);
            add_to_class(&mut stage, stamped, class, &annotations);
        }
        stage.pass_to(901_000);
        let names: Vec<_> =
            stage.actions().into_iter().map(|touch| touch.action.object.name).collect();
        assert_eq!(names, touched, "a stamp on {stamped}");
    }
}

/// The Gateways that are touched until then, in order, and the last trigger.
fn touched_until(stage: &mut Stage, ms: u64) -> (Vec<String>, Option<String>) {
    let touches = stage.settle_to(ms);
    let last = touches.last().and_then(|touch| touch.action.annotations[0].1.clone());
    (touches.into_iter().map(|touch| touch.action.object.name).collect(), last)
}

#[test]
fn a_programmed_gateway_carries_the_trigger_where_there_is_one() {
    let mut stage = class(2);
    // Neither is programmed, so the first by name carries it. `g01` becomes programmed.
    add_programmed(&mut stage, "g01", None, true);
    let (touched, trigger) = touched_until(&mut stage, 700_000);
    assert_eq!(touched, ["g01"; 3], "announced again, and confirmed");
    // So is `g00`, which comes first by name and carries the right digest, too.
    let of_g00 = format!("{}-9-2", trigger.unwrap().split('-').next().unwrap());
    add_programmed(&mut stage, "g00", Some(&of_g00), true);
    assert_eq!(touched_until(&mut stage, 800_000).0, [] as [&str; 0]);
    // It is no longer: what was announced on it may be lost, whatever `g01` carries.
    add_programmed(&mut stage, "g00", Some(&of_g00), false);
    let (touched, trigger) = touched_until(&mut stage, 900_000);
    assert_eq!(touched, ["g01"; 3]);
    // Nobody is: nothing is gained by an announcement on another.
    add_programmed(&mut stage, "g01", trigger.as_deref(), false);
    assert_eq!(touched_until(&mut stage, 1_000_000).0, [] as [&str; 0]);
}

#[test]
fn a_class_is_announced_five_times_a_second_and_never_twice_at_once() {
    let mut stage = class(1);
    let mut touched_at = Vec::new();
    for step in 0..100 {
        stage.pass_to(600_000 + step * 110);
        let node = format!("n{step}");
        stage.edge(Some(&status(Some(&node))));
        for ms in 0..110 {
            stage.pass_to(600_000 + step * 110 + ms);
            for decision in stage.actions() {
                stage.succeed(&decision);
                if decision.action.verb == Verb::Touch {
                    touched_at.push(decision.at.0);
                }
            }
        }
    }
    let gaps = touched_at.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| gap >= 200), "{:?}", gaps.collect::<Vec<_>>());
    assert!(touched_at.len() >= 40, "{} in 11 s", touched_at.len());
}
