//! A machine in a world: virtual time, watches with delays, writes with a latency and a fate.

use std::collections::{BTreeMap, BTreeSet};

use throughline::core::action::{Action, Decision, Note};
use throughline::core::event::{Event, Happened, Outcome};
use throughline::core::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::core::machine::Machine;
use throughline::core::settings::Settings;
use throughline::core::time::UnixMillis;
use throughline::event_log::{ClusterSpec, Header, Writer};
use throughline::world::World;

use crate::carry::Fate;

pub const SECOND: u64 = 1_000;
pub const HOUR: u64 = 3_600 * SECOND;
pub const START: u64 = 1_763_715_600_000;

/// An action and what was known when it was decided.
pub struct Acted {
    pub decision: Decision,

    pub led: bool,
}

pub(super) enum Due {
    Land(Box<Action>, u32, u64, Option<(u64, Option<Outcome>)>),
    Answer(u64, u32, Outcome),
}

pub(super) type Place = (ClusterName, Kind, ObjectKey, Option<String>);

pub struct Sim {
    pub world: World,
    pub machine: Machine,
    pub settings: Settings,
    pub clusters: Vec<ClusterSpec>,
    pub now: UnixMillis,
    pub run: u32,
    pub leads: bool,
    pub actions: Vec<Acted>,
    pub notes: Vec<Note>,
    /// Every event as it was delivered to the machine.
    pub seen: Vec<Event>,
    /// Watches that are listed and followed, as the machine was told.
    pub live: BTreeSet<(ClusterName, Kind)>,
    /// Watches that are broken in the world.
    pub lost: BTreeSet<(ClusterName, Kind)>,
    pub unreachable: BTreeSet<ClusterName>,
    pub fates: Vec<Fate>,
    pub watch_delays_ms: Vec<u8>,
    pub write_ms: u64,
    /// Gateways that a touch of this machine landed on: cluster and uid.
    pub touched: BTreeSet<(ClusterName, Option<String>)>,
    pub log: Option<Writer<Vec<u8>>>,
    /// When upstreams' API servers send their next bookmarks, if they do.
    pub next_bookmark: Option<UnixMillis>,
    watches: BTreeMap<(UnixMillis, u64), Event>,
    pub(super) writes: BTreeMap<(UnixMillis, u64), Due>,
    /// By object and uid: the action's number, and since when.
    pub(super) in_flight: BTreeMap<Place, (u64, UnixMillis)>,
    pub(super) sequence: u64,
    pub(super) next_fate: usize,
}

impl Sim {
    pub fn new(clusters: &[ClusterSpec], settings: &Settings, carrier_delay_ms: u64) -> Self {
        let mut world = World::new(clusters, carrier_delay_ms);
        world.advance(UnixMillis(START));
        Self {
            world,
            machine: Machine::new(settings.clone()),
            settings: settings.clone(),
            clusters: clusters.to_vec(),
            now: UnixMillis(START),
            run: 0,
            leads: false,
            actions: Vec::new(),
            notes: Vec::new(),
            seen: Vec::new(),
            live: BTreeSet::new(),
            lost: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            fates: Vec::new(),
            watch_delays_ms: vec![0],
            write_ms: 10,
            touched: BTreeSet::new(),
            log: None,
            next_bookmark: None,
            watches: BTreeMap::new(),
            writes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sequence: 0,
            next_fate: 0,
        }
    }

    /// Keeps an event log from now on.
    pub fn keep_log(&mut self) {
        let header = Header {
            clusters: self.clusters.clone(),
            settings: Some(self.settings.clone()),
            recorded: false,
        };
        self.log = Some(Writer::new(Vec::new(), &header).unwrap());
    }

    /// Configures every cluster; nothing is listed yet. Not part of the log: its header says so.
    pub fn add_clusters(&mut self) {
        for c in self.clusters.clone() {
            let what = Happened::ClusterAdded { cluster: c.name, roles: c.roles };
            self.machine.handle_event(&Event { at: self.now, what });
        }
    }

