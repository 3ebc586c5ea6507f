//! The machine: what the clusters show comes in as events, what to do about it goes out as actions.
//!
//! It is sans-IO: the caller owns sockets and the clock, and keeps this contract:
//!
//! ```
//! # use throughline_core::{contract::{event::{Event, EventKind}, settings::Settings}, machine::Machine};
//! # use throughline_core::data::time::UnixMillis;
//! # let mut machine = Machine::new(Settings::default());
//! # let event = Event { at: UnixMillis(0), kind: EventKind::LeadershipAcquired };
//! machine.handle_event(&event); // event.at is the machine's only clock
//! while let Some(decision) = machine.poll_action() { /* submit it */ }
//! while let Some(note) = machine.poll_note() { /* log it */ }
//! while let Some(change) = machine.poll_membership() { /* join or leave a cluster */ }
//! match machine.poll_deadline() {
//!     Some((at, _reason)) => { /* sleep until then at most, then call handle_timeout */ }
//!     None => { /* nothing is due: wait for an event */ }
//! }
//! ```
//!
//! A polled action is in flight until an [`ActionFinished`](EventKind::ActionFinished) event brings
//! its outcome, or until the outcome times out. At most one action per object is in flight. A
//! polled deadline is valid until the next `handle_…` call. Nothing is decided anywhere else.

use std::collections::{BTreeMap, BTreeSet};

use super::clusters::Clusters;
use super::context::{Context, WriteTarget};
use super::contract::action::{Decision, Verb};
use super::contract::error_cause::{ErrorCause, RequestFailure};
use super::contract::event::{Event, EventKind, Outcome};
use super::contract::membership::{Membership, MembershipCount};
use super::contract::note::{AnomalyKind, Note};
use super::contract::settings::Settings;
use super::data::cluster::{ClusterState, WatchState};
use super::data::ids::{ActionId, ClusterId, ClusterName, Kind, Role};
use super::data::interner::Sym;
use super::data::map::Map;
use super::data::time::UnixMillis;
use super::edge::EdgeState;
use super::fleet::Roster;
use super::hub::HubState;
use super::hub::removals::Removals;
use super::orphans::budget::OrphanTotals;
use super::status::trigger::NodeIds;
use super::timers::Due;
use super::upstream::UpstreamState;
use super::write_queue::QueueKey;

/// More timers than that are not due at one moment, unless some of them set each other without end.
const TIMER_RUNS_MAX: u32 = 100_000;

/// Events of so many clusters that are not in the run are reported.
const UNKNOWN_CLUSTERS_MAX: usize = 100;

/// The connector-liveness state machine. Pure: the same events give the same actions.
pub struct Machine {
    pub(crate) ctx: Context,
    pub(crate) clusters: Clusters,
    /// By name, because hub objects also name clusters that are not configured.
    pub(crate) upstreams: Map<Sym, UpstreamState>,
    pub(crate) hubs: BTreeMap<ClusterId, HubState>,
    pub(crate) edges: BTreeMap<ClusterId, EdgeState>,
    pub(crate) removals: Removals,
    pub(crate) orphan_totals: OrphanTotals,
    /// Clusters that were never added and whose events were reported.
    pub(super) unknown_clusters: BTreeSet<ClusterName>,
    pub(super) roster: Roster,
}

impl Machine {
    /// A machine without clusters. Events add them.
    pub fn new(settings: Settings) -> Self {
        Self {
            ctx: Context::new(settings),
            clusters: Clusters::default(),
            upstreams: Map::default(),
            hubs: BTreeMap::new(),
            edges: BTreeMap::new(),
            removals: Removals::default(),
            orphan_totals: OrphanTotals::default(),
            unknown_clusters: BTreeSet::new(),
            roster: Roster::default(),
        }
    }

    /// A machine that reads such node ids; those of clusters if this is not called.
    pub fn with_node_ids(mut self, node_ids: NodeIds) -> Self {
        self.ctx.node_ids = node_ids;
        self
    }

