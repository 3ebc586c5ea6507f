//! The diagnosis: which hop is the first that disagrees, why, and what to do; from a machine on a
//! stage, with every break there is.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "trace/found.rs"]
mod found;
#[path = "support/stage.rs"]
mod stage;

use stage::{START, Stage, UID, status};
use throughline::core::action::Hop;
use throughline::core::event::{Happened, Outcome};
use throughline::core::ids::{Kind, ObjectKey};
use throughline::core::settings::{Settings, StallSettings};
use throughline::core::time::UnixMillis;
use throughline::core::view::View;
use throughline::trace::{
    Cause, Found, Snapshot, Source, State, Trace, Witness, Writer, connector, gateway, table,
};

fn lab() -> ObjectKey {
    ObjectKey::new("default", "lab")
}

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

/// As `/state` tells it: the view goes over the wire and is the same.
fn snapshot(stage: &Stage, source: Source) -> Snapshot {
    let view = stage.machine.view();
    let json = serde_json::to_string(&view).unwrap();
    let read: View = serde_json::from_str(&json).unwrap();
    assert_eq!(read, view, "the state can be read back");
    Snapshot { source, view: read, late: None, witness: Witness::default() }
}

fn traced(snapshot: &Snapshot) -> Trace {
    let Found(mut traces) = connector(snapshot, &lab(), None).unwrap();
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

fn trace(stage: &Stage) -> Trace {
    traced(&snapshot(stage, Source::State))
}

/// The first hop that disagrees: which, where, how, why; and that something can be done about it.
#[track_caller]
fn first(trace: &Trace) -> (Hop, &str, State, Cause) {
    let hop = trace.first().unwrap_or_else(|| panic!("every hop agrees: {trace:#?}"));
    assert!(!hop.why.is_empty() && !hop.remedies.is_empty(), "{hop:#?}");
    assert_eq!(trace.state, hop.state);
    (hop.hop, hop.cluster.as_str(), hop.state, hop.cause.unwrap())
}

fn states(trace: &Trace) -> Vec<(Hop, State)> {
    trace.hops.iter().map(|hop| (hop.hop, hop.state)).collect()
}

#[test]
fn where_every_hop_agrees_there_is_nothing_to_do() {
    let trace = trace(&settled());
    assert_eq!((trace.state, trace.first), (State::Ok, None));
    assert_eq!(states(&trace), Hop::ALL.map(|hop| (hop, State::Ok)));
    let node = trace.hops[0].says.as_ref().unwrap().node.clone();
    assert!(node.is_some());
    for hop in &trace.hops[..3] {
        let says = hop.says.as_ref().unwrap();
        assert_eq!((says.online, &says.node), (true, &node), "{hop:#?}");
        assert_eq!(hop.since_ms, Some(UnixMillis(START + 1)));
    }
    assert!(trace.hops[3].trigger.is_some());
    assert_eq!(trace.notes, Vec::<String>::new());
}

#[test]
fn a_hop_is_pending_until_it_is_late() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    stage.one();
    let (hop, at, state, cause) = {
        let trace = trace(&stage);
        let (hop, at, state, cause) = first(&trace);
        (hop, at.to_owned(), state, cause)
    };
    assert_eq!((hop, &*at, state, cause), (Hop::Mirrored, "hub", State::Pending, Cause::UnderWay));
    stage.pass_to(606_000);
    let late = trace(&stage);
    assert_eq!(first(&late), (Hop::Mirrored, "hub", State::Wrong, Cause::UnderWay));
    assert_eq!(late.hops[1].expected, "offline");
    let says = late.hops[1].says.as_ref().unwrap();
    assert!(says.online, "what the edge says, too: {says:?}");
    assert_eq!(late.hops[2].state, State::Ok, "the copy is as the hub's");
}

