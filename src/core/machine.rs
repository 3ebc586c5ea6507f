//! The machine: what is seen comes in as events, what is to be done comes out as actions.
//!
//! The calling contract, sans-IO style; the caller owns sockets and the clock:
//!
//! ```
//! # use throughline::core::{event::{Event, Happened}, machine::Machine, settings::Settings, time::UnixMillis};
//! # let mut machine = Machine::new(Settings::default());
//! # let event = Event { at: UnixMillis(0), what: Happened::LeadershipAcquired };
//! machine.handle_event(&event); // event.at is the machine's only clock
//! while let Some(decision) = machine.poll_action() { /* submit it */ }
//! while let Some(note) = machine.poll_note() { /* tell it */ }
//! match machine.poll_deadline() {
//!     Some((at, _reason)) => { /* sleep until then, at most, and call handle_timeout */ }
//!     None => { /* nothing is due: wait for an event */ }
//! }
//! ```
//!
//! A polled action is in flight until an [`ActionFinished`](Happened::ActionFinished) event brings
//! its outcome, or until the outcome's time-out; at most one action per object is. A polled
//! deadline is valid until the next `handle_…` call. Nothing is decided anywhere else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::action::{AnomalyKind, Decision, Note};
use super::budget::Budget;
use super::cluster::{Cluster, Watch};
use super::desk::{Desk, Target};
use super::edge::Edge;
use super::event::{Event, Happened, Outcome};
use super::ids::{ActionId, ClusterId, ClusterName, Kind, Map, Names, Role, Sym};
use super::replica::Hub;
use super::settings::Settings;
use super::source::Upstream;
use super::time::UnixMillis;
use super::timers::{Due, Timers};

/// The connector-liveness state machine. Pure: the same events give the same actions.
pub struct Machine {
    pub(crate) desk: Desk,
    pub(crate) clusters: Vec<Option<Cluster>>,
    pub(crate) cluster_ids: BTreeMap<ClusterName, ClusterId>,
    /// By name, so that replicas of clusters that are not configured have a place, too.
    pub(crate) upstreams: Map<Sym, Upstream>,
    pub(crate) hubs: BTreeMap<ClusterId, Hub>,
    pub(crate) edges: BTreeMap<ClusterId, Edge>,
    pub(crate) budget: Budget,
    unknown_clusters: BTreeSet<ClusterName>,
}

impl Machine {
    /// A machine that knows nothing yet. Clusters are added by events.
    pub fn new(settings: Settings) -> Self {
        Self {
            desk: Desk {
                settings,
                now: UnixMillis(0),
                names: Names::default(),
                leader: false,
                timers: Timers::default(),
                actions: VecDeque::new(),
                notes: VecDeque::new(),
                last_id: 0,
                in_flight: Map::default(),
            },
            clusters: Vec::new(),
            cluster_ids: BTreeMap::new(),
            upstreams: Map::default(),
            hubs: BTreeMap::new(),
            edges: BTreeMap::new(),
            budget: Budget::default(),
            unknown_clusters: BTreeSet::new(),
        }
    }

    /// Takes one event. Costs O(what the event concerns).
    pub fn handle_event(&mut self, event: &Event) {
        self.desk.now = self.desk.now.max(event.at);
        match &event.what {
            Happened::ClusterAdded { cluster, roles } => self.add_cluster(cluster, roles),
            Happened::ClusterRemoved { cluster } => self.remove_cluster(cluster),
            Happened::ListStarted { cluster, kind } => {
                if let Some(id) = self.cluster_id(cluster) {
                    self.set_watch(id, *kind, Watch::Listing);
                }
            }
            Happened::ListFinished { cluster, kind } => {
                if let Some(id) = self.cluster_id(cluster) {
                    self.set_watch(id, *kind, Watch::Live);
                    self.list_finished(id, *kind);
                }
            }
            Happened::WatchLost { cluster, kind, .. } => {
                if let Some(id) = self.cluster_id(cluster) {
                    self.set_watch(id, *kind, Watch::Lost);
                    self.edge_watch_lost(id, *kind);
                    self.route_watch_lost(id, *kind);
                }
            }
            Happened::WatchResumed { cluster, kind } => {
                if let Some(id) = self.cluster_id(cluster)
                    && self.cluster(id).is_some_and(|c| c.watch(*kind) == Watch::Lost)
                {
                    self.set_watch(id, *kind, Watch::Live);
                    self.view_is_whole(id, *kind);
                }
            }
            Happened::WatchHeard { cluster, kind } => {
                if let Some(id) = self.cluster_id(cluster)
                    && *kind == Kind::Gateway
                {
                    self.gateways_heard(id);
                }
            }
            Happened::WentBack { cluster, .. } => {
                if let Some(id) = self.cluster_id(cluster) {
                    self.cluster_went_back(id);
                }
            }
            Happened::Listed { cluster, object } | Happened::Applied { cluster, object } => {
                if let Some(id) = self.cluster_id(cluster) {
                    let listed = matches!(event.what, Happened::Listed { .. });
                    self.object_seen(id, object, listed);
                }
            }
            Happened::Deleted { cluster, object } => {
                if let Some(id) = self.cluster_id(cluster) {
                    let (namespace, name) = (&object.meta.namespace, &object.meta.name);
                    let key = self.desk.names.key(namespace, name);
                    self.object_gone(id, object.kind(), key);
                }
            }
            Happened::LeadershipAcquired => {
                self.desk.leader = true;
                self.take_up_held_work();
            }
            Happened::LeadershipLost => {
                self.desk.leader = false;
                self.stop_deleting();
            }
            Happened::ActionFinished { id, outcome } => self.action_finished(*id, outcome),
            Happened::TimedOut => self.handle_timeout(event.at),
        }
        // A timer that is already due is handled at once: what waits for "now" waits for nothing.
        self.run_timers();
    }

