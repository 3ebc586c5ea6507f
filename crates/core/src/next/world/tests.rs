//! What events make of the world, and which changes they return.

use super::World;
use super::change::{Change, EdgeChange, HubChange, Report};
use super::cluster::Cluster;
use super::fixture::{Builder, Stage, connector, gateway, namespace, proxy};
use super::hub::{HubConnector, UpstreamRef};
use super::links::{HubCounts, Link};
use super::upstream::UpstreamConnector;
use crate::contract::error_cause::RequestFailure;
use crate::contract::event::EventKind;
use crate::contract::settings::{Settings, TouchScope};
use crate::data::ids::{Kind, ObjectKey, ResourceVersion, Role};
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::objects::{PLATFORM_KEY, UPSTREAM_STATUS};
use crate::next::subject::{Subject, Target};

const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
const HUB_NAMESPACE: &str = "ns-6bcb0b35-0000-4000-8000-000000000001";
const ONLINE: &str = r#"{"conditions":[{"status":"True","type":"Ready"}]}"#;
const OFFLINE: &str = r#"{"conditions":[{"status":"False","type":"Ready"}]}"#;

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

fn at(world: &World, cluster: &str, kind: Kind, name: &str) -> ObjectRef {
    let cluster = world.id_of(&cluster.into()).unwrap();
    ObjectRef { cluster, kind, name: NamespacedName::new(HUB_NAMESPACE, name) }
}

fn hub_subject(world: &World) -> Subject {
    Subject::HubConnector(at(world, "hub", Kind::Connector, "lab"))
}

fn link(stage: &Stage) -> Link {
    stage.world.links.get(&lab()).unwrap().clone()
}

fn up(stage: &Stage) -> &Cluster {
    stage.world.upstream_named(&"up".into()).unwrap()
}

fn upstream_row(stage: &Stage) -> &UpstreamConnector {
    up(stage).upstream_connectors.seen(&lab().name).unwrap()
}

fn hub_row(stage: &Stage) -> &HubConnector {
    stage.world.hubs().next().unwrap().hub_connectors.all_seen().next().unwrap()
}

fn count(changes: &[Change], is_one: impl Fn(&Change) -> bool) -> usize {
    changes.iter().filter(|change| is_one(change)).count()
}

