//! What the machine decides, notes and knows after each step of some scenes. A file has it, of what is known
//! only the lines that are new; `UPDATE_EXPECT=1` rewrites that file.

use std::fs;

use serde::Serialize;
use throughline_core::view::fleet::LivenessView;
use throughline_core::view::orphans::OrphanCandidate;

use crate::causes::paused;
use crate::consistency::assert_consistent;
use crate::corners::carry_out;
use crate::orphans::deleting;
use crate::stage::*;
use Row::{End, It, Scene};

pub(crate) enum Row {
    Scene(&'static str, fn() -> Stage),
    It(&'static str, fn(&mut Stage)),
    /// Each action that was decided ends.
    End(&'static str, fn() -> Outcome),
}

/// A hub names the upstream otherwise.
const ELSEWHERE: Tenant = Tenant { cluster: "project-a", ..UP };
const PAUSE: &str = r#""throughline.datumapis.com/paused":"true""#;

const DONE: fn() -> Outcome = || applied(None);

const SCENES: &[Row] = &[
    Scene("a flip", settled),
    It("upstream", |s| _ = s.upstream(OFFLINE)),
    It("hub", |s| _ = s.pass_to(600_040).hub(OFFLINE)),
    End("mirrored", DONE),
    It("edge", |s| _ = s.pass_to(600_110).edge(OFFLINE)),
    It("a touch in flight is not done", |s| _ = s.pass_to(600_217)),
    End("announced", DONE),
    It("a due confirmation is not pending", |s| _ = s.pass_to(605_300)),
    End("confirmed", DONE),
    It("once more", |s| _ = s.pass_to(670_000)),
    End("confirmed twice", DONE),
    It("at rest", |s| _ = s.pass_to(10_000_000)),
    Scene("the platform key is written in the same patch if so configured", || {
        Stage::settled(settings(|s| s.touch.platform_key = PlatformKeyMode::Write))
    }),
    It("another node", |s| _ = s.edge(N2).pass(100)),
    End("announced", DONE),
    It("offline", |s| {
        s.settle_to(700_000);
        s.edge(OFFLINE).pass(100);
    }),
    Scene(
        "a second between the touches of a Gateway beyond the burst; the last state wins",
        || Stage::settled(settings(|s| s.touch.burst = 1)),
    ),
    It("offline", at_the_edge_alone),
    End("announced", DONE),
    It("changes", |s| _ = s.pass(100).edge(N2).pass(400).edge(OFFLINE).pass(350).edge(N3)),
    It("a second later", |s| _ = s.pass_to(601_100)),
    Scene("a connector that never stops changing is still announced", settled),
    It("changes", |s| {
        for n in 0..40 {
            s.edge(Some(&status(Some(&format!("m{n}"))))).pass(50);
        }
    }),
    Scene("an outage a minute after an announcement has it confirmed once more", settled),
    It("offline", at_the_edge_alone),
    End("announced", DONE),
    It("confirmed", |s| _ = s.settle_to(660_099)),
    // The last confirmation is due as well.
    It("lost", |s| {
        s.now += 1;
        s.lost("edge", "Gateway");
    }),
    It("listed", |s| _ = relist(s.pass(10_000), "7114655e664e5e91-6-2")),
    It("three minutes later", |s| _ = s.pass_to(850_100)),
    Scene("an outage a millisecond after that does not", settled),
    It("offline", at_the_edge_alone),
    End("announced", DONE),
    It("confirmed", |s| _ = s.settle_to(660_101)),
    It("lost", |s| _ = s.lost("edge", "Gateway")),
    It("listed", |s| _ = relist(s.pass(10_000), "7114655e664e5e91-6-2")),
    It("three minutes later", |s| _ = s.pass_to(850_101)),
    Scene("a confirmation after an outage is repeated if it fails", settled),
    It("offline", at_the_edge_alone),
    End("announced", DONE),
    It("confirmed", |s| _ = s.settle_to(650_000)),
    It("lost", |s| _ = s.lost("edge", "Gateway")),
    It("listed", |s| _ = relist(s.pass(10_000), "7114655e664e5e91-5-1")),
    It("confirmed", |s| _ = s.settle_to(700_000)),
    It("three minutes later", |s| _ = s.pass_to(840_000)),
    End("failed", || unavailable(None)),
    It("again", |s| _ = s.pass_to(841_000)),
    Scene("the trigger of a Gateway that lost its connectors is not trusted again", || {
        let mut stage = Stage::before_the_edge(Settings::default());
        stage.list("edge", "Connector", [UP.copy("lab", N1)]).list("edge", "HTTPProxy", []);
        relist(&mut stage, "d433f011571d3a29-3-2");
        stage
    }),
    It("proxy", |s| _ = s.pass_to(HOUR).proxy(&["lab"]).pass(100)),
    Scene("a pause brings no confirmation forward", settled),
    It("offline", at_the_edge_alone),
    End("announced", DONE),
    It("confirmed", |s| _ = s.settle_to(606_000)),
    It("paused", |s| _ = s.gateway(&format!(r#"{PAUSE},{}"#, carrying("7114655e664e5e91-5-1")))),
    It("resumed", |s| _ = s.pass(10_000).gateway(&carrying("7114655e664e5e91-5-1"))),
    It("a minute after the announcement", |s| _ = s.pass_to(660_100)),
    Scene("another instance announces it", settled),
    It("edge", |s| _ = s.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE)),
    It("not with an old number", |s| _ = s.pass(10).gateway(&carrying("7114655e664e5e91-3-0"))),
    It("nor as a confirmation", |s| _ = s.pass(10).gateway(&carrying("7114655e664e5e91-4-1"))),
    It("announced", |s| _ = s.pass(10).gateway(&carrying("7114655e664e5e91-9-0"))),
    It("the confirmation is ours", |s| _ = s.pass_to(606_000)),
    Scene("an edge that leaves takes its timers with it", settled),
    It("an outage", |s| _ = relist(s.lost("edge", "Gateway"), "d433f011571d3a29-3-2")),
    It("edge", |s| _ = s.edge(OFFLINE)),
    It("left", |s| _ = s.leave("edge")),
    It("another", |s| _ = s.join("other", Role::Edge).pass(HOUR)),
    Scene("a namespace that was seen deleted proves that its connectors are gone", settled),
    It("deleted", |s| _ = s.deleted("up", namespace(UID)).pass(6_000)),
    It("another", |s| _ = s.applied("up", namespace(OTHER_UID))),
    Scene("a namespace that is shown again was not deleted", settled),
    It("deleted", |s| _ = s.deleted("up", namespace(UID)).pass(1_000)),
    It("shown again", |s| _ = s.applied("up", namespace(UID)).pass(MINUTE)),
    It("only a list lacks it", |s| _ = s.list("up", "Connector", []).list("up", "Namespace", [])),
    It("later", |s| _ = s.pass(10 * MINUTE)),
    Scene("a namespace that was deleted in one upstream proves nothing in another", settled),
    It("another", |s| _ = s.join("project-a", Role::Upstream).list("project-a", "Namespace", [])),
    It("deleted", |s| _ = s.list("project-a", "Connector", []).deleted("up", namespace(UID))),
    It("hub", |s| _ = s.applied("hub", ELSEWHERE.copy("lab", N1)).pass(10 * MINUTE)),
    Scene("an unreadable object no longer holds a hub Connector of another upstream", settled),
    It("unreadable", |s| _ = s.unreadable("lab", "status: a list").pass(MINUTE)),
    It("hub", |s| _ = s.applied("hub", with_uid(ELSEWHERE.copy("lab", N1), "u-2")).pass(MINUTE)),
    Scene("a hub Connector with another value", flipped),
    It("of a hub annotation that differs only a digest is known", |s| _ = s.hub(N2)),
    Scene("a change that was first seen in a list has no duration", settled),
    It("lost", |s| _ = s.lost("up", "Connector").pass_to(601_000)),
    It("list", |s| _ = s.list("up", "Connector", [with_uid(UP.connector("lab", N2), "u-up")])),
    End("mirrored", DONE),
    It("the next one comes from a watch", |s| _ = s.pass(1_000).upstream(OFFLINE).pass(25)),
    End("mirrored", DONE),
    Scene("a copy that was first seen in a list has no duration", flipped),
    End("mirrored", DONE),
    It("lost", |s| _ = s.hub(OFFLINE).lost("edge", "Connector").pass_to(609_000)),
    It("list", |s| _ = s.list("edge", "Connector", [with_uid(UP.copy("lab", OFFLINE), "u-edge")])),
    It("later", |s| _ = s.settle_to(620_000)),
    Scene("an instance at an edge alone", settled),
    It("leave", |s| _ = s.leave("up").leave("hub")),
    It("edge", |s| _ = s.edge(OFFLINE).pass_to(600_105)),
    End("announced", DONE),
    Scene("a Lease that was not there: nobody may write yet, so nothing is late", settled),
    It("wait", |s| _ = s.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 })),
    It("upstream", |s| _ = s.upstream(OFFLINE).pass_to(614_999)),
    It("lead", |s| _ = s.pass_to(615_000).leads(true)),
    It("the usual time", |s| _ = s.pass_to(619_999)),
    It("late", |s| _ = s.pass_to(620_000)),
    Scene("a Lease that somebody else has", settled),
    It("wait", |s| _ = s.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 })),
    It("upstream", |s| _ = s.upstream(OFFLINE).leads(false)),
    It("late", |s| _ = s.pass_to(605_000)),
    Scene("what routes nothing waits", settled),
    It("another address", |s| _ = s.upstream(Some(&status_at("n1", 1)))),
    It("five seconds later", |s| _ = s.pass_to(605_000)),
    End("failed", || unavailable(None)),
    It("again", |s| _ = s.pass_to(606_000)),
    It("another one meanwhile", |s| _ = s.pass(1_000).upstream(Some(&status_at("n1", 2)))),
    It("hub", |s| _ = s.pass_to(608_000).hub(Some(&status_at("n1", 1)))),
    End("mirrored", DONE),
    It("five seconds from then on", |s| _ = s.pass_to(613_000)),
    Scene("what is decided at one moment is numbered by cluster", flipped),
    End("failed", || unavailable(None)),
    It("edge", |s| _ = s.pass(950).edge(OFFLINE)),
    It("both are overdue", |s| {
        s.now += 150;
        s.event(EventKind::TimedOut);
    }),
    Scene("what the watch shows after a write counts more than its outcome", flipped),
    It("our write, and another one", |s| _ = s.hub(OFFLINE).hub(N2)),
    End("mirrored", || applied(Some("7"))),
    Scene("after a conflict of which nothing is seen", flipped),
    End("conflict", conflict),
    It("a second later", |s| _ = s.pass(1_000)),
    Scene("a conflict is seen after the outcome", flipped),
    End("conflict", conflict),
    It("hub", |s| _ = s.hub(N2)),
    Scene("a conflict is seen before the outcome", flipped),
    It("hub", |s| _ = s.hub(N2)),
    End("conflict", conflict),
    Scene("after a success without a version the order is unknown", flipped),
    It("hub", |s| _ = s.hub(N2)),
    End("mirrored", DONE),
    It("the watch had a second to catch up", |s| _ = s.pass(1_000)),
    Scene("a refused mirror", flipped),
    End("refused", forbidden),
    It("late", |s| _ = s.pass_to(605_000)),
    Scene("a mirror that failed once", flipped),
    End("failed", || unavailable(None)),
    Scene("rejected credentials", flipped),
    End("refused", || Outcome::Refused {
        error: RequestFailure::new(ErrorCause::Unauthorized, "401"),
    }),
    It("late", |s| _ = s.pass_to(605_000)),
    Scene("refused nudges: the hop is late that they are for", flipped),
    End("mirrored", DONE),
    It("late", |s| s.run_to(660_000, |s, nudge| _ = s.finish(nudge, forbidden()))),
    Scene("an edge stays late while upstream changes", settled),
    It("late", |s| _ = s.edge(N2).pass(10_000)),
    It("flip", |s| _ = s.upstream(OFFLINE)),
    End("nudged", DONE),
    It("carried", |s| _ = s.hub(OFFLINE).pass(100).edge(OFFLINE)),
    Scene("refused touches", settled),
    It("changed", |s| _ = s.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE)),
    It("late", |s| s.run_to(660_000, |s, touch| _ = s.finish(touch, forbidden()))),
    It("unknown", |s| _ = s.lost("edge", "Connector")),
    Scene("refused confirmations", settled),
    It("offline", at_the_edge_alone),
    End("announced", DONE),
    It("refused", |s| s.run_to(700_000, |s, touch| _ = s.finish(touch, forbidden()))),
    Scene("a Gateway no longer references one of two connectors that wait for it", settled),
    It("two", |s| _ = s.proxy(&["lab", "two"]).applied("edge", UP.copy("two", N1)).pass(100)),
    End("announced", DONE),
    It("settled", |s| _ = s.settle_to(700_000)),
    It("both go offline", |s| {
        s.leave("up").leave("hub").edge(OFFLINE).applied("edge", UP.copy("two", OFFLINE));
    }),
    It("one waits, from the time that it has waited since", |s| _ = s.pass(50).proxy(&["lab"])),
    It("late", |s| s.run_to(760_000, |s, touch| _ = s.finish(touch, forbidden()))),
    Scene("an annotation that is overwritten again and again", settled),
    It("right at the moment", |s| {
        for _ in 0..3 {
            carry_out(s.hub(Some("{}")).pass(10_000));
        }
    }),
    Scene("an edge that lacks a flip is nudged also while what routes nothing waits", settled),
    It("flip", |s| _ = s.upstream(N2)),
    End("mirrored", DONE),
    It("another address", |s| _ = s.pass_to(608_000).upstream(Some(&status_at("n2", 1)))),
    It("nudge", |s| _ = s.pass_to(610_000)),
    End("nudged", DONE),
    It("edge", |s| _ = s.edge(N2).pass(100)),
    End("announced", DONE),
    It("a moment before", |s| _ = s.pass_to(612_999)),
    It("five seconds after it moved", |s| _ = s.pass_to(613_000)),
    Scene("a paused hub Connector", settled),
    It("held, also while nothing is behind", paused),
    It("two days later nothing is late", |s| _ = s.upstream(OFFLINE).pass(48 * HOUR)),
    It("resumed", |s| _ = s.hub(N1)),
    End("nor is it late now", DONE),
    It("the time of the pause is nobody's delay", |s| _ = s.edge(OFFLINE)),
    Scene("a paused Gateway", settled),
    It("paused", |s| _ = s.gateway(PAUSE)),
    It("later", |s| _ = s.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE).pass(48 * HOUR)),
    It("resumed", |s| _ = s.gateway("")),
    End("two days are not how long it took", DONE),
    Scene("a hub that is not listed: nobody knows that the edge has the same connector", settled),
    It("joined", |s| _ = s.leave("hub").join("hub", Role::Hub)),
    It("without the upstream", |s| _ = s.leave("up")),
    It("listed", |s| _ = s.list("hub", "Connector", [])),
    Scene("a change that changed back", settled),
    It("edge", |s| _ = s.edge(OFFLINE).edge(N1)),
    It("touch", |s| _ = s.pass_to(600_100)),
    End("announced", DONE),
    Scene("what is late stays so behind a lost watch, and ends with what it is about", settled),
    It("late", |s| _ = s.upstream(OFFLINE).pass_to(605_000)),
    It("lost", |s| _ = s.lost("up", "Connector").hub(N2)),
    It("resumed", |s| _ = s.resumed("up", "Connector")),
    It("lost", |s| _ = s.lost("up", "Namespace").hub(N2)),
    It("resumed", |s| _ = s.resumed("up", "Namespace")),
    It("lost", |s| _ = s.lost("hub", "Connector").hub(N2)),
    It("resumed", |s| _ = s.resumed("hub", "Connector")),
    End("refused", forbidden),
    It("another", |s| _ = s.list("hub", "Connector", [with_uid(UP.copy("lab", OFFLINE), "u-2")])),
    Scene("a list that runs", settled),
    It("unknown", |s| _ = s.pass(1_000).list_started("up", "Connector")),
    Scene("a hub watch that is resumed", settled),
    It("lost", |s| _ = s.lost("hub", "Connector").upstream(OFFLINE).pass(MINUTE)),
    It("resumed", |s| _ = s.resumed("hub", "Connector")),
    Scene("a watch that was never listed cannot be resumed", Stage::default),
    It("join", |s| _ = s.leave("hub").join("hub", Role::Hub).list_started("hub", "Connector")),
    It("resumed", |s| _ = s.resumed("hub", "Connector").hub(Some("{}")).upstream(N2)),
    Scene("an upstream under another name", Stage::default),
    It("hub", |s| _ = s.applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND)),
    It("configured", |s| _ = s.join("project-a", Role::Upstream).pass(10 * SECOND)),
    It("left", |s| _ = s.leave("project-a").pass(10 * SECOND)),
    Scene("the namespace does not prove which upstream is meant", Stage::default),
    It("upstream", |s| _ = s.applied("up", namespace(OTHER_UID))),
    It("hub", |s| _ = s.applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND)),
    Scene("the upstream has hub Connectors of its own", Stage::default),
    It("hub", |s| _ = s.hub(None).applied("hub", ELSEWHERE.copy("c", None)).pass(10 * SECOND)),
    Scene(
        "nothing is said before the hub is listed, nor again after its watch was lost",
        Stage::default,
    ),
    It("lost", |s| _ = s.lost("hub", "Connector").applied("hub", ELSEWHERE.copy("c", None))),
    It("later", |s| _ = s.pass(60 * SECOND)),
    It("list", |s| _ = s.list("hub", "Connector", [ELSEWHERE.copy("c", None)]).pass(MINUTE)),
    It("list", |s| _ = s.list("hub", "Connector", [ELSEWHERE.copy("c", None)]).pass(MINUTE)),
    Scene("an upstream of which the hub has nothing", Stage::default),
    It("the replicator takes its time", |s| _ = s.pass(SECOND).upstream(N1).pass(59 * SECOND)),
    It("late", |s| _ = s.pass_to(300 * SECOND)),
    It("there", |s| _ = s.hub(None).pass_to(310 * SECOND)),
    Scene("an orphan is listed with its age", reporting),
    It("route", |s| _ = s.route(HOUR, &["gone"])),
    It("for long enough", |s| _ = s.pass_to(30_000)),
    It("lost", |s| _ = s.lost("hub", "HTTPRoute")),
    It("resumed", |s| _ = s.resumed("hub", "HTTPRoute")),
    Scene("a delete that fails", || Stage::new(deleting(|_| ()))),
    It("route", |s| _ = s.route(HOUR, &["gone"]).pass_to(30_000)),
    End("failed", || unavailable(None)),
    It("again", |s| _ = s.pass_to(31_000)),
    End("refused", forbidden),
    It("again", |s| _ = s.pass_to(61_000)),
    End("deleted", DONE),
    It("no watch showed that it is gone", |s| _ = s.pass_to(121_000)),
    Scene("in one cluster, the namespace tells upstream and hub Connectors apart", Stage::default),
    It("join", one_cluster),
    It("upstream", |s| _ = s.upstream(N1)),
    It("hub", |s| _ = s.applied("up", UP.copy("lab", None)).pass(10)),
    End("mirrored", DONE),
    It("without the labels of namespaces nobody can tell", |s| _ = s.lost("up", "Namespace")),
    It("resumed", |s| _ = s.resumed("up", "Namespace").pass(5 * MINUTE)),
    Scene("a class is announced on one Gateway", class),
    It("proxy", |s| _ = s.applied("edge", UP.proxy("zz", &["lab"]))),
    It("gateway", |s| _ = s.applied("edge", UP.gateway("zz", json!({})))),
    It("announced", |s| _ = s.settle_to(700_000)),
    Scene("where its Gateway is no longer programmed, a class is announced on another", class),
    It("proxy", |s| _ = s.applied("edge", UP.proxy("zz", &["lab"]))),
    It("another", |s| _ = s.applied("edge", programmed("zz", json!({}), "True"))),
    It("announced", |s| _ = s.settle_to(700_000)),
    It("the first is", |s| _ = s.applied("edge", programmed("app", right(), "True"))),
    It("again", |s| _ = s.proxy(&["lab"]).settle_to(800_000)),
    It("it no longer is", |s| _ = s.applied("edge", programmed("app", right(), "False"))),
    It("announced", |s| _ = s.settle_to(900_000)),
];

