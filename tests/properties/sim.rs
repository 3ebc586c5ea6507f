//! Runs a machine against simulated clusters in virtual time: watches have delays, and writes have a
//! latency and may fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline::core::contract::action::{Action, Decision, Verb};
use throughline::core::contract::error_cause::RequestFailure;
use throughline::core::contract::event::{ClusterSpec, Event, EventKind, Outcome};
use throughline::core::contract::note::Note;
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, NamespacedName, Role};
use throughline::core::data::objects::Object;
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;
use throughline::event_log::{Header, LogWriter};
use throughline_sim::SimClusters;

use crate::model::{PROJECTS, Topology};

pub const SECOND: u64 = 1_000;
pub const HOUR: u64 = 3_600 * SECOND;
/// How long a write takes.
pub const WRITE_MS: u64 = 10;
pub const START: u64 = 1_763_715_600_000;

type Place = (ClusterName, Kind, NamespacedName, Option<String>);

/// What happens to a write: whether and when it is applied, and which answer comes when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// Applied and answered.
    None,
    /// Applied; the same answer comes twice.
    AnsweredTwice,
    /// Fails and is not applied.
    Failed,
    /// Reported as failed, but applied.
    FailedButApplied,
    /// Refused with a retry-after.
    Throttled,
    Conflict,
    Refused,
    NotFound,
    Superseded,
    /// Applied at once, and answered a minute later.
    AnsweredLate,
    /// Applied and answered a minute later.
    AppliedLate,
}

/// What happens later: a watch shows an event; a write is applied, which was decided in a run of the
/// machine; or it is answered. At the same time, watches come first.
enum Due {
    Show(EventKind),
    Apply { action: Box<Action>, run: u32, write_fault: WriteFault },
    Answer { id: ActionId, outcome: Outcome },
}

pub struct Sim {
    pub topology: Topology,
    pub clusters: SimClusters,
    pub machine: Machine,
    pub settings: Settings,
    pub now: UnixMillis,
    pub run: u32,
    pub leads: bool,
    pub actions: Vec<Decision>,
    pub notes: Vec<Note>,
    /// When deletes were decided that may have changed something, by the run of the machine.
    pub deletes: BTreeMap<(u32, ActionId), UnixMillis>,
    /// Every event that the machine handled.
    pub seen: Vec<Event>,
    /// Watches that are live by the machine's events.
    pub live: BTreeSet<(ClusterName, Kind)>,
    /// Watches that are broken.
    pub lost: BTreeSet<(ClusterName, Kind)>,
    pub unreachable: BTreeSet<ClusterName>,
    /// Clusters that left the run.
    pub gone: BTreeSet<ClusterName>,
    pub write_faults: Vec<WriteFault>,
    pub watch_delays_ms: Vec<u8>,
    /// Gateways that this machine has touched since it last looked at them for the first time: cluster
    /// and uid.
    pub touched: BTreeSet<(ClusterName, Option<String>)>,
    pub log: Option<LogWriter<Vec<u8>>>,
    /// When upstream API servers send their next bookmarks, if at all.
    pub next_bookmark: Option<UnixMillis>,
    /// By time, whether it is a write, and a sequence number.
    due: BTreeMap<(UnixMillis, bool, u64), Due>,
    /// By object and uid: the action's id, and since when it is in flight.
    in_flight: BTreeMap<Place, (ActionId, UnixMillis)>,
    sequence: u64,
    next_write_fault: usize,
}

impl Sim {
    pub fn new(topology: Topology, settings: Settings, carrier_delay_ms: u64) -> Self {
        let mut clusters = SimClusters::new(&topology.clusters(), carrier_delay_ms);
        clusters.advance(UnixMillis(START));
        Self {
            topology,
            clusters,
            machine: Machine::new(settings.clone()),
            settings,
            now: UnixMillis(START),
            run: 0,
            leads: false,
            actions: Vec::new(),
            notes: Vec::new(),
            deletes: BTreeMap::new(),
            seen: Vec::new(),
            live: BTreeSet::new(),
            lost: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            gone: BTreeSet::new(),
            write_faults: Vec::new(),
            watch_delays_ms: vec![0],
            touched: BTreeSet::new(),
            log: None,
            next_bookmark: None,
            due: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sequence: 0,
            next_write_fault: 0,
        }
    }

    /// Writes an event log from now on.
    pub fn keep_log(&mut self) {
        let header = Header {
            clusters: self.topology.clusters(),
            settings: Some(self.settings.clone()),
            release: Some(throughline::build_info::VERSION.into()),
            ..Header::default()
        };
        self.log = Some(LogWriter::new(Vec::new(), &header).unwrap());
    }

