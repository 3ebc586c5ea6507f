//! The machine's view of its state: a phase for each connector, and all of it as JSON.

use serde_json::{Value, json};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::settings::{OrphanMode, Settings, TouchScope};
use throughline_core::data::time::UnixMillis;
use throughline_core::machine::Machine;
use throughline_core::view::phase::Phase;

use crate::stage::{self, START, Stage, UID, status};

/// The phase of the only connector. The view and the phase counts must agree on it.
fn phase(stage: &Stage) -> Phase {
    let view = stage.machine.view();
    assert_eq!(view.phases, stage.machine.phases());
    assert_eq!(view.connectors.len(), 1, "{:#?}", view.connectors);
    assert_eq!(view.phases[&view.connectors[0].phase], 1);
    assert_eq!(view.phases.values().sum::<u64>(), 1);
    view.connectors[0].phase
}

fn json(machine: &Machine) -> Value {
    serde_json::to_value(machine.view()).unwrap()
}

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

#[test]
fn a_flip_passes_the_phases_in_order() {
    let mut stage = settled();
    assert_eq!(phase(&stage), Phase::Settled);
    let offline = status(None);
    stage.upstream(Some(&offline));
    assert_eq!(phase(&stage), Phase::Mirroring);
    let mirror = stage.only_action();
    stage.hub(Some(&offline));
    stage.succeed(&mirror);
    assert_eq!(phase(&stage), Phase::Carrying);
    stage.edge(Some(&offline));
    assert_eq!(phase(&stage), Phase::Touching);
    stage.pass_to(600_100);
    let touch = stage.only_action();
    assert_eq!(phase(&stage), Phase::Touching, "a write in flight is not done");
    stage.succeed(&touch);
    assert_eq!(phase(&stage), Phase::Offline);
    stage.pass_to(605_100);
    let confirmation = stage.only_action();
    assert_eq!(phase(&stage), Phase::Offline, "a due confirmation does not count as touching");
    stage.succeed(&confirmation);
}

#[test]
fn a_change_that_changed_back_is_announced_again() {
    let mut stage = settled();
    stage.edge(Some(&status(None)));
    stage.edge(Some(&status(Some("n1"))));
    let pending = |stage: &Stage| {
        let seen = json(&stage.machine);
        let gateway = &seen["connectors"][0]["edges"][0]["gateways"][0];
        (phase(stage), gateway["announcement"].clone(), gateway["dueAtMs"].clone())
    };
    let due = json!(START + 600_100);
    assert_eq!(pending(&stage), (Phase::Touching, json!("pending"), due));
    stage.pass_to(600_100);
    let touch = stage.only_action();
    assert_eq!(pending(&stage), (Phase::Touching, json!("pending"), Value::Null));
    stage.succeed(&touch);
    assert_eq!(phase(&stage), Phase::Settled);
}

#[test]
fn a_late_gateway_is_touched_although_no_connector_changed() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n1"));
    stage.upstream(Some(&online));
    assert_eq!(phase(&stage), Phase::Unreplicated);
    stage.hub(Some(&online));
    assert_eq!(phase(&stage), Phase::Settled, "no edge has a copy, so nothing is missing");
    stage.edge(Some(&online));
    stage.proxy(&["lab"]);
    assert_eq!(phase(&stage), Phase::Settled, "a proxy without a Gateway is no error");
    let gateway = &json(&stage.machine)["connectors"][0]["edges"][0]["gateways"][0];
    assert_eq!(gateway["announcement"], "noGateway");
    stage.gateway("");
    assert_eq!(phase(&stage), Phase::Touching);
    stage.settle_to(1_000);
    assert_eq!(phase(&stage), Phase::Settled);
}

