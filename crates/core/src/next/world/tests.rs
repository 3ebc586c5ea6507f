//! What events make of the world, and which changes they return.

use super::World;
use super::change::{Change, EdgeChange, HubChange, Report};
use super::fixture::{Stage, connector, gateway, namespace, proxy};
use super::hub::{Link, UpstreamRef};
use super::links::HubCounts;
use crate::contract::error_cause::RequestFailure;
use crate::contract::event::EventKind;
use crate::contract::settings::{Settings, TouchScope};
use crate::data::ids::{Kind, ObjectKey, ResourceVersion, Role};
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::objects::UPSTREAM_STATUS;
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
    stage.shows("edge", connector(HUB_NAMESPACE, "lab", 4).annotation(UPSTREAM_STATUS, ONLINE));
    stage.shows("edge", proxy(HUB_NAMESPACE, "app", 5, &["lab"]));
    stage.shows("edge", gateway(HUB_NAMESPACE, "app", 6, "shared"));
    stage
}

fn hub_connector(version: u64) -> super::fixture::Builder {
    let replica = connector(HUB_NAMESPACE, "lab", version).of("up", "default", "lab");
    replica.annotation(UPSTREAM_STATUS, ONLINE)
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
    stage.world.links[&lab()].clone()
}

fn is_changed(changes: &[Change], subject: &Subject) -> bool {
    changes.iter().any(|change| matches!(change, Change::Changed(changed) if changed == subject))
}

fn lost(cluster: &str, kind: Kind) -> EventKind {
    EventKind::WatchLost { cluster: cluster.into(), kind, error: RequestFailure::default() }
}

#[test]
fn equal_names_share_one_text() {
    let stage = stage();
    let text = |name: Option<&NamespacedName>| name.map(|name| name.name().as_ptr());
    let edge = stage.world.edges().next().unwrap();
    let hub = stage.world.hubs().next().unwrap();

    let at_edge = text(edge.edge.connectors.keys().next());
    assert_eq!(at_edge, text(hub.hub_connectors.keys().next()));
    assert_eq!(
        at_edge,
        text(edge.edge.connectors_of(&NamespacedName::new(HUB_NAMESPACE, "app")).first())
    );
}

