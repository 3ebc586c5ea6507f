//! A look from outside shows the same whichever way it is taken. Each fixture is replayed, which gives the
//! log of a run. At each second of it an instance and a look that has watched its clusters from the start are
//! compared, and at some with the log and with a look that begins then.

use std::collections::BTreeMap;

use similar::TextDiff;
use throughline::core::contract::cause::{Cause, Hop};
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
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
    /// How each watch was lost; `None` while it is live.
    watches: BTreeMap<(ClusterName, Kind), Option<EventKind>>,
    /// As they are listed.
    objects: BTreeMap<(ClusterName, Kind, NamespacedName), EventKind>,
}

impl Present {
    fn observe(&mut self, event: &EventKind) {
        match event {
            EventKind::ListStarted { cluster, kind } => {
                self.watches.insert((cluster.clone(), *kind), None);
                self.objects.retain(|of, _| (&of.0, &of.1) != (cluster, kind));
            }
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object } => {
                let key = (cluster.clone(), object.kind(), object.meta.key());
                let (cluster, object) = (cluster.clone(), object.clone());
                self.objects.insert(key, EventKind::Listed { cluster, object });
            }
            EventKind::Deleted { cluster, object } => {
                self.objects.remove(&(cluster.clone(), object.kind(), object.meta.key()));
            }
            EventKind::WatchLost { cluster, kind, .. } => {
                self.watches.insert((cluster.clone(), *kind), Some(event.clone()));
            }
            EventKind::WatchResumed { cluster, kind } => {
                self.watches.insert((cluster.clone(), *kind), None);
            }
            EventKind::ClusterRemoved { cluster } => {
                self.watches.retain(|of, _| of.0 != *cluster);
                self.objects.retain(|of, _| of.0 != *cluster);
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
        let watches = self.watches.iter().flat_map(|((cluster, kind), lost)| {
            let (cluster, kind) = (cluster.clone(), *kind);
            let objects = self.objects.iter().filter(|(of, _)| of.0 == cluster && of.1 == kind);
            let mut events = vec![EventKind::ListStarted { cluster: cluster.clone(), kind }];
            events.extend(objects.map(|(_, listed)| listed.clone()));
            events.push(EventKind::ListFinished { cluster, kind });
            lost.clone().map_or(events, |lost| vec![lost])
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
const KNOWN_TO_A_RUN_ALONE: [Cause; 6] = [
    Cause::ClustersMissing,
    Cause::UpstreamRestored,
    Cause::RemovalsHeld,
    Cause::Deferred,
    Cause::TouchesQueued,
    Cause::AnnotationRemoved,
];

fn is_of_writes(cause: Option<Cause>) -> bool {
    matches!(cause, Some(Cause::WriteRefused | Cause::WriteFailing | Cause::Overwritten))
}

fn hops(fleet: &Fleet) -> impl Iterator<Item = &HopView> {
    fleet.connectors.iter().flat_map(|connector| &connector.hops)
}

/// In what a look at the clusters differs from the instance, with hops that agree as far as it can know.
fn differences(
    instance: &Fleet,
    clusters: &Fleet,
    agree: impl Fn(&HopView, &HopView) -> bool,
) -> Vec<String> {
    let place = |hop: &HopView| (hop.hop, hop.cluster.clone(), hop.kind, hop.object.clone());
    let places = |of: &Connector| {
        (of.upstream.clone(), of.name.clone(), of.hops.iter().map(place).collect::<Vec<_>>())
    };
    let [a, b] = [instance, clusters].map(|fleet| {
        (fleet.connectors.iter().map(places).collect::<Vec<_>>(), fleet.unpaired.clone())
    });
    if a != b {
        return vec![format!("connectors and unpaired {a:?} and {b:?}")];
    }
    let is_shown = |cause: Option<Cause>| cause.is_none_or(|c| !KNOWN_TO_A_RUN_ALONE.contains(&c));
    let pairs = hops(instance).zip(hops(clusters)).filter(|(a, _)| is_shown(a.cause));
    let differing = pairs.filter(|(a, b)| {
        // The machine keeps a digest of an annotation; a look reads the annotation.
        let is_read = a.hop == Hop::Mirrored && a.says.is_none();
        let says_the_same = (is_read || a.says == b.says) && a.expected == b.expected;
        !says_the_same || !agree(a, b)
    });
    differing.map(|(a, b)| format!("instance {a:#?}\nclusters {b:#?}")).collect()
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
    let is_same = |a: &HopView, b: &HopView| (a.state, a.cause) == (b.state, b.cause);
    // How a write ended, and that it was overwritten, a look does not see.
    let by_changes = |a: &HopView, b: &HopView| is_of_writes(a.cause) || is_same(a, b);
    // One that begins knows what is late by the times of the writes, if the objects have `managedFields`.
    let by_writes = |a: &HopView, b: &HopView| {
        !has_writers || is_same(a, b) || is_of_writes(a.cause) && a.state == b.state
    };
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
        let mut lines = differences(&by_instance, &by_clusters, by_changes);
        if second % log_every == 0 && second < seconds {
            let by_look = present.look(&header, at, &by_instance.leader);
            lines.extend(differences(&by_instance, &by_look, by_writes));
            let mut reader = LogReader::new(name, log.as_bytes()).unwrap();
            let (by_log, _) = log::fleet(&mut reader, Some(LogMoment::Time(at)), true).unwrap();
            lines.extend(log_difference(&by_instance, by_log));
        }
        found.extend(lines.into_iter().map(|line| format!("{name} +{second} s: {line}")));
    }
    found
}

/// A log has the annotations, of which the machine keeps digests, and their writers. All else is equal.
fn log_difference(instance: &Fleet, mut log: Fleet) -> Option<String> {
    let of_log = log.connectors.iter_mut().flat_map(|connector| &mut connector.hops);
    for (a, b) in hops(instance).zip(of_log) {
        b.writer = None;
        if a.hop == Hop::Mirrored && a.says.is_none() {
            b.says = None;
        }
    }
    log.source = instance.source;
    (*instance != log).then(|| {
        let [a, b] = [instance, &log].map(|fleet| format!("{fleet:#?}"));
        TextDiff::from_lines(&a, &b).unified_diff().header("instance", "log").to_string()
    })
}
