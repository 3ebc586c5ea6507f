//! The machine's model of what it knows: a state, a hop and a cause for each connector, and all of it as
//! JSON.

use throughline_core::data::ids::Role::{Edge, Hub, Upstream};
use throughline_core::view::fleet::LivenessView;

use crate::stage::*;

const PENDING_AT: fn(Hop) -> (State, Hop, Option<Cause>) = |hop| (State::Pending, hop, None);
const NOT_REPLICATED: (State, Hop, Option<Cause>) =
    (State::Held, Hop::Mirrored, Some(Cause::NotReplicated));

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

#[test]
fn a_flip_is_pending_at_each_hop_in_order() {
    let mut stage = settled();
    assert_eq!(stage.state(), ONLINE_AND_OK);
    assert_eq!(stage.upstream(OFFLINE).worst(), PENDING_AT(Hop::Mirrored));
    let mirror = stage.only_action();
    assert_eq!(stage.hop(Hop::Mirrored).evidence, ["a write is under way"]);
    assert_eq!(stage.hub(OFFLINE).succeed(&mirror).worst(), PENDING_AT(Hop::Carried));
    assert_eq!(stage.edge(OFFLINE).worst(), PENDING_AT(Hop::Announced));
    let touch = stage.action_at(600_100);
    assert_eq!(stage.worst(), PENDING_AT(Hop::Announced), "a write in flight is not done");
    assert_eq!(stage.hop(Hop::Announced).since_ms, Some(UnixMillis(START + 600_000)));
    assert_eq!(stage.succeed(&touch).state(), OFFLINE_AND_OK);
    stage.action_at(605_100);
    assert_eq!(stage.state(), OFFLINE_AND_OK, "a due confirmation is not pending");
}

#[test]
fn what_a_hop_has_and_should_have_is_what_its_object_and_the_hop_before_say() {
    let mut stage = settled();
    stage.upstream(OFFLINE);
    let online = |says: Option<LivenessView>| says.map(|says| says.online);
    let shown = |stage: &Stage| {
        let hops = stage.connector().hops.into_iter();
        hops.map(|hop| (online(hop.says), online(hop.expected))).collect::<Vec<_>>()
    };
    // Upstream, mirrored, carried, announced. Of a hub annotation that differs only a digest is known.
    let same = (Some(true), Some(true));
    let announced = (None, Some(true));
    assert_eq!(shown(&stage), [(Some(false), None), (Some(true), Some(false)), same, announced]);
    stage.hub(OFFLINE);
    let differs = (Some(true), Some(false));
    assert_eq!(shown(&stage)[1..], [(Some(false), Some(false)), differs, announced]);
    stage.hub(N2);
    assert_eq!(shown(&stage)[1], (None, Some(false)));
}

/// Nobody may write until the wait is over, so nothing is late, and then it has the usual time.
#[test]
fn while_it_waits_for_a_lease_that_was_not_there_a_connector_is_pending_and_not_stuck() {
    let mut stage = settled();
    stage.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 });
    assert_eq!(stage.upstream(OFFLINE).worst(), PENDING_AT(Hop::Mirrored));
    assert_eq!(stage.pass_to(614_999).worst(), PENDING_AT(Hop::Mirrored));
    let leader = stage.fleet().leader;
    let waits_until = Some(UnixMillis(START + 615_000));
    assert_eq!((leader.leads, leader.waits_until_ms), (false, waits_until));

    let mirror = stage.pass_to(615_000).leads(true).only_action();
    let leader = stage.fleet().leader;
    assert_eq!((leader.leads, leader.waits_until_ms), (true, None));
    assert_eq!(stage.pass_to(619_999).worst(), PENDING_AT(Hop::Mirrored));
    let not_mirrored = (State::Stuck, Hop::Mirrored, Some(Cause::NotMirrored));
    assert_eq!(stage.pass_to(620_000).worst(), not_mirrored);
    assert_eq!(stage.hop(Hop::Mirrored).since_ms, waits_until);
    stage.succeed(&mirror);
}

