//! The machine with one connector, one HTTPProxy, one Gateway and one HTTPRoute in three tiers. A
//! test creates each with one line, and controls time and outcomes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

pub(crate) use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
pub(crate) use std::ops::Range;
use std::sync::Arc;

pub(crate) use serde_json::{Value, json};
pub(crate) use throughline_core::contract::action::{Decision, Urgency, Verb};
pub(crate) use throughline_core::contract::cause::{Cause, Hop, Problem, ProblemId, State};
pub(crate) use throughline_core::contract::error_cause::{ErrorCause, RequestFailure};
pub(crate) use throughline_core::contract::event::{Event, EventKind, Outcome};
pub(crate) use throughline_core::contract::membership::{
    JoinRule, LeaveReason, MemberState, Membership, OfferState, SourceName,
};
pub(crate) use throughline_core::contract::note::{Note, NoteKind};
pub(crate) use throughline_core::contract::settings::{
    Fraction, OrphanMode, PlatformKeyMode, Settings, TouchScope,
};
pub(crate) use throughline_core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline_core::data::objects::{Object, WireObject};
pub(crate) use throughline_core::data::objects::{
    PAUSED, PLATFORM_KEY as STAMP, UPSTREAM_STATUS as STATUS,
};
pub(crate) use throughline_core::data::time::UnixMillis;
use throughline_core::machine::Machine;
pub(crate) use throughline_core::status::trigger::Trigger;
use throughline_core::view;
pub(crate) use throughline_core::view::fleet::{Connector, HopView, Source};

pub(crate) const START: u64 = 1_795_252_772_000;
pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60_000;
pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
/// The uid of another namespace of the same name.
pub(crate) const OTHER_UID: &str = "6bcb0b35-0000-4000-8000-00000000ffff";
pub(crate) const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";

macro_rules! said {
    ($ready:literal, $id:literal) => {
        Some(concat!(
            r#"{"conditions":[{"status":""#,
            $ready,
            r#"","type":"Ready"}],"connectionDetails":{"publicKey":{"id":""#,
            $id,
            r#""},"type":"PublicKey"}}"#
        ))
    };
}
pub(crate) const OFFLINE: Option<&str> = said!("False", "none");
pub(crate) const N1: Option<&str> = said!("True", "n1");
pub(crate) const N2: Option<&str> = said!("True", "n2");
pub(crate) const N3: Option<&str> = said!("True", "n3");

/// A status: online on a node, or offline.
pub(crate) fn status(node: Option<&str>) -> String {
    node.map_or(OFFLINE.unwrap().to_owned(), |id| N1.unwrap().replace("n1", id))
}

/// Online on a node, at an address.
pub(crate) fn status_at(node: &str, address: u64) -> String {
    status(Some(node)).replace(r#"{"id""#, &format!(r#"{{"homeRelay":"r-{address}","id""#))
}

pub(crate) fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

pub(crate) fn with_scope(scope: TouchScope) -> Settings {
    settings(|s| s.touch.scope = scope)
}

pub(crate) fn applied(version: Option<&str>) -> Outcome {
    Outcome::Applied { resource_version: version.map(str::to_owned) }
}

pub(crate) fn conflict() -> Outcome {
    Outcome::Conflict { error: "409".into() }
}

pub(crate) fn forbidden() -> Outcome {
    Outcome::Refused { error: RequestFailure::new(ErrorCause::Forbidden, "403 Forbidden: no") }
}

pub(crate) fn unavailable(retry_after_ms: Option<u64>) -> Outcome {
    let error = RequestFailure::new(ErrorCause::ServerError, "503 ServiceUnavailable: no");
    Outcome::Failed { error, retry_after_ms }
}

/// A namespace of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenant {
    pub(crate) cluster: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) uid: &'static str,
}

pub(crate) const UP: Tenant = Tenant { cluster: "up", namespace: "default", uid: UID };

/// Another namespace of the same project.
pub(crate) const NEIGHBOUR: Tenant =
    Tenant { namespace: "second", uid: "6bcb0b35-0000-4000-8000-000000000002", ..UP };

impl Tenant {
    /// The only namespace of the n-th project.
    pub(crate) fn of_project(n: usize) -> Self {
        let uid = format!("{n:08}-0000-4000-8000-000000000001");
        Self { cluster: format!("p{n}").leak(), namespace: "default", uid: uid.leak() }
    }

