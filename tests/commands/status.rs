//! The status table: one row, one phase and its time for each connector; one banner for each cause.

use throughline::core::contract::event::EventKind;
use throughline::core::contract::settings::{Settings, StallSettings};
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;
use throughline::core::view::phase::Phase;
use throughline::report::ReportOptions;
use throughline::trace::{
    ClusterAccess, HopState, LastWriter, ManagedFieldsIndex, Snapshot, SnapshotSource, StatusRow,
    banners, status_rows, text, trace_connector,
};

use crate::stage::{START, Stage, UID, namespace, status};

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

fn snapshot(stage: &Stage) -> Snapshot {
    Snapshot {
        source: SnapshotSource::State,
        view: stage.machine.view(),
        stall_limits: None,
        managed_fields: ManagedFieldsIndex::default(),
        access: ClusterAccess::default(),
    }
}

fn only_row(stage: &Stage) -> StatusRow {
    let mut rows = status_rows(&snapshot(stage));
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows.remove(0)
}

/// The whole table and what is below it.
fn printed(snapshot: &Snapshot, width: usize) -> String {
    let (rows, options) =
        (status_rows(snapshot), ReportOptions { width, ..ReportOptions::default() });
    let mut out = Vec::new();
    text::rows(snapshot, &rows, true, &options, &mut out).unwrap();
    text::summary(snapshot, &rows, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What `FOR` shows, in milliseconds.
#[track_caller]
fn in_phase(stage: &Stage) -> (Phase, u64) {
    let row = only_row(stage);
    let since = row.since_ms.unwrap_or_else(|| panic!("not known: {row:#?}"));
    (row.phase, stage.now - since.0)
}

#[test]
fn the_time_of_a_row_is_the_time_in_its_phase() {
    let mut stage = settled();
    let offline = status(None);
    stage.pass_to(1_000_000);
    stage.upstream(Some(&offline));
    let mirror = stage.only_action();
    stage.pass_to(1_003_000);
    assert_eq!(in_phase(&stage), (Phase::Mirroring, 3_000));
    stage.pass_to(1_007_000);
    assert_eq!(in_phase(&stage), (Phase::Stalled, 2_000), "late after 5 s");
    stage.hub(Some(&offline));
    stage.succeed(&mirror);
    stage.pass_to(1_011_000);
    assert_eq!(in_phase(&stage), (Phase::Carrying, 4_000));
    stage.edge(Some(&offline));
    assert_eq!(in_phase(&stage), (Phase::Touching, 0));
    stage.settle_to(1_011_500);
    let (phase, ms) = in_phase(&stage);
    assert!(phase == Phase::Offline && ms < 500, "{ms}: since it was announced");
    stage.settle_to(1_100_000);
    let (phase, ms) = in_phase(&stage);
    assert!(phase == Phase::Offline && (88_000..90_000).contains(&ms), "{ms}");
}

/// A look that has just begun has seen nothing change: it says since when at least.
#[test]
fn a_time_that_may_be_longer_says_so() {
    let stage = settled();
    let mut look = snapshot(&stage);
    look.source = SnapshotSource::Live;
    look.stall_limits = Some(StallSettings::default());
    for cluster in &mut look.view.clusters {
        cluster.live_since_ms.values_mut().for_each(|at| *at = UnixMillis(START + 599_000));
    }
    for connector in &mut look.view.connectors {
        connector.upstream.as_mut().unwrap().changed_at_ms = Some(UnixMillis(START + 599_000));
        connector.hubs[0].right_since_ms = Some(UnixMillis(START + 599_000));
        connector.edges[0].changed_at_ms = Some(UnixMillis(START + 599_000));
    }
    let rows = status_rows(&look);
    assert_eq!((rows[0].since_ms, rows[0].at_least), (Some(UnixMillis(START + 599_000)), true));
    assert!(printed(&look, 80).contains("settled  > 1.00 s  1/1"), "{}", printed(&look, 80));
}

#[test]
fn gateways_that_announce_what_was_true_are_stale() {
    let mut stage = settled();
    let announced = |stage: &Stage| {
        let row = only_row(stage);
        (row.announced, row.gateways, row.stale)
    };
    assert_eq!(announced(&stage), (1, 1, false));
    stage.upstream(Some(&status(None)));
    assert_eq!(announced(&stage), (1, 1, true), "they still announce that it is online");
    assert!(printed(&snapshot(&stage), 80).contains(" 1/1 stale\n"));
    stage.actions();
    stage.hub(Some(&status(None)));
    assert_eq!(announced(&stage), (1, 1, true));
    stage.edge(Some(&status(None)));
    assert_eq!(announced(&stage), (0, 1, false), "the gateway has to be touched");
    stage.settle_to(700_000);
    assert_eq!(announced(&stage), (1, 1, false));
    // What routes nothing is no other truth.
    let moved = status(None).replace(r#"{"id""#, r#"{"homeRelay":"r","id""#);
    stage.upstream(Some(&moved));
    assert_eq!(announced(&stage), (1, 1, false));
    // Nobody knows the truth.
    stage.lost("up", "Connector");
    assert_eq!(announced(&stage), (1, 1, true));
    stage.resumed("up", "Connector");
    stage.lost("edge", "Gateway");
    assert!(
        printed(&snapshot(&stage), 80).contains(" ?/1\n"),
        "{}",
        printed(&snapshot(&stage), 80)
    );
}

/// A nudge is a later write of the same object by the same writer.
#[test]
fn a_nudge_is_not_shown_as_a_mirror() {
    let mut stage = settled();
    stage.pass_to(900_000);
    let place = ObjectKey::new(format!("ns-{UID}"), "lab");
    let nudge_key = Settings::default().mirror.nudge_key;
    let nudged_hub = |stage: &mut Stage| {
        let nudged = stage.connector_copy("u-hub", Some(&status(Some("n1"))));
        let marked =
            nudged.replace(r#""annotations":{"#, &format!(r#""annotations":{{"{nudge_key}":"3","#));
        assert_ne!(nudged, marked);
        let object = throughline::watch::wire::object(&marked, Kind::Connector).unwrap();
        EventKind::Applied { cluster: "hub".into(), object: std::sync::Arc::new(object) }
    };
    let event = nudged_hub(&mut stage);
    let mut index = ManagedFieldsIndex::new(&nudge_key);
    index.observe(&event);
    let writer = LastWriter {
        manager: "throughline".into(),
        at_ms: UnixMillis(START + 897_000),
        of_field: true,
    };
    index.set_writer(&"hub".into(), Kind::Connector, &place, writer);
    let mut look = snapshot(&stage);
    (look.managed_fields, look.source) = (index, SnapshotSource::Live);
    // The look began after the nudge.
    for cluster in &mut look.view.clusters {
        cluster.live_since_ms.values_mut().for_each(|at| *at = UnixMillis(START + 899_000));
    }
    look.view.connectors[0].hubs[0].right_since_ms = Some(UnixMillis(START + 899_000));
    let traces = trace_connector(&look, &ObjectKey::new("default", "lab"), None).unwrap();
    let hop = &traces[0].hops[1];
    assert_eq!((hop.since_ms, hop.at_least), (Some(UnixMillis(START + 897_000)), true), "{hop:#?}");
    let mut out = Vec::new();
    text::traces(&traces, &ReportOptions::default(), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("> 3.00 s  by throughline, > 3.00 s ago"), "{out}");
}

/// Three connectors in all tiers; then the hub may not be listed, as it is after a start.
fn unreadable_hub() -> Snapshot {
    let mut stage = Stage::before_the_edge(Settings::default());
    stage.event(EventKind::ClusterRemoved { cluster: "hub".into() });
    let roles = vec![throughline::core::data::ids::Role::Hub];
    stage.event(EventKind::ClusterAdded { cluster: "hub".into(), roles });
    stage.list("up", "Namespace", [namespace(UID)]);
    for kind in ["Connector", "HTTPProxy", "Gateway"] {
        stage.list("edge", kind, []);
    }
    for name in ["lab", "office", "a-name-that-is-much-longer-than-any-table-has-room-for"] {
        let online = status(Some("n1"));
        stage.applied("up", format!(r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"{name}","uid":"u-{name}","resourceVersion":"7"}},"status":{online}}}"#));
        let text = serde_json::to_string(&online).unwrap();
        stage.applied("edge", format!(r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"e-{name}","resourceVersion":"7","annotations":{{"networking.datumapis.com/upstream-status":{text}}}}}}}"#));
    }
    stage.pass_to(30_000);
    for kind in ["Connector", "Namespace", "HTTPRoute"] {
        stage.lost("hub", kind);
    }
    let mut snapshot = snapshot(&stage);
    let forbidden = "403 Forbidden: connectors.networking.datumapis.com is forbidden: User \
                     \"system:serviceaccount:throughline:throughline\" cannot list resource";
    let errors = [Kind::Connector, Kind::Namespace, Kind::HttpRoute];
    snapshot.view.tell_errors(errors.map(|kind| ("hub".into(), kind, forbidden.into())));
    assert_eq!(snapshot.view.phases, stage.machine.phases());
    snapshot
}

