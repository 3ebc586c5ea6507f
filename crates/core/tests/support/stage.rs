//! The machine with one connector, one HTTPProxy, one Gateway and one HTTPRoute in three tiers. A
//! test creates each with one line, and controls time and outcomes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;

use throughline_core::contract::action::Decision;
use throughline_core::contract::event::{Event, EventKind, Outcome};
use throughline_core::contract::note::{Note, NoteKind};
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use throughline_core::data::objects::{Object, WireObject};
use throughline_core::data::time::UnixMillis;

use crate::Machine;

pub(crate) const START: u64 = 1_795_252_772_000;
pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
const LABELS: &str = r#""meta.datumapis.com/upstream-cluster-name":"cluster-up","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"lab""#;

pub(crate) struct Stage {
    pub(crate) machine: Machine,
    pub(crate) now: u64,
    version: u64,
    next_bookmark: u64,
}

/// A status: online on a node, or offline.
pub(crate) fn status(node: Option<&str>) -> String {
    let ready = if node.is_some() { "True" } else { "False" };
    let id = node.unwrap_or("none");
    format!(
        r#"{{"conditions":[{{"status":"{ready}","type":"Ready"}}],"connectionDetails":{{"publicKey":{{"id":"{id}"}},"type":"PublicKey"}}}}"#
    )
}

impl Stage {
    /// Three tiers with one of everything, on which nothing is left to do.
    pub(crate) fn settled(settings: Settings) -> Self {
        let mut stage = Self::new(settings);
        let online = status(Some("n1"));
        stage.pass_to(1);
        stage.upstream(Some(&online));
        stage.hub(Some(&online));
        stage.edge(Some(&online));
        stage.proxy(&["lab"]);
        stage.gateway("");
        stage.settle_to(600_000);
        stage
    }

    /// Three tiers, listed and empty except for the namespaces. This instance is leader.
    pub(crate) fn new(settings: Settings) -> Self {
        let mut stage = Self::before_the_edge(settings);
        for kind in ["Connector", "HTTPProxy", "Gateway"] {
            stage.list("edge", kind, &[]);
        }
        stage
    }

