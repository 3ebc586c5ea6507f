//! The machine's view of its state: a phase for each connector, and all of it as JSON.

use throughline_core::data::ids::Role::{Edge, Hub, Upstream};

use crate::stage::*;

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

/// What `/state` shows of the only connector.
fn connector(stage: &Stage) -> Value {
    stage.json()["connectors"][0].clone()
}

#[test]
fn a_flip_passes_the_phases_in_order() {
    let mut stage = settled();
    assert_eq!(stage.phase(), Phase::Settled);
    assert_eq!(stage.upstream(OFFLINE).phase(), Phase::Mirroring);
    let mirror = stage.only_action();
    assert_eq!(stage.hub(OFFLINE).succeed(&mirror).phase(), Phase::Carrying);
    assert_eq!(stage.edge(OFFLINE).phase(), Phase::Touching);
    let touch = stage.action_at(600_100);
    assert_eq!(stage.phase(), Phase::Touching, "a write in flight is not done");
    assert_eq!(stage.succeed(&touch).phase(), Phase::Offline);
    stage.action_at(605_100);
    assert_eq!(stage.phase(), Phase::Offline, "a due confirmation does not count as touching");
}

#[test]
fn a_change_that_changed_back_is_announced_again() {
    let mut stage = settled();
    stage.edge(OFFLINE).edge(N1);
    let pending = |stage: &Stage| {
        let gateway = &connector(stage)["edges"][0]["gateways"][0];
        (stage.phase(), gateway["announcement"].clone(), gateway["dueAtMs"].clone())
    };
    let due = json!(START + 600_100);
    assert_eq!(pending(&stage), (Phase::Touching, json!("pending"), due));
    let touch = stage.action_at(600_100);
    assert_eq!(pending(&stage), (Phase::Touching, json!("pending"), Value::Null));
    assert_eq!(stage.succeed(&touch).phase(), Phase::Settled);
}

#[test]
fn a_late_gateway_is_touched_although_no_connector_changed() {
    let mut stage = Stage::default();
    assert_eq!(stage.upstream(N1).phase(), Phase::Unreplicated);
    assert_eq!(stage.hub(N1).phase(), Phase::Settled, "no edge has a copy: nothing is missing");
    assert_eq!(stage.edge(N1).proxy(&["lab"]).phase(), Phase::Settled, "without a Gateway");
    assert_eq!(connector(&stage)["edges"][0]["gateways"][0]["announcement"], "noGateway");
    stage.gateway("");
    assert_eq!(stage.phase(), Phase::Touching);
    stage.settle_to(1_000);
    assert_eq!(stage.phase(), Phase::Settled);
}

/// Nobody may write until the wait is over, so nothing is late, and then it has the usual time.
#[test]
fn while_it_waits_for_a_lease_that_was_not_there_a_connector_is_waiting_and_not_late() {
    let mut stage = settled();
    stage.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 });
    assert_eq!(stage.upstream(OFFLINE).phase(), Phase::Waiting);
    assert_eq!(stage.pass_to(614_999).phase(), Phase::Waiting);
    let wait = stage.machine.view().lease_wait.map(|wait| wait.to_string());
    assert_eq!(wait.as_deref(), Some("waiting up to 15 s for a Lease that was not there"));
    let shown = json!({"untilMs": START + 615_000, "waitMs": 15_000});
    assert_eq!(stage.json()["leaseWait"], shown);

    let mirror = stage.pass_to(615_000).leads(true).only_action();
    assert_eq!(stage.machine.view().lease_wait, None);
    assert_eq!(stage.pass_to(619_999).phase(), Phase::Mirroring);
    assert_eq!(stage.pass_to(620_000).phase(), Phase::Stalled);
    stage.succeed(&mirror);
}

/// Whoever loses the Lease while it waits is not the leader, as usual.
#[test]
fn a_wait_that_somebody_else_ended_is_none() {
    let mut stage = settled();
    stage.leads(false).event(EventKind::LeadershipPending { wait_ms: 15_000 });
    assert_eq!(stage.upstream(OFFLINE).leads(false).phase(), Phase::Mirroring);
    let stalls = connector(stage.pass_to(605_000))["stalls"].to_string();
    assert!(stalls.contains("last write: not by this instance."), "{stalls}");
}