    pub(crate) fn hub_namespace(self) -> String {
        format!("ns-{}", self.uid)
    }

    pub(crate) fn namespace(self) -> Value {
        json!({"kind": "Namespace", "metadata": {
            "name": self.namespace, "uid": self.uid, "resourceVersion": "1"}})
    }

    pub(crate) fn connector(self, name: &str, status: Option<&str>) -> Value {
        let status: Value = status.map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
        with(object("Connector", self.namespace, name), json!({ "status": status }))
    }

    /// What the hub and the edges have of a Connector.
    pub(crate) fn copy(self, name: &str, annotation: Option<&str>) -> Value {
        let annotations = annotation.map_or(json!({}), |text| json!({ STATUS: text }));
        let meta = json!({"annotations": annotations, "labels": self.labels(name)});
        with(object("Connector", &self.hub_namespace(), name), json!({ "metadata": meta }))
    }

    fn labels(self, name: &str) -> Value {
        json!({
            "meta.datumapis.com/upstream-cluster-name": format!("cluster-{}", self.cluster),
            "meta.datumapis.com/upstream-namespace": self.namespace,
            "meta.datumapis.com/upstream-name": name})
    }

    pub(crate) fn proxy(self, name: &str, connectors: &[&str]) -> Value {
        let backends: Vec<_> =
            connectors.iter().map(|name| json!({"connector": {"name": name}})).collect();
        let proxy = object("HTTPProxy", &self.hub_namespace(), name);
        with(proxy, json!({"spec": {"rules": [{ "backends": backends }]}}))
    }

    pub(crate) fn gateway(self, name: &str, annotations: Value) -> Value {
        let meta = json!({ "annotations": annotations });
        let gateway = object("Gateway", &self.hub_namespace(), name);
        with(gateway, json!({"metadata": meta, "spec": {"gatewayClassName": "edge"}}))
    }

    /// A route at the hub that was created at `created` and whose parents are these Gateways.
    pub(crate) fn route(self, name: &str, created: u64, parents: &[&str]) -> Value {
        let parents: Vec<_> = parents.iter().map(|name| json!({ "name": name })).collect();
        let route = object("HTTPRoute", &self.hub_namespace(), name);
        let labels = with(
            self.labels(name),
            json!({"meta.datumapis.com/upstream-group": "gateway.networking.k8s.io",
                "meta.datumapis.com/upstream-kind": "HTTPRoute"}),
        );
        let meta = json!({"labels": labels, "creationTimestamp": UnixMillis(created).to_string()});
        with(route, json!({"metadata": meta, "spec": {"parentRefs": parents}}))
    }
}

pub(crate) fn object(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"kind": kind, "metadata": {
        "namespace": namespace, "name": name, "uid": format!("u-{name}")}})
}

/// The same with these fields, at any depth.
pub(crate) fn with(mut object: Value, changes: Value) -> Value {
    match (&mut object, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                let field = fields.entry(name).or_insert(Value::Null);
                *field = with(field.take(), change);
            }
        }
        (_, change) => object = change,
    }
    object
}

pub(crate) fn with_uid(object: Value, uid: &str) -> Value {
    with(object, json!({"metadata": { "uid": uid }}))
}

pub(crate) fn namespace(uid: &'static str) -> Value {
    Tenant { uid, ..UP }.namespace()
}

/// An object as an API server writes it.
pub(crate) fn read(object: impl Display) -> Object {
    let wire: WireObject = serde_json::from_str(&object.to_string()).unwrap();
    wire.try_into().unwrap()
}

pub(crate) struct Stage {
    pub(crate) machine: Machine,
    pub(crate) now: u64,
    version: u64,
    next_bookmark: u64,
    notes: Vec<Note>,
    /// The problems that began and have not ended, as they were last.
    pub(crate) open: BTreeMap<ProblemId, Problem>,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

macro_rules! about_a_watch {
    ($($name:ident: $event:ident,)*) => {
        $(pub(crate) fn $name(&mut self, cluster: &str, kind: &str) -> &mut Self {
            let kind = Kind::parse(kind).unwrap();
            self.event(EventKind::$event { cluster: cluster.into(), kind })
        })*
    };
}

/// What happens in the clusters.
impl Stage {
    /// Three tiers with one of everything, on which nothing is left to do.
    pub(crate) fn settled(settings: Settings) -> Self {
        let mut stage = Self::new(settings);
        stage.pass_to(1).upstream(N1).hub(N1).edge(N1).proxy(&["lab"]);
        stage.gateway("");
        stage.settle_to(600_000);
        stage.notes();
        stage
    }

