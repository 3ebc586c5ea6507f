//! Paused Gateways: no touch is written to them, and what is beside them goes on.

use serde_json::json;
use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::note::{Hop, NoteKind};
use throughline_core::contract::settings::{Settings, TouchScope};
use throughline_core::data::ids::Kind;
use throughline_core::view::phase::Phase;

use super::{HOUR, PAUSED, forbidden, paused_objects, phase, settled, stalls};
use crate::stage::{START, Stage, UID, status};

const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";

/// A Gateway, its class and its trigger.
fn gateway(stage: &mut Stage, name: &str, trigger: Option<&str>, is_paused: bool) {
    let v = stage.version().to_string();
    let mut annotations = json!({});
    if let Some(trigger) = trigger {
        annotations[TRIGGER] = json!(trigger);
    }
    if is_paused {
        annotations[PAUSED] = json!("true");
    }
    let object = json!({"kind": "Gateway", "metadata": {"namespace": format!("ns-{UID}"), "name": name,
        "uid": format!("u-{name}"), "resourceVersion": v, "annotations": annotations},
        "spec": {"gatewayClassName": "edge"}});
    stage.applied("edge", &object.to_string());
}

fn proxy(stage: &mut Stage, name: &str) {
    let v = stage.version().to_string();
    let object = json!({"kind": "HTTPProxy", "metadata": {"namespace": format!("ns-{UID}"),
        "name": name, "uid": format!("u-p-{name}"), "resourceVersion": v},
        "spec": {"rules": [{"backends": [{"connector": {"name": "lab"}}]}]}});
    stage.applied("edge", &object.to_string());
}

/// The Gateways `a` and `b`, each touched as this scope asks for.
fn two_gateways(scope: TouchScope) -> Stage {
    let mut settings = Settings::default();
    settings.touch.scope = scope;
    let mut stage = Stage::new(settings);
    stage.edge(Some(&status(Some("n1"))));
    for name in ["a", "b"] {
        proxy(&mut stage, name);
        gateway(&mut stage, name, None, false);
    }
    stage.settle_to(600_000);
    stage.notes();
    stage
}

fn trigger(touch: &Decision) -> String {
    assert_eq!(touch.action.verb, Verb::Touch);
    touch.action.annotations[0].1.clone().unwrap()
}

/// The trigger that the Gateway of a settled stage carries.
fn carried(stage: &Stage) -> String {
    let view = stage.machine.view();
    view.connectors[0].edges[0].gateways[0].trigger.clone().unwrap()
}