#[test]
fn a_stall_says_which_hop_and_why() {
    let mut stage = settled();
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.finish(&mirror, Outcome::Refused { error: "403 Forbidden".into() }).pass_to(605_000);
    assert_eq!(stage.phase(), Phase::Stalled);
    let reason = format!("hub refuses to patch Connector ns-{UID}/lab: 403 Forbidden.");
    let stall = json!({
        "hop": "mirrored", "cluster": "hub", "sinceMs": START + 600_000,
        "lateSinceMs": START + 600_000, "reason": reason,
    });
    let connector = connector(&stage);
    assert_eq!(connector["stalls"], json!([stall]));
    let hub = &connector["hubs"][0];
    assert_eq!((&hub["annotation"], &hub["rightSinceMs"]), (&json!("wrong"), &Value::Null));
    assert_eq!(hub["error"], "403 Forbidden");
    assert_eq!(hub["notBeforeMs"], START + 630_000, "it is tried again then");
}

#[test]
fn a_connector_behind_a_lost_watch_is_unknown_and_not_settled() {
    for (cluster, kind) in [("up", "Connector"), ("hub", "Connector"), ("edge", "Gateway")] {
        let mut stage = settled();
        assert_eq!(stage.lost(cluster, kind).phase(), Phase::Unknown, "{cluster} {kind}");
        let clusters = stage.json()["clusters"].clone();
        let lost = clusters.as_array().unwrap().iter().find(|c| c["name"] == cluster).unwrap();
        assert_eq!(lost["watches"][kind], "lost");
    }
    assert_eq!(settled().lost("up", "HTTPRoute").phase(), Phase::Settled, "nothing depends on it");
    // An upstream that is not configured.
    let mut stage = settled();
    assert_eq!(stage.leave("up").phase(), Phase::Unconfigured);
    let upstream = &connector(&stage)["upstream"];
    assert_eq!((&upstream["name"], &upstream["exists"]), (&json!("lab"), &json!(false)));
    // If the hub's watch is lost, the upstream Connector may have a hub Connector there.
    let mut stage = Stage::default();
    assert_eq!(stage.upstream(OFFLINE).phase(), Phase::Unreplicated);
    assert_eq!(stage.lost("hub", "Connector").phase(), Phase::Unknown);
}

#[test]
fn an_edge_alone_has_phases() {
    let mut stage = settled();
    assert_eq!(stage.leave("up").leave("hub").phase(), Phase::Settled);
    assert_eq!(stage.edge(OFFLINE).phase(), Phase::Touching);
    stage.pass_to(605_100).actions();
    assert_eq!(stage.phase(), Phase::Stalled);
    let connector = connector(&stage);
    assert_eq!(connector["stalls"][0]["hop"], "touched");
    let reason = connector["stalls"][0]["reason"].to_string();
    assert!(reason.contains("last touch: not answered yet"), "{reason}");
    assert_eq!((&connector["upstream"], &connector["hubs"]), (&Value::Null, &json!([])));
    assert_eq!(connector["replica"], json!({"namespace": format!("ns-{UID}"), "name": "lab"}));
}

