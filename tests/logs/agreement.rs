//! A look from outside shows the same whichever way it is taken. Each fixture is replayed, which gives the
//! log of a run. At each second of it an instance and a look that has watched its clusters from the start are
//! compared, and at some with the log and with a look that begins then.

use std::collections::BTreeMap;

use throughline::core::contract::cause::{Cause, Hop};
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;
use throughline::core::view::fleet::{Connector, Fleet, HopView, Leader, Source};
use throughline::event_log::{Header, LogEntry, LogReader};
use throughline::inspect::log::{self, LogMoment, follow};
use throughline::inspect::writers::Writers;
use throughline::inspect::{judge, read_only_settings};
use throughline::problems::Problems;

use crate::fixtures::{names, replayed};

/// A machine and the problems that it has noted.
struct Observer {
    machine: Machine,
    problems: Problems,
    writers: Writers,
    /// It only looks.
    reads_only: bool,
}

impl Observer {
    fn new(header: &Header, at: UnixMillis, reads_only: bool) -> Self {
        let settings = header.settings.clone().unwrap();
        let writers = Writers::new(&settings.mirror.nudge_key);
        let settings = if reads_only { read_only_settings(&settings) } else { settings };
        let machine = Machine::new(settings).with_node_ids(header.node_ids());
        let mut observer = Self { machine, problems: Problems::default(), writers, reads_only };
        for cluster in &header.clusters {
            observer.handle(Event { at, kind: cluster.added() });
        }
        observer
    }

    fn observe(&mut self, event: &Event) {
        if !self.reads_only {
            return self.handle(event.clone());
        }
        while let Some(at) = self.machine.poll_deadline().filter(|at| *at < event.at) {
            self.handle(Event { at, kind: EventKind::TimedOut });
        }
        if is_seen_by_all(&event.kind) {
            self.writers.observe(&event.kind);
            let kind = self.writers.without_doubts(event.kind.clone());
            self.handle(Event { at: event.at, kind });
        }
    }

    fn handle(&mut self, event: Event) {
        self.machine.handle_event(&event);
        follow(&mut self.machine, &mut self.problems, event.at, !self.reads_only);
    }

    /// `leader` is whom the Lease names; an instance knows it.
    fn fleet(&mut self, header: &Header, at: UnixMillis, leader: Option<&Leader>) -> Fleet {
        self.observe(&Event { at, kind: EventKind::TimedOut });
        let Some(leader) = leader else {
            let fleet = self.machine.fleet(Source::Instance, &|_| None);
            return Fleet { problems: self.problems.open(&|_| None), ..fleet };
        };
        let mut fleet = self.machine.fleet(Source::Clusters, &|_| None);
        fleet.leader = Leader { leads: false, ..leader.clone() };
        let limits = &header.settings.as_ref().unwrap().late;
        judge::complete(&mut fleet, &self.writers, limits, &self.problems, &|_| None);
        fleet
    }
}

/// What a look that begins now finds.
#[derive(Default)]
struct Present {
    /// Clusters and their sources, as they came and went.
    clusters: Vec<EventKind>,
    /// Projects that do not exist, which a look asks for after the lists.
    gone: Vec<EventKind>,
    watches: BTreeMap<(ClusterName, Kind), Watch>,
}

#[derive(Default)]
struct Watch {
    /// `None` while it is live.
    lost: Option<EventKind>,
    /// As they are listed.
    objects: BTreeMap<ObjectKey, EventKind>,
}

impl Present {
    fn watch(&mut self, cluster: &ClusterName, kind: Kind) -> &mut Watch {
        self.watches.entry((cluster.clone(), kind)).or_default()
    }