    /// The kinds that are watched in a cluster.
    pub fn kinds(&self, cluster: &ClusterName) -> Vec<Kind> {
        let roles = &self.clusters.iter().find(|c| c.name == *cluster).unwrap().roles;
        let mut kinds = BTreeSet::new();
        for role in roles {
            kinds.extend(match role {
                Role::Upstream => [Kind::Connector, Kind::Gateway, Kind::Namespace],
                Role::Downstream => [Kind::Connector, Kind::HttpRoute, Kind::Namespace],
                Role::Edge => [Kind::Connector, Kind::HttpProxy, Kind::Gateway],
            });
        }
        kinds.into_iter().collect()
    }

    pub fn list_everything(&mut self) {
        for c in self.clusters.clone() {
            self.list_cluster(&c.name);
        }
    }

    pub fn list_cluster(&mut self, cluster: &ClusterName) {
        for kind in self.kinds(cluster) {
            self.list(cluster, kind);
        }
    }

    pub fn list(&mut self, cluster: &ClusterName, kind: Kind) {
        if !self.unreachable.contains(cluster) {
            self.lost.remove(&(cluster.clone(), kind));
            self.world.list(cluster, kind);
            self.collect();
        }
    }

    pub fn lose(&mut self, cluster: &ClusterName, kind: Kind) {
        if self.lost.insert((cluster.clone(), kind)) {
            self.world.lose_watch(cluster, kind, "connection reset");
            self.collect();
        }
    }

    pub fn lead(&mut self, leads: bool) {
        if self.leads != leads {
            self.leads = leads;
            let what = if leads { Happened::LeadershipAcquired } else { Happened::LeadershipLost };
            self.feed(Event { at: self.now, what });
        }
    }

    /// The process dies and another takes its place: it knows nothing, and lists everything.
    /// Writes that are on the wire land all the same.
    pub fn restart(&mut self) {
        self.run += 1;
        self.machine = Machine::new(self.settings.clone());
        self.leads = false;
        self.live.clear();
        self.touched.clear();
        self.watches.clear();
        self.in_flight.clear();
        self.notes.clear();
        self.add_clusters();
        self.lead(true);
        self.list_everything();
    }

    /// A cluster leaves the configuration and comes back.
    pub fn rejoin(&mut self, cluster: &ClusterName) {
        let of = |what: &Happened| match what {
            Happened::Listed { cluster, .. }
            | Happened::Applied { cluster, .. }
            | Happened::Deleted { cluster, .. }
            | Happened::ListStarted { cluster, .. }
            | Happened::ListFinished { cluster, .. }
            | Happened::WatchHeard { cluster, .. }
            | Happened::WatchLost { cluster, .. } => Some(cluster.clone()),
            _ => None,
        };
        self.watches.retain(|_, event| of(&event.what).as_ref() != Some(cluster));
        let roles = self.clusters.iter().find(|c| c.name == *cluster).unwrap().roles.clone();
        let cluster = cluster.clone();
        self.touched.retain(|(c, _)| *c != cluster);
        self.in_flight.retain(|(c, ..), _| *c != cluster);
        self.feed(Event {
            at: self.now,
            what: Happened::ClusterRemoved { cluster: cluster.clone() },
        });
        let what = Happened::ClusterAdded { cluster: cluster.clone(), roles };
        self.feed(Event { at: self.now, what });
        self.list_cluster(&cluster);
    }

    /// Takes what the world's watches show; it reaches the machine after the watch's delay.
    pub fn collect(&mut self) {
        while let Some(event) = self.world.poll_event() {
            let delay = self.delay_ms(&event.what);
            self.sequence += 1;
            self.watches.insert((self.now.plus(delay), self.sequence), event);
        }
    }

    /// The same for one watch at all times, so that its events stay in order.
    fn delay_ms(&self, what: &Happened) -> u64 {
        let (cluster, kind) = match what {
            Happened::ListStarted { cluster, kind }
            | Happened::ListFinished { cluster, kind }
            | Happened::WatchHeard { cluster, kind }
            | Happened::WatchLost { cluster, kind, .. } => (cluster, *kind),
            Happened::Listed { cluster, object }
            | Happened::Applied { cluster, object }
            | Happened::Deleted { cluster, object } => (cluster, object.kind()),
            _ => return 0,
        };
        let place = self.clusters.iter().position(|c| c.name == *cluster).unwrap();
        let index = place * Kind::ALL.len() + kind as usize;
        u64::from(self.watch_delays_ms[index % self.watch_delays_ms.len()])
    }

