//! The machine: takes events from the clusters and returns actions for them.
//!
//! The machine does no I/O. The caller owns the sockets and the clock, and keeps this contract:
//!
//! - A. Call [`Machine::handle_event`] for each event, and with [`TimedOut`](EventKind::TimedOut)
//!   when the deadline has come. `event.at` is the machine's only clock.
//! - B. Then take everything from [`Machine::poll_action`], [`Machine::poll_note`] and
//!   [`Machine::poll_membership`], and from [`Machine::poll_answers`] if the answers are needed.
//! - C. Then sleep until [`Machine::poll_deadline`] at most. The deadline is valid until the next
//!   A.
//!
//! A polled action is in flight until an [`ActionFinished`](EventKind::ActionFinished) event brings
//! its outcome. At most one action per object is in flight. All decisions are made here.

use crate::contract::action::{Decision, Verb};
use crate::contract::event::{Event, EventKind};
use crate::contract::membership::{Membership, MembershipCount};
use crate::contract::note::Note;
use crate::contract::settings::Settings;
use crate::contract::symptom::Answers;
pub use crate::controller::Machine;
use crate::controller::{Breakers, Memory};
use crate::data::ids::{ClusterName, Kind, Role};
use crate::data::time::UnixMillis;
use crate::scheduler::Scheduler;
use crate::status::trigger::NodeIds;
use crate::world::World;
use crate::world::cluster::Cluster;

/// The number of entries in each part of the machine, to find leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    pub clusters: usize,
    /// Upstreams that hub objects name.
    pub upstreams: usize,
    /// Hub Connectors and routes, and edge Connectors, HTTPProxies and Gateways.
    pub objects: usize,
    /// Memory entries of hub objects, touches, and what Gateways serve.
    pub memories: usize,
    /// Timers, and subjects in queues.
    pub scheduled: usize,
    /// Actions without an outcome.
    pub in_flight: usize,
}

impl Machine {
    /// A machine without clusters. Events add them.
    pub fn new(settings: Settings) -> Self {
        let world = World::new(settings, NodeIds::default());
        Self { world, ..Self::default() }
    }

    /// A machine that reads these node ids; the default is real ones. Must be called before any
    /// event.
    pub fn with_node_ids(mut self, node_ids: NodeIds) -> Self {
        self.world.node_ids = node_ids;
        self
    }

    /// Takes one event. Costs O(objects that the event concerns).
    pub fn handle_event(&mut self, event: &Event) {
        // The time never goes backwards. It stays below the maximum, so that a pause with a
        // saturated end never ends.
        self.now = self.now.max(event.at).min(UnixMillis(UnixMillis::NEVER.0 - 1));
        self.on_event(&event.kind);
        self.end_step();
    }

    /// The next action, oldest first. Actions of one event are ordered by cluster, kind, namespace
    /// and name.
    pub fn poll_action(&mut self) -> Option<Decision> {
        let decision = self.in_flight.poll_action();
        let is_lawful = |decision| is_lawful(decision, &self.world, self.now);
        debug_assert!(decision.as_ref().is_none_or(is_lawful));
        decision
    }

    /// The next note, oldest first.
    pub fn poll_note(&mut self) -> Option<Note> {
        self.notes.poll()
    }

    /// The next request to add or remove a cluster, oldest first.
    pub fn poll_membership(&mut self) -> Option<Membership> {
        self.roster.pop_membership()
    }

    /// The next edge whose Gateways' answers changed, with the new answers; `None`: the edge left.
    pub fn poll_answers(&mut self) -> Option<(ClusterName, Option<Answers>)> {
        self.symptoms.poll_answers()
    }

    /// The number of clusters that discovery offers, by source and state. Costs O(clusters
    /// offered).
    pub fn membership_counts(&self) -> Vec<MembershipCount> {
        self.roster.counts(&self.world)
    }

    /// When the machine needs the next event at the latest, which may be
    /// [`TimedOut`](EventKind::TimedOut).
    pub fn poll_deadline(&self) -> Option<UnixMillis> {
        self.scheduler.timers.next_at()
    }

    pub fn settings(&self) -> &Settings {
        &self.world.settings
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn table_sizes(&self) -> TableSizes {
        let Self { world, memory, symptoms, scheduler, in_flight, .. } = self;
        TableSizes {
            clusters: world.clusters.len(),
            upstreams: world.links.counts.len(),
            objects: world.clusters.values().map(Cluster::objects).sum(),
            memories: memory.len() + symptoms.len(),
            scheduled: scheduler.len(),
            in_flight: in_flight.len(),
        }
    }

    /// Forgets what throughline did and waits for, and plans everything again. At rest, this
    /// decides only touches that repeat a Gateway's announcement, as after a restart.
    pub fn forget_memory(&mut self) {
        self.memory = Memory::default();
        self.scheduler = Scheduler::default();
        self.breakers = Breakers::default();
        self.dirty.extend(self.world.subjects());
        self.end_step();
    }

    fn on_event(&mut self, event: &EventKind) {
        match event {
            EventKind::ClusterAdded { cluster, .. } => {
                self.on_watch_event(event);
                self.with_roster(|roster, facts| roster.on_cluster_added(cluster, facts));
            }
            EventKind::ClusterRemoved { cluster } => {
                // The shell may have failed to add it.
                if !self.roster.could_not_join(cluster, &self.world) {
                    self.on_watch_event(event);
                }
                self.with_roster(|roster, facts| roster.on_cluster_removed(cluster, facts));
            }
            EventKind::LeadershipPending { wait_ms } => {
                self.lease_wait_until = self.now.plus(*wait_ms);
            }
            EventKind::LeadershipAcquired => self.on_leadership(true),
            EventKind::LeadershipLost => self.on_leadership(false),
            EventKind::ActionFinished { id, outcome } => self.on_outcome(*id, outcome),
            EventKind::TimedOut | EventKind::RecordingEnded => {}
            EventKind::DiscoveryStarted { .. }
            | EventKind::ClusterOffered { .. }
            | EventKind::ClusterWithdrawn { .. }
            | EventKind::DiscoveryFinished { .. }
            | EventKind::DiscoveryLost { .. }
            | EventKind::DiscoveryResumed { .. }
            | EventKind::ClusterGone { .. } => self.on_discovery(event),
            _ => self.on_watch_event(event),
        }
    }
}

/// Holds for the actions of every rule: each verb writes one kind, in clusters of one role, and never
/// in one that is only an upstream.
fn is_lawful(decision: &Decision, world: &World, now: UnixMillis) -> bool {
    let action = &decision.action;
    let (role, kind) = match action.verb {
        Verb::Mirror | Verb::Nudge => (Role::Hub, Kind::Connector),
        Verb::Touch => (Role::Edge, Kind::Gateway),
        Verb::Delete => (Role::Hub, Kind::HttpRoute),
    };
    // The cluster may have left since the decision.
    let cluster = world.id_of(&action.cluster).and_then(|id| world.clusters.get(&id));
    action.kind == kind && cluster.is_none_or(|cluster| cluster.has(role)) && decision.at <= now
}