#[test]
fn who_does_not_lead_says_who_does() {
    let mut stage = settled();
    stage.tell(Happened::LeadershipLost);
    stage.upstream(Some(&status(None)));
    stage.pass_to(606_000);
    let mut snapshot = snapshot(&stage, Source::State);
    let trace = traced(&snapshot);
    assert_eq!(first(&trace), (Hop::Mirrored, "hub", State::Wrong, Cause::NotLeading));
    assert!(trace.first().unwrap().remedies[0].contains("kubectl get lease"));
    snapshot.view.holder = Some("pod-b".to_owned());
    let trace = traced(&snapshot);
    assert!(trace.first().unwrap().why.ends_with("; pod-b does"), "{trace:#?}");
    // A look from outside doesn't lead either, and says so of nobody.
    snapshot.source = Source::Live;
    let trace = traced(&snapshot);
    assert_eq!(first(&trace).3, Cause::NotWritten);
    assert!(trace.first().unwrap().why.contains("pod-b holds the Lease"), "{trace:#?}");
}

#[test]
fn a_refusal_is_wrong_at_once_and_names_the_right_that_is_missing() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.finish(&mirror, Outcome::Refused { error: "403 Forbidden: no".into() });
    let trace = trace(&stage);
    assert_eq!(first(&trace), (Hop::Mirrored, "hub", State::Wrong, Cause::Refused));
    let hop = trace.first().unwrap();
    assert!(hop.why.contains("403 Forbidden: no"), "{hop:#?}");
    let remedy = "grant patch on connectors.networking.datumapis.com to the user or ServiceAccount";
    assert_eq!(hop.remedies, [format!("{remedy} at hub")]);
}

#[test]
fn a_write_that_fails_is_tried_again_and_no_refusal() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.fail(mirror.action.id);
    assert_eq!(first(&trace(&stage)), (Hop::Mirrored, "hub", State::Pending, Cause::Failing));
}

#[test]
fn another_writer_is_named() {
    let mut stage = settled();
    stage.hub(Some(&status(None)));
    let found = trace(&stage);
    assert_eq!(first(&found).3, Cause::Contention);
    let mut snapshot = snapshot(&stage, Source::State);
    let writer = |manager: &str, at: u64| Writer {
        manager: manager.to_owned(),
        at_ms: UnixMillis(at),
        of_field: true,
    };
    let place = ObjectKey::new(format!("ns-{UID}"), "lab");
    let by = writer("replicator", START + 600_000);
    snapshot.witness.refine(&"hub".into(), Kind::Connector, &place, by);
    let trace = traced(&snapshot);
    let why = &trace.first().unwrap().why;
    assert!(why.starts_with("replicator wrote networking.datumapis.com/upstream-status"), "{why}");
}

#[test]
fn a_carrier_that_does_not_carry_is_named_with_its_binding() {
    let mut stage = settled();
    let offline = status(None);
    stage.upstream(Some(&offline));
    let mirror = stage.one();
    stage.hub(Some(&offline));
    stage.land(&mirror);
    assert_eq!(first(&trace(&stage)), (Hop::Arrived, "edge", State::Pending, Cause::NotCarried));
    stage.pass_to(611_000);
    let nudge = stage.one();
    stage.land(&nudge);
    let trace = trace(&stage);
    assert_eq!(first(&trace), (Hop::Arrived, "edge", State::Wrong, Cause::NotCarried));
    let hop = trace.first().unwrap();
    assert!(hop.why.contains("(offline)") && hop.why.contains("nudged once"), "{}", hop.why);
    assert!(hop.remedies[0].contains("describe resourcebinding lab-connector"), "{hop:#?}");
}