    /// Tells the machine that time has come to `at`.
    pub fn handle_timeout(&mut self, at: UnixMillis) {
        self.desk.now = self.desk.now.max(at);
        self.run_timers();
    }

    /// The next action, oldest first.
    pub fn poll_action(&mut self) -> Option<Decision> {
        self.desk.actions.pop_front()
    }

    /// The next thing to tell, oldest first.
    pub fn poll_note(&mut self) -> Option<Note> {
        self.desk.notes.pop_front()
    }

    /// When [`Machine::handle_timeout`] must be called at the latest, and what for.
    pub fn poll_deadline(&self) -> Option<(UnixMillis, &'static str)> {
        self.desk.timers.first().map(|(at, due)| (at, due.reason()))
    }

    /// The settings it decides by.
    pub fn settings(&self) -> &Settings {
        &self.desk.settings
    }

    /// How many actions have no outcome yet.
    pub fn in_flight(&self) -> usize {
        self.desk.in_flight.len()
    }

    fn run_timers(&mut self) {
        while let Some(due) = self.desk.timers.pop(self.desk.now) {
            match due {
                Due::Replica(hub, key) => self.evaluate_replica(hub, key),
                Due::Bundle(edge) => self.emit_bundle(edge),
                Due::Announce(edge, key) => self.announcement_is_late(edge, key),
                Due::Outage(edge) => self.confirm_after_outage(edge),
                Due::Route(hub, key) => self.evaluate_route(hub, key),
                Due::Share(upstream) => self.look_at_share(upstream),
                Due::Deletes => self.spend_budget(),
                Due::Flight(id) => {
                    let ms = self.desk.settings.retry.outcome_timeout_ms;
                    let error = format!("no outcome within {ms} ms");
                    self.action_finished(id, &Outcome::Failed { error, retry_after_ms: None });
                }
            }
        }
    }

    fn cluster_id(&mut self, name: &ClusterName) -> Option<ClusterId> {
        let id = self.cluster_ids.get(name).copied();
        if id.is_none() && self.unknown_clusters.insert(name.clone()) {
            let detail = "events of a cluster that was never added are ignored".to_owned();
            self.desk.anomaly(AnomalyKind::UnknownCluster, name, None, detail);
        }
        id
    }

    pub(crate) fn cluster(&self, id: ClusterId) -> Option<&Cluster> {
        self.clusters.get(usize::from(id.0))?.as_ref()
    }

    fn add_cluster(&mut self, name: &ClusterName, roles: &[Role]) {
        if self.cluster_ids.contains_key(name) {
            self.remove_cluster(name);
        }
        let Ok(number) = u16::try_from(self.clusters.len()) else { return };
        let id = ClusterId(number);
        let sym = self.desk.names.intern(name.as_str());
        self.clusters.push(Some(Cluster::new(name.clone(), sym, roles)));
        self.cluster_ids.insert(name.clone(), id);
        if roles.contains(&Role::Upstream) {
            self.upstreams.entry(sym).or_default().id = Some(id);
        }
        if roles.contains(&Role::Downstream) {
            self.hubs.insert(id, Hub::default());
        }
        if roles.contains(&Role::Edge) {
            let scope = self.desk.settings.touch.scope_of(name);
            self.edges.insert(id, Edge::new(scope));
        }
    }

    fn remove_cluster(&mut self, name: &ClusterName) {
        let Some(id) = self.cluster_ids.remove(name) else { return };
        let Some(cluster) = self.clusters.get_mut(usize::from(id.0)).and_then(Option::take) else {
            return;
        };
        self.forget_hub(id);
        self.forget_edge(id);
        if let Some(upstream) = self.upstreams.get_mut(&cluster.sym) {
            upstream.forget();
            // What waited for something that nobody can tell any longer waits no more.
            for (hub, key) in upstream.replicas() {
                self.evaluate_replica(hub, key);
            }
            self.evaluate_routes_naming(cluster.sym);
        }
    }

    fn set_watch(&mut self, id: ClusterId, kind: Kind, watch: Watch) {
        let now = self.desk.now;
        if let Some(Some(cluster)) = self.clusters.get_mut(usize::from(id.0)) {
            cluster.set_watch(kind, watch, now);
        }
    }

    fn action_finished(&mut self, id: ActionId, outcome: &Outcome) {
        self.desk.timers.clear(Due::Flight(id));
        match self.desk.in_flight.remove(&id) {
            Some(Target::Replica(hub, key)) => self.replica_written(hub, key, id, outcome),
            Some(Target::Touch(edge, target)) => self.target_touched(edge, target, id, outcome),
            Some(Target::Route(hub, key)) => self.route_deleted(hub, key, id, outcome),
            // A late answer to an action that was given up: the watch tells what became of it.
            None if id.0 <= self.desk.last_id => {}
            None => {
                let cluster = ClusterName::from("");
                let detail =
                    format!("an outcome came for action {}, which was never decided", id.0);
                self.desk.anomaly(AnomalyKind::UnknownAction, &cluster, None, detail);
            }
        }
    }
}
