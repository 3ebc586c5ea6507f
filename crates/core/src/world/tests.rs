//! How events update the world, and which changes they return.

use super::change::{Change, EdgeChange};
use super::fixture::{Builder, Stage, connector, gateway, namespace, proxy};
use super::hub::UpstreamRef;
use super::links::{HubCounts, Link};
use crate::contract::error_cause::RequestFailure;
use crate::contract::event::EventKind;
use crate::contract::settings::{Settings, TouchScope};
use crate::data::ids::{Kind, NamespacedName, ResourceVersion, Role};
use crate::data::objects::{PLATFORM_KEY, UPSTREAM_STATUS};
use crate::subject::{Subject, Target};

const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
const HUB_NAMESPACE: &str = "ns-6bcb0b35-0000-4000-8000-000000000001";
const ONLINE: &str = r#"{"conditions":[{"status":"True","type":"Ready"}]}"#;

/// An upstream, a hub and an edge with one connector in each, online everywhere.
fn stage() -> Stage {
    let mut stage = Stage::new(&Settings::default());
    stage.add("up", &[Role::Upstream]);
    stage.add("hub", &[Role::Hub]);
    stage.add("edge", &[Role::Edge]);

    stage.shows("up", namespace("default", UID, 1));
    stage.shows("up", connector("default", "lab", 2).status(Some(ONLINE)));
    stage.shows("hub", hub_connector(3));
    stage.shows("edge", edge_connector(4, ONLINE));
    stage.shows("edge", proxy(HUB_NAMESPACE, "app", 5, &["lab"]));
    stage.shows("edge", gateway(HUB_NAMESPACE, "app", 6, "shared"));
    stage
}

fn hub_connector(version: u64) -> Builder {
    edge_connector(version, ONLINE).of("up", "default", "lab")
}

fn edge_connector(version: u64, status: &str) -> Builder {
    connector(HUB_NAMESPACE, "lab", version).annotation(UPSTREAM_STATUS, status)
}

fn lab() -> UpstreamRef {
    UpstreamRef { cluster: "up".into(), name: NamespacedName::new("default", "lab") }
}

fn link(stage: &Stage) -> Link {
    stage.world.links.get(&lab()).unwrap().clone()
}

fn count(changes: &[Change], is_one: impl Fn(&Change) -> bool) -> usize {
    changes.iter().filter(|change| is_one(change)).count()
}

fn lost(cluster: &str, kind: Kind) -> EventKind {
    EventKind::WatchLost { cluster: cluster.into(), kind, error: RequestFailure::default() }
}

#[test]
fn equal_names_share_one_text() {
    let stage = stage();
    let text = |name: Option<&NamespacedName>| name.map(|name| name.name().as_ptr());
    let edge = &stage.world.edges().next().unwrap().edge;
    let hub = stage.world.hubs().next().unwrap();
    let app = NamespacedName::new(HUB_NAMESPACE, "app");

    let at_edge = text(edge.connectors.keys().next());
    assert_eq!(at_edge, text(hub.hub_connectors.keys().next()));
    assert_eq!(at_edge, text(edge.connectors_of(&app).first()));
}

#[test]
fn a_link_knows_since_when_its_upstream_connector_is_absent_and_whether_somebody_saw_it_go() {
    let mut stage = stage();
    let (cluster, kind) = (|| "up".into(), Kind::Connector);
    stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
    stage.deletes("up", connector("default", "lab", 7));
    let deleted_at = stage.now;
    stage.tell(EventKind::ListFinished { cluster: cluster(), kind });
    stage.list("up", kind, []);
    assert_eq!(link(&stage).absent_since, deleted_at, "it was absent all the time");
    assert!(link(&stage).is_deletion_seen);

    stage.shows("up", connector("default", "lab", 8));
    stage.list("up", kind, []);
    assert_eq!(link(&stage).absent_since, stage.now);
    assert!(!link(&stage).is_deletion_seen, "a list lacks it, which may be a mistake");
}

/// Each watch detects a restore for itself, some later than that of Connectors.
#[test]
fn a_restore_that_another_watch_detects_leaves_what_was_seen_of_connectors() {
    for (kind, is_seen) in [(Kind::Gateway, true), (Kind::Connector, false)] {
        let mut stage = stage();
        stage.deletes("up", connector("default", "lab", 7));
        stage.tell(EventKind::ResourceVersionRegressed { cluster: "up".into(), kind });
        assert_eq!(link(&stage).is_deletion_seen, is_seen, "{kind}");
        assert!(stage.world.upstream_named(&"up".into()).unwrap().restored_at.is_some());
    }
}