/// Whoever loses the Lease while it waits is not the leader, as usual.
#[test]
fn a_wait_that_somebody_else_ended_is_none() {
    let mut stage = settled();
    stage.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 });
    assert_eq!(stage.upstream(OFFLINE).leads(false).worst(), PENDING_AT(Hop::Mirrored));
    assert_eq!(stage.fleet().leader.waits_until_ms, None);
    let not_mirrored = (State::Stuck, Hop::Mirrored, Some(Cause::NotMirrored));
    assert_eq!(stage.pass_to(605_000).worst(), not_mirrored);
    let message = stage.hop(Hop::Mirrored).message.unwrap();
    assert!(message.ends_with("last write: not by this instance."), "{message}");
}

#[test]
fn a_stuck_hop_says_why_what_to_do_and_when_the_next_attempt_is() {
    let mut stage = settled();
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.finish(&mirror, Outcome::Refused { error: "403 Forbidden".into() }).pass_to(605_000);
    assert_eq!(stage.worst(), (State::Stuck, Hop::Mirrored, Some(Cause::WriteRefused)));
    let hop = stage.hop(Hop::Mirrored);
    let message = format!("hub refuses to patch Connector ns-{UID}/lab: 403 Forbidden.");
    assert_eq!(hop.message, Some(message));
    let remedy = hop.remedy.unwrap();
    assert!(remedy.contains("`at hub: kubectl get mutatingwebhookconfigurations,"), "{remedy}");
    assert_eq!((hop.since_ms, hop.at_least), (Some(UnixMillis(START + 600_000)), false));
    assert_eq!(hop.next_attempt_ms, Some(UnixMillis(START + 630_000)), "it is tried again then");
    assert_eq!(hop.evidence, [""; 0], "the message has the error");
    // Before it is late, only the evidence tells of the failure.
    let mut stage = settled();
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.finish(&mirror, unavailable(None));
    let hop = stage.hop(Hop::Mirrored);
    assert_eq!((hop.state, hop.cause), (State::Pending, None));
    assert_eq!(hop.next_attempt_ms, Some(UnixMillis(START + 601_000)));
    assert_eq!(hop.evidence, ["the last write failed: 503 ServiceUnavailable: no"]);
}

/// The mirror is done, so what fails is a nudge of the carrier, or what somebody overwrites.
#[test]
fn what_fails_after_the_mirror_delays_the_hop_that_it_is_for() {
    let mut stage = settled();
    let mirror = stage.upstream(OFFLINE).only_action();
    let to = stage.succeed(&mirror).time() + MINUTE;
    stage.run_to(to, |stage, nudge| {
        assert_eq!(nudge.action.verb, Verb::Nudge);
        stage.finish(nudge, forbidden());
    });
    let carried = stage.hop(Hop::Carried);
    assert_eq!((carried.state, carried.cause), (State::Stuck, Some(Cause::NotCarried)));
    assert!(carried.next_attempt_ms.is_some_and(|at| at.0 > stage.now), "{carried:?}");
    let failed = "the last write failed: 403 Forbidden: no";
    assert_eq!(carried.evidence, [failed]);
    let mirrored = stage.hop(Hop::Mirrored);
    assert_eq!((mirrored.state, mirrored.next_attempt_ms), (State::Ok, None));
    assert_eq!(mirrored.since_ms, Some(UnixMillis(START + 600_000)));
    assert_eq!(mirrored.evidence, [""; 0]);
}

#[test]
fn a_gateway_that_cannot_be_touched_is_stuck_and_says_when_the_next_attempt_is() {
    for (outcome, cause) in
        [(forbidden(), Cause::WriteRefused), (unavailable(None), Cause::WriteFailing)]
    {
        let mut stage = settled();
        stage.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE);
        stage.run_to(660_000, |stage, touch| _ = stage.finish(touch, outcome.clone()));
        assert_eq!(stage.worst(), (State::Stuck, Hop::Announced, Some(cause)));
        let hop = stage.hop(Hop::Announced);
        assert!(hop.next_attempt_ms.is_some_and(|at| at.0 > stage.now), "{hop:?}");
        assert_eq!(hop.since_ms, Some(UnixMillis(START + 600_000)));
        // Nothing is touched while nobody knows what is at the edge.
        let hop = stage.lost("edge", "Connector").hop(Hop::Announced);
        assert_eq!((hop.state, hop.next_attempt_ms), (State::Unknown, None));
    }
}