#[test]
fn what_is_out_of_sight_is_unknown_with_the_error_and_a_remedy() {
    for (cluster, kind, hop) in [
        ("up", "Connector", Hop::Upstream),
        ("hub", "Connector", Hop::Mirrored),
        ("edge", "Connector", Hop::Arrived),
        ("edge", "HTTPProxy", Hop::Touched),
        ("edge", "Gateway", Hop::Touched),
    ] {
        let mut stage = settled();
        stage.lost(cluster, kind);
        let mut snapshot = snapshot(&stage, Source::State);
        assert_eq!(first(&traced(&snapshot)), (hop, cluster, State::Unknown, Cause::Unseen));
        let kind = Kind::parse(kind).unwrap();
        let error = "403 Forbidden: may not".to_owned();
        snapshot.view.tell_errors([(cluster.into(), kind, error)]);
        let trace = traced(&snapshot);
        let hop = trace.first().unwrap();
        assert!(hop.why.ends_with(": 403 Forbidden: may not"), "{}", hop.why);
        assert!(hop.remedies[0].starts_with("grant list and watch on "), "{hop:#?}");
    }
}

#[test]
fn a_touch_that_is_refused_or_late_is_the_gateways_hop() {
    let mut stage = settled();
    let offline = status(None);
    for step in [Stage::upstream, Stage::hub, Stage::edge] {
        step(&mut stage, Some(&offline));
    }
    stage.decided();
    assert_eq!(first(&trace(&stage)), (Hop::Touched, "edge", State::Pending, Cause::UnderWay));
    stage.pass_to(600_100);
    let touch = stage.one();
    stage.finish(&touch, Outcome::Refused { error: "403 Forbidden: no".into() });
    let found = trace(&stage);
    assert_eq!(first(&found), (Hop::Touched, "edge", State::Wrong, Cause::Refused));
    let hop = found.first().unwrap();
    assert_eq!(hop.object.as_ref().unwrap().name, "app");
    assert!(hop.remedies[0].starts_with("grant patch on gateways."), "{hop:#?}");
    assert_eq!(hop.expected, "announces offline");
    let Found(by_gateway) = gateway(
        &snapshot(&stage, Source::State),
        &ObjectKey::new(format!("ns-{UID}"), "app"),
        None,
    )
    .unwrap();
    assert_eq!(first(&by_gateway[0]), (Hop::Touched, "edge", State::Wrong, Cause::Refused));
}

#[test]
fn a_connector_that_no_proxy_references_is_told_and_is_not_stuck() {
    let mut stage = settled();
    stage.proxy(&[]);
    let snapshot = snapshot(&stage, Source::State);
    let trace = traced(&snapshot);
    assert_eq!(first(&trace), (Hop::Touched, "edge", State::Wrong, Cause::NotReferenced));
    let rows = table(&snapshot);
    assert_eq!((rows[0].state, rows[0].stuck.is_none()), (State::Ok, true));
    let app = ObjectKey::new(format!("ns-{UID}"), "app");
    let Found(by_gateway) = gateway(&snapshot, &app, None).unwrap();
    assert_eq!(first(&by_gateway[0]), (Hop::Touched, "edge", State::Wrong, Cause::NotReferenced));
    // A connector that is only referenced.
    stage.proxy(&["ghost"]);
    let snapshot = Snapshot { view: stage.machine.view(), ..snapshot };
    let Found(by_gateway) = gateway(&snapshot, &app, None).unwrap();
    assert_eq!(first(&by_gateway[0]), (Hop::Arrived, "edge", State::Wrong, Cause::NoConnector));
    assert_eq!(by_gateway[0].hops[0].object.as_ref().unwrap().name, "ghost");
}

#[test]
fn a_connector_without_replica_or_copy_is_the_replicators_or_the_carriers_matter() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n1"));
    stage.pass_to(1);
    stage.upstream(Some(&online));
    assert_eq!(first(&trace(&stage)), (Hop::Mirrored, "hub", State::Pending, Cause::Unreplicated));
    stage.pass_to(60_000);
    let lone = trace(&stage);
    assert_eq!(first(&lone), (Hop::Mirrored, "hub", State::Wrong, Cause::Unreplicated));
    assert!(lone.first().unwrap().remedies[0].contains("replicator"));
    stage.hub(Some(&online));
    assert_eq!(first(&trace(&stage)), (Hop::Arrived, "edge", State::Wrong, Cause::NoCopy));
    stage.edge(Some(&online));
    stage.proxy(&["lab"]);
    assert_eq!(first(&trace(&stage)), (Hop::Touched, "edge", State::Wrong, Cause::NoGateway));
}