/// Nobody may write until the wait is over, so nothing is late, and then it has the usual time.
#[test]
fn while_it_waits_for_a_lease_that_was_not_there_a_connector_is_waiting_and_not_late() {
    let mut stage = settled();
    stage.event(EventKind::LeadershipLost);
    stage.event(EventKind::LeadershipPending { wait_ms: 15_000 });
    stage.upstream(Some(&status(None)));
    assert_eq!(phase(&stage), Phase::Waiting);
    stage.pass_to(614_999);
    assert_eq!(phase(&stage), Phase::Waiting);
    let view = stage.machine.view();
    let wait = view.lease_wait.map(|wait| wait.to_string());
    assert_eq!(wait.as_deref(), Some("waiting up to 15 s for a Lease that was not there"));
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["leaseWait"], json!({"untilMs": START + 615_000, "waitMs": 15_000}));

    stage.pass_to(615_000);
    stage.event(EventKind::LeadershipAcquired);
    let mirror = stage.only_action();
    assert_eq!(phase(&stage), Phase::Mirroring);
    assert_eq!(stage.machine.view().lease_wait, None);
    stage.pass_to(619_999);
    assert_eq!(phase(&stage), Phase::Mirroring);
    stage.pass_to(620_000);
    assert_eq!(phase(&stage), Phase::Stalled);
    stage.succeed(&mirror);
}

/// Whoever loses the Lease while it waits is not the leader, as usual.
#[test]
fn a_wait_that_somebody_else_ended_is_none() {
    let mut stage = settled();
    stage.event(EventKind::LeadershipLost);
    stage.event(EventKind::LeadershipPending { wait_ms: 15_000 });
    stage.upstream(Some(&status(None)));
    stage.event(EventKind::LeadershipLost);
    assert_eq!(phase(&stage), Phase::Mirroring);
    stage.pass_to(605_000);
    let stalls = &json(&stage.machine)["connectors"][0]["stalls"];
    assert_eq!(stalls[0]["reason"], "this instance is not the leader; the leader should write it");
}

#[test]
fn a_stall_says_which_hop_and_why() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.finish(&mirror, Outcome::Refused { error: "403 Forbidden".into() });
    stage.pass_to(605_000);
    assert_eq!(phase(&stage), Phase::Stalled);
    let connector = &json(&stage.machine)["connectors"][0];
    assert_eq!(
        connector["stalls"],
        json!([{
            "hop": "mirrored", "cluster": "hub", "sinceMs": START + 600_000,
            "lateSinceMs": START + 605_000, "reason": "writes to the hub fail: 403 Forbidden",
        }])
    );
    let hub = &connector["hubs"][0];
    assert_eq!(hub["annotation"], "wrong");
    assert_eq!(hub["rightSinceMs"], Value::Null);
    assert_eq!(hub["error"], "403 Forbidden");
    assert_eq!(hub["notBeforeMs"], START + 630_000, "it is tried again then");
}

#[test]
fn a_connector_behind_a_lost_watch_is_unknown_and_not_settled() {
    for (cluster, kind) in [("up", "Connector"), ("hub", "Connector"), ("edge", "Gateway")] {
        let mut stage = settled();
        stage.lost(cluster, kind);
        assert_eq!(phase(&stage), Phase::Unknown, "{cluster} {kind}");
        let clusters = json(&stage.machine)["clusters"].clone();
        let lost = clusters.as_array().unwrap().iter().find(|c| c["name"] == cluster).unwrap();
        assert_eq!(lost["watches"][kind], "lost");
    }
    let mut stage = settled();
    stage.upstream_gateway("x");
    stage.lost("up", "HTTPRoute");
    assert_eq!(phase(&stage), Phase::Settled, "nothing depends on that watch");
    // An upstream that is not configured.
    let mut stage = settled();
    stage.event(EventKind::ClusterRemoved { cluster: "up".into() });
    assert_eq!(phase(&stage), Phase::Unconfigured);
    let upstream = &json(&stage.machine)["connectors"][0]["upstream"];
    assert_eq!((&upstream["name"], &upstream["exists"]), (&json!("lab"), &json!(false)));
    // If the hub's watch is lost, the upstream Connector may have a hub Connector there.
    let mut stage = Stage::new(Settings::default());
    stage.upstream(Some(&status(None)));
    assert_eq!(phase(&stage), Phase::Unreplicated);
    stage.lost("hub", "Connector");
    assert_eq!(phase(&stage), Phase::Unknown);
}

#[test]
fn an_edge_alone_has_phases() {
    let mut stage = settled();
    for cluster in ["up", "hub"] {
        stage.event(EventKind::ClusterRemoved { cluster: cluster.into() });
    }
    assert_eq!(phase(&stage), Phase::Settled);
    stage.edge(Some(&status(None)));
    assert_eq!(phase(&stage), Phase::Touching);
    stage.pass_to(605_100);
    stage.actions();
    assert_eq!(phase(&stage), Phase::Stalled);
    let connector = &json(&stage.machine)["connectors"][0];
    assert_eq!(connector["stalls"][0]["hop"], "touched");
    assert_eq!((&connector["upstream"], &connector["hubs"]), (&Value::Null, &json!([])));
    assert_eq!(connector["replica"], json!({"namespace": format!("ns-{UID}"), "name": "lab"}));
}