/// The trigger of both Gateways' class.
fn right() -> Value {
    json!({ TRIGGER: "a46ff15ccb1fbede-9-2" })
}

/// A Gateway whose listeners are programmed, or not.
fn programmed(name: &str, annotations: Value, is_programmed: &str) -> Value {
    let conditions = json!([{"type": "Programmed", "status": is_programmed}]);
    let status = json!({"listeners": [{ "conditions": conditions }]});
    with(UP.gateway(name, annotations), json!({ "status": status }))
}

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

/// Upstream went offline, and the mirror is under way.
fn flipped() -> Stage {
    let mut stage = settled();
    stage.upstream(OFFLINE).notes();
    stage
}

fn class() -> Stage {
    Stage::settled(with_scope(TouchScope::GatewayClass))
}

fn reporting() -> Stage {
    Stage::new(settings(|s| s.orphans.mode = OrphanMode::Report))
}

fn carrying(trigger: &str) -> String {
    format!(r#""{TRIGGER}":"{trigger}""#)
}

/// Offline, as an instance sees it that follows nothing but the edge: it sends no nudges.
fn at_the_edge_alone(stage: &mut Stage) {
    stage.leave("up").leave("hub").edge(OFFLINE).pass(100);
}

/// The edge's Gateways are listed, with this trigger of the only one.
fn relist<'s>(stage: &'s mut Stage, trigger: &str) -> &'s mut Stage {
    stage.list("edge", "Gateway", [UP.gateway("app", json!({ TRIGGER: trigger }))])
}