    /// Configures every cluster; nothing is listed yet. The log's header stands for these events.
    pub fn add_clusters(&mut self) {
        for cluster in self.topology.clusters() {
            self.machine.handle_event(&Event { at: self.now, kind: cluster.added() });
        }
    }

    /// Adds the clusters, leads, and lists everything.
    pub fn start(&mut self) {
        self.add_clusters();
        self.lead(true);
        for cluster in self.topology.clusters() {
            self.list_cluster(&cluster.name);
        }
    }

    fn spec(&self, cluster: &ClusterName) -> ClusterSpec {
        self.topology.clusters().into_iter().find(|c| c.name == *cluster).unwrap()
    }

    /// The kinds that are watched in a cluster.
    pub fn kinds(&self, cluster: &ClusterName) -> Vec<Kind> {
        self.settings.kinds_watched(&self.spec(cluster).roles)
    }

    pub fn list_cluster(&mut self, cluster: &ClusterName) {
        for kind in self.kinds(cluster) {
            self.list(cluster, kind);
        }
    }

    pub fn list(&mut self, cluster: &ClusterName, kind: Kind) {
        if self.gone.contains(cluster) {
            return;
        }
        if self.unreachable.contains(cluster) {
            self.lost.insert((cluster.clone(), kind));
        } else {
            self.lost.remove(&(cluster.clone(), kind));
            self.clusters.list(cluster, kind);
        }
    }

    pub fn lose(&mut self, cluster: &ClusterName, kind: Kind) {
        if !self.gone.contains(cluster) && self.lost.insert((cluster.clone(), kind)) {
            self.clusters.lose_watch(cluster, kind, "connection reset");
        }
    }

    pub fn lead(&mut self, leads: bool) {
        if self.leads != leads {
            self.leads = leads;
            let kind =
                if leads { EventKind::LeadershipAcquired } else { EventKind::LeadershipLost };
            self.feed(kind);
        }
    }

    /// A new process replaces this one, without any state, and lists everything. Writes that are in flight
    /// are still applied.
    pub fn restart(&mut self) {
        self.collect();
        self.run += 1;
        self.machine = Machine::new(self.settings.clone());
        self.leads = false;
        self.live.clear();
        self.touched.clear();
        self.due.retain(|_, due| matches!(due, Due::Apply { .. }));
        self.in_flight.clear();
        self.notes.clear();
        self.gone.clear();
        self.start();
    }

    /// Removes a cluster from the run.
    pub fn leave(&mut self, cluster: &ClusterName) {
        self.collect();
        if !self.gone.insert(cluster.clone()) {
            return;
        }
        let is_of = |kind: &EventKind| watch_of(kind).is_some_and(|(of, _)| of == cluster);
        self.due.retain(|_, due| !matches!(due, Due::Show(kind) if is_of(kind)));
        self.touched.retain(|(c, _)| c != cluster);
        self.in_flight.retain(|(c, ..), _| c != cluster);
        self.lost.retain(|(c, _)| c != cluster);
        self.feed(EventKind::ClusterRemoved { cluster: cluster.clone() });
    }

    /// Adds a cluster that left.
    pub fn join(&mut self, cluster: &ClusterName) {
        if self.gone.remove(cluster) {
            self.feed(self.spec(cluster).added());
            self.list_cluster(cluster);
        }
    }

    /// Forgets all but what the watches show, as a restart does, while nothing is listed again.
    pub fn forget_memory(&mut self) {
        self.machine.forget_memory();
        self.poll_machine();
    }

    /// Collects watch events; each reaches the machine after its watch's delay.
    pub fn collect(&mut self) {
        while let Some(event) = self.clusters.poll_event() {
            let (cluster, kind) = watch_of(&event.kind).expect("an event of a watch");
            if !self.gone.contains(cluster) {
                self.due(self.delay_ms(cluster, kind), Due::Show(event.kind));
            }
        }
    }

    fn due(&mut self, ms: u64, due: Due) {
        self.sequence += 1;
        let is_write = !matches!(due, Due::Show(_));
        self.due.insert((self.now.plus(ms), is_write, self.sequence), due);
    }

    /// Constant for each watch, so that its events stay in order.
    fn delay_ms(&self, cluster: &ClusterName, kind: Kind) -> u64 {
        let place = self.topology.clusters().iter().position(|c| c.name == *cluster).unwrap();
        let index = place * Kind::ALL.len() + kind as usize;
        u64::from(self.watch_delays_ms[index % self.watch_delays_ms.len()])
    }