    fn observe(&mut self, event: &EventKind) {
        match event {
            EventKind::ListStarted { cluster, kind } => {
                *self.watch(cluster, *kind) = Watch::default();
            }
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object } => {
                let (cluster, object) = (cluster.clone(), object.clone());
                let objects = &mut self.watch(&cluster, object.kind()).objects;
                objects.insert(object.meta.key(), EventKind::Listed { cluster, object });
            }
            EventKind::Deleted { cluster, object } => {
                self.watch(cluster, object.kind()).objects.remove(&object.meta.key());
            }
            EventKind::WatchLost { cluster, kind, .. } => {
                self.watch(cluster, *kind).lost = Some(event.clone());
            }
            EventKind::WatchResumed { cluster, kind } => self.watch(cluster, *kind).lost = None,
            EventKind::ClusterRemoved { cluster } => {
                self.watches.retain(|(of, _), _| of != cluster);
                self.clusters.push(event.clone());
            }
            EventKind::ListFinished { .. }
            | EventKind::Unreadable { .. }
            | EventKind::Bookmark { .. }
            | EventKind::ResourceVersionRegressed { .. }
            | EventKind::TimedOut => {}
            EventKind::ClusterGone { .. } => self.gone.push(event.clone()),
            kind if is_seen_by_all(kind) => self.clusters.push(kind.clone()),
            _ => {}
        }
    }

    fn look(&self, header: &Header, at: UnixMillis, leader: &Leader) -> Fleet {
        let mut look = Observer::new(header, at, true);
        let watches = self.watches.iter().flat_map(|((cluster, kind), watch)| {
            let (cluster, kind) = (cluster.clone(), *kind);
            let mut events = vec![EventKind::ListStarted { cluster: cluster.clone(), kind }];
            events.extend(watch.objects.values().cloned());
            events.push(EventKind::ListFinished { cluster, kind });
            watch.lost.clone().map_or(events, |lost| vec![lost])
        });
        let clusters = self.clusters.iter().cloned();
        for kind in clusters.chain(watches).chain(self.gone.iter().cloned()) {
            look.observe(&Event { at, kind });
        }
        look.fleet(header, at, Some(leader))
    }
}

/// Whether the clusters show it to any who look.
fn is_seen_by_all(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::ActionFinished { .. }
            | EventKind::LeadershipPending { .. }
            | EventKind::LeadershipAcquired
            | EventKind::LeadershipLost
    )
}

/// What a run alone knows: what it has seen before, and what it does.
fn is_known_to_a_run_alone(cause: Option<Cause>) -> bool {
    matches!(
        cause,
        Some(
            Cause::ClustersMissing
                | Cause::UpstreamRestored
                | Cause::RemovalsHeld
                | Cause::Deferred
                | Cause::TouchesQueued
                | Cause::AnnotationRemoved
        )
    )
}

fn is_of_writes(cause: Option<Cause>) -> bool {
    matches!(cause, Some(Cause::WriteRefused | Cause::WriteFailing | Cause::Overwritten))
}

/// What a look can know of lateness.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    /// The times of the writes, by `managedFields`.
    Writes,
    /// When things changed, because it has watched since the start.
    Changes,
    Neither,
}

/// In what a look at the clusters differs from the instance.
fn differences(instance: &Fleet, clusters: &Fleet, sees: Sees) -> Vec<String> {
    let names = |fleet: &Fleet| -> Vec<_> {
        fleet.connectors.iter().map(|of| (of.upstream.clone(), of.name.clone())).collect()
    };
    let [a, b] = [instance, clusters].map(|fleet| (names(fleet), fleet.unpaired.clone()));
    if a != b {
        return vec![format!("connectors and unpaired {a:?} and {b:?}")];
    }
    let pairs = instance.connectors.iter().zip(&clusters.connectors);
    pairs.flat_map(|(a, b)| connector_differences(a, b, sees)).collect()
}

fn connector_differences(a: &Connector, b: &Connector, sees: Sees) -> Vec<String> {
    let place = |hop: &HopView| (hop.hop, hop.cluster.clone(), hop.kind, hop.object.clone());
    let [of_a, of_b] = [a, b].map(|of| of.hops.iter().map(place).collect::<Vec<_>>());
    if of_a != of_b {
        return vec![format!("hops {of_a:?} and {of_b:?}")];
    }
    let pairs = a.hops.iter().zip(&b.hops).filter(|(a, _)| !is_known_to_a_run_alone(a.cause));
    let differing = pairs.filter(|(a, b)| {
        // The machine keeps a digest of an annotation; a look reads the annotation.
        let is_read = a.hop == Hop::Mirrored && a.says.is_none();
        let says_the_same = (is_read || a.says == b.says) && a.expected == b.expected;
        !says_the_same || !are_alike(a, b, sees)
    });
    differing.map(|(a, b)| format!("instance {a:#?}\nclusters {b:#?}")).collect()
}

