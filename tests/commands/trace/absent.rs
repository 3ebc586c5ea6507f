//! Objects, or tiers, that are not there.

use super::*;

#[test]
fn a_connector_that_no_proxy_references_is_traced_but_not_stuck() {
    let mut stage = settled();
    stage.proxy(&[]);
    let snapshot = snapshot(&stage, SnapshotSource::State);
    let trace = traced(&snapshot);
    assert_eq!(first(&trace), (Hop::Touched, "edge", HopState::Wrong, HopCause::NotReferenced));
    let rows = status_rows(&snapshot);
    assert_eq!((rows[0].state, rows[0].stuck.is_none()), (HopState::Ok, true));
    let app = ObjectKey::new(format!("ns-{UID}"), "app");
    let by_gateway = trace_gateway(&snapshot, &app, None).unwrap();
    assert_eq!(
        first(&by_gateway[0]),
        (Hop::Touched, "edge", HopState::Wrong, HopCause::NotReferenced)
    );
    // A connector that is referenced and does not exist.
    stage.proxy(&["ghost"]);
    let snapshot = Snapshot { view: stage.machine.view(), ..snapshot };
    let by_gateway = trace_gateway(&snapshot, &app, None).unwrap();
    assert_eq!(
        first(&by_gateway[0]),
        (Hop::Arrived, "edge", HopState::Wrong, HopCause::NoConnector)
    );
    assert_eq!(by_gateway[0].hops[0].object.as_ref().unwrap().name, "ghost");
}

#[test]
fn a_connector_missing_at_hub_or_edge_is_the_replicators_or_the_carriers_work() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n1"));
    stage.pass_to(1);
    stage.upstream(Some(&online));
    assert_eq!(
        first(&trace(&stage)),
        (Hop::Mirrored, "hub", HopState::Pending, HopCause::Unreplicated)
    );
    stage.pass_to(60_000);
    let lone = trace(&stage);
    assert_eq!(first(&lone), (Hop::Mirrored, "hub", HopState::Wrong, HopCause::Unreplicated));
    assert!(lone.first().unwrap().remedies[0].contains("replicator"));
    stage.hub(Some(&online));
    assert_eq!(
        first(&trace(&stage)),
        (Hop::Arrived, "edge", HopState::Wrong, HopCause::NoEdgeConnector)
    );
    stage.edge(Some(&online));
    stage.proxy(&["lab"]);
    assert_eq!(first(&trace(&stage)), (Hop::Touched, "edge", HopState::Wrong, HopCause::NoGateway));
}

#[test]
fn a_connector_of_an_unconfigured_upstream_is_unknown_and_a_deleted_one_is_offline() {
    let mut stage = settled();
    stage.event(EventKind::ClusterRemoved { cluster: "up".into() });
    assert_eq!(
        first(&trace(&stage)),
        (Hop::Upstream, "up", HopState::Unknown, HopCause::UpstreamNotConfigured)
    );
    let mut stage = settled();
    let gone = r#"{"kind":"Connector","metadata":{"namespace":"default","name":"lab","uid":"u-up","resourceVersion":"99"}}"#;
    stage.deleted("up", gone);
    stage.settle_to(700_000);
    stage.hub(None);
    stage.edge(None);
    stage.settle_to(800_000);
    let trace = trace(&stage);
    assert_eq!(trace.state, HopState::Ok, "{trace:#?}");
    assert_eq!(trace.hops[0].says, None);
    assert!(trace.notes[0].contains("up has no Connector default/lab"), "{trace:#?}");
}

#[test]
fn a_connector_that_is_offline_upstream_is_not_stuck_and_says_why() {
    let mut stage = settled();
    let offline = r#"{"conditions":[{"type":"Ready","status":"False","reason":"ConnectorNotReady","message":"Connector lease has expired."}]}"#;
    for step in [Stage::upstream, Stage::hub, Stage::edge] {
        step(&mut stage, Some(offline));
    }
    stage.settle_to(700_000);
    let trace = trace(&stage);
    assert_eq!(trace.state, HopState::Ok);
    let note = &trace.notes[0];
    assert!(note.contains("(ConnectorNotReady: Connector lease has expired)"), "{note}");
}

#[test]
fn without_a_hub_the_edge_is_judged_by_itself() {
    let mut stage = settled();
    for cluster in ["up", "hub"] {
        stage.event(EventKind::ClusterRemoved { cluster: cluster.into() });
    }
    let hub_key = ObjectKey::new(format!("ns-{UID}"), "lab");
    let snapshot = snapshot(&stage, SnapshotSource::State);
    let traces = trace_connector(&snapshot, &hub_key, None).unwrap();
    assert_eq!(states(&traces[0]), [(Hop::Arrived, HopState::Ok), (Hop::Touched, HopState::Ok)]);
    assert!(traces[0].notes[0].starts_with("no hub is configured here"));
}