    /// Feeds an event to the machine at the current time and submits its actions.
    pub fn feed(&mut self, kind: EventKind) {
        let event = Event { at: self.now, kind };
        match &event.kind {
            EventKind::ListFinished { cluster, kind } => {
                self.live.insert((cluster.clone(), *kind));
            }
            EventKind::ListStarted { cluster, kind }
            | EventKind::WatchLost { cluster, kind, .. } => {
                self.live.remove(&(cluster.clone(), *kind));
            }
            EventKind::ClusterRemoved { cluster } => self.live.retain(|(c, _)| c != cluster),
            _ => {}
        }
        if let Some(log) = &mut self.log {
            log.event(&event).unwrap();
        }
        self.machine.handle_event(&event);
        self.seen.push(event);
        self.poll_machine();
    }

    fn poll_machine(&mut self) {
        while let Some(decision) = self.machine.poll_action() {
            if let Some(log) = &mut self.log {
                log.action(&decision).unwrap();
            }
            self.send(&decision.action);
            if decision.action.verb == Verb::Delete {
                self.deletes.insert((self.run, decision.action.id), decision.at);
            }
            self.actions.push(decision);
        }
        while let Some(note) = self.machine.poll_note() {
            self.notes.push(note);
        }
    }

    /// When the next event is due.
    fn next_at(&mut self) -> Option<UnixMillis> {
        self.collect();
        let due = self.due.keys().next().map(|(at, ..)| *at);
        let carrier = self.clusters.next_due();
        let deadline = self.machine.poll_deadline();
        [due, carrier, deadline, self.next_bookmark].into_iter().flatten().min()
    }