fn one_cluster(stage: &mut Stage) {
    stage.leave("up").leave("hub").leave("edge");
    let roles = vec![Role::Upstream, Role::Hub, Role::Edge];
    stage.event(EventKind::ClusterAdded { cluster: "up".into(), roles });
    let hub_namespace = object("Namespace", "", &UP.hub_namespace());
    stage.list("up", "Namespace", [namespace(UID), hub_namespace]);
    for kind in ["Connector", "Gateway", "HTTPRoute", "HTTPProxy"] {
        stage.list("up", kind, []);
    }
}

/// Times count from the start.
fn from_start(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64().filter(|_| name.ends_with("Ms")) {
                    Some(ms) => *value = json!(ms - START),
                    None => from_start(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(from_start),
        _ => {}
    }
}

fn in_json(value: impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap();
    from_start(&mut value);
    value
}

/// Whatever `told` has a line of.
pub(crate) fn known(stage: &Stage) -> Vec<String> {
    let (fleet, machine) = (stage.fleet(), &stage.machine);
    let deadline = machine.poll_deadline();
    let members = machine.membership_counts().into_iter();
    let members =
        members.map(|it| format!("{} {} of {}", it.clusters, it.state.as_str(), it.source));
    let routes = machine.candidates();
    let mut lines = vec![
        format!("leader {}", in_json(&fleet.leader)),
        deadline.map_or("no timer".to_owned(), |at| format!("next at {}", at.0 - START)),
        format!("members: {}", listed(members)),
        format!("unknown upstreams: {}", listed(machine.unknown_upstreams())),
        format!("routes that may be orphans: {}", routes.len()),
    ];
    for connector in &fleet.connectors {
        lines.push(connector_line(connector));
        lines.extend(connector.hops.iter().map(|hop| format!("- {}", hop_line(hop))));
    }
    lines.extend(fleet.unpaired.iter().map(|hop| format!("unpaired: {}", hop_line(hop))));
    lines.extend(fleet.orphans.iter().map(|orphan| in_json(orphan).to_string()));
    lines.extend(routes.iter().map(candidate_line));
    lines
}

fn listed(all: impl IntoIterator<Item = impl ToString>) -> String {
    let all: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn candidate_line(candidate: &OrphanCandidate) -> String {
    let OrphanCandidate { route, kept, kept_because, .. } = candidate;
    assert_eq!(kept.is_some(), kept_because.is_some());
    match kept.zip(kept_because.as_ref()) {
        None => format!("{route}: may be deleted"),
        Some((cause, because)) => format!("{route}: kept, {}: {because}", cause.as_str()),
    }
}

fn connector_line(connector: &Connector) -> String {
    let Connector { upstream, name, online, node, state, hops } = connector;
    let upstream = upstream.as_ref().map_or("no upstream".to_owned(), ToString::to_string);
    let name = name.as_ref().map_or("nowhere else".to_owned(), ToString::to_string);
    let liveness = online.map(|online| LivenessView { online, node: node.clone() });
    let hops = match hops.len() {
        1 => "1 hop".to_owned(),
        n => format!("{n} hops"),
    };
    format!("{upstream}, {name}: {}, {}, {hops}", state.as_str(), says(liveness.as_ref()))
}

fn hop_line(hop: &HopView) -> String {
    let HopView { cluster, kind, object, since_ms, at_least, cause, message, remedy, .. } = hop;
    let object = object.as_ref().map_or("none".to_owned(), ToString::to_string);
    let (name, state) = (hop.hop.as_str(), hop.state.as_str());
    let mut line = format!("{name} in {cluster}, {kind} {object}: {state}");
    if let Some(since) = since_ms {
        let at_least = if *at_least { "at least " } else { "" };
        line += &format!(" since {at_least}{}", since.0 - START);
    }
    line += &format!(", says {}", says(hop.says.as_ref()));
    line += &format!(", expected {}", says(hop.expected.as_ref()));
    if let Some(at) = hop.next_attempt_ms {
        line += &format!(", next attempt at {}", at.0 - START);
    }
    hop.evidence.iter().for_each(|text| line += &format!("; {text}"));
    if let Some(cause) = cause {
        let [message, remedy] = [message, remedy].map(|text| text.as_deref().unwrap_or("none"));
        line += &format!("; {}: {message} -> {remedy}", cause.as_str());
    }
    line
}

fn says(liveness: Option<&LivenessView>) -> String {
    match liveness {
        None => "nothing".to_owned(),
        Some(LivenessView { online: false, .. }) => "offline".to_owned(),
        Some(LivenessView { node, .. }) => {
            format!("online on {}", node.as_deref().unwrap_or("no node"))
        }
    }
}

fn noted(stage: &Stage, note: &Note) -> String {
    let at = note.at.0 - START;
    match &note.kind {
        NoteKind::Began(problem) => {
            let (cause, since) = (problem.cause.as_str(), problem.since.0 - START);
            let object = stage.machine.involved_object(&problem.about);
            let on = object.map_or(String::new(), |it| {
                format!(" on {} {} in {}", it.kind, it.object, it.cluster)
            });
            format!("{at} +{cause}{on} since {since}: {}", problem.sentence())
        }
        NoteKind::Ended(problem) => format!("{at} -{}", problem.cause.as_str()),
        NoteKind::HopPassed { hop, cluster, after_ms, online, .. } => {
            let after = after_ms.map_or(String::new(), |ms| format!(" after {ms} ms"));
            format!("{at} {} in {cluster} passed{after}, online: {online}", hop.as_str())
        }
        NoteKind::Symptom { symptom, change, .. } => format!("{at} {symptom:?} {change:?}"),
    }
}

/// So begin lines of actions, which have statuses as they are.
const ACTION: &str = "  - ";

fn decided(decision: &Decision) -> String {
    let Decision { action, urgency, because, .. } = decision;
    let (at, verb) = (time_of(decision), action.verb.as_str());
    let action = serde_json::to_string(action).unwrap();
    format!("{at} {verb} {urgency:?}: {because}\n{ACTION}{action}")
}

/// The file has this and what happens in the scenes.
pub(crate) fn assert_told(mut told: String, scenes: &[Row], file: &str) {
    let mut stage = Stage::default();
    let (mut before, mut unanswered) = (Vec::new(), Vec::new());
    for row in scenes {
        let step = match row {
            Scene(name, start) => {
                stage = start();
                before = known(&stage);
                unanswered = stage.actions();
                told += &format!("\n\n# {name}");
                continue;
            }
            It(step, happens) => {
                happens(&mut stage);
                step
            }
            End(step, outcome) => {
                unanswered.drain(..).for_each(|d| _ = stage.finish(&d, outcome()));
                step
            }
        };
        let mut lines = stage.carry_out();
        let (new, after) = (stage.actions(), known(&stage));
        assert_consistent(&stage);
        lines.extend(new.iter().map(decided));
        let notes = stage.notes();
        lines.extend(notes.iter().map(|note| noted(&stage, note)));
        lines.extend(after.iter().filter(|line| !before.contains(line)).cloned());
        told += &format!("\n> {step}");
        lines.iter().for_each(|line| told += &format!("\n{line}"));
        unanswered.extend(new);
        before = after;
    }
    told.push('\n');
    let told = told.replace(UID, "UID");
    let mut shown = told.lines().filter(|line| !line.starts_with(ACTION));
    assert!(!shown.any(|line| line.contains("n1")), "it has no node ids");
    let file = format!("{}/tests/rules/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, &told).unwrap();
    }
    assert_eq!(told, fs::read_to_string(file).unwrap());
}

#[test]
fn what_is_decided_noted_and_known_after_each_step() {
    let all = serde_json::to_string_pretty(&in_json(settled().fleet())).unwrap();
    assert_told(all, SCENES, "scenes.txt");
}