#[test]
fn a_list_with_an_object_without_a_readable_name_removes_none() {
    let mut stage = stage();
    let (cluster, kind) = (|| "up".into(), Kind::Connector);
    let is_kept = |stage: &Stage| {
        let up = stage.world.upstream_named(&"up".into()).unwrap();
        up.upstream_connectors.get(&lab().name).is_some()
    };
    let object = NamespacedName::new("", "");
    let error = RequestFailure::default();
    stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
    stage.tell(EventKind::Unreadable { cluster: cluster(), kind, object, error });
    stage.tell(EventKind::ListFinished { cluster: cluster(), kind });
    assert!(is_kept(&stage));
    stage.list("up", kind, []);
    assert!(!is_kept(&stage));
}

#[test]
fn only_a_deletion_that_a_live_watch_showed_is_in_order() {
    let is_ordered = |change: &Change| {
        matches!(change, Change::Edge(EdgeChange::Liveness { is_ordered: true, .. }))
    };
    let deleted = stage().deletes("edge", edge_connector(7, ONLINE));
    assert_eq!(count(&deleted, is_ordered), 1);
    let listed = stage().list("edge", Kind::Connector, []);
    assert_eq!(count(&listed, is_ordered), 0);
}

#[test]
fn another_hub_connector_of_the_same_name_is_another_object() {
    let changes = stage().shows("hub", hub_connector(7).uid("another"));

    assert_eq!(count(&changes, |change| matches!(change, Change::Gone(_))), 1);
    let is_unlinked = |change: &Change| matches!(change, Change::Unlinked { .. });
    assert_eq!(count(&changes, is_unlinked), 0, "it names the same upstream");
    let is_another = |change: &Change| match change {
        Change::HubConnectorSeen(seen) => !seen.is_same_object,
        _ => false,
    };
    assert_eq!(count(&changes, is_another), 1);
}

#[test]
fn of_an_upstream_that_left_nothing_counts_as_deleted() {
    let mut stage = stage();
    stage.deletes("up", connector("default", "lab", 7));
    let before = stage.world.last_id;
    let changes = stage.tell(EventKind::ClusterRemoved { cluster: "up".into() });
    assert!(!link(&stage).is_deletion_seen);
    let has_left = |change: &Change| matches!(change, Change::UpstreamLeft { .. });
    assert_eq!(count(&changes, has_left), 1);

    let again = stage.add("up", &[Role::Upstream]);
    assert_eq!(again.0, before + 1, "an id is never used twice");
}

#[test]
fn hub_objects_are_counted_by_the_upstream_that_they_name() {
    let mut stage = stage();
    let counts = |stage: &Stage, upstream: &str| stage.world.links.counts_of(&upstream.into());
    let one = HubCounts { connectors: 1, annotated: 1, routes: 0 };
    assert_eq!(counts(&stage, "up"), one);

    let name = NamespacedName::new(HUB_NAMESPACE, "lab");
    let at = stage.world.hubs().next().unwrap().object(Kind::Connector, &name);
    assert!(stage.world.on_mirrored(&at, ResourceVersion::Number(7), false, None));
    assert_eq!(counts(&stage, "up"), HubCounts { annotated: 0, ..one });

    let changes = stage.shows("hub", hub_connector(8).of("other", "default", "lab"));
    assert_eq!(counts(&stage, "up"), HubCounts::default());
    assert_eq!(counts(&stage, "other"), one);
    let is_unlinked =
        |change: &Change| matches!(change, Change::Unlinked { from, .. } if *from == "up".into());
    assert_eq!(count(&changes, is_unlinked), 1);
    let is_referenced = |change: &Change| matches!(change, Change::ReferenceChanged { .. });
    assert_eq!(count(&changes, is_referenced), 2);

    stage.list("hub", Kind::Connector, []);
    assert!(stage.world.links.counts.is_empty());
}

