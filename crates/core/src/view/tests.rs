use std::sync::Arc;

use super::{Phase, View};
use crate::contract::cause::About;
use crate::contract::event::{Event, EventKind};
use crate::contract::settings::Settings;
use crate::data::ids::{Kind, ObjectKey, Role};
use crate::data::objects::{PAUSED, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::world::fixture::{Builder, connector, gateway, namespace, proxy};

const ONLINE: &str = r#"{"conditions":[{"status":"True","type":"Ready"}],"connectionDetails":{"publicKey":{"id":"n1"},"type":"PublicKey"}}"#;
/// The same for whoever routes by it.
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
        let machine = Machine::new(Settings::default());
        let mut stage = Self { machine, now: 1_000_000, version: 0 };
        for (cluster, role) in [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)] {
            stage.tell(EventKind::ClusterAdded { cluster: cluster.into(), roles: vec![role] });
            for kind in Kind::ALL {
                stage.tell(EventKind::ListStarted { cluster: cluster.into(), kind });
                stage.tell(EventKind::ListFinished { cluster: cluster.into(), kind });
            }
        }
        stage.shows("up", namespace("default", UID, 1));
        stage
    }

    /// One Connector that says the same everywhere, and a Gateway that does not announce it.
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

    fn view(&self) -> View {
        self.machine.view()
    }
}

#[test]
fn the_first_hop_that_is_not_done_is_the_phase() {
    type Case = (&'static str, fn(&mut Stage), Phase);
    let cases: [Case; 11] = [
        ("all is done", |_| (), Phase::Settled),
        ("another node", |stage| stage.upstream(OFFLINE), Phase::Mirroring),
        ("another port", |stage| stage.upstream(MOVED), Phase::Deferred),
        ("edge differs", |stage| stage.edge(OFFLINE), Phase::Carrying),
        ("no such upstream", |stage| relabel(stage, "other"), Phase::Unconfigured),
        ("paused", pause, Phase::Paused),
        ("another namespace", replace_namespace, Phase::Unproven),
        ("hub lost", |stage| stage.loses("hub", Kind::Connector), Phase::Unknown),
        ("edge lost", |stage| stage.loses("edge", Kind::Connector), Phase::Unknown),
        ("announced by none", reference, Phase::Touching),
        ("a proxy without a Gateway", refer, Phase::Settled),
    ];
    for (name, happens, phase) in cases {
        let mut stage = Stage::carried();
        happens(&mut stage);

        let view = stage.view();
        let json = serde_json::to_string(&view).unwrap();
        assert_eq!(serde_json::from_str::<View>(&json).unwrap(), view, "{name}");
        assert_eq!(view.connectors[0].phase, phase, "{name}");
        assert_eq!(view.phases[&phase], 1, "{name}");
        assert_eq!(stage.machine.phases(), view.phases, "{name}");
    }
}

fn relabel(stage: &mut Stage, upstream: &str) {
    let object = stage.hub_object(upstream).annotation(UPSTREAM_STATUS, ONLINE);
    stage.shows("hub", object);
}

fn pause(stage: &mut Stage) {
    let object = stage.hub_object("up").annotation(PAUSED, "true");
    stage.shows("hub", object);
}

fn replace_namespace(stage: &mut Stage) {
    stage.shows("up", namespace("default", "6bcb0b35-0000-4000-8000-000000000002", 2));
}

fn refer(stage: &mut Stage) {
    stage.shows("edge", proxy(PLACE, "app", 1, &["lab"]));
}

fn reference(stage: &mut Stage) {
    refer(stage);
    stage.shows("edge", gateway(PLACE, "app", 1, "shared"));
}

#[test]
fn what_only_upstream_has_is_unreplicated() {
    let mut stage = Stage::new();
    stage.upstream(OFFLINE);

    let view = stage.view();
    let connector = &view.connectors[0];
    assert_eq!((connector.phase, &connector.place), (Phase::Unreplicated, &None));
    let upstream = connector.upstream.as_ref().unwrap();
    assert_eq!(upstream.because.as_deref(), Some("Expired: Gone"));
    assert!(upstream.exists && !upstream.online && upstream.node.is_none());

    stage.loses("hub", Kind::Connector);
    assert_eq!(stage.view().connectors[0].phase, Phase::Unknown);
    stage.edge(ONLINE);
    let place = stage.view().connectors[0].place.clone();
    assert_eq!(place, Some(ObjectKey::new(PLACE, "lab")), "found by the uid of its namespace");
}

#[test]
fn gateways_and_proxies_without_a_counterpart_are_listed() {
    let mut stage = Stage::carried();
    stage.shows("edge", proxy(PLACE, "app", 1, &["lab", "missing"]));
    stage.shows("edge", gateway(PLACE, "bare", 1, "shared"));

    let unpaired = stage.view().unpaired;
    let rows = unpaired.iter().map(|row| (row.object.name.as_str(), row.gateway, row.proxy));
    assert_eq!(rows.collect::<Vec<_>>(), [("app", false, true), ("bare", true, false)]);
    assert_eq!(unpaired[0].missing, ["missing"]);
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
        // An upstream, followed or not, of which the hub has an object.
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