/// The cause is about the whole cluster, of which nobody knows what it would take.
#[test]
fn credentials_that_a_write_shows_to_be_rejected_make_a_hop_unknown() {
    let mut stage = settled();
    let error = RequestFailure::new(ErrorCause::Unauthorized, "401");
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.finish(&mirror, Outcome::Refused { error }).pass_to(605_000);
    let rejected = Some(Cause::CredentialsRejected);
    assert_eq!(stage.worst(), (State::Unknown, Hop::Mirrored, rejected));
    let hop = stage.hop(Hop::Mirrored);
    assert_eq!(hop.since_ms, Some(UnixMillis(START + 600_000)));
    assert!(hop.next_attempt_ms.is_some(), "{hop:?}");
}

#[test]
fn what_an_edge_has_is_unknown_until_the_hub_is_listed() {
    let mut stage = settled();
    stage.leave("hub").join("hub", Role::Hub);
    // Without the hub nobody knows that both are one.
    let at_edge = |stage: &Stage| {
        let connectors = stage.fleet().connectors;
        worst(connectors.iter().find(|c| c.hops_of(Hop::Carried).count() == 1).unwrap())
    };
    let (state, hop, _) = at_edge(&stage).unwrap();
    assert_eq!((state, hop), (State::Unknown, Hop::Mirrored));
    stage.leave("up");
    assert_eq!(at_edge(&stage), Some((State::Unknown, Hop::Carried, None)));
    stage.list("hub", "Connector", []);
    assert_eq!(at_edge(&stage), None, "no hub has it");
}

#[test]
fn an_annotation_that_is_overwritten_again_and_again_is_stuck_also_while_it_is_right() {
    let mut stage = settled();
    for _ in 0..3 {
        for mirror in stage.hub(Some("{}")).pass(10_000).actions() {
            stage.hub(written(&mirror)).succeed(&mirror);
        }
    }
    assert_eq!(stage.worst(), (State::Stuck, Hop::Mirrored, Some(Cause::Overwritten)));
    let hop = stage.hop(Hop::Mirrored);
    assert_eq!(hop.says, hop.expected, "it is right at the moment");
    assert!(hop.evidence.contains(&"overwritten 3 times lately".to_owned()), "{hop:?}");
}

#[test]
fn the_fleet_is_as_documented_and_without_node_ids() {
    let seen = serde_json::to_value(settled().fleet()).unwrap();
    let node = seen["connectors"][0]["node"].clone();
    assert_eq!(node.as_str().unwrap().len(), 8);
    let hops = &seen["connectors"][0]["hops"];
    let trigger = hops[3]["evidence"][0].clone();
    assert!(trigger.as_str().unwrap().ends_with("-3-2"), "two confirmations: {trigger}");
    let watches = |live: &[&str]| {
        let kinds = ["Connector", "HTTPProxy", "Gateway", "HTTPRoute", "Namespace"];
        let watch = |kind: &str| if live.contains(&kind) { "live" } else { "never" };
        kinds.into_iter().map(|kind| (kind.to_owned(), json!(watch(kind)))).collect::<Value>()
    };
    let says = json!({"online": true, "node": node});
    let hop = |hop: &str, cluster: &str, namespace: &str, since: Value, expected: Value| {
        json!({"hop": hop, "cluster": cluster, "kind": "Connector",
            "object": {"namespace": namespace, "name": "lab"}, "state": "ok",
            "says": says, "expected": expected, "sinceMs": since, "cause": null})
    };
    let place = format!("ns-{UID}");
    let since = json!(START + 1);
    assert_eq!(
        seen,
        json!({
            "atMs": START + 600_000, "source": "instance", "leader": {"leads": true}, "inFlight": 0,
            "clusters": [
                {"name": "edge", "roles": ["edge"],
                 "watches": watches(&["Connector", "HTTPProxy", "Gateway"])},
                {"name": "hub", "roles": ["downstream"],
                 "watches": watches(&["Connector", "HTTPRoute"])},
                {"name": "up", "roles": ["upstream"],
                 "watches": watches(&["Connector", "Gateway", "Namespace"])},
            ],
            "problems": [],
            "counts": {"ok": 1, "pending": 0, "held": 0, "unknown": 0, "stuck": 0},
            "connectors": [{
                "upstream": {"cluster": "up", "namespace": "default", "name": "lab"},
                "name": {"namespace": place, "name": "lab"},
                "online": true, "node": node, "state": "ok",
                "hops": [
                    hop("upstream", "up", "default", since.clone(), Value::Null),
                    hop("mirrored", "hub", &place, since.clone(), says.clone()),
                    hop("carried", "edge", &place, since, says.clone()),
                    with(hop("announced", "edge", &place, Value::Null, says.clone()),
                        json!({"kind": "Gateway", "says": null, "evidence": [trigger],
                            "object": {"name": "app"}})),
                ],
            }],
            "unpaired": [],
            "orphans": [],
        })
    );
    assert!(!seen.to_string().contains("n1"), "{seen}");
}