    /// Three tiers, listed and empty except for the namespaces. This instance is leader.
    pub(crate) fn new(settings: Settings) -> Self {
        let mut stage = Self::before_the_edge(settings);
        for kind in ["Connector", "HTTPProxy", "Gateway"] {
            stage.list("edge", kind, []);
        }
        stage
    }

    /// The same before the edge is listed.
    pub(crate) fn before_the_edge(settings: Settings) -> Self {
        let mut stage = Self {
            machine: Machine::new(settings),
            now: START,
            version: 0,
            next_bookmark: MINUTE,
            notes: Vec::new(),
            open: BTreeMap::new(),
        };
        stage.join("up", Role::Upstream).join("hub", Role::Hub).join("edge", Role::Edge);
        stage.leads(true).list("up", "Namespace", [namespace(UID)]);
        stage.list("up", "Connector", []).list("up", "Gateway", []);
        stage.list("hub", "Connector", []).list("hub", "HTTPRoute", []);
        stage
    }

    pub(crate) fn event(&mut self, kind: EventKind) -> &mut Self {
        self.machine.handle_event(&Event { at: UnixMillis(self.now), kind });
        let former = self.notes.len();
        while let Some(note) = self.machine.poll_note() {
            self.take_over(&note.kind);
            self.notes.push(note);
        }
        for note in &self.notes[former..] {
            self.assert_one_cause_a_hop(&note.kind);
        }
        self
    }

    /// What is not open does not end, and what is said again is news.
    fn take_over(&mut self, note: &NoteKind) {
        match note {
            NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => {}
            NoteKind::Ended(problem) => {
                assert_eq!(self.open.remove(&problem.id()).as_ref(), Some(problem));
            }
            NoteKind::Began(problem) => {
                let sentence = problem.sentence();
                assert!(!sentence.contains("unknown "), "{sentence}");
                let before = self.open.insert(problem.id(), problem.clone());
                assert_ne!(before.as_ref(), Some(problem), "that is no news");
            }
        }
    }

    /// What makes a connector wait at a hop has one cause for each object and cluster; and a breaker may
    /// hold what waits already.
    fn assert_one_cause_a_hop(&self, note: &NoteKind) {
        let NoteKind::Began(new) = note else { return };
        let hop = |problem: &Problem| {
            let info = problem.cause.info();
            info.hop.filter(|_| info.state.is_some() && problem.cause != Cause::RemovalsHeld)
        };
        let is_other = |open: &&Problem| {
            let (a, b) = (&new.about, &open.about);
            let is_of_same = (&a.cluster, a.kind, &a.object) == (&b.cluster, b.kind, &b.object);
            is_of_same && open.cause != new.cause && hop(open).is_some() && hop(open) == hop(new)
        };
        let other = self.open.get(&new.id()).and_then(|_| self.open.values().find(is_other));
        assert_eq!(other, None, "beside {new:?}");
    }

    pub(crate) fn join(&mut self, cluster: &str, role: Role) -> &mut Self {
        self.event(EventKind::ClusterAdded { cluster: cluster.into(), roles: vec![role] })
    }

    pub(crate) fn leave(&mut self, cluster: &str) -> &mut Self {
        if cluster == "up" {
            self.next_bookmark = u64::MAX;
        }
        self.event(EventKind::ClusterRemoved { cluster: cluster.into() })
    }

    pub(crate) fn leads(&mut self, is_leader: bool) -> &mut Self {
        match is_leader {
            true => self.event(EventKind::LeadershipAcquired),
            false => self.event(EventKind::LeadershipLost),
        }
    }

    pub(crate) fn applied(&mut self, cluster: &str, object: impl Display) -> &mut Self {
        let object = self.stamped(object);
        self.event(EventKind::Applied { cluster: cluster.into(), object })
    }

    pub(crate) fn deleted(&mut self, cluster: &str, object: impl Display) -> &mut Self {
        let object = self.stamped(object);
        self.event(EventKind::Deleted { cluster: cluster.into(), object })
    }

