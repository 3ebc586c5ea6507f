//! A machine with one hub, fed by a discovery and by a shell that carries out who joins and leaves.

use std::sync::Arc;

use throughline_core::contract::action::Decision;
use throughline_core::contract::event::{Event, EventKind, Outcome};
use throughline_core::contract::membership::{
    JoinRule, MemberState, Membership, OfferState, SourceName,
};
use throughline_core::contract::note::NoteKind;
use throughline_core::contract::settings::{OrphanMode, Settings};
use throughline_core::data::ids::{ClusterName, Kind, Role};
use throughline_core::data::objects::Object;
use throughline_core::data::time::UnixMillis;

use crate::Machine;
use crate::stage::read;

pub(crate) const MINUTE: u64 = 60_000;
const START: u64 = 1_795_252_772_000;

pub(crate) struct Fleet {
    pub(crate) machine: Machine,
    pub(crate) now: u64,
    version: u64,
    join: JoinRule,
    /// Every event, in order.
    pub(crate) events: Vec<Event>,
}

pub(crate) fn deletes() -> Settings {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    settings.orphans.deleted_projects = true;
    settings
}

impl Fleet {
    /// A leader with an empty hub, and a Milo root whose list has begun.
    pub(crate) fn new(join: JoinRule, settings: Settings) -> Self {
        let mut fleet = Self {
            machine: Machine::new(settings),
            now: START,
            version: 0,
            join,
            events: Vec::new(),
        };
        fleet.event(EventKind::ClusterAdded { cluster: "hub".into(), roles: vec![Role::Hub] });
        fleet.event(EventKind::LeadershipAcquired);
        fleet.hub_lists();
        fleet.event(EventKind::DiscoveryStarted { source: SourceName::Milo, join });
        fleet
    }

    pub(crate) fn needed() -> Self {
        Self::new(JoinRule::Needed, Settings::default())
    }

    /// Every one of these projects is followed.
    pub(crate) fn joined(names: &[&str]) -> Self {
        let mut fleet = Self::new(JoinRule::All, Settings::default());
        fleet.offer_all(names);
        fleet.finish();
        fleet.carry_out();
        fleet
    }

    pub(crate) fn event(&mut self, kind: EventKind) {
        let event = Event { at: UnixMillis(self.now), kind };
        self.machine.handle_event(&event);
        self.events.push(event);
    }

    pub(crate) fn hub_lists(&mut self) {
        for kind in [Kind::Connector, Kind::HttpRoute, Kind::Namespace] {
            self.event(EventKind::ListStarted { cluster: "hub".into(), kind });
            self.event(EventKind::ListFinished { cluster: "hub".into(), kind });
        }
    }

    pub(crate) fn hub_lost(&mut self, kind: Kind) {
        self.event(EventKind::WatchLost { cluster: "hub".into(), kind, error: "cut".into() });
    }

    pub(crate) fn hub_resumed(&mut self, kind: Kind) {
        self.event(EventKind::WatchResumed { cluster: "hub".into(), kind });
    }

    /// A hub object that names the project.
    fn hub_object(&mut self, kind: &str, project: &str, rest: &str) -> Arc<Object> {
        self.version += 1;
        let version = self.version;
        let created = UnixMillis(START - 3_600_000);
        let group = match kind {
            "Connector" => "networking.datumapis.com",
            _ => "gateway.networking.k8s.io",
        };
        read(&format!(
            r#"{{"kind":"{kind}","metadata":{{"namespace":"ns-{project}","name":"lab","uid":"u-{kind}-{project}","resourceVersion":"{version}","creationTimestamp":"{created}","labels":{{"meta.datumapis.com/upstream-cluster-name":"cluster-{project}","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"lab","meta.datumapis.com/upstream-kind":"{kind}","meta.datumapis.com/upstream-group":"{group}"}}}}{rest}}}"#
        ))
    }

    /// A hub Connector names the project.
    pub(crate) fn name(&mut self, project: &str) {
        let object = self.hub_object("Connector", project, "");
        self.event(EventKind::Applied { cluster: "hub".into(), object });
    }

    pub(crate) fn unname(&mut self, project: &str) {
        let object = self.hub_object("Connector", project, "");
        self.event(EventKind::Deleted { cluster: "hub".into(), object });
    }

    /// A hub route names the project.
    pub(crate) fn route(&mut self, project: &str) {
        let object = self.hub_object("HTTPRoute", project, PARENTS);
        self.event(EventKind::Applied { cluster: "hub".into(), object });
    }

    pub(crate) fn unroute(&mut self, project: &str) {
        let object = self.hub_object("HTTPRoute", project, PARENTS);
        self.event(EventKind::Deleted { cluster: "hub".into(), object });
    }

    pub(crate) fn started(&mut self) {
        let (source, join) = (SourceName::Milo, self.join);
        self.event(EventKind::DiscoveryStarted { source, join });
    }

    pub(crate) fn finish(&mut self) {
        self.event(EventKind::DiscoveryFinished { source: SourceName::Milo });
    }