#[test]
fn what_was_written_while_a_watch_was_lost_may_have_changed() {
    let is_unseen = |change: &Change| {
        matches!(change, Change::Edge(EdgeChange::Liveness { is_unseen: true, .. }))
    };
    let is_over = |change: &Change| matches!(change, Change::Edge(EdgeChange::OutageOver { .. }));
    let (cluster, kind) = (|| "edge".into(), Kind::Connector);

    for (version, unseen) in [(4, 0), (7, 1)] {
        let mut stage = stage();
        stage.tell(lost("edge", kind));
        stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
        let object = edge_connector(version, ONLINE).object().into();
        let listed = stage.tell(EventKind::Listed { cluster: cluster(), object });
        let finished = stage.tell(EventKind::ListFinished { cluster: cluster(), kind });

        assert_eq!(
            count(&listed, is_unseen),
            unseen,
            "version 4 is known, and {version} is listed"
        );
        assert_eq!(count(&finished, is_over), 1);
    }
}

#[test]
fn an_edge_is_ready_until_a_watch_is_lost() {
    let mut stage = stage();
    let is_ready = |stage: &Stage| stage.world.edges().next().unwrap().edge.ready_since.is_some();
    let (cluster, kind) = (|| "edge".into(), Kind::Gateway);
    assert!(is_ready(&stage));
    stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
    assert!(is_ready(&stage), "what is listed again was not lost");

    stage.tell(lost("edge", kind));
    assert!(!is_ready(&stage));
    stage.tell(EventKind::WatchResumed { cluster: cluster(), kind });
    assert!(is_ready(&stage));
}

#[test]
fn the_first_stamp_that_says_what_the_connector_says_is_the_proof() {
    let mut stage = stage();
    let steps =
        [(7, "false/", Some((false, false))), (8, "true/", Some((true, true))), (9, "true/", None)];
    for (version, stamp, expected) in steps {
        let gateway = gateway(HUB_NAMESPACE, "app", version, "shared");
        let changes = stage.shows("edge", gateway.annotation(PLATFORM_KEY, stamp));
        let stamped = changes.iter().find_map(|change| match change {
            Change::Edge(EdgeChange::Stamped { is_present, is_first, .. }) => {
                Some((*is_present, *is_first))
            }
            _ => None,
        });
        assert_eq!(stamped, expected, "in version {version}");
    }
}

#[test]
fn a_gateway_that_leaves_its_class_leaves_its_connectors_to_the_other() {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    let mut stage = Stage::new(&settings);
    let id = stage.add("edge", &[Role::Edge]);
    stage.shows("edge", proxy(HUB_NAMESPACE, "app", 5, &["lab"]));
    stage.shows("edge", gateway(HUB_NAMESPACE, "app", 6, "one"));

    let changes = stage.shows("edge", gateway(HUB_NAMESPACE, "app", 7, "two"));

    let [one, two] = ["one", "two"].map(|class| Target::Class(id, class.into()));
    let is_unreferenced = |change: &Change| match change {
        Change::Edge(EdgeChange::Unreferenced { target }) => *target == one,
        _ => false,
    };
    assert_eq!(count(&changes, is_unreferenced), 1);
    let is_changed = |change: &Change| match change {
        Change::Changed(Subject::Target(target)) => *target == two,
        _ => false,
    };
    assert_eq!(count(&changes, is_changed), 1);
}

#[test]
fn once_every_edge_is_seen_a_hub_connector_that_none_has_is_judged_again() {
    let mut stage = stage();
    stage.deletes("edge", edge_connector(7, ONLINE));
    let is_judged = |change: &Change| matches!(change, Change::Changed(Subject::HubConnector(_)));
    stage.tell(EventKind::ClusterAdded { cluster: "far".into(), roles: vec![Role::Edge] });
    for (edge, judged) in [("edge", 0), ("far", 1)] {
        let changes = stage.list(edge, Kind::Connector, []);
        assert_eq!(count(&changes, is_judged), judged, "far may have had it");
    }
    let changes = stage.tell(EventKind::ClusterRemoved { cluster: "far".into() });
    assert_eq!(count(&changes, is_judged), 1);
}

#[test]
fn what_the_hub_lacks_follows_from_namespaces_and_from_what_can_be_decoded() {
    let mut stage = stage();
    let is_naming = |change: &Change| matches!(change, Change::NamingChanged { .. });
    assert_eq!(count(&stage.shows("up", namespace("default", "another", 7)), is_naming), 0);
    stage.deletes("hub", hub_connector(8));
    assert_eq!(count(&stage.shows("up", namespace("default", UID, 9)), is_naming), 1);
    assert_eq!(count(&stage.list("hub", Kind::Connector, []), is_naming), 1);
}