#[test]
fn a_hub_that_may_not_be_listed_makes_each_connector_unknown_once() {
    let snapshot = unreadable_hub();
    let rows = status_rows(&snapshot);
    assert_eq!(rows.len(), 3, "{rows:#?}");
    for row in &rows {
        assert_eq!((row.phase, row.state), (Phase::Unknown, HopState::Unknown));
        assert!(row.stuck.is_none() && row.unknown.is_some(), "{row:#?}");
        assert!(
            row.upstream.is_some() && row.hub_key.is_some() && row.edges.len() == 1,
            "{row:#?}"
        );
    }
    let causes = banners(&snapshot, &rows);
    assert_eq!(causes.len(), 1, "{causes:#?}");
    assert_eq!((causes[0].connectors, causes[0].cluster.as_ref().unwrap().as_str()), (3, "hub"));

    let text = printed(&snapshot, 80);
    assert!(text.contains("\n3 connectors, 0 stuck, 3 unknown, 0 pending  "), "{text}");
    let banner = "hub: not allowed to list Connectors, HTTPRoutes and Namespaces (403): 3\n  connectors \
                  unknown\n  → grant list and watch on ";
    assert!(text.contains(banner) && text.matches("403").count() == 1, "{text}");
    let name = "  default/a-name-that-is-much-longer-than-any-table-has-room-for  - / edge ";
    assert!(text.contains(name), "a name is never cut: {text}");
}

