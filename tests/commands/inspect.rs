//! What `status` and `trace` print of a connector at each place where it can be stuck. The scenes are held to
//! a golden, which `UPDATE_EXPECT=1` rewrites.

mod judged;

use std::fmt::Write as _;

use expect_test::expect_file;
use throughline::core::view::fleet::Fleet;
use throughline::inspect::{find, status, trace};
use throughline::problems::Problems;
use throughline::report::ReportOptions;

use crate::stage::*;

/// What is known, as it comes from `/state`.
fn fleet(stage: &Stage) -> Fleet {
    let mut problems = Problems::default();
    for problem in stage.open.values() {
        problems.begin(problem.since, problem.clone(), None);
    }
    let fleet = Fleet { problems: problems.open(&|_| None), ..stage.fleet() };
    let json = serde_json::to_string(&fleet).unwrap();
    let read: Fleet = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json, "it can be read back");
    read
}

fn at_edge(name: &str) -> NamespacedName {
    NamespacedName::new(UP.hub_namespace(), name)
}

fn printed(put: impl FnOnce(&ReportOptions, &mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    put(&ReportOptions::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The whole table and what is below it.
fn status_of(fleet: &Fleet) -> String {
    let mut shown = fleet.connectors.clone();
    status::sort(&mut shown);
    printed(|options, out| {
        status::rows(fleet, &shown, true, options, out)?;
        status::summary(fleet, &shown, options, out)
    })
}

fn trace_of(fleet: &Fleet, connectors: &[Connector]) -> String {
    printed(|options, out| trace::connectors(fleet, connectors, &|_| None, options, out))
}

/// As RBAC says it.
fn denied(verb: &str, resource: &str) -> RequestFailure {
    let text = format!(r#"User "tl" cannot {verb} resource "{resource}" in API group "x.y""#);
    RequestFailure::new(ErrorCause::Forbidden, format!("403 Forbidden: {text}"))
}

fn refused(verb: &str, resource: &str) -> Outcome {
    Outcome::Refused { error: denied(verb, resource) }
}

type Scene = (&'static str, fn(&mut Stage));

/// Each begins with three tiers that agree.
const SCENES: [Scene; 18] = [
    ("every hop agrees", |_| {}),
    ("a change that is being mirrored", |stage| {
        stage.upstream(OFFLINE).pass(2_000);
    }),
    ("a mirror without an answer", |stage| {
        stage.upstream(OFFLINE).pass(6_000);
    }),
    ("what routes nothing waits", |stage| {
        stage.upstream(Some(&status_at("n1", 1))).pass(2_000);
    }),
    ("a standby", |stage| {
        stage.leads(false).upstream(OFFLINE).pass(6_000);
    }),
    ("the first Lease is waited for", |stage| {
        stage.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 });
        stage.upstream(OFFLINE).pass(10_000);
    }),
    ("a refused mirror", |stage| {
        let mirror = stage.upstream(OFFLINE).only_action();
        stage.finish(&mirror, refused("patch", "connectors"));
        let mirror = stage.action_at(630_000);
        stage.finish(&mirror, refused("patch", "connectors"));
    }),
    ("another writer", |stage| {
        for _ in 0..3 {
            stage.hub(OFFLINE).pass(1_000);
            stage.actions().iter().for_each(|mirror| _ = stage.succeed(mirror));
        }
    }),
    ("a carrier that does not deliver", |stage| {
        stage.upstream(OFFLINE);
        let mirror = stage.only_action();
        stage.hub(OFFLINE).succeed(&mirror).pass(11_000);
        let nudge = stage.only_action();
        stage.succeed(&nudge);
    }),
    ("a hub that cannot be listed", |stage| {
        let (cluster, kind, error) = ("hub".into(), Kind::Connector, denied("list", "connectors"));
        stage.event(EventKind::WatchLost { cluster, kind, error }).pass(1_000);
    }),
    ("a refused touch", |stage| {
        stage.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE).actions();
        let touch = stage.action_at(600_100);
        stage.finish(&touch, refused("patch", "gateways")).pass(30_000);
        let touch = stage.only_action();
        stage.finish(&touch, refused("patch", "gateways"));
    }),
    ("no HTTPProxy names it", |stage| {
        stage.proxy(&[]);
    }),
    ("only upstream has it", |stage| {
        stage.applied("up", UP.connector("ape", N2)).pass(60_000);
    }),
    ("its upstream is not followed", |stage| {
        stage.leave("up").pass(60_000);
    }),
    ("upstream has deleted it", |stage| {
        stage.deleted("up", with_uid(UP.connector("lab", N1), "u-up")).settle_to(700_000);
        stage.hub(None).edge(None).settle_to(800_000);
    }),
    ("it is offline and upstream says why", |stage| {
        let status = r#"{"conditions":[{"type":"Ready","status":"False","reason":"NotReady","message":"The lease has expired."}]}"#;
        let status = Some(status);
        stage.upstream(status).hub(status).edge(status).settle_to(700_000);
    }),
    ("an edge alone", |stage| {
        stage.leave("up").leave("hub");
    }),
    ("a cause counts the connectors of its own upstream", |stage| {
        for (cluster, name) in [("x", "a"), ("x", "b"), ("y", "c")] {
            stage.applied("hub", Tenant { cluster, ..UP }.copy(name, N1));
        }
        stage.applied("up", UP.connector("ape", N2)).pass(60_000);
    }),
];

#[test]
fn status_and_trace_name_the_hop_the_cause_and_what_to_do() {
    let mut text = String::new();
    for (name, change) in SCENES {
        let mut stage = Stage::settled(Settings::default());
        change(&mut stage);
        let fleet = fleet(&stage);
        let mut traced = fleet.connectors.clone();
        traced.retain(|connector| fleet.connectors.len() == 1 || connector.state != State::Ok);
        let _ = writeln!(text, "## {name}\n\n{}\n{}", status_of(&fleet), trace_of(&fleet, &traced));
        let is_open = |hop: &HopView| hop.cause.is_none() || hop.message.is_some();
        assert!(traced.iter().flat_map(|of| &of.hops).all(is_open), "{name}: a cause has a text");
    }
    expect_file!["inspect/scenes.txt"].assert_eq(&text);
}

/// Of a class, one Gateway carries the trigger for all.
#[test]
fn a_trace_names_the_gateway_that_carries_the_trigger_of_its_class() {
    let mut stage = Stage::settled(with_scope(TouchScope::GatewayClass));
    stage.applied("edge", UP.gateway("www", json!({}))).applied("edge", UP.proxy("www", &["lab"]));
    stage.settle_to(700_000);
    let traced = find::gateway(&fleet(&stage), &at_edge("www"), None).unwrap();
    let evidence = &traced[0].hops.last().unwrap().evidence;
    let carrier = format!(" on {} for its class", at_edge("app"));
    assert!(evidence.iter().any(|fact| fact.ends_with(&carrier)), "{evidence:?}");
}

/// What comes from outside can neither end a line nor move the cursor.
#[test]
fn hostile_texts_stay_on_their_line() {
    let mut stage = Stage::settled(Settings::default());
    stage.upstream(OFFLINE);
    let mirror = stage.only_action();
    let error = RequestFailure::new(ErrorCause::Forbidden, "no\n0 connectors\x1b[2J\u{202e}");
    stage.finish(&mirror, Outcome::Refused { error });
    let mut fleet = fleet(&stage);
    let upstream = fleet.connectors[0].upstream.as_mut().unwrap();
    upstream.object = NamespacedName::new("default", "la\nb\x1b[2J");
    let text = status_of(&fleet) + &trace_of(&fleet, &fleet.connectors);
    assert!(!text.contains(['\x1b', '\u{202e}']) && !text.contains("\n0 connectors"), "{text:?}");
    assert!(text.contains("default/la\u{fffd}b"), "{text}");
}