#[test]
fn a_paused_gateway_is_not_touched_until_it_is_resumed() {
    let (mut stage, offline) = (settled(), status(None));
    let before = carried(&stage);
    let paused = format!(r#""{TRIGGER}":"{before}","{PAUSED}":"true""#);
    stage.gateway(&paused);
    assert_eq!(phase(&stage), Phase::Paused, "also while it announces the truth");
    stage.upstream(Some(&offline));
    stage.hub(Some(&offline));
    stage.actions();
    stage.edge(Some(&offline));
    stage.pass_to(600_000 + 48 * HOUR);
    assert!(stage.actions().iter().all(|action| action.action.verb != Verb::Touch));
    assert!(stalls(&mut stage).iter().all(|(_, hop)| *hop != Hop::Touched));
    assert_eq!(phase(&stage), Phase::Paused);
    assert_eq!(paused_objects(&stage), [("edge".to_owned(), Kind::Gateway, 1)]);
    let view = serde_json::to_value(stage.machine.view()).unwrap();
    let shown = &view["connectors"][0]["edges"][0]["gateways"][0];
    assert_eq!((&shown["announcement"], &shown["paused"]), (&json!("paused"), &json!(true)));

    stage.gateway(&format!(r#""{TRIGGER}":"{before}""#));
    stage.pass_to(stage.now - START);
    let touch = stage.only_action();
    assert_eq!(touch.at.0, stage.now, "at once");
    stage.succeed(&touch);
    let passed = stage.notes().into_iter().find_map(|note| match note.kind {
        NoteKind::HopPassed { hop: Hop::Touched, after_ms, .. } => Some(after_ms),
        _ => None,
    });
    assert_eq!(passed, Some(None), "two days of pause are not how long a touch takes");
    assert_eq!(phase(&stage), Phase::Offline);
}

#[test]
fn a_gateway_that_is_paused_from_the_start_is_touched_once_it_is_resumed() {
    let mut stage = Stage::new(Settings::default());
    stage.edge(Some(&status(Some("n1"))));
    stage.proxy(&["lab"]);
    stage.gateway(&format!(r#""{PAUSED}":"true""#));
    stage.pass_to(HOUR);
    stage.assert_no_action();
    stage.gateway("");
    stage.pass_to(HOUR + 100);
    assert_eq!(stage.only_action().action.verb, Verb::Touch);
}

#[test]
fn a_touch_in_flight_at_the_pause_is_the_last_one() {
    let (mut stage, offline) = (settled(), status(None));
    let before = carried(&stage);
    stage.edge(Some(&offline));
    stage.pass_to(600_100);
    let touch = stage.only_action();
    stage.gateway(&format!(r#""{TRIGGER}":"{before}","{PAUSED}":"true""#));
    stage.finish(&touch, forbidden());
    stage.pass_to(600_000 + HOUR);
    assert!(stage.actions().iter().all(|action| action.action.verb != Verb::Touch));
    assert!(stalls(&mut stage).iter().all(|(_, hop)| *hop != Hop::Touched));
    // The refusal before the pause does not delay the touch after it.
    stage.gateway(&format!(r#""{TRIGGER}":"{before}""#));
    stage.pass_to(stage.now - START);
    assert_eq!(stage.only_action().action.verb, Verb::Touch);
}

/// Of two Gateways one is paused and the other one can't be written: the connector is late because of
/// the other one alone.
#[test]
fn a_paused_gateway_hides_no_stall_of_another() {
    let mut stage = two_gateways(TouchScope::Gateway);
    let view = stage.machine.view();
    let triggers: Vec<_> =
        view.connectors[0].edges[0].gateways.iter().map(|g| g.trigger.clone().unwrap()).collect();
    gateway(&mut stage, "a", Some(&triggers[0]), true);
    stage.edge(Some(&status(None)));
    stage.pass_to(600_100);
    let touch = stage.only_action();
    assert_eq!(touch.action.object.name, "b");
    stage.finish(&touch, forbidden());
    stage.pass_to(602_000 + 60_000);
    assert_eq!(stalls(&mut stage), [(true, Hop::Touched)]);
    assert_eq!(phase(&stage), Phase::Stalled);
    let probes = stage.actions();
    let probe = probes.last().unwrap();
    probes[..probes.len() - 1].iter().for_each(|probe| stage.finish(probe, forbidden()));
    stage.succeed(probe);
    assert_eq!(stalls(&mut stage), [(false, Hop::Touched)], "the paused one is all that is left");
    assert_eq!(phase(&stage), Phase::Paused);
    // Once it is resumed and refused, it is late by itself.
    gateway(&mut stage, "a", Some(&triggers[0]), false);
    stage.pass_to(stage.now - START + 100);
    for touch in stage.actions() {
        match &*touch.action.object.name {
            "a" => stage.finish(&touch, forbidden()),
            _ => stage.succeed(&touch),
        }
    }
    stage.pass_to(stage.now - START + 60_000);
    assert_eq!(stalls(&mut stage), [(true, Hop::Touched)]);
}

#[test]
fn a_class_goes_on_through_a_gateway_that_is_not_paused() {
    let mut stage = two_gateways(TouchScope::GatewayClass);
    let carried = carried(&stage);
    gateway(&mut stage, "a", Some(&carried), true);
    stage.pass_to(600_100);
    let touch = stage.only_action();
    assert_eq!(touch.action.object.name, "b", "the trigger moves to the other one");
    stage.succeed(&touch);
    stage.edge(Some(&status(None)));
    stage.pass_to(620_000);
    let touches = stage.actions();
    assert!(!touches.is_empty() && touches.iter().all(|t| t.action.object.name == "b"));
    touches.iter().for_each(|touch| stage.succeed(touch));
    stage.settle_to(700_000);
    assert_eq!(phase(&stage), Phase::Offline, "a paused member stops nobody");
    assert_eq!(paused_objects(&stage), [("edge".to_owned(), Kind::Gateway, 1)]);
}

#[test]
fn a_class_waits_while_all_its_gateways_are_paused() {
    let mut stage = two_gateways(TouchScope::GatewayClass);
    let first = carried(&stage);
    gateway(&mut stage, "b", None, true);
    gateway(&mut stage, "a", Some(&first), true);
    stage.edge(Some(&status(None)));
    stage.pass_to(600_000 + HOUR);
    stage.assert_no_action();
    assert_eq!(stalls(&mut stage), []);
    assert_eq!(phase(&stage), Phase::Paused);
    gateway(&mut stage, "b", None, false);
    stage.pass_to(stage.now - START);
    let touch = stage.only_action();
    assert_eq!((touch.action.object.name.as_str(), touch.at.0), ("b", stage.now));
    assert_ne!(trigger(&touch), first);
}