/// An edge from which nothing is received is unknown, and not what the carrier or a gateway is blamed for.
#[test]
fn silence_is_unknown_and_blames_nobody() {
    let mut stage = settled();
    let offline = status(None);
    stage.pass_to(1_000_000);
    stage.upstream(Some(&offline));
    let mirror = stage.only_action();
    stage.hub(Some(&offline));
    stage.succeed(&mirror);
    stage.pass_to(1_012_000);
    let at_first = only_row(&stage);
    assert_eq!(at_first.phase, Phase::Stalled, "the edge is late, and its watch seems to live");
    // The shell knows that the edge has been silent since before the change.
    let mut look = snapshot(&stage);
    let heard = UnixMillis(START + 980_000);
    look.view.tell_received([("edge".into(), Kind::Connector, heard)]);
    let why = status_rows(&look)[0].stuck.clone().unwrap().why;
    let both = "the carrier has not delivered it, or edge does not answer: it has sent nothing since \
                2026-11-21 09:35:52.000 UTC";
    assert!(why.contains(both), "{why}");

    for kind in ["Connector", "HTTPProxy", "Gateway"] {
        stage.lost("edge", kind);
    }
    stage.pass_to(1_040_000);
    let mut look = snapshot(&stage);
    let connector = &look.view.connectors[0];
    assert_eq!(connector.phase, Phase::Unknown);
    assert!(connector.stalls.is_empty(), "nobody knows whether it is still late");
    look.view.tell_received([("edge".into(), Kind::Connector, heard)]);
    let row = &status_rows(&look)[0];
    assert_eq!((row.phase, row.since_ms), (Phase::Unknown, Some(heard)), "{row:#?}");
    let why = &row.unknown.as_ref().unwrap().why;
    assert!(why.ends_with("; unknown since 2026-11-21 09:35:52.000 UTC"), "{why}");
    assert!(!why.contains("carrier") && row.stuck.is_none(), "{row:#?}");
    let traces = trace_connector(&look, &ObjectKey::new("default", "lab"), None).unwrap();
    let below = &traces[0].hops[2..];
    assert!(
        below.iter().all(|hop| hop.state == HopState::Unknown),
        "touched is not ok: {below:#?}"
    );
    let text = printed(&look, 80);
    assert!(text.contains(": 1 connector unknown") || text.contains(": 1 connector\n"), "{text}");
}

#[test]
fn upstreams_that_nobody_replicates_and_names_that_nobody_configured_are_told() {
    let mut stage = Stage::new(Settings::default());
    stage.upstream(Some(&status(Some("n1"))));
    let name = r#""meta.datumapis.com/upstream-cluster-name":"cluster-upp""#;
    let hub = stage.connector_copy("u-hub", Some(&status(Some("n1"))));
    let elsewhere = hub.replace(r#""meta.datumapis.com/upstream-cluster-name":"cluster-up""#, name);
    assert_ne!(hub, elsewhere);
    stage.applied("hub", &elsewhere);
    stage.pass_to(60_000);
    let text = printed(&snapshot(&stage), 80);
    assert!(
        text.contains(
            "\n2 connectors, 1 stuck, 1 unknown, 0 pending, 1 unreplicated, 1 unconfigured"
        ),
        "{text}"
    );
    let joined = text.replace("\n  ", " ");
    assert!(
        joined.contains(
            "\n1 hub Connector names upstream upp, which is not configured (did you mean up?);"
        ),
        "{text}"
    );
    assert!(
        joined.contains(
            "\nupstream up has 1 Connector, and it is at no hub → check that hub Connectors"
        ),
        "{text}"
    );
    let phases = stage.machine.phases();
    assert_eq!((phases[&Phase::Unreplicated], phases[&Phase::Unconfigured]), (1, 1));
    // With one that is replicated, it is that connector's problem.
    stage.applied("hub", &hub);
    let text = printed(&snapshot(&stage), 80);
    assert!(!text.contains("at no hub"), "{text}");
}