    /// Takes one event. Costs O(what the event concerns).
    pub fn handle_event(&mut self, event: &Event) {
        self.advance(event.at);
        match &event.kind {
            EventKind::ClusterAdded { cluster, roles } => {
                self.add_cluster(cluster, roles);
                self.roster_cluster_added(cluster);
            }
            EventKind::ClusterRemoved { cluster } => {
                if !self.could_not_join(cluster)
                    && let Some(id) = self.known_cluster(cluster)
                {
                    self.remove_cluster(id);
                }
                self.roster_cluster_removed(cluster);
            }
            EventKind::LeadershipPending { wait_ms } => self.ctx.start_lease_wait(*wait_ms),
            EventKind::LeadershipAcquired => self.leadership_acquired(),
            EventKind::LeadershipLost => self.leadership_lost(),
            EventKind::ActionFinished { id, outcome } => self.action_finished(*id, outcome),
            EventKind::TimedOut | EventKind::RecordingEnded => {}
            EventKind::DiscoveryStarted { .. }
            | EventKind::ClusterOffered { .. }
            | EventKind::ClusterWithdrawn { .. }
            | EventKind::DiscoveryFinished { .. }
            | EventKind::DiscoveryLost { .. }
            | EventKind::DiscoveryResumed { .. }
            | EventKind::ClusterGone { .. } => self.discovery_event(&event.kind),
            EventKind::ListStarted { cluster, .. }
            | EventKind::Listed { cluster, .. }
            | EventKind::ListFinished { cluster, .. }
            | EventKind::Applied { cluster, .. }
            | EventKind::Deleted { cluster, .. }
            | EventKind::Unreadable { cluster, .. }
            | EventKind::WatchLost { cluster, .. }
            | EventKind::WatchResumed { cluster, .. }
            | EventKind::Bookmark { cluster, .. }
            | EventKind::ResourceVersionRegressed { cluster, .. } => {
                if let Some(id) = self.known_cluster(cluster) {
                    self.cluster_event(id, &event.kind);
                }
            }
        }
        self.references_changed();
        self.schedule_roster();
        self.run_timers();
        self.end_moment();
        if self.ctx.names.is_sweep_due() {
            self.sweep_names();
        }
    }

    /// Tells the machine that it is `at`.
    pub fn handle_timeout(&mut self, at: UnixMillis) {
        self.advance(at);
        self.run_timers();
        self.end_moment();
    }

    /// The clock never runs backwards, and never reaches the end of time, so that a pause which
    /// saturated there is never over.
    fn advance(&mut self, at: UnixMillis) {
        self.ctx.now = self.ctx.now.max(at).min(UnixMillis(UnixMillis::NEVER.0 - 1));
    }

    /// The next action, oldest first; those of one moment by cluster, kind, namespace and name.
    pub fn poll_action(&mut self) -> Option<Decision> {
        let decision = self.ctx.actions.pop_front();
        debug_assert!(decision.as_ref().is_none_or(|decision| self.is_lawful(decision)));
        decision
    }

    /// The next note, oldest first.
    pub fn poll_note(&mut self) -> Option<Note> {
        self.ctx.notes.pop_front()
    }

    /// The next cluster to join or to leave, oldest first.
    pub fn poll_membership(&mut self) -> Option<Membership> {
        self.roster.pop()
    }

    /// How many of the clusters that discovery offers are in which state, by source and state.
    /// Costs O(clusters offered).
    pub fn membership_counts(&self) -> Vec<MembershipCount> {
        self.roster.counts()
    }

    /// When [`Machine::handle_timeout`] must be called at the latest, and what is due then.
    pub fn poll_deadline(&self) -> Option<(UnixMillis, &'static str)> {
        self.ctx.timers.first().map(|(at, due)| (at, due.reason()))
    }

    pub fn settings(&self) -> &Settings {
        &self.ctx.settings
    }

    /// How many actions have no outcome yet.
    pub fn in_flight(&self) -> usize {
        self.ctx.in_flight()
    }

    /// Runs every timer that is due: what waits for "now" waits for nothing.
    fn run_timers(&mut self) {
        let mut runs = 0_u32;
        while let Some(due) = self.ctx.timers.pop(self.ctx.now) {
            runs += 1;
            debug_assert!(runs < TIMER_RUNS_MAX, "{due:?} is due again and again");
            match due {
                Due::HubConnector(at) => self.evaluate_hub_connector(at),
                Due::Bundle(edge) => self.emit_bundle(edge),
                Due::Announce(edge, key) => self.announcement_overdue(edge, key),
                Due::Outage(edge) => self.confirm_after_outage(edge),
                Due::Route(hub, key) => self.evaluate_route(hub, key),
                Due::Removals(upstream) => self.evaluate_removals(upstream),
                Due::FleetRemovals => self.evaluate_fleet_removals(),
                Due::Retries(hub) => self.write_retries(hub),
                Due::Queue(key) => self.write_queued(key),
                Due::Holds(upstream) => self.report_holds(upstream),
                Due::Share(upstream) => self.evaluate_orphan_share(upstream),
                Due::Roster => self.look_at_roster(),
                Due::GoneShare => self.evaluate_gone_share(),
                Due::Deletes => self.write_queued(QueueKey::Deletes),
                Due::Naming => self.evaluate_naming(),
                Due::Outcome(id) => {
                    let ms = self.ctx.settings.retry.outcome_timeout_ms;
                    let text = format!("no outcome within {ms} ms");
                    let error = RequestFailure::new(ErrorCause::TimedOut, text);
                    self.action_finished(id, &Outcome::Failed { error, retry_after_ms: None });
                }
            }
        }
        debug_assert!(self.ctx.timers.first().is_none_or(|(at, _)| at > self.ctx.now));
    }