    /// Hands an event to the machine, now, and takes what it decides.
    pub fn feed(&mut self, event: Event) {
        let event = Event { at: self.now, what: event.what };
        match &event.what {
            Happened::ListFinished { cluster, kind } => {
                self.live.insert((cluster.clone(), *kind));
            }
            Happened::ListStarted { cluster, kind } | Happened::WatchLost { cluster, kind, .. } => {
                self.live.remove(&(cluster.clone(), *kind));
            }
            Happened::ClusterRemoved { cluster } => self.live.retain(|(c, _)| c != cluster),
            _ => {}
        }
        if let Some(log) = &mut self.log {
            log.event(&event).unwrap();
        }
        self.machine.handle_event(&event);
        self.seen.push(event);
        self.polled();
    }

    fn polled(&mut self) {
        while let Some(decision) = self.machine.poll_action() {
            if let Some(log) = &mut self.log {
                log.action(&decision).unwrap();
            }
            self.send(&decision.action);
            self.actions.push(Acted { decision, led: self.leads });
        }
        while let Some(note) = self.machine.poll_note() {
            self.notes.push(note);
        }
    }

    /// How long to pass until the next thing happens, at most until `end`.
    pub fn step_ms(&self, end: UnixMillis) -> u64 {
        let watch = self.watches.keys().next().map(|(at, _)| *at);
        let write = self.writes.keys().next().map(|(at, _)| *at);
        let deadline = self.machine.poll_deadline().map(|(at, _)| at);
        let next = [watch, write, self.world.next_due(), deadline].into_iter().flatten().min();
        next.unwrap_or(end).min(end).since(self.now)
    }

    /// Lets `ms` of virtual time pass.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.plus(ms);
        let mut at_once = 0;
        loop {
            let watch = self.watches.keys().next().map(|(at, _)| *at);
            let write = self.writes.keys().next().map(|(at, _)| *at);
            let carrier = self.world.next_due();
            let deadline = self.machine.poll_deadline().map(|(at, _)| at);
            let bookmark = self.next_bookmark;
            let next = [watch, write, carrier, deadline, bookmark].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            at_once = if at <= self.now { at_once + 1 } else { 0 };
            assert!(at_once < 20_000, "time stands still at {}", self.now);
            self.now = self.now.max(at);
            self.world.advance(self.now);
            self.collect();
            let timeout = self.settings.retry.outcome_timeout_ms;
            let now = self.now;
            if bookmark == Some(at) {
                self.send_bookmarks();
            } else if watch == Some(at) {
                let (_, event) = self.watches.pop_first().unwrap();
                self.in_flight.retain(|_, (_, since)| now < since.plus(timeout));
                self.feed(event);
            } else if write == Some(at) {
                let (_, due) = self.writes.pop_first().unwrap();
                self.in_flight.retain(|_, (_, since)| now < since.plus(timeout));
                self.landed_or_answered(due);
            } else if deadline == Some(at) {
                self.in_flight.retain(|_, (_, since)| now < since.plus(timeout));
                self.feed(Event { at: self.now, what: Happened::TimedOut });
            }
        }
        self.now = end;
        self.world.advance(end);
        self.collect();
    }

    fn send_bookmarks(&mut self) {
        self.next_bookmark = Some(self.now.plus(60 * SECOND));
        for c in self.clusters.clone() {
            let place = (c.name.clone(), Kind::Gateway);
            if c.roles.contains(&Role::Upstream)
                && !self.lost.contains(&place)
                && !self.unreachable.contains(&c.name)
            {
                let what = Happened::WatchHeard { cluster: c.name, kind: Kind::Gateway };
                self.sequence += 1;
                let at = self.now.plus(self.delay_ms(&what));
                self.watches.insert((at, self.sequence), Event { at, what });
            }
        }
    }

    /// Whatever was broken is whole again.
    pub fn heal(&mut self) {
        self.fates.clear();
        for cluster in std::mem::take(&mut self.unreachable) {
            self.world.set_reachable(&cluster, true);
        }
        self.lead(true);
        for (cluster, kind) in self.lost.clone() {
            self.list(&cluster, kind);
        }
    }
}