    pub(crate) fn listed(&mut self, cluster: &str, object: impl Display) -> &mut Self {
        let object = self.stamped(object);
        self.event(EventKind::Listed { cluster: cluster.into(), object })
    }

    /// An object without a resourceVersion gets the next one.
    fn stamped(&mut self, object: impl Display) -> Arc<Object> {
        let mut object = read(object);
        if object.meta.resource_version.is_empty() {
            object.meta.resource_version = self.version().to_string().into();
        }
        Arc::new(object)
    }

    /// A complete list.
    pub(crate) fn list(
        &mut self,
        cluster: &str,
        kind: &str,
        objects: impl IntoIterator<Item = Value>,
    ) -> &mut Self {
        self.list_started(cluster, kind);
        for object in objects {
            self.listed(cluster, object);
        }
        self.list_finished(cluster, kind)
    }

    about_a_watch! {
        list_started: ListStarted,
        list_finished: ListFinished,
        resumed: WatchResumed,
        bookmark: Bookmark,
        version_went_back: ResourceVersionRegressed,
    }

    pub(crate) fn lost(&mut self, cluster: &str, kind: &str) -> &mut Self {
        let kind = Kind::parse(kind).unwrap();
        self.event(EventKind::WatchLost { cluster: cluster.into(), kind, error: "cut".into() })
    }

    /// An upstream Connector has a content that nobody can read.
    pub(crate) fn unreadable(&mut self, name: &str, error: &str) -> &mut Self {
        let object = NamespacedName::new("default", name);
        let (cluster, error) = ("up".into(), error.into());
        self.event(EventKind::Unreadable { cluster, kind: Kind::Connector, object, error })
    }

    pub(crate) fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The upstream Connector says this; `None` for no status.
    pub(crate) fn upstream(&mut self, status: Option<&str>) -> &mut Self {
        self.applied("up", with_uid(UP.connector("lab", status), "u-up"))
    }

    /// The hub Connector carries this status annotation.
    pub(crate) fn hub(&mut self, status: Option<&str>) -> &mut Self {
        self.applied("hub", with_uid(UP.copy("lab", status), "u-hub"))
    }

    /// The edge Connector carries this status annotation.
    pub(crate) fn edge(&mut self, status: Option<&str>) -> &mut Self {
        self.applied("edge", with_uid(UP.copy("lab", status), "u-edge"))
    }

    pub(crate) fn proxy(&mut self, connectors: &[&str]) -> &mut Self {
        self.applied("edge", UP.proxy("app", connectors))
    }

    /// The Gateway has these annotations, written as the members of a JSON object.
    pub(crate) fn gateway(&mut self, annotations: &str) -> Value {
        let annotations = serde_json::from_str(&format!("{{{annotations}}}")).unwrap();
        let gateway = UP.gateway("app", annotations);
        self.applied("edge", &gateway);
        gateway
    }