    /// What holds of every action, whichever rule decided it: it writes where DOMAIN.md, section 2,
    /// allows it, and nothing is ever written upstream.
    fn is_lawful(&self, decision: &Decision) -> bool {
        let action = &decision.action;
        let (role, kind) = match action.verb {
            Verb::Mirror | Verb::Nudge => (Role::Hub, Kind::Connector),
            Verb::Touch => (Role::Edge, Kind::Gateway),
            Verb::Delete => (Role::Hub, Kind::HttpRoute),
        };
        // The cluster may have left since the decision.
        let cluster = self.clusters.id_of(&action.cluster).and_then(|id| self.clusters.get(id));
        action.kind == kind
            && cluster.is_none_or(|cluster| cluster.has(role))
            && decision.at <= self.ctx.now
    }

    /// The id of a cluster. One that is not in the run is reported once, and its events are ignored.
    fn known_cluster(&mut self, name: &ClusterName) -> Option<ClusterId> {
        let id = self.clusters.id_of(name);
        if id.is_none() && self.is_new_unknown(name) {
            let detail = "events of a cluster that is not in the run are ignored".to_owned();
            self.ctx.anomaly(AnomalyKind::UnknownCluster, name, None, detail);
        }
        id
    }

    /// What is known of an upstream by its name, configured or not.
    pub(crate) fn upstream_named(&self, name: &ClusterName) -> Option<(Sym, &UpstreamState)> {
        let sym = self.ctx.names.find(name.as_str(), name.as_str())?.name;
        Some((sym, self.upstreams.get(&sym)?))
    }

    fn is_new_unknown(&mut self, name: &ClusterName) -> bool {
        let has_room = self.unknown_clusters.len() < UNKNOWN_CLUSTERS_MAX;
        has_room && self.unknown_clusters.insert(name.clone())
    }

    pub(crate) fn cluster(&self, id: ClusterId) -> Option<&ClusterState> {
        self.clusters.get(id)
    }

    fn add_cluster(&mut self, name: &ClusterName, roles: &[Role]) {
        if let Some(id) = self.clusters.id_of(name) {
            self.remove_cluster(id);
        }
        let sym = self.ctx.names.intern(name.as_str());
        let Some(id) = self.clusters.add(name, sym, roles) else {
            let detail = "there are more clusters than ids; its events are ignored".to_owned();
            self.ctx.anomaly(AnomalyKind::TooManyClusters, name, None, detail);
            self.is_new_unknown(name);
            return;
        };
        self.unknown_clusters.remove(name);
        if roles.contains(&Role::Upstream) {
            self.upstreams.entry(sym).or_default().id = Some(id);
            self.ctx.look_at_name_again(sym);
        }
        if roles.contains(&Role::Hub) {
            self.hubs.insert(id, HubState::default());
        }
        if roles.contains(&Role::Edge) {
            let scope = self.ctx.settings.touch.scope_of(name);
            self.edges.insert(id, EdgeState::new(scope));
        }
    }

    pub(crate) fn set_watch(&mut self, id: ClusterId, kind: Kind, watch: WatchState) {
        let now = self.ctx.now;
        if let Some(cluster) = self.clusters.get_mut(id) {
            cluster.set_watch(kind, watch, now);
        }
    }

    fn action_finished(&mut self, id: ActionId, outcome: &Outcome) {
        let Some(target) = self.ctx.take_in_flight(id, Some(outcome)) else {
            // A late answer to an action that was given up: the watch shows what it changed.
            if !self.ctx.has_decided(id) {
                let detail =
                    format!("an outcome came for action {}, which was never decided", id.0);
                self.ctx.anomaly(AnomalyKind::UnknownAction, &"".into(), None, detail);
            }
            return;
        };
        let ended = self.ended_failure(target, outcome);
        match target {
            WriteTarget::HubConnector(at) => self.hub_write_finished(at, id, outcome),
            WriteTarget::Touch(edge, target) => self.touch_finished(edge, target, id, outcome),
            WriteTarget::Route(hub, key) => self.route_deleted(hub, key, id, outcome),
        }
        if let Some(ended) = ended {
            self.release(target.group(), ended);
        }
    }
}