    /// Every object that a watch has shown, and when and where.
    pub fn shown(&self) -> impl Iterator<Item = (u64, &ClusterName, &Arc<Object>)> {
        self.seen.iter().filter_map(|event| match &event.kind {
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object } => {
                Some((event.at.0, cluster, object))
            }
            _ => None,
        })
    }

    /// The decisions about actions of this sort, from this one on.
    pub fn decided(&self, verb: Verb, from: usize) -> impl Iterator<Item = &Decision> {
        self.actions[from..].iter().filter(move |decision| decision.action.verb == verb)
    }

    /// Advances virtual time to the next event, at most to `end`.
    pub fn advance_once(&mut self, end: UnixMillis) {
        let at = self.next_at().unwrap_or(end).min(end);
        self.advance_by(at.since(self.now));
    }

    /// Advances virtual time by `ms`.
    pub fn advance_by(&mut self, ms: u64) {
        let end = self.now.plus(ms);
        let mut at_once = 0;
        while let Some(at) = self.next_at().filter(|at| *at <= end) {
            at_once = if at <= self.now { at_once + 1 } else { 0 };
            assert!(at_once < 20_000, "time stands still at {}", self.now);
            let is_due = self.due.keys().next().is_some_and(|(due, ..)| *due == at);
            self.now = self.now.max(at);
            self.clusters.advance(self.now);
            if self.next_bookmark == Some(at) {
                self.send_bookmarks();
            } else if is_due {
                let (_, due) = self.due.pop_first().unwrap();
                self.happen(due);
            } else if self.machine.poll_deadline() == Some(at) {
                self.feed(EventKind::TimedOut);
            }
        }
        self.now = end;
        self.clusters.advance(end);
        self.collect();
    }

    fn send_bookmarks(&mut self) {
        self.next_bookmark = Some(self.now.plus(60 * SECOND));
        let (upstreams, kind) = (self.clusters.with_role(Role::Upstream), Kind::Gateway);
        for cluster in upstreams.cloned().collect::<Vec<_>>() {
            if !self.lost.contains(&(cluster.clone(), kind))
                && !self.unreachable.contains(&cluster)
                && !self.gone.contains(&cluster)
            {
                let delay_ms = self.delay_ms(&cluster, kind);
                self.due(delay_ms, Due::Show(EventKind::Bookmark { cluster, kind }));
            }
        }
    }

    fn send(&mut self, action: &Action) {
        let Action { cluster, kind, object, precondition, .. } = action;
        assert!(self.leads || !action.is_leader_only(), "without leadership: {action:?}");
        let absent = precondition.absent.as_ref();
        assert!(absent.is_none_or(|absent| absent.namespace_uid.is_some()), "of any namespace");
        if action.verb == Verb::Delete {
            let (up, ..) = self.topology.project(self.project_of(object));
            for watch in [(&up, Kind::Gateway), (&up, Kind::Namespace), (cluster, *kind)] {
                let is_live = self.live.contains(&(watch.0.clone(), watch.1));
                assert!(is_live, "a delete while the watch of {watch:?} is not live");
            }
            let has_all = precondition.uid.is_some() && precondition.resource_version.is_some();
            assert!(has_all && absent.is_some(), "a delete without evidence: {precondition:?}");
        }
        let key = (cluster.clone(), *kind, object.clone(), precondition.uid.clone());
        let before = self.in_flight.insert(key, (action.id, self.now));
        if let Some((id, at)) = before {
            panic!("{} has action {id:?} in flight since {at} already", action.object);
        }
        let write_fault = match self.write_faults.as_slice() {
            [] => WriteFault::None,
            write_faults => write_faults[self.next_write_fault % write_faults.len()],
        };
        self.next_write_fault += 1;
        let ms = if write_fault == WriteFault::AppliedLate { 70 * SECOND } else { WRITE_MS };
        let action = action.clone().into();
        self.due(ms, Due::Apply { action, run: self.run, write_fault });
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Show(kind) => self.feed(kind),
            Due::Apply { action, run, write_fault } => {
                let error = RequestFailure::from("injected by the test");
                let outcome = match write_fault {
                    WriteFault::Failed => Outcome::Failed { error, retry_after_ms: None },
                    WriteFault::FailedButApplied => {
                        self.carry_out(&action, run);
                        Outcome::Failed { error, retry_after_ms: None }
                    }
                    WriteFault::Throttled => {
                        Outcome::Failed { error, retry_after_ms: Some(3 * SECOND) }
                    }
                    WriteFault::Conflict => Outcome::Conflict { error },
                    WriteFault::Refused => Outcome::Refused { error },
                    WriteFault::NotFound => Outcome::NotFound,
                    WriteFault::Superseded => Outcome::Superseded,
                    _ => self.carry_out(&action, run),
                };
                let answers_ms: &[u64] = match write_fault {
                    // Nobody waits for the answers to an earlier run.
                    _ if run != self.run => &[],
                    WriteFault::AnsweredLate => &[70 * SECOND],
                    WriteFault::AnsweredTwice => &[1, 8],
                    _ => &[1],
                };
                for ms in answers_ms {
                    self.due(*ms, Due::Answer { id: action.id, outcome: outcome.clone() });
                }
            }
            Due::Answer { id, outcome } => {
                self.in_flight.retain(|_, (flying, _)| *flying != id);
                if !matches!(outcome, Outcome::Applied { .. } | Outcome::Failed { .. }) {
                    self.deletes.remove(&(self.run, id));
                }
                self.feed(EventKind::ActionFinished { id, outcome });
            }
        }
    }

    /// No route goes that has a parent.
    fn carry_out(&mut self, action: &Action, run: u32) -> Outcome {
        if action.is_leader_only() && !self.leads && run == self.run {
            return Outcome::Dropped;
        }
        let Action { verb, cluster, kind, object, precondition, .. } = action;
        let before = self.clusters.get(cluster, *kind, object).cloned();
        let outcome = self.clusters.carry_out(action);
        let is_applied = matches!(outcome, Outcome::Applied { .. });
        if is_applied && run == self.run {
            self.touched.insert((cluster.clone(), precondition.uid.clone()));
        }
        if is_applied && *verb == Verb::Delete {
            let project = self.project_of(object);
            let is_needed =
                self.has_namespace(project) && self.has_parent(project, &before.unwrap());
            assert!(!is_needed, "{object} was deleted although it has a parent");
        }
        outcome
    }

    /// The project that a hub object belongs to.
    fn project_of(&self, object: &NamespacedName) -> u8 {
        let is_of = |project: &u8| self.topology.hub_namespace(*project) == object.namespace();
        (0..PROJECTS).find(is_of).unwrap()
    }

    /// The actions, a line each.
    pub fn describe_actions(&self, from: usize) -> String {
        let line = |Decision { at, action, because, .. }: &Decision| {
            let Action { verb, cluster, object, annotations, .. } = action;
            let ms = at.since(UnixMillis(START));
            format!("{ms} {verb:?} {cluster} {object} {annotations:?}: {because}\n")
        };
        self.actions[from..].iter().map(line).collect()
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.write_faults.clear();
        for cluster in std::mem::take(&mut self.unreachable) {
            self.clusters.set_reachable(&cluster, true);
        }
        self.lead(true);
        for cluster in self.gone.clone() {
            self.join(&cluster);
        }
        for (cluster, kind) in self.lost.clone() {
            self.list(&cluster, kind);
        }
    }
}

/// The watch that an event comes from.
fn watch_of(kind: &EventKind) -> Option<(&ClusterName, Kind)> {
    match kind {
        EventKind::ListStarted { cluster, kind }
        | EventKind::ListFinished { cluster, kind }
        | EventKind::Bookmark { cluster, kind }
        | EventKind::WatchLost { cluster, kind, .. } => Some((cluster, *kind)),
        EventKind::Listed { cluster, object }
        | EventKind::Applied { cluster, object }
        | EventKind::Deleted { cluster, object } => Some((cluster, object.kind())),
        _ => None,
    }
}