#[test]
fn a_gateway_class_is_announced_on_one_gateway() {
    let mut stage = Stage::settled(with_scope(TouchScope::GatewayClass));
    stage.applied("edge", UP.proxy("zz", &["lab"])).applied("edge", UP.gateway("zz", json!({})));
    assert_eq!(stage.worst(), PENDING_AT(Hop::Announced));
    stage.settle_to(700_000);
    assert_eq!(stage.state(), ONLINE_AND_OK);
    let connector = stage.connector();
    let gateways: Vec<_> = connector.hops_of(Hop::Announced).map(|hop| &hop.evidence).collect();
    let [on_app, on_zz] = gateways[..] else { panic!("{gateways:?}") };
    assert_eq!(on_app.len(), 1);
    assert!(on_app[0].starts_with("trigger "), "{on_app:?}");
    assert_eq!(*on_zz, [format!("{} on ns-{UID}/app for its class", on_app[0])]);
}

#[test]
fn orphans_are_listed_with_their_age() {
    let orphans = |stage: &Stage| serde_json::to_value(stage.fleet().orphans).unwrap();
    let mut stage = Stage::new(settings(|s| s.orphans.mode = OrphanMode::Report));
    stage.route(HOUR, &["gone"]);
    assert_eq!(orphans(&stage), json!([]), "not for long enough");
    let orphan = json!({"cluster": "hub", "namespace": format!("ns-{UID}"), "name": "lab",
        "sinceMs": START, "inFlight": null, "error": null});
    assert_eq!(orphans(stage.pass_to(30_000)), json!([orphan]));
}

/// In one cluster with every role, the namespace tells upstream and hub Connectors apart.
#[test]
fn in_one_cluster_an_upstream_connector_is_not_a_hub_connector() {
    let mut stage = Stage::default();
    stage.leave("up").leave("hub").leave("edge");
    stage.now += 1;
    let roles = vec![Upstream, Hub, Edge];
    stage.event(EventKind::ClusterAdded { cluster: "up".into(), roles });
    let hub_namespace = object("Namespace", "", &format!("ns-{UID}"));
    stage.list("up", "Namespace", [namespace(UID), hub_namespace]);
    for kind in ["Connector", "Gateway", "HTTPRoute", "HTTPProxy"] {
        stage.list("up", kind, []);
    }
    assert_eq!(stage.upstream(N1).worst(), NOT_REPLICATED);
    let pending = stage.applied("up", UP.copy("lab", None)).worst();
    assert_eq!(pending, PENDING_AT(Hop::Mirrored));
    let mirror = stage.action_at(10);
    assert_eq!(stage.succeed(&mirror).state(), ONLINE_AND_OK);
    assert_eq!(stage.fleet().at_ms.0, START + 10);
    // Without the labels of namespaces nobody can tell either apart.
    stage.lost("up", "Namespace");
    let unknown = (State::Unknown, Hop::Upstream, Some(Cause::ClusterUnavailable));
    assert_eq!(stage.worst(), unknown);
    stage.resumed("up", "Namespace");
    assert_eq!(stage.pass(5 * MINUTE).wrong(), []);
}

#[test]
fn a_change_that_changed_back_is_announced_again() {
    let mut stage = settled();
    stage.edge(OFFLINE).edge(N1);
    assert_eq!(stage.worst(), PENDING_AT(Hop::Announced));
    let touch = stage.action_at(600_100);
    assert_eq!(stage.worst(), PENDING_AT(Hop::Announced));
    assert_eq!(stage.succeed(&touch).state(), ONLINE_AND_OK);
}

#[test]
fn a_hop_is_unknown_without_a_cause_while_a_list_runs() {
    let mut stage = settled();
    stage.pass(1_000).list_started("up", "Connector");
    for hop in [Hop::Upstream, Hop::Mirrored] {
        let hop = stage.hop(hop);
        let since = Some(UnixMillis(START + 601_000));
        assert_eq!((hop.state, hop.cause, hop.since_ms), (State::Unknown, None, since));
    }
}