    /// The same before the edge is listed.
    pub(crate) fn before_the_edge(settings: Settings) -> Self {
        let mut stage =
            Self { machine: Machine::new(settings), now: START, version: 0, next_bookmark: 60_000 };
        for (name, role) in [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)] {
            stage.event(EventKind::ClusterAdded { cluster: name.into(), roles: vec![role] });
        }
        stage.event(EventKind::LeadershipAcquired);
        stage.list("up", "Namespace", &[&namespace(UID)]);
        for (cluster, kind) in
            [("up", "Connector"), ("up", "Gateway"), ("hub", "Connector"), ("hub", "HTTPRoute")]
        {
            stage.list(cluster, kind, &[]);
        }
        stage
    }

    pub(crate) fn event(&mut self, kind: EventKind) {
        self.machine.handle_event(&Event { at: UnixMillis(self.now), kind });
    }

    pub(crate) fn applied(&mut self, cluster: &str, object: &str) {
        self.event(EventKind::Applied { cluster: cluster.into(), object: read(object) });
    }

    pub(crate) fn deleted(&mut self, cluster: &str, object: &str) {
        self.event(EventKind::Deleted { cluster: cluster.into(), object: read(object) });
    }

    pub(crate) fn list(&mut self, cluster: &str, kind: &str, objects: &[&str]) {
        self.list_started(cluster, kind);
        for object in objects {
            self.listed(cluster, object);
        }
        self.list_finished(cluster, kind);
    }

    pub(crate) fn list_started(&mut self, cluster: &str, kind: &str) {
        self.about_watch(cluster, kind, |cluster, kind| EventKind::ListStarted { cluster, kind });
    }

    pub(crate) fn listed(&mut self, cluster: &str, object: &str) {
        self.event(EventKind::Listed { cluster: cluster.into(), object: read(object) });
    }

    pub(crate) fn list_finished(&mut self, cluster: &str, kind: &str) {
        self.about_watch(cluster, kind, |cluster, kind| EventKind::ListFinished { cluster, kind });
    }

    pub(crate) fn lost(&mut self, cluster: &str, kind: &str) {
        let error = "cut".into();
        self.about_watch(cluster, kind, |cluster, kind| EventKind::WatchLost {
            cluster,
            kind,
            error,
        });
    }

    pub(crate) fn resumed(&mut self, cluster: &str, kind: &str) {
        self.about_watch(cluster, kind, |cluster, kind| EventKind::WatchResumed { cluster, kind });
    }

    pub(crate) fn version_went_back(&mut self, cluster: &str, kind: &str) {
        self.about_watch(cluster, kind, |cluster, kind| EventKind::ResourceVersionRegressed {
            cluster,
            kind,
        });
    }

    /// An upstream Connector has a content that nobody can read.
    pub(crate) fn unreadable(&mut self, name: &str, error: &str) {
        let (object, error) = (ObjectKey::new("default", name), error.into());
        self.about_watch("up", "Connector", |cluster, kind| EventKind::Unreadable {
            cluster,
            kind,
            object,
            error,
        });
    }

    fn about_watch(
        &mut self,
        cluster: &str,
        kind: &str,
        event: impl FnOnce(ClusterName, Kind) -> EventKind,
    ) {
        self.event(event(cluster.into(), Kind::parse(kind).unwrap()));
    }

    pub(crate) fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The upstream Connector says this; `None` for no status.
    pub(crate) fn upstream(&mut self, status: Option<&str>) {
        let (v, status) = (self.version(), status.unwrap_or("null").to_owned());
        self.applied("up", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"lab","uid":"u-up","resourceVersion":"{v}"}},"status":{status}}}"#));
    }

    /// The hub Connector carries this status annotation.
    pub(crate) fn hub(&mut self, status: Option<&str>) {
        let copy = self.connector_copy("u-hub", status);
        self.applied("hub", &copy);
    }

    /// The edge Connector carries this status annotation.
    pub(crate) fn edge(&mut self, status: Option<&str>) {
        let copy = self.connector_copy("u-edge", status);
        self.applied("edge", &copy);
    }

    pub(crate) fn connector_copy(&mut self, uid: &str, status: Option<&str>) -> String {
        let version = self.version();
        connector_object(uid, version, status)
    }

    pub(crate) fn proxy(&mut self, connectors: &[&str]) {
        let v = self.version();
        let backends: Vec<_> =
            connectors.iter().map(|c| format!(r#"{{"connector":{{"name":"{c}"}}}}"#)).collect();
        self.applied("edge", &format!(r#"{{"kind":"HTTPProxy","metadata":{{"namespace":"ns-{UID}","name":"app","uid":"u-p","resourceVersion":"{v}"}},"spec":{{"rules":[{{"backends":[{}]}}]}}}}"#, backends.join(",")));
    }

    pub(crate) fn gateway(&mut self, annotations: &str) -> String {
        let v = self.version();
        let gateway = format!(
            r#"{{"kind":"Gateway","metadata":{{"namespace":"ns-{UID}","name":"app","uid":"u-g","resourceVersion":"{v}","annotations":{{{annotations}}}}},"spec":{{"gatewayClassName":"edge"}}}}"#
        );
        self.applied("edge", &gateway);
        gateway
    }

    /// A route at the hub, `age_ms` old, whose parents are these Gateways.
    pub(crate) fn route(&mut self, age_ms: u64, parents: &[&str]) {
        let version = self.version().to_string();
        let created = UnixMillis(self.now - age_ms);
        self.applied("hub", &route_created(created, "u-r", &version, parents));
    }

    pub(crate) fn upstream_gateway(&mut self, name: &str) -> String {
        let v = self.version();
        format!(
            r#"{{"kind":"Gateway","metadata":{{"namespace":"default","name":"{name}","uid":"u-ug","resourceVersion":"{v}"}}}}"#
        )
    }

    /// The actions since the last call.
    pub(crate) fn actions(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    /// The only action since the last call.
    pub(crate) fn only_action(&mut self) -> Decision {
        let mut decided = self.actions();
        assert_eq!(decided.len(), 1, "{decided:#?}");
        decided.remove(0)
    }

    pub(crate) fn assert_no_action(&mut self) {
        assert_eq!(self.actions(), [], "at {} ms", self.now - START);
    }

    pub(crate) fn notes(&mut self) -> Vec<Note> {
        std::iter::from_fn(|| self.machine.poll_note()).collect()
    }

    /// The notes about problems, and about the end of one.
    pub(crate) fn problems(&mut self) -> Vec<NoteKind> {
        let kinds = self.notes().into_iter().map(|n| n.kind);
        kinds
            .filter(|n| {
                !matches!(
                    n,
                    NoteKind::HopPassed { .. }
                        | NoteKind::Deferred { .. }
                        | NoteKind::Orphan { .. }
                        | NoteKind::OrphanGone { .. }
                        | NoteKind::DeletesHeld { .. }
                )
            })
            .collect()
    }

    pub(crate) fn finish(&mut self, decision: &Decision, outcome: Outcome) {
        self.event(EventKind::ActionFinished { id: decision.action.id, outcome });
    }

    pub(crate) fn succeed(&mut self, decision: &Decision) {
        self.finish(decision, Outcome::Applied { resource_version: None });
    }

    pub(crate) fn fail(&mut self, id: ActionId) {
        let outcome = Outcome::Failed { error: "503".into(), retry_after_ms: None };
        self.event(EventKind::ActionFinished { id, outcome });
    }

    /// Lets time pass as `pass_to` does, while every write succeeds at once. Returns the actions.
    pub(crate) fn settle_to(&mut self, ms: u64) -> Vec<Decision> {
        let mut all = Vec::new();
        loop {
            let decided = self.actions();
            decided.iter().for_each(|d| self.succeed(d));
            let has_acted = !decided.is_empty();
            all.extend(decided);
            match self.machine.poll_deadline() {
                Some((at, _)) if at.0 <= START + ms => self.pass_to(at.0.max(self.now) - START),
                _ if !has_acted => break,
                _ => {}
            }
        }
        self.pass_to(ms);
        all
    }

    /// Lets time pass to `ms` after the start: wakes the machine at each of its deadlines, and sends a
    /// bookmark once a minute, as a healthy upstream does.
    pub(crate) fn pass_to(&mut self, ms: u64) {
        while self.next_bookmark <= ms {
            self.pass_without_bookmarks_to(self.next_bookmark);
            self.bookmark();
            self.next_bookmark += 60_000;
        }
        self.pass_without_bookmarks_to(ms);
    }

    pub(crate) fn bookmark(&mut self) {
        let cluster = "up".into();
        self.event(EventKind::Bookmark { cluster, kind: Kind::Gateway });
    }

    pub(crate) fn pass_without_bookmarks_to(&mut self, ms: u64) {
        let end = START + ms;
        while let Some((at, _)) = self.machine.poll_deadline().filter(|(at, _)| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.machine.handle_timeout(UnixMillis(self.now));
        }
        self.now = end;
        self.machine.handle_timeout(UnixMillis(end));
    }
}

/// An object as an API server writes it.
pub(crate) fn read(object: &str) -> Arc<Object> {
    let wire: WireObject = serde_json::from_str(object).unwrap();
    Arc::new(wire.try_into().unwrap())
}

pub(crate) fn namespace(uid: &str) -> String {
    format!(
        r#"{{"kind":"Namespace","metadata":{{"name":"default","uid":"{uid}","resourceVersion":"1"}}}}"#
    )
}

/// The hub Connector in a given version.
pub(crate) fn hub_object(version: u64, status: &str) -> String {
    connector_object("u-hub", version, Some(status))
}

fn connector_object(uid: &str, version: u64, status: Option<&str>) -> String {
    let annotations = status.map_or(String::new(), |s| {
        let text = serde_json::to_string(s).unwrap();
        format!(r#","annotations":{{"networking.datumapis.com/upstream-status":{text}}}"#)
    });
    format!(
        r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"lab","uid":"{uid}","resourceVersion":"{version}","labels":{{{LABELS}}}{annotations}}}}}"#
    )
}

/// A route that is an hour old, in a given version, with a given uid and parent.
pub(crate) fn route_object(now: u64, uid: &str, version: &str, parent: &str) -> String {
    route_created(UnixMillis(now - 3_600_000), uid, version, &[parent])
}

fn route_created(created: UnixMillis, uid: &str, version: &str, parents: &[&str]) -> String {
    let parents: Vec<_> = parents.iter().map(|p| format!(r#"{{"name":"{p}"}}"#)).collect();
    let parents = parents.join(",");
    format!(
        r#"{{"kind":"HTTPRoute","metadata":{{"namespace":"ns-{UID}","name":"lab","uid":"{uid}","resourceVersion":"{version}","creationTimestamp":"{created}","labels":{{{LABELS},"meta.datumapis.com/upstream-group":"gateway.networking.k8s.io","meta.datumapis.com/upstream-kind":"HTTPRoute"}}}},"spec":{{"parentRefs":[{parents}]}}}}"#
    )
}
