use std::sync::Arc;

use super::fleet::{Connector, Fleet, HopView, Source};
use crate::contract::cause::{About, Cause, Hop, State};
use crate::contract::event::{Event, EventKind};
use crate::contract::settings::Settings;
use crate::data::ids::{Kind, ObjectKey, Role};
use crate::data::objects::{PAUSED, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::world::fixture::{Builder, connector, gateway, namespace, proxy};

const ONLINE: &str = r#"{"conditions":[{"status":"True","type":"Ready"}],"connectionDetails":{"publicKey":{"id":"n1"},"type":"PublicKey"}}"#;
/// The same to edges that route by it.
const MOVED: &str = r#"{"conditions":[{"status":"True","type":"Ready"}],"connectionDetails":{"publicKey":{"id":"n1","port":2},"type":"PublicKey"}}"#;
const OFFLINE: &str =
    r#"{"conditions":[{"message":"Gone.","reason":"Expired","status":"False","type":"Ready"}]}"#;
const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
const PLACE: &str = "ns-6bcb0b35-0000-4000-8000-000000000001";

/// Upstream `up`, hub `hub` and edge `edge`, and no leader.
struct Stage {
    machine: Machine,
    now: u64,
    version: u64,
}

impl Stage {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let mut stage = Self { machine: Machine::new(settings), now: 1_000_000, version: 0 };
        for (cluster, role) in [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)] {
            stage.joins(cluster, role);
        }
        stage.shows("up", namespace("default", UID, 1));
        stage
    }

    /// A Connector with the same status everywhere, which no HTTPProxy references.
    fn carried() -> Self {
        let mut stage = Self::new();
        stage.upstream(ONLINE);
        stage.hub(ONLINE);
        stage.edge(ONLINE);
        stage
    }

    fn tell(&mut self, kind: EventKind) {
        self.now += 1;
        self.machine.handle_event(&Event { at: UnixMillis(self.now), kind });
    }

    /// A cluster whose lists are complete.
    fn joins(&mut self, cluster: &str, role: Role) {
        self.tell(EventKind::ClusterAdded { cluster: cluster.into(), roles: vec![role] });
        for kind in Kind::ALL {
            self.tell(EventKind::ListStarted { cluster: cluster.into(), kind });
            self.tell(EventKind::ListFinished { cluster: cluster.into(), kind });
        }
    }

    fn shows(&mut self, cluster: &str, object: Builder) {
        let object = Arc::new(object.object());
        self.tell(EventKind::Applied { cluster: cluster.into(), object });
    }

    fn next(&mut self, namespace: &str) -> Builder {
        self.version += 1;
        connector(namespace, "lab", self.version)
    }

    fn upstream(&mut self, status: &str) {
        let object = self.next("default").status(Some(status));
        self.shows("up", object);
    }

    fn hub_object(&mut self, upstream: &str) -> Builder {
        self.next(PLACE).of(upstream, "default", "lab")
    }

    fn hub(&mut self, annotation: &str) {
        let object = self.hub_object("up").annotation(UPSTREAM_STATUS, annotation);
        self.shows("hub", object);
    }

    fn edge(&mut self, annotation: &str) {
        let object = self.next(PLACE).annotation(UPSTREAM_STATUS, annotation);
        self.shows("edge", object);
    }

    fn loses(&mut self, cluster: &str, kind: Kind) {
        self.tell(EventKind::WatchLost { cluster: cluster.into(), kind, error: "cut".into() });
    }

    fn fleet(&self) -> Fleet {
        self.machine.fleet(Source::Instance, &|_| None)
    }

    fn connector(&self) -> Connector {
        self.fleet().connectors.remove(0)
    }
}

/// State, hop and cause of the worst hop.
fn worst(connector: &Connector) -> Option<(State, Hop, Option<Cause>)> {
    connector.worst().map(|hop| (hop.state, hop.hop, hop.cause))
}

fn hop_of(connector: &Connector, hop: Hop) -> &HopView {
    connector.hops_of(hop).next().unwrap()
}