#[test]
fn the_view_is_as_documented_and_without_node_ids() {
    let stage = settled();
    let seen = json(&stage.machine);
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
    let mut stage = Stage::new(Settings::default());
    for name in ["zeta", "alpha", "mid"] {
        let v = stage.version();
        stage.applied("up", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"{name}","resourceVersion":"{v}"}}}}"#));
    }
    let view = stage.machine.view();
    let names: Vec<_> =
        view.connectors.iter().map(|c| &*c.upstream.as_ref().unwrap().object.name).collect();
    assert_eq!(names, ["alpha", "mid", "zeta"]);
    assert_eq!(view.phases[&Phase::Unreplicated], 3);
}

#[test]
fn a_gateway_class_is_announced_on_one_gateway() {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    let mut stage = Stage::settled(settings);
    let v = stage.version();
    for (kind, spec) in [
        ("HTTPProxy", r#"{"rules":[{"backends":[{"connector":{"name":"lab"}}]}]}"#),
        ("Gateway", r#"{"gatewayClassName":"edge"}"#),
    ] {
        stage.applied("edge", &format!(r#"{{"kind":"{kind}","metadata":{{"namespace":"ns-{UID}","name":"zz","uid":"u-zz","resourceVersion":"{v}"}},"spec":{spec}}}"#));
    }
    assert_eq!(phase(&stage), Phase::Touching);
    stage.settle_to(700_000);
    assert_eq!(phase(&stage), Phase::Settled);
    let edges = json(&stage.machine)["connectors"][0]["edges"].clone();
    let gateways = edges[0]["gateways"].as_array().unwrap();
    assert_eq!(gateways[0]["announcedOn"], Value::Null);
    assert_eq!(gateways[1]["announcedOn"]["name"], "app");
    assert_eq!(gateways[0]["trigger"], gateways[1]["trigger"]);
}

#[test]
fn orphans_are_listed_with_their_age() {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Report;
    let mut stage = Stage::new(settings);
    stage.route(3_600_000, &["gone"]);
    assert_eq!(json(&stage.machine)["orphans"], json!([]), "not for long enough");
    stage.pass_to(30_000);
    assert_eq!(
        json(&stage.machine)["orphans"],
        json!([{"cluster": "hub", "namespace": format!("ns-{UID}"), "name": "lab",
            "sinceMs": START, "inFlight": null, "error": null}])
    );
}

/// In one cluster with every role, the namespace tells upstream and hub Connectors apart.
#[test]
fn in_one_cluster_an_upstream_connector_is_not_a_hub_connector() {
    let mut stage = Stage::new(Settings::default());
    for cluster in ["up", "hub", "edge"] {
        stage.event(EventKind::ClusterRemoved { cluster: cluster.into() });
    }
    stage.now += 1;
    use throughline_core::data::ids::Role::{Edge, Hub, Upstream};
    stage.event(EventKind::ClusterAdded { cluster: "up".into(), roles: vec![Upstream, Hub, Edge] });
    let hub_namespace = format!(
        r#"{{"kind":"Namespace","metadata":{{"name":"ns-{UID}","uid":"u-ns","resourceVersion":"1","labels":{{"meta.datumapis.com/upstream-namespace":"default"}}}}}}"#
    );
    stage.list("up", "Namespace", &[&stage::namespace(UID), &hub_namespace]);
    for kind in ["Connector", "Gateway", "HTTPRoute", "HTTPProxy"] {
        stage.list("up", kind, &[]);
    }
    stage.upstream(Some(&status(Some("n1"))));
    assert_eq!(phase(&stage), Phase::Unreplicated);
    let hub_connector = stage.connector_copy("u-hub", None);
    stage.applied("up", &hub_connector);
    assert_eq!(phase(&stage), Phase::Mirroring);
    stage.pass_to(10);
    let mirror = stage.only_action();
    stage.succeed(&mirror);
    assert_eq!(phase(&stage), Phase::Settled);
    assert_eq!(stage.machine.view().at_ms, UnixMillis(START + 10));
}
