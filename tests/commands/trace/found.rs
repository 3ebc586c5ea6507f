//! The names by which a connector is found, and the status table.

use super::*;
use throughline::core::contract::membership::{JoinRule, SourceName};

#[test]
fn an_unknown_name_is_answered_with_similar_ones() {
    let mut stage = settled();
    let snapshot_of = |stage: &Stage| snapshot(stage, SnapshotSource::State);
    let error_of = |stage: &Stage, namespace: &str, name: &str| {
        let key = ObjectKey::new(namespace, name);
        trace_connector(&snapshot_of(stage), &key, None).unwrap_err().to_string()
    };
    assert!(error_of(&stage, "default", "lap").ends_with("did you mean default/lab?"));
    let elsewhere = error_of(&stage, "shop", "lab");
    assert!(
        elsewhere.ends_with(&format!("did you mean default/lab, ns-{UID}/lab?")),
        "{elsewhere}"
    );
    assert!(!error_of(&stage, "shop", "quite-different").contains("did you mean"));
    stage.lost("up", "Connector");
    let unseen = error_of(&stage, "shop", "quite-different");
    assert!(unseen.ends_with("(it may be in a cluster that is not fully listed: up)"), "{unseen}");
    let app = ObjectKey::new("shop", "app");
    let error = trace_gateway(&snapshot_of(&stage), &app, None).unwrap_err().to_string();
    assert!(error.ends_with(&format!("did you mean ns-{UID}/app?")), "{error}");
}

#[test]
fn a_gateway_is_found_by_its_upstream_name() {
    let snapshot = snapshot(&settled(), SnapshotSource::State);
    let app = ObjectKey::new("default", "app");
    let at_edge = ObjectKey::new(format!("ns-{UID}"), "app");
    for cluster in [None, Some("up"), Some("edge")] {
        let cluster = cluster.map(Into::into);
        let traces = trace_gateway(&snapshot, &app, cluster.as_ref()).unwrap();
        let gateway = traces[0].hops.last().unwrap().object.clone();
        assert_eq!((traces.len(), gateway), (1, Some(at_edge.clone())), "{cluster:?}");
    }
    let error = trace_gateway(&snapshot, &app, Some(&"hub".into())).unwrap_err().to_string();
    assert!(error.starts_with("no gateway is called default/app"), "{error}");

    // The same namespace in two upstreams, with a gateway of that name in each.
    let mut snapshot = snapshot;
    let mut other = snapshot.view.connectors[0].clone();
    other.upstream.as_mut().unwrap().cluster = "up2".into();
    other.place.as_mut().unwrap().namespace = "ns-2".into();
    snapshot.view.connectors.push(other);
    let mut up2 = snapshot.view.clusters.iter().find(|c| c.name.as_str() == "up").unwrap().clone();
    up2.name = "up2".into();
    snapshot.view.clusters.push(up2);
    let error = trace_gateway(&snapshot, &app, None).unwrap_err().to_string();
    assert!(error.ends_with("default/app in up; default/app in up2; add --in CLUSTER"), "{error}");
    let traces = trace_gateway(&snapshot, &app, Some(&"up2".into())).unwrap();
    assert_eq!(traces[0].hops.last().unwrap().object, Some(ObjectKey::new("ns-2", "app")));
}

#[test]
fn a_cluster_chooses_among_equal_names() {
    let mut snapshot = snapshot(&settled(), SnapshotSource::State);
    let mut other = snapshot.view.connectors[0].clone();
    other.upstream.as_mut().unwrap().cluster = "up2".into();
    snapshot.view.connectors.push(other);
    let error = trace_connector(&snapshot, &lab(), None).unwrap_err().to_string();
    assert_eq!(
        error,
        "more than one connector is called default/lab: default/lab in up; default/lab in up2; add \
         --in CLUSTER"
    );
    let one = trace_connector(&snapshot, &lab(), Some(&"up2".into())).unwrap();
    assert_eq!(one[0].upstream.as_ref().unwrap().cluster.as_str(), "up2");
}

#[test]
fn the_status_table_has_stuck_connectors_first() {
    let mut stage = settled();
    let v = stage.version();
    stage.applied("up", format!(r#"{{"kind":"Connector","metadata":{{"namespace":"zoo","name":"ape","resourceVersion":"{v}"}}}}"#));
    stage.pass_to(660_000);
    let rows = status_rows(&snapshot(&stage, SnapshotSource::State));
    let found: Vec<_> = rows
        .iter()
        .map(|row| (&*row.upstream.as_ref().unwrap().object.name, row.state, row.announced))
        .collect();
    assert_eq!(found, [("ape", HopState::Wrong, 0), ("lab", HopState::Ok, 1)]);
    let stuck = rows[0].stuck.as_ref().unwrap();
    assert_eq!((stuck.hop, stuck.cause), (Hop::Mirrored, Some(HopCause::Unreplicated)));
    assert_eq!(rows[0].since_ms, Some(UnixMillis(START + 600_000)));
    assert_eq!((rows[1].gateways, rows[1].online), (1, Some(true)));
}

fn summary_of(stage: &Stage) -> String {
    let snapshot = snapshot(stage, SnapshotSource::State);
    let options = ReportOptions { width: 400, ..ReportOptions::default() };
    let mut out = Vec::new();
    let rows = status_rows(&snapshot);
    throughline::trace::text::summary(&snapshot, &rows, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_summary_has_a_line_for_each_upstream_that_is_not_there() {
    let mut stage = settled();
    assert_eq!(summary_of(&stage).lines().count(), 1);
    stage.event(EventKind::ClusterRemoved { cluster: "up".into() });
    let summary = summary_of(&stage);
    let lines: Vec<_> = summary.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "1 hub Connector names upstream up, which is not configured; they stay as they are. To have \
          them followed, add up to `clusters` or to what discovery finds"
        ]
    );
    let (source, join) = (SourceName::Milo, JoinRule::Needed);
    stage.event(EventKind::DiscoveryStarted { source, join });
    stage.event(EventKind::DiscoveryFinished { source });
    assert_eq!(stage.machine.unknown_upstreams(), ["up".into()]);
    stage.event(EventKind::ClusterGone { source, cluster: "up".into() });
    let summary = summary_of(&stage);
    let lines: Vec<_> = summary.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["1 hub Connector names project up, which is deleted; a deleted project can still serve \
          traffic. `throughline orphans` lists the routes"]
    );
    // Named by more than one, and by routes.
    let mut snapshot = snapshot(&stage, SnapshotSource::State);
    (snapshot.view.gone[0].connectors, snapshot.view.gone[0].routes) = (2, 3);
    let (mut out, options) = (Vec::new(), ReportOptions { width: 400, ..ReportOptions::default() });
    throughline::trace::text::summary(&snapshot, &[], &options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("2 hub Connectors and 3 HTTPRoutes name project up, which"), "{text}");
}