#[test]
fn the_first_of_the_worst_hops_is_the_one_that_is_shown() {
    use Cause::{
        ClusterUnavailable, LabelsMissing, NamespaceMismatch, NoGateway, Paused, UpstreamUnknown,
    };
    use Hop::{Announced, Carried, Mirrored, Upstream};
    use State::{Held, Pending, Unknown};
    type Case = (&'static str, fn(&mut Stage), Option<(State, Hop, Option<Cause>)>);
    let unavailable = Some(ClusterUnavailable);
    let cases: [Case; 14] = [
        ("all is done", |_| (), None),
        ("another node", |stage| stage.upstream(OFFLINE), Some((Pending, Mirrored, None))),
        ("another port", |stage| stage.upstream(MOVED), None),
        ("edge differs", |stage| stage.edge(OFFLINE), Some((Pending, Carried, None))),
        (
            "no such upstream",
            |s| relabel(s, "other"),
            Some((Held, Mirrored, Some(UpstreamUnknown))),
        ),
        ("no labels", unlabel, Some((Held, Mirrored, Some(LabelsMissing)))),
        ("paused", pause, Some((Held, Mirrored, Some(Paused)))),
        ("another namespace", replace_namespace, Some((Held, Mirrored, Some(NamespaceMismatch)))),
        (
            "upstream lost",
            |s| s.loses("up", Kind::Connector),
            Some((Unknown, Upstream, unavailable)),
        ),
        ("hub lost", |s| s.loses("hub", Kind::Connector), Some((Unknown, Mirrored, unavailable))),
        ("edge lost", |s| s.loses("edge", Kind::Connector), Some((Unknown, Carried, unavailable))),
        ("proxies lost", lose_proxies, Some((Unknown, Announced, unavailable))),
        ("announced by none", reference, Some((Pending, Announced, None))),
        ("a proxy without a Gateway", refer, None),
    ];
    for (name, happens, expected) in cases {
        let mut stage = Stage::carried();
        happens(&mut stage);

        let fleet = stage.fleet();
        let json = serde_json::to_string(&fleet).unwrap();
        assert_eq!(serde_json::from_str::<Fleet>(&json).unwrap(), fleet, "{name}");

        let state = expected.map_or(State::Ok, |(state, ..)| state);
        let connector = &fleet.connectors[0];
        assert_eq!((worst(connector), connector.state), (expected, state), "{name}");
        let are_so = fleet.connectors.iter().filter(|connector| connector.state == state);
        assert_eq!(fleet.count(state), are_so.count() as u64, "{name}");
        assert_eq!(stage.machine.states(), fleet.counts, "{name}");
        for hop in &connector.hops {
            assert_eq!(hop.cause.is_some(), hop.message.is_some(), "{name}: {hop:?}");
            let has_remedy = hop.cause.is_some_and(|cause| !cause.info().remedy.is_empty());
            assert_eq!(hop.remedy.is_some(), has_remedy, "{name}: {hop:?}");
        }
        let announced = hop_of(connector, Announced);
        let is_unreferenced = !matches!(name, "announced by none" | "edge lost" | "proxies lost");
        assert_eq!(announced.cause == Some(NoGateway), is_unreferenced, "{name}");
    }
}

fn relabel(stage: &mut Stage, upstream: &str) {
    let object = stage.hub_object(upstream).annotation(UPSTREAM_STATUS, ONLINE);
    stage.shows("hub", object);
}

fn unlabel(stage: &mut Stage) {
    let object = stage.next(PLACE).annotation(UPSTREAM_STATUS, ONLINE);
    stage.shows("hub", object);
}

fn pause(stage: &mut Stage) {
    let object = stage.hub_object("up").annotation(PAUSED, "true");
    stage.shows("hub", object);
}

fn replace_namespace(stage: &mut Stage) {
    stage.shows("up", namespace("default", "6bcb0b35-0000-4000-8000-000000000002", 2));
}

fn lose_proxies(stage: &mut Stage) {
    reference(stage);
    stage.loses("edge", Kind::HttpProxy);
}

fn refer(stage: &mut Stage) {
    stage.shows("edge", proxy(PLACE, "app", 1, &["lab"]));
}

fn reference(stage: &mut Stage) {
    refer(stage);
    stage.shows("edge", gateway(PLACE, "app", 1, "shared"));
}

#[test]
fn what_differs_only_in_what_does_not_route_is_ok_and_deferred() {
    let mut stage = Stage::carried();
    stage.upstream(MOVED);

    let connector = stage.connector();
    let hop = hop_of(&connector, Hop::Mirrored);
    assert_eq!((hop.state, hop.cause), (State::Ok, Some(Cause::Deferred)));
    assert_eq!(hop.since_ms, Some(UnixMillis(stage.now)));
    let sentence = format!(
        "{PLACE}/lab changed in fields that do not affect routing; they follow within 5 s."
    );
    assert_eq!(hop.message.as_deref(), Some(&*sentence));
}

#[test]
fn what_only_upstream_has_is_held_and_not_replicated() {
    let mut stage = Stage::new();
    stage.upstream(OFFLINE);

    let connector = stage.connector();
    let not_replicated = (State::Held, Hop::Mirrored, Some(Cause::NotReplicated));
    assert_eq!((worst(&connector), &connector.name), (Some(not_replicated), &None));
    let message = connector.worst().unwrap().message.as_deref();
    assert_eq!(message, Some("The hub has no Connector for default/lab of up."));
    assert_eq!((connector.online, &connector.node), (Some(false), &None));
    let upstream = hop_of(&connector, Hop::Upstream);
    assert_eq!((upstream.state, upstream.since_ms), (State::Ok, Some(UnixMillis(stage.now))));
    assert_eq!(upstream.evidence, ["Ready is not True: Expired: Gone"]);

    stage.loses("hub", Kind::Connector);
    let unknown = (State::Unknown, Hop::Mirrored, Some(Cause::ClusterUnavailable));
    assert_eq!(worst(&stage.connector()), Some(unknown));
    assert_eq!(stage.connector().worst().unwrap().since_ms, Some(UnixMillis(stage.now)));
    stage.edge(ONLINE);
    let place = stage.connector().name;
    assert_eq!(place, Some(ObjectKey::new(PLACE, "lab")), "found by the uid of its namespace");
}

#[test]
fn a_connector_that_no_edge_has_is_held_until_one_has_it_or_cannot_be_seen() {
    let mut stage = Stage::new();
    stage.upstream(ONLINE);
    stage.hub(ONLINE);
    let connector = stage.connector();
    let not_placed = (State::Held, Hop::Carried, Some(Cause::NotPlaced));
    assert_eq!(worst(&connector), Some(not_placed));
    let message = connector.worst().unwrap().message.clone();
    assert_eq!(message, Some(format!("No edge has the Connector {PLACE}/lab.")));

    // It is unknown, too, while the hub is not watched.
    stage.loses("hub", Kind::Connector);
    let connector = stage.connector();
    let carried = hop_of(&connector, Hop::Carried);
    assert_eq!((carried.state, carried.cause), (State::Unknown, Some(Cause::ClusterUnavailable)));
    stage.tell(EventKind::WatchResumed { cluster: "hub".into(), kind: Kind::Connector });

    // The other edge may have it.
    stage.tell(EventKind::ClusterAdded { cluster: "far".into(), roles: vec![Role::Edge] });
    assert_eq!(worst(&stage.connector()), Some((State::Unknown, Hop::Carried, None)));
    stage.tell(EventKind::ClusterRemoved { cluster: "far".into() });
    stage.loses("edge", Kind::Connector);
    let unknown = (State::Unknown, Hop::Carried, Some(Cause::ClusterUnavailable));
    assert_eq!(worst(&stage.connector()), Some(unknown));

    // The carrier decides which edges have it.
    stage.edge(ONLINE);
    stage.joins("far", Role::Edge);
    stage.tell(EventKind::WatchResumed { cluster: "edge".into(), kind: Kind::Connector });
    assert_eq!(stage.connector().state, State::Ok);

    // A Connector without an annotation is not missing at any edge, and none is missing without an
    // edge.
    let mut stage = Stage::new();
    let object = stage.hub_object("up");
    stage.shows("hub", object);
    assert_eq!(stage.connector().state, State::Ok);
    let mut stage = Stage::new();
    stage.tell(EventKind::ClusterRemoved { cluster: "edge".into() });
    stage.upstream(ONLINE);
    stage.hub(ONLINE);
    assert_eq!(stage.connector().state, State::Ok);
}

#[test]
fn a_hop_is_unknown_since_the_first_watch_that_it_needs_was_lost() {
    let mut stage = Stage::carried();
    reference(&mut stage);
    stage.loses("hub", Kind::Connector);
    let hub_lost_at = UnixMillis(stage.now);
    stage.loses("edge", Kind::Gateway);
    let edge_lost_at = UnixMillis(stage.now);

    let connector = stage.connector();
    let shown: Vec<_> =
        connector.hops.iter().map(|hop| (hop.hop, hop.state, hop.since_ms)).collect();
    let changed_at = hop_of(&connector, Hop::Upstream).since_ms;
    assert_eq!(
        shown,
        [
            (Hop::Upstream, State::Ok, changed_at),
            (Hop::Mirrored, State::Unknown, Some(hub_lost_at)),
            (Hop::Carried, State::Unknown, Some(hub_lost_at)),
            (Hop::Announced, State::Unknown, Some(edge_lost_at)),
        ]
    );
    // The cause stays while a list is in progress.
    stage.tell(EventKind::ListStarted { cluster: "hub".into(), kind: Kind::Connector });
    let connector = stage.connector();
    let hop = hop_of(&connector, Hop::Mirrored);
    assert_eq!((hop.cause, hop.since_ms), (Some(Cause::ClusterUnavailable), Some(hub_lost_at)));
}

#[test]
fn hops_are_in_the_order_of_the_way_then_of_clusters_then_of_objects() {
    let mut stage = Stage::carried();
    stage.joins("aside", Role::Edge);
    let object = stage.next(PLACE).annotation(UPSTREAM_STATUS, ONLINE);
    stage.shows("aside", object);
    for name in ["b", "a"] {
        stage.shows("edge", proxy(PLACE, name, 1, &["lab"]));
        stage.shows("aside", proxy(PLACE, name, 1, &["lab"]));
    }

    let connector = stage.connector();
    let name = |hop: &HopView| hop.object.clone().unwrap().name;
    let hops = connector.hops.iter().map(|hop| format!("{} {}", hop.cluster, name(hop)));
    let expected = ["up lab", "hub lab", "aside lab", "edge lab"];
    let announced = ["aside a", "aside b", "edge a", "edge b"];
    assert_eq!(hops.collect::<Vec<_>>(), [expected, announced].concat());
}

#[test]
fn gateways_and_proxies_without_a_counterpart_are_unpaired() {
    let mut stage = Stage::carried();
    stage.shows("edge", proxy(PLACE, "app", 1, &["lab", "missing"]));
    stage.shows("edge", gateway(PLACE, "bare", 1, "shared"));
    stage.shows("edge", proxy(PLACE, "idle", 1, &[]));

    let unpaired = stage.fleet().unpaired;
    let row = |hop: &HopView| (hop.object.clone().unwrap().name, hop.kind, hop.state, hop.cause);
    assert_eq!(
        unpaired.iter().map(row).collect::<Vec<_>>(),
        [
            ("app".into(), Kind::HttpProxy, State::Ok, Some(Cause::ConnectorMissing)),
            ("bare".into(), Kind::Gateway, State::Ok, None),
            ("idle".into(), Kind::HttpProxy, State::Ok, None),
        ]
    );
    let message =
        format!("HTTPProxy {PLACE}/app at edge names Connector missing, which does not exist.");
    assert_eq!(unpaired[0].message, Some(message));
    assert_eq!(unpaired[0].remedy.as_deref(), Some("Create the Connector, or correct the name."));
    assert_eq!(unpaired[1].evidence, ["no HTTPProxy has its name, so it announces no connector"]);
    assert_eq!(unpaired[2].evidence, ["the HTTPProxy of this name references no connector"]);

    // A missing object may exist while the watch is lost.
    stage.loses("edge", Kind::Connector);
    for hop in stage.fleet().unpaired {
        let expected =
            (State::Unknown, Some(Cause::ClusterUnavailable), Some(UnixMillis(stage.now)));
        assert_eq!((hop.state, hop.cause, hop.since_ms), expected);
    }
}

#[test]
fn a_rule_that_is_off_makes_nothing_wait() {
    let mut settings = Settings::default();
    settings.mirror.enabled = false;
    settings.touch.enabled = false;
    let mut stage = Stage::with(settings);
    stage.upstream(OFFLINE);
    stage.hub(ONLINE);
    stage.edge(ONLINE);
    for happens in [|_: &mut Stage| (), reference] {
        happens(&mut stage);
        let connector = stage.connector();
        let causes = [Hop::Mirrored, Hop::Announced].map(|hop| hop_of(&connector, hop).cause);
        assert_eq!((connector.state, causes), (State::Ok, [Some(Cause::RuleOff); 2]));
    }
}

#[test]
fn a_problem_is_about_the_object_at_the_hub_or_the_edge() {
    let mut stage = Stage::carried();
    reference(&mut stage);
    for (cluster, kind, name, expected) in [
        ("hub", Kind::Connector, "lab", "hub Connector lab"),
        ("edge", Kind::Connector, "lab", "edge Connector lab"),
        ("edge", Kind::Gateway, "app", "edge Gateway app"),
        ("edge", Kind::Gateway, "other", ""),
        // An upstream, in the run or not, whose hub Connector exists.
        ("up", Kind::Connector, "lab", "hub Connector lab"),
        ("other", Kind::Connector, "lab", "hub Connector lab"),
        ("other", Kind::Connector, "other", ""),
    ] {
        let about = About::object(&cluster.into(), kind, ObjectKey::new(PLACE, name));
        let found = stage
            .machine
            .involved_object(&about)
            .map(|found| format!("{} {} {}", found.cluster, found.kind, found.object.name));
        assert_eq!(found.unwrap_or_default(), expected, "{about:?}");
    }
    assert_eq!(stage.machine.involved_object(&About::cluster(&"hub".into())), None);
}