#[test]
fn the_view_is_as_documented_and_without_node_ids() {
    let seen = settled().json();
    let node = seen["connectors"][0]["upstream"]["node"].clone();
    assert_eq!(node.as_str().unwrap().len(), 8);
    let trigger = &seen["connectors"][0]["edges"][0]["gateways"][0]["trigger"];
    assert!(trigger.as_str().unwrap().ends_with("-3-2"), "two confirmations: {trigger}");
    let watches = |live: &[&str]| {
        let kinds = ["Connector", "HTTPProxy", "Gateway", "HTTPRoute", "Namespace"];
        let watch = |kind: &str| if live.contains(&kind) { "live" } else { "never" };
        kinds.into_iter().map(|kind| (kind.to_owned(), json!(watch(kind)))).collect::<Value>()
    };
    let since = |kinds: &[&str]| {
        kinds.iter().map(|kind| ((*kind).to_owned(), json!(START))).collect::<Value>()
    };
    assert_eq!(
        seen,
        json!({
            "atMs": START + 600_000, "leads": true, "inFlight": 0,
            "clusters": [
                {"name": "edge", "roles": ["edge"],
                 "watches": watches(&["Connector", "HTTPProxy", "Gateway"]),
                 "liveSinceMs": since(&["Connector", "HTTPProxy", "Gateway"])},
                {"name": "hub", "roles": ["downstream"],
                 "watches": watches(&["Connector", "HTTPRoute"]),
                 "liveSinceMs": since(&["Connector", "HTTPRoute"])},
                {"name": "up", "roles": ["upstream"],
                 "watches": watches(&["Connector", "Gateway", "Namespace"]),
                 "liveSinceMs": since(&["Connector", "Gateway", "Namespace"])},
            ],
            "phases": {"settled": 1, "offline": 0, "unreplicated": 0, "mirroring": 0,
                "waiting": 0, "carrying": 0, "paused": 0, "touching": 0, "deferred": 0, "unproven": 0, "stalled": 0, "unconfigured": 0, "unknown": 0},
            "connectors": [{
                "upstream": {"cluster": "up", "namespace": "default", "name": "lab",
                    "exists": true, "online": true, "node": node, "changedAtMs": START + 1},
                "replica": {"namespace": format!("ns-{UID}"), "name": "lab"},
                "phase": "settled", "stalls": [],
                "hubs": [{"cluster": "hub", "annotation": "right", "annotated": true,
                    "says": {"online": true, "node": node}, "rightSinceMs": START + 1,
                    "spoiled": 0, "nudged": 0}],
                "edges": [{"cluster": "edge", "online": true, "node": node,
                    "changedAtMs": START + 1, "behindSinceMs": null, "asHub": true,
                    "gateways": [
                        {"name": "app", "announcement": "announced", "trigger": trigger}]}],
            }],
            "loose": [],
            "orphans": [],
        })
    );
    assert!(!seen.to_string().contains("n1"), "{seen}");
}

#[test]
fn connectors_are_sorted_by_name() {
    let mut stage = Stage::default();
    for name in ["zeta", "alpha", "mid"] {
        stage.applied("up", UP.connector(name, None));
    }
    let view = stage.machine.view();
    let names = view.connectors.iter().map(|c| &*c.upstream.as_ref().unwrap().object.name);
    assert_eq!(names.collect::<Vec<_>>(), ["alpha", "mid", "zeta"]);
    assert_eq!(view.phases[&Phase::Unreplicated], 3);
}

#[test]
fn a_gateway_class_is_announced_on_one_gateway() {
    let mut stage = Stage::settled(with_scope(TouchScope::GatewayClass));
    stage.applied("edge", UP.proxy("zz", &["lab"])).applied("edge", UP.gateway("zz", json!({})));
    assert_eq!(stage.phase(), Phase::Touching);
    stage.settle_to(700_000);
    assert_eq!(stage.phase(), Phase::Settled);
    let gateways = connector(&stage)["edges"][0]["gateways"].clone();
    assert_eq!(gateways[0]["announcedOn"], Value::Null);
    assert_eq!(gateways[1]["announcedOn"]["name"], "app");
    assert_eq!(gateways[0]["trigger"], gateways[1]["trigger"]);
}

#[test]
fn orphans_are_listed_with_their_age() {
    let mut stage = Stage::new(settings(|s| s.orphans.mode = OrphanMode::Report));
    stage.route(HOUR, &["gone"]);
    assert_eq!(stage.json()["orphans"], json!([]), "not for long enough");
    let orphan = json!({"cluster": "hub", "namespace": format!("ns-{UID}"), "name": "lab",
        "sinceMs": START, "inFlight": null, "error": null});
    assert_eq!(stage.pass_to(30_000).json()["orphans"], json!([orphan]));
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
    assert_eq!(stage.upstream(N1).phase(), Phase::Unreplicated);
    assert_eq!(stage.applied("up", UP.copy("lab", None)).phase(), Phase::Mirroring);
    let mirror = stage.action_at(10);
    assert_eq!(stage.succeed(&mirror).phase(), Phase::Settled);
    assert_eq!(stage.machine.view().at_ms.0, START + 10);
    assert_eq!(stage.pass(5 * MINUTE).wrong(), []);
}