    /// A complete list.
    pub(crate) fn list(&mut self, names: &[&str]) {
        self.started();
        self.offer_all(names);
        self.finish();
    }

    pub(crate) fn offer_all(&mut self, names: &[&str]) {
        for name in names {
            self.offer(name, "1", OfferState::Ready);
        }
    }

    pub(crate) fn offer(&mut self, name: &str, uid: &str, state: OfferState) {
        self.offer_from(SourceName::Milo, name, uid, state);
    }

    pub(crate) fn offer_from(
        &mut self,
        source: SourceName,
        name: &str,
        uid: &str,
        state: OfferState,
    ) {
        let (cluster, uid) = (name.into(), uid.to_owned());
        let roles = vec![Role::Upstream];
        self.event(EventKind::ClusterOffered { source, cluster, uid, roles, state });
    }

    pub(crate) fn withdraw(&mut self, name: &str, uid: &str) {
        let (cluster, uid) = (name.into(), uid.to_owned());
        self.event(EventKind::ClusterWithdrawn { source: SourceName::Milo, cluster, uid });
    }

    pub(crate) fn lost(&mut self) {
        self.event(EventKind::DiscoveryLost { source: SourceName::Milo, error: "403".into() });
    }

    pub(crate) fn gone(&mut self, name: &str) {
        self.event(EventKind::ClusterGone { source: SourceName::Milo, cluster: name.into() });
    }

    /// Lets time pass, with every deadline on the way.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some((at, _)) = self.machine.poll_deadline().filter(|(at, _)| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.event(EventKind::TimedOut);
        }
        self.now = end;
        self.event(EventKind::TimedOut);
    }

    /// Who joins and leaves since the last call; the shell has not carried it out.
    pub(crate) fn asked(&mut self) -> Vec<String> {
        self.memberships().iter().map(shown).collect()
    }

    pub(crate) fn memberships(&mut self) -> Vec<Membership> {
        std::iter::from_fn(|| self.machine.poll_membership()).collect()
    }

    /// The same, and the shell carries it out.
    pub(crate) fn carry_out(&mut self) -> Vec<String> {
        let asked = self.memberships();
        for change in &asked {
            self.event(match change.clone() {
                Membership::Join { cluster, roles, .. } => {
                    EventKind::ClusterAdded { cluster, roles }
                }
                Membership::Leave { cluster, .. } => EventKind::ClusterRemoved { cluster },
            });
        }
        asked.iter().map(shown).collect()
    }

    /// The notes about the fleet since the last call.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let notes = std::iter::from_fn(|| self.machine.poll_note());
        let told = notes.filter_map(|note| match note.kind {
            NoteKind::Discovery { problem, clusters, of, .. } => {
                Some(format!("{} {clusters} of {of}", problem.as_str()))
            }
            NoteKind::ClusterGone { cluster, connectors, routes } => {
                Some(format!("gone {cluster} {connectors} {routes}"))
            }
            _ => None,
        });
        told.collect()
    }

    pub(crate) fn count(&self, state: MemberState) -> usize {
        let counts = self.machine.membership_counts();
        counts.iter().filter(|c| c.state == state).map(|c| c.clusters).sum()
    }

    pub(crate) fn deletes(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    pub(crate) fn succeed(&mut self, decision: &Decision) {
        let outcome = Outcome::Applied { resource_version: None };
        self.event(EventKind::ActionFinished { id: decision.action.id, outcome });
    }

    /// Why the project's only route is kept; `None` if it is an orphan.
    pub(crate) fn kept(&self, project: &str) -> Option<String> {
        let orphans = self.machine.candidates();
        let namespace = format!("ns-{project}");
        let route = orphans.iter().find(|o| o.route.namespace == namespace).unwrap();
        route.kept.map(|kept| kept.as_str().to_owned())
    }

    /// A project that hub objects name is followed, deleted, and gone.
    pub(crate) fn with_gone(settings: Settings) -> Self {
        let mut fleet = Self::new(JoinRule::All, settings);
        fleet.offer_all(&["a", "b", "c", "d"]);
        fleet.finish();
        fleet.carry_out();
        fleet.name("a");
        fleet.route("a");
        fleet.told();
        fleet.withdraw("a", "1");
        fleet.pass(2_000);
        assert_eq!(fleet.carry_out(), ["leave a withdrawn"]);
        fleet.gone("a");
        fleet
    }
}

const PARENTS: &str =
    r#","spec":{"parentRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"g"}]}"#;

fn shown(change: &Membership) -> String {
    match change {
        Membership::Join { cluster, .. } => format!("join {cluster}"),
        Membership::Leave { cluster, reason } => format!("leave {cluster} {}", reason.as_str()),
    }
}

/// Names `p0`, `p1` …
pub(crate) fn projects(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("p{n}")).collect()
}

pub(crate) fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

pub(crate) fn cluster(name: &str) -> ClusterName {
    name.into()
}