#[test]
fn a_hub_connector_is_told_what_its_upstream_connector_says() {
    let mut stage = stage();
    let changes = stage.shows("up", connector("default", "lab", 7).status(Some(OFFLINE)));

    assert!(is_changed(&changes, &hub_subject(&stage.world)));
    let is_told =
        |change: &Change| matches!(change, Change::Hub(HubChange::UpstreamChanged { .. }));
    assert!(changes.iter().any(is_told));
    let is_reported = |change: &Change| {
        matches!(change, Change::Report(Report::UpstreamSays { is_online: false, .. }))
    };
    assert!(changes.iter().any(is_reported));

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
fn after_a_restore_nothing_counts_as_deleted_and_lists_show_old_statuses() {
    let mut stage = stage();
    stage.deletes("up", connector("default", "lab", 7));
    let regressed =
        EventKind::ResourceVersionRegressed { cluster: "up".into(), kind: Kind::Connector };
    stage.tell(regressed);
    assert!(!link(&stage).is_deletion_seen);

    let is_old = |stage: &Stage| {
        let up = stage.world.upstream_named(&"up".into()).unwrap();
        up.upstream_connectors.get(&lab().name).unwrap().seen.is_before_restore
    };
    stage.list("up", Kind::Connector, [connector("default", "lab", 2).status(Some(ONLINE))]);
    assert!(is_old(&stage));

    stage.shows("up", connector("default", "lab", 3).status(Some(ONLINE)));
    assert!(!is_old(&stage));
}

#[test]
fn hub_objects_are_counted_by_the_upstream_that_they_name() {
    let mut stage = stage();
    let counts = |stage: &Stage, upstream: &str| stage.world.counts_of(&upstream.into());
    let one = HubCounts { connectors: 1, annotated: 1, routes: 0 };
    assert_eq!(counts(&stage, "up"), one);

    let at = at(&stage.world, "hub", Kind::Connector, "lab");
    assert!(stage.world.on_mirrored(&at, ResourceVersion::Number(7), false, None));
    assert_eq!(counts(&stage, "up"), HubCounts { annotated: 0, ..one });

    let other = hub_connector(8).of("other", "default", "lab");
    let changes = stage.shows("hub", other);
    assert_eq!(counts(&stage, "up"), HubCounts::default());
    assert_eq!(counts(&stage, "other"), one);
    let is_relinked =
        |change: &Change| matches!(change, Change::Relinked { from, .. } if *from == "up".into());
    assert!(changes.iter().any(is_relinked));
    let is_referenced = |change: &&Change| matches!(change, Change::ReferenceChanged { .. });
    assert_eq!(changes.iter().filter(is_referenced).count(), 2);

    stage.list("hub", Kind::Connector, []);
    assert!(stage.world.hub_counts.is_empty() && stage.world.links.is_empty());
}

#[test]
fn another_hub_connector_of_the_same_name_is_another_object() {
    let mut stage = stage();
    let changes = stage.shows("hub", hub_connector(7).uid("another"));

    let is_gone = |change: &Change| matches!(change, Change::Gone { named: None, .. });
    assert!(changes.iter().any(is_gone));
    let is_another = |change: &Change| match change {
        Change::Hub(HubChange::Seen(seen)) => !seen.is_same_object,
        _ => false,
    };
    assert!(changes.iter().any(is_another));
}

#[test]
fn a_namespace_that_was_deleted_is_remembered_by_the_hub_connectors_of_its_uid() {
    let mut stage = stage();
    let deleted_at = |stage: &Stage| {
        let hub = stage.world.hubs().next().unwrap();
        hub.hub_connectors.iter().next().unwrap().1.seen.namespace_deleted_at
    };
    let changes = stage.deletes("up", namespace("default", UID, 7));
    assert_eq!(deleted_at(&stage), Some(stage.now));
    assert!(is_changed(&changes, &hub_subject(&stage.world)));

    stage.shows("hub", hub_connector(8));
    assert!(deleted_at(&stage).is_some());

    stage.shows("up", namespace("default", UID, 9));
    assert_eq!(deleted_at(&stage), None, "Milo gives a new one the uid of the old");

    stage.list("up", Kind::Namespace, []);
    assert_eq!(deleted_at(&stage), None, "a list lacks it, which proves nothing");
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
    assert!(changes.iter().any(has_left));

    let before = stage.world.last_id;
    let again = stage.add("up", &[Role::Upstream]);
    assert_eq!(again.0, before + 1, "an id is never used twice");
}

#[test]
fn a_hub_that_left_leaves_nothing() {
    let mut stage = stage();
    let subject = hub_subject(&stage.world);
    let changes = stage.tell(EventKind::ClusterRemoved { cluster: "hub".into() });

    assert!(stage.world.links.is_empty() && stage.world.hub_counts.is_empty());
    let is_gone = |change: &Change| match change {
        Change::Gone { subject: gone, named } => *gone == subject && named.is_some(),
        _ => false,
    };
    assert!(changes.iter().any(is_gone));
}

#[test]
fn what_cannot_be_read_is_not_missing() {
    let mut stage = stage();
    let object = ObjectKey::new("default", "lab");
    stage.tell(EventKind::ListStarted { cluster: "up".into(), kind: Kind::Connector });
    let error = RequestFailure::default();
    let unreadable =
        EventKind::Unreadable { cluster: "up".into(), kind: Kind::Connector, object, error };
    stage.tell(unreadable);
    stage.tell(EventKind::ListFinished { cluster: "up".into(), kind: Kind::Connector });
    let up = stage.world.upstream_named(&"up".into()).unwrap();
    assert!(up.upstream_connectors.get(&lab().name).unwrap().seen.is_unreadable());
    assert!(up.is_live(Kind::Connector) && !up.shows_absence(Kind::Connector));

    let changes = stage.shows("up", connector("default", "lab", 7).status(Some(ONLINE)));
    let up = stage.world.upstream_named(&"up".into()).unwrap();
    assert!(up.shows_absence(Kind::Connector));
    assert!(changes.iter().any(|change| matches!(change, Change::ClusterAnswers { .. })));
}

#[test]
fn a_change_of_liveness_concerns_the_gateways_that_reference_the_connector() {
    let mut stage = stage();
    let target = Subject::Target(Target::Gateway(at(&stage.world, "edge", Kind::Gateway, "app")));
    let offline = connector(HUB_NAMESPACE, "lab", 7).annotation(UPSTREAM_STATUS, OFFLINE);
    let changes = stage.shows("edge", offline);

    assert!(is_changed(&changes, &target));
    assert!(is_changed(&changes, &hub_subject(&stage.world)));
    let is_ordered = |change: &Change| {
        let Change::Edge(EdgeChange::Liveness { is_unseen, is_ordered, .. }) = change else {
            return false;
        };
        *is_ordered && !is_unseen
    };
    assert!(changes.iter().any(is_ordered));
}

#[test]
fn what_was_written_while_a_watch_was_lost_may_have_changed() {
    let mut stage = stage();
    let online =
        |version| connector(HUB_NAMESPACE, "lab", version).annotation(UPSTREAM_STATUS, ONLINE);
    let unseen = |changes: &[Change]| {
        let is_unseen = |change: &&Change| {
            matches!(change, Change::Edge(EdgeChange::Liveness { is_unseen: true, .. }))
        };
        changes.iter().filter(is_unseen).count()
    };
    let list = |stage: &mut Stage, version| {
        stage.tell(lost("edge", Kind::Connector));
        let kind = Kind::Connector;
        let cluster = || "edge".into();
        stage.tell(EventKind::ListStarted { cluster: cluster(), kind });
        let object = online(version).object().into();
        let listed = stage.tell(EventKind::Listed { cluster: cluster(), object });
        let finished = stage.tell(EventKind::ListFinished { cluster: cluster(), kind });
        let is_over =
            |change: &Change| matches!(change, Change::Edge(EdgeChange::OutageOver { .. }));
        assert!(finished.iter().any(is_over));
        unseen(&listed)
    };

    assert_eq!(list(&mut stage, 4), 0, "it is the version that is known");
    assert_eq!(list(&mut stage, 7), 1);
}

#[test]
fn an_edge_is_ready_until_a_watch_is_lost() {
    let mut stage = stage();
    let is_ready = |stage: &Stage| stage.world.edges().next().unwrap().edge.ready_since.is_some();
    assert!(is_ready(&stage));
    stage.tell(EventKind::ListStarted { cluster: "edge".into(), kind: Kind::Gateway });
    assert!(is_ready(&stage), "what is listed again was not lost");

    stage.tell(lost("edge", Kind::Gateway));
    assert!(!is_ready(&stage));
    stage.tell(EventKind::WatchResumed { cluster: "edge".into(), kind: Kind::Gateway });
    assert!(is_ready(&stage));
}

#[test]
fn the_first_stamp_that_says_what_the_connector_says_is_the_proof() {
    let mut stage = stage();
    let stamped = |version, stamp: &str| {
        let key = crate::data::objects::PLATFORM_KEY;
        gateway(HUB_NAMESPACE, "app", version, "shared").annotation(key, stamp)
    };
    let stamps = |changes: &[Change]| {
        changes.iter().find_map(|change| match change {
            Change::Edge(EdgeChange::Stamped { is_present, is_first, .. }) => {
                Some((*is_present, *is_first))
            }
            _ => None,
        })
    };

    assert_eq!(stamps(&stage.shows("edge", stamped(7, "false/"))), Some((false, false)));
    assert_eq!(stamps(&stage.shows("edge", stamped(8, "true/"))), Some((true, true)));
    assert_eq!(stamps(&stage.shows("edge", stamped(9, "true/"))), None);
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
    assert!(changes.iter().any(is_unreferenced));
    assert!(is_changed(&changes, &Subject::Target(two)));
}