/// Whether two are in the same state for the same cause, as far as a look can tell.
fn are_alike(a: &HopView, b: &HopView, sees: Sees) -> bool {
    match sees {
        Sees::Neither => true,
        Sees::Writes if is_of_writes(a.cause) => a.state == b.state,
        // How a write ended, and that it was overwritten, a look does not see.
        Sees::Changes if is_of_writes(a.cause) => true,
        Sees::Writes | Sees::Changes => (a.state, a.cause) == (b.state, b.cause),
    }
}

/// Seconds at which a look says more, or less, than an instance that has just started to write.
const EXCEPTIONS: [(&str, u64); 2] = [
    // It touches once more what a look takes for announced.
    ("written-after-the-announcement-is-not-trusted", 0),
    // It counts what is late from when it leads; a look from when it began.
    ("first-lease-is-waited-for-without-a-stall", 16),
];

#[test]
fn instance_log_and_clusters_agree_at_each_second_of_each_fixture() {
    let mut found = Vec::new();
    for name in names("jsonl") {
        found.extend(compare(&name, &replayed(&name, |_| {}).1));
    }
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

fn compare(name: &str, log: &str) -> Vec<String> {
    let reader = LogReader::new(name, log.as_bytes()).unwrap();
    let header = reader.header().clone();
    let event = |entry| if let LogEntry::Event(event) = entry { Some(event) } else { None };
    let events: Vec<_> = reader.filter_map(|entry| event(entry.unwrap())).collect();
    let has_writers = log.contains("managedFields");
    let (first, last) = (events[0].at, events.last().unwrap().at);
    let mut instance = Observer::new(&header, first, false);
    let mut clusters = Observer::new(&header, first, true);
    let mut present = Present::default();
    let seconds = last.since(first) / 1_000;
    // At three moments the log is read, and a look begins.
    let log_every = (seconds / 3).max(1);

    let mut found = Vec::new();
    let mut events = events.iter().peekable();
    for second in 0..=seconds {
        let at = first.plus(second * 1_000);
        while let Some(event) = events.next_if(|event| event.at <= at) {
            instance.observe(event);
            clusters.observe(event);
            present.observe(&event.kind);
        }
        if EXCEPTIONS.contains(&(name, second)) {
            continue;
        }

        let by_instance = instance.fleet(&header, at, None);
        let by_clusters = clusters.fleet(&header, at, Some(&by_instance.leader));
        let mut lines = differences(&by_instance, &by_clusters, Sees::Changes);
        if second % log_every == 0 && second < seconds {
            let by_look = present.look(&header, at, &by_instance.leader);
            let sees = if has_writers { Sees::Writes } else { Sees::Neither };
            lines.extend(differences(&by_instance, &by_look, sees));
            let mut reader = LogReader::new(name, log.as_bytes()).unwrap();
            let (by_log, _) = log::fleet(&mut reader, LogMoment::Time(at), true).unwrap();
            lines.extend(log_differences(&by_instance, by_log));
        }
        found.extend(lines.into_iter().map(|line| format!("{name} +{second} s: {line}")));
    }
    found
}

/// A log has the annotations, of which the machine keeps digests, and their writers. All else is equal.
fn log_differences(instance: &Fleet, mut log: Fleet) -> Vec<String> {
    let mut found = Vec::new();
    let connectors = instance.connectors.iter().zip(&mut log.connectors);
    for (a, b) in connectors.flat_map(|(a, b)| a.hops.iter().zip(&mut b.hops)) {
        b.writer = None;
        if a.hop == Hop::Mirrored && a.says.is_none() {
            b.says = None;
        }
        if a != b {
            found.push(format!("instance {a:#?}\nlog {b:#?}"));
        }
    }
    log.source = instance.source;
    if found.is_empty() && *instance != log {
        found.push(format!("instance {instance:#?}\nlog {log:#?}"));
    }
    found
}