    /// A route at the hub, `age_ms` old, whose parents are these Gateways.
    pub(crate) fn route(&mut self, age_ms: u64, parents: &[&str]) -> &mut Self {
        self.applied("hub", with_uid(UP.route("lab", self.now - age_ms, parents), "u-r"))
    }
}

/// What the machine decides and says.
impl Stage {
    /// The actions since the last call.
    pub(crate) fn actions(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    /// The only action since the last call.
    pub(crate) fn only_action(&mut self) -> Decision {
        let mut decided = self.actions();
        assert_eq!(decided.len(), 1, "at {} ms: {decided:#?}", self.now - START);
        decided.remove(0)
    }

    pub(crate) fn assert_no_action(&mut self) {
        assert_eq!(self.actions(), [], "at {} ms", self.now - START);
    }

    /// Nothing is decided until `ms` after the start.
    pub(crate) fn quiet_to(&mut self, ms: u64) -> &mut Self {
        self.pass_to(ms).assert_no_action();
        self
    }

    /// Nothing is decided before `ms` after the start, and this then.
    pub(crate) fn next_at(&mut self, ms: u64) -> Decision {
        self.quiet_to(ms - 1).action_at(ms)
    }

    pub(crate) fn action_at(&mut self, ms: u64) -> Decision {
        self.pass_to(ms).only_action()
    }

    pub(crate) fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// The problems that began (`true`) and ended since the last call; other notes are lost.
    pub(crate) fn problems(&mut self) -> Vec<(bool, Problem)> {
        let problems = self.notes().into_iter().filter_map(|note| match note.kind {
            NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => None,
            NoteKind::Began(problem) => Some((true, problem)),
            NoteKind::Ended(problem) => Some((false, problem)),
        });
        problems.collect()
    }

    /// The problems of this cause that began since the last call.
    pub(crate) fn began(&mut self, of: Cause) -> Vec<Problem> {
        let began = self.problems().into_iter().filter(|(began, _)| *began);
        began.map(|(_, problem)| problem).filter(|problem| problem.cause == of).collect()
    }

    /// The causes of what is wrong now, in the order of the table.
    pub(crate) fn wrong(&self) -> Vec<Cause> {
        self.open.keys().map(|id| id.cause).collect()
    }

    /// What the machine knows. Its counts must be those that cost no texts.
    pub(crate) fn fleet(&self) -> view::fleet::Fleet {
        let fleet = self.machine.fleet(Source::Instance, &|_| None);
        assert_eq!(fleet.counts, self.machine.states());
        fleet
    }

    pub(crate) fn finish(&mut self, decision: &Decision, outcome: Outcome) -> &mut Self {
        self.event(EventKind::ActionFinished { id: decision.action.id, outcome })
    }

    pub(crate) fn succeed(&mut self, decision: &Decision) -> &mut Self {
        self.finish(decision, applied(None))
    }

    /// Lets time pass as `pass_to` does, and has each action carried out as soon as it is decided.
    pub(crate) fn run_to(&mut self, ms: u64, mut carry_out: impl FnMut(&mut Self, &Decision)) {
        let mut is_over = false;
        loop {
            let decided = self.actions();
            decided.iter().for_each(|decision| carry_out(self, decision));
            let due = self.machine.poll_deadline().map(|at| at.0.max(self.now) - START);
            match due.filter(|due| *due <= ms) {
                _ if !decided.is_empty() => {}
                Some(due) => _ = self.pass_to(due),
                None if is_over => break,
                None => {
                    self.pass_to(ms);
                    is_over = true;
                }
            }
        }
    }

    /// The same while every write succeeds at once. Returns the actions.
    pub(crate) fn settle_to(&mut self, ms: u64) -> Vec<Decision> {
        let mut all = Vec::new();
        self.run_to(ms, |stage, decision| {
            stage.succeed(decision);
            all.push(decision.clone());
        });
        all
    }

    /// Lets time pass to `ms` after the start: wakes the machine at each of its deadlines, and sends a
    /// bookmark once a minute, as a healthy upstream does.
    pub(crate) fn pass_to(&mut self, ms: u64) -> &mut Self {
        while self.next_bookmark <= ms {
            self.pass_without_bookmarks_to(self.next_bookmark).bookmark("up", "Gateway");
            self.next_bookmark += MINUTE;
        }
        self.pass_without_bookmarks_to(ms)
    }

    pub(crate) fn pass_without_bookmarks_to(&mut self, ms: u64) -> &mut Self {
        let end = START + ms;
        while let Some(at) = self.machine.poll_deadline().filter(|at| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.event(EventKind::TimedOut);
        }
        self.now = end;
        self.event(EventKind::TimedOut)
    }

    /// The same for this long from now.
    pub(crate) fn pass(&mut self, ms: u64) -> &mut Self {
        self.pass_to(self.now - START + ms)
    }

    /// How long after the start it is.
    pub(crate) fn time(&self) -> u64 {
        self.now - START
    }
}

/// State, hop and cause of its worst hop; `None` while all are ok.
pub(crate) fn worst(connector: &Connector) -> Option<(State, Hop, Option<Cause>)> {
    connector.worst().map(|hop| (hop.state, hop.hop, hop.cause))
}

/// How long after the start an action was decided.
pub(crate) fn time_of(decision: &Decision) -> u64 {
    decision.at.0 - START
}

pub(crate) fn name_of(decision: &Decision) -> &str {
    decision.action.object.name()
}

pub(crate) fn names(decisions: &[Decision]) -> Vec<&str> {
    decisions.iter().map(name_of).collect()
}

/// The value that an action writes to its first annotation.
pub(crate) fn written(decision: &Decision) -> Option<&str> {
    decision.action.annotations[0].1.as_deref()
}