fn is_changed(changes: &[Change], subject: &Subject) -> bool {
    let is_it = |change: &Change| matches!(change, Change::Changed(changed) if changed == subject);
    count(changes, is_it) > 0
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
fn a_hub_connector_is_told_what_its_upstream_connector_says() {
    let mut stage = stage();
    let changes = stage.shows("up", connector("default", "lab", 7).status(Some(OFFLINE)));

    assert!(is_changed(&changes, &hub_subject(&stage.world)));
    let is_told =
        |change: &Change| matches!(change, Change::Hub(HubChange::UpstreamChanged { .. }));
    assert_eq!(count(&changes, is_told), 1);
    let is_reported = |change: &Change| {
        matches!(change, Change::Report(Report::UpstreamSays { is_online: false, .. }))
    };
    assert_eq!(count(&changes, is_reported), 1);

    let same = stage.shows("up", connector("default", "lab", 8).status(Some(OFFLINE)));
    assert!(same.is_empty(), "{same:?}");
}

#[test]
fn a_link_knows_since_when_the_upstream_connector_is_absent_and_whether_somebody_saw_it_go() {
    let mut stage = stage();
    stage.deletes("up", connector("default", "lab", 7));
    assert_eq!(link(&stage).absent_since, stage.now);
    assert!(link(&stage).is_deletion_seen);

    let deleted_at = stage.now;
    stage.list("up", Kind::Connector, []);
    assert_eq!(link(&stage).absent_since, deleted_at, "it was absent all the time");

    stage.shows("up", connector("default", "lab", 8));
    let changes = stage.list("up", Kind::Connector, []);
    assert_eq!(link(&stage).absent_since, stage.now);
    assert!(!link(&stage).is_deletion_seen, "a list lacks it, which may be a mistake");
    assert!(is_changed(&changes, &hub_subject(&stage.world)));
}

#[test]
fn a_deletion_during_a_list_is_seen() {
    let mut stage = stage();
    let (cluster, kind) = (|| "up".into(), Kind::Connector);
    stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
    stage.deletes("up", connector("default", "lab", 7));
    let deleted_at = stage.now;
    stage.tell(EventKind::ListFinished { cluster: cluster(), kind });

    assert_eq!(link(&stage).absent_since, deleted_at);
    assert!(link(&stage).is_deletion_seen);
}

#[test]
fn after_a_restore_nothing_counts_as_deleted_and_lists_show_old_statuses() {
    let mut stage = stage();
    stage.deletes("up", connector("default", "lab", 7));
    let kind = Kind::Connector;
    stage.tell(EventKind::ResourceVersionRegressed { cluster: "up".into(), kind });
    assert!(!link(&stage).is_deletion_seen);

    stage.list("up", kind, [connector("default", "lab", 2).status(Some(ONLINE))]);
    assert!(upstream_row(&stage).is_before_restore);

    stage.shows("up", connector("default", "lab", 3).status(Some(ONLINE)));
    assert!(!upstream_row(&stage).is_before_restore);
}

#[test]
fn hub_objects_are_counted_by_the_upstream_that_they_name() {
    let mut stage = stage();
    let counts = |stage: &Stage, upstream: &str| stage.world.links.counts_of(&upstream.into());
    let one = HubCounts { connectors: 1, annotated: 1, routes: 0 };
    assert_eq!(counts(&stage, "up"), one);

    let at = at(&stage.world, "hub", Kind::Connector, "lab");
    assert!(stage.world.on_mirrored(&at, ResourceVersion::Number(7), false, None));
    assert_eq!(counts(&stage, "up"), HubCounts { annotated: 0, ..one });

    let changes = stage.shows("hub", hub_connector(8).of("other", "default", "lab"));
    assert_eq!(counts(&stage, "up"), HubCounts::default());
    assert_eq!(counts(&stage, "other"), one);
    let is_relinked =
        |change: &Change| matches!(change, Change::Relinked { from, .. } if *from == "up".into());
    assert_eq!(count(&changes, is_relinked), 1);
    let is_referenced = |change: &Change| matches!(change, Change::ReferenceChanged { .. });
    assert_eq!(count(&changes, is_referenced), 2);

    stage.list("hub", Kind::Connector, []);
    assert!(stage.world.links.counts.is_empty());
}

#[test]
fn another_hub_connector_of_the_same_name_is_another_object() {
    let mut stage = stage();
    let changes = stage.shows("hub", hub_connector(7).uid("another"));

    let is_gone = |change: &Change| matches!(change, Change::Gone { named: None, .. });
    assert_eq!(count(&changes, is_gone), 1);
    let is_another = |change: &Change| match change {
        Change::Hub(HubChange::Seen(seen)) => !seen.is_same_object,
        _ => false,
    };
    assert_eq!(count(&changes, is_another), 1);
}

#[test]
fn a_namespace_that_was_deleted_is_remembered_by_the_hub_connectors_of_its_uid() {
    let mut stage = stage();
    let changes = stage.deletes("up", namespace("default", UID, 7));
    assert_eq!(hub_row(&stage).namespace_deleted_at, Some(stage.now));
    assert!(is_changed(&changes, &hub_subject(&stage.world)));

    stage.shows("hub", hub_connector(8));
    assert!(hub_row(&stage).namespace_deleted_at.is_some());

    let came_again = "Milo gives a new one the uid of the old";
    stage.shows("up", namespace("default", UID, 9));
    assert_eq!(hub_row(&stage).namespace_deleted_at, None, "{came_again}");

    stage.list("up", Kind::Namespace, []);
    assert_eq!(hub_row(&stage).namespace_deleted_at, None, "a list lacks it: no proof");
}

#[test]
fn an_upstream_that_left_is_forgotten_and_its_hub_connectors_stay() {
    let mut stage = stage();
    stage.deletes("up", namespace("default", UID, 7));
    let changes = stage.tell(EventKind::ClusterRemoved { cluster: "up".into() });

    assert!(stage.world.upstream_named(&"up".into()).is_none());
    assert!(!link(&stage).is_deletion_seen);
    assert_eq!(link(&stage).from.len(), 1);
    assert!(is_changed(&changes, &hub_subject(&stage.world)));
    let has_left = |change: &Change| matches!(change, Change::Hub(HubChange::UpstreamLeft { .. }));
    assert_eq!(count(&changes, has_left), 1);

    let before = stage.world.last_id;
    let again = stage.add("up", &[Role::Upstream]);
    assert_eq!(again.0, before + 1, "an id is never used twice");
}

#[test]
fn a_hub_that_left_leaves_nothing() {
    let mut stage = stage();
    let subject = hub_subject(&stage.world);
    let changes = stage.tell(EventKind::ClusterRemoved { cluster: "hub".into() });

    assert!(stage.world.links.counts.is_empty());
    assert!(stage.world.links.get(&lab()).is_none());
    let is_gone = |change: &Change| match change {
        Change::Gone { subject: gone, named } => *gone == subject && named.is_some(),
        _ => false,
    };
    assert_eq!(count(&changes, is_gone), 1);
}

#[test]
fn what_cannot_be_read_is_not_missing() {
    let mut stage = stage();
    let (cluster, kind) = (|| "up".into(), Kind::Connector);
    let object = ObjectKey::new("default", "lab");
    let error = RequestFailure::default();
    stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
    stage.tell(EventKind::Unreadable { cluster: cluster(), kind, object, error });
    stage.tell(EventKind::ListFinished { cluster: cluster(), kind });
    assert!(upstream_row(&stage).is_unreadable);
    assert!(up(&stage).is_live(kind) && !up(&stage).shows_absence(kind));

    let changes = stage.shows("up", connector("default", "lab", 7).status(Some(ONLINE)));
    assert!(up(&stage).shows_absence(kind));
    let answers = |change: &Change| matches!(change, Change::ClusterAnswers { .. });
    assert_eq!(count(&changes, answers), 1);
}

#[test]
fn a_change_of_liveness_concerns_the_gateways_that_reference_the_connector() {
    let mut stage = stage();
    let target = Subject::Target(Target::Gateway(at(&stage.world, "edge", Kind::Gateway, "app")));
    let changes = stage.shows("edge", edge_connector(7, OFFLINE));

    assert!(is_changed(&changes, &target));
    assert!(is_changed(&changes, &hub_subject(&stage.world)));
    let is_ordered = |change: &Change| match change {
        Change::Edge(EdgeChange::Liveness { is_unseen, is_ordered, .. }) => {
            *is_ordered && !is_unseen
        }
        _ => false,
    };
    assert_eq!(count(&changes, is_ordered), 1);
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
    assert!(is_changed(&changes, &Subject::Target(two)));
}