#[test]
fn an_upstream_that_is_not_configured_is_unknown_and_one_that_is_gone_is_offline() {
    let mut stage = settled();
    stage.tell(Happened::ClusterRemoved { cluster: "up".into() });
    assert_eq!(first(&trace(&stage)), (Hop::Upstream, "up", State::Unknown, Cause::NotConfigured));
    let mut stage = settled();
    let gone = r#"{"kind":"Connector","metadata":{"namespace":"default","name":"lab","uid":"u-up","resourceVersion":"99"}}"#;
    stage.deleted("up", gone);
    stage.settle_to(700_000);
    stage.hub(None);
    stage.edge(None);
    stage.settle_to(800_000);
    let trace = trace(&stage);
    assert_eq!(trace.state, State::Ok, "{trace:#?}");
    assert_eq!(trace.hops[0].says, None);
    assert!(trace.notes[0].contains("there is no Connector default/lab in up"), "{trace:#?}");
}

#[test]
fn what_is_offline_at_its_source_is_stuck_nowhere_and_says_why() {
    let mut stage = settled();
    let offline = r#"{"conditions":[{"type":"Ready","status":"False","reason":"ConnectorNotReady","message":"Connector lease has expired."}]}"#;
    for step in [Stage::upstream, Stage::hub, Stage::edge] {
        step(&mut stage, Some(offline));
    }
    stage.settle_to(700_000);
    let trace = trace(&stage);
    assert_eq!(trace.state, State::Ok);
    let note = &trace.notes[0];
    assert!(note.contains("ConnectorNotReady: Connector lease has expired."), "{note}");
}

#[test]
fn without_a_hub_in_sight_the_edge_is_judged_by_itself() {
    let mut stage = settled();
    for cluster in ["up", "hub"] {
        stage.tell(Happened::ClusterRemoved { cluster: cluster.into() });
    }
    let place = ObjectKey::new(format!("ns-{UID}"), "lab");
    let Found(traces) = connector(&snapshot(&stage, Source::State), &place, None).unwrap();
    assert_eq!(states(&traces[0]), [(Hop::Arrived, State::Ok), (Hop::Touched, State::Ok)]);
    assert!(traces[0].notes[0].starts_with("no hub is configured here"));
}

/// A look that has just begun saw nothing change: the times of the writes tell what is late.
#[test]
fn a_fresh_look_judges_by_the_times_of_the_writes() {
    let mut stage = settled();
    stage.tell(Happened::LeadershipLost);
    stage.upstream(Some(&status(None)));
    let at = |written: u64| {
        let mut snapshot = snapshot(&stage, Source::Live);
        let view = &mut snapshot.view;
        for cluster in &mut view.clusters {
            cluster
                .live_since_ms
                .values_mut()
                .for_each(|since| *since = UnixMillis(START + 600_000));
        }
        view.connectors[0].stalls.clear();
        snapshot.late = Some(StallSettings::default());
        let (manager, of_field) = ("agent".to_owned(), true);
        let at_ms = UnixMillis(START + written);
        let by = Writer { manager, at_ms, of_field };
        snapshot.witness.refine(&"up".into(), Kind::Connector, &lab(), by);
        traced(&snapshot)
    };
    assert_eq!(first(&at(598_000)), (Hop::Mirrored, "hub", State::Pending, Cause::NotWritten));
    assert_eq!(first(&at(500_000)), (Hop::Mirrored, "hub", State::Wrong, Cause::NotWritten));
    assert_eq!(at(500_000).hops[0].since_ms, Some(UnixMillis(START + 500_000)));
}
