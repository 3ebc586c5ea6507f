//! What-if: applies the machine's actions in memory, in addition to the recorded changes.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;

use super::overlay::Overlay;
use super::{ReplayBuilder, ReplayOptions, not_converged};
use crate::core::contract::action::Action;
use crate::core::contract::cause::State;
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::data::ids::{ActionId, ClusterName, Kind, Role};
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::core::view::fleet::Source;
use crate::event_log::{LogEntry, LogError, LogWriter};
use throughline_sim::SimClusters;

/// Actions in flight, by the time of their write.
type Writes = BTreeMap<(UnixMillis, ActionId), Action>;

/// Replays in what-if mode; `is_foreign` means that another tool wrote the log. Lines come from `next`;
/// every event and action goes to `log`.
pub(super) fn run<W: Write>(
    builder: &mut ReplayBuilder,
    options: &ReplayOptions,
    is_foreign: bool,
    mut next: impl FnMut() -> Result<Option<LogEntry>, LogError>,
    mut log: Option<LogWriter<W>>,
) -> anyhow::Result<()> {
    let mut overlay = Overlay::new(&builder.replay.clusters);
    let mut clusters = SimClusters::new(&builder.replay.clusters, options.carrier_delay_ms);
    if let Some(rate) = options.carrier_rate {
        clusters.limit_carrier(rate);
        builder.replay.carrier_rate = Some(rate);
    }
    let mut machine = Machine::new(builder.replay.settings.clone()).with_node_ids(builder.node_ids);
    let mut bookmarks = Bookmarks::new(&builder.replay.clusters);
    let mut writes = Writes::new();
    let mut now = UnixMillis(0);
    let mut line = next_event(&mut next)?;
    if let Some(first) = &line {
        now = first.at;
        builder.begin(now);
        for cluster in &builder.replay.clusters {
            machine.handle_event(&Event { at: now, kind: cluster.added() });
        }
        let acquired = Event { at: now, kind: EventKind::LeadershipAcquired };
        feed(&mut machine, builder, &mut log, acquired, &mut writes, options)?;
    }
    let mut end = UnixMillis(u64::MAX);
    loop {
        let recorded_at = line.as_ref().map(|l| l.at);
        let write_at = writes.keys().next().map(|(at, _)| *at);
        let carrier_at = clusters.next_due();
        let deadline = machine.poll_deadline();
        let Some(at) = [recorded_at, write_at, carrier_at, deadline].into_iter().flatten().min()
        else {
            break;
        };
        if at > end {
            break;
        }
        // A log written by throughline contains the bookmarks of its time.
        if (is_foreign || line.is_none())
            && let Some(bookmark) = bookmarks.next_before(at, now, &machine)
        {
            now = now.max(bookmark.at);
            feed(&mut machine, builder, &mut log, bookmark, &mut writes, options)?;
            continue;
        }
        now = now.max(at);
        if recorded_at == Some(at) {
            let Some(event) = line.take() else { break };
            builder.count_recorded(&event);
            bookmarks.observe(&event);
            if let Some(event) = overlay.apply(&mut clusters, event) {
                feed(&mut machine, builder, &mut log, event, &mut writes, options)?;
            }
            line = next_event(&mut next)?;
            if line.is_none() {
                builder.replay.last_at = now;
                end = now.plus(options.run_on_ms);
            }
        } else if write_at == Some(at) {
            clusters.advance(now);
            let Some(((_, id), action)) = writes.pop_first() else { break };
            let outcome = clusters.carry_out(&action);
            feed_watches(&mut clusters, &mut machine, builder, &mut log, &mut writes, options)?;
            let event = Event { at: now, kind: EventKind::ActionFinished { id, outcome } };
            feed(&mut machine, builder, &mut log, event, &mut writes, options)?;
        } else if carrier_at == Some(at) {
            clusters.advance(now);
        } else {
            let event = Event { at: now, kind: EventKind::TimedOut };
            feed(&mut machine, builder, &mut log, event, &mut writes, options)?;
        }
        feed_watches(&mut clusters, &mut machine, builder, &mut log, &mut writes, options)?;
    }
    if let Some(log) = &mut log {
        log.flush()?;
    }
    builder.replay.ended_at = now;
    let fleet = machine.fleet(Source::Log, &|_| None);
    builder.replay.held = fleet.count(State::Held);
    builder.add_problems(not_converged(&fleet));
    Ok(())
}

fn next_event(
    next: &mut impl FnMut() -> Result<Option<LogEntry>, LogError>,
) -> Result<Option<Event>, LogError> {
    loop {
        match next()? {
            Some(LogEntry::Event(event)) => return Ok(Some(event)),
            Some(LogEntry::Action(_) | LogEntry::Retired) => {}
            None => return Ok(None),
        }
    }
}

/// Feeds the watches' events to the machine.
fn feed_watches<W: Write>(
    clusters: &mut SimClusters,
    machine: &mut Machine,
    builder: &mut ReplayBuilder,
    log: &mut Option<LogWriter<W>>,
    writes: &mut Writes,
    options: &ReplayOptions,
) -> anyhow::Result<()> {
    while let Some(event) = clusters.poll_event() {
        feed(machine, builder, log, event, writes, options)?;
    }
    Ok(())
}

fn feed<W: Write>(
    machine: &mut Machine,
    builder: &mut ReplayBuilder,
    log: &mut Option<LogWriter<W>>,
    event: Event,
    writes: &mut Writes,
    options: &ReplayOptions,
) -> anyhow::Result<()> {
    if let Some(log) = log {
        log.event(&event)?;
    }
    machine.handle_event(&event);
    while let Some(decision) = machine.poll_action() {
        if let Some(log) = log {
            log.action(&decision)?;
        }
        let at = decision.at.plus(options.write_ms);
        writes.insert((at, decision.action.id), decision.action.clone());
        builder.add_decision(decision);
    }
    while let Some(note) = machine.poll_note() {
        builder.replay.notes.push(note);
    }
    while let Some(change) = machine.poll_membership() {
        builder.replay.memberships.push((event.at, change));
    }
    builder.take(event);
    Ok(())
}

const BOOKMARK_INTERVAL_MS: u64 = 60_000;

/// Generates bookmarks for a log without them: other tools record none, and there is no log after the
/// last line. They arrive as from API servers, while a watch is live.
struct Bookmarks {
    upstreams: HashSet<ClusterName>,
    /// When each upstream's Gateway watch was last active; live watches only.
    last_activity_at: BTreeMap<ClusterName, UnixMillis>,
}

impl Bookmarks {
    fn new(clusters: &[ClusterSpec]) -> Self {
        let upstreams = clusters.iter().filter(|c| c.roles.contains(&Role::Upstream));
        let upstreams = upstreams.map(|c| c.name.clone()).collect();
        Self { upstreams, last_activity_at: BTreeMap::new() }
    }

    fn observe(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ListFinished { cluster, kind: Kind::Gateway }
            | EventKind::WatchResumed { cluster, kind: Kind::Gateway }
            | EventKind::Bookmark { cluster, kind: Kind::Gateway }
                if self.upstreams.contains(cluster) =>
            {
                self.last_activity_at.insert(cluster.clone(), event.at);
            }
            EventKind::ClusterAdded { cluster, roles } => {
                self.last_activity_at.remove(cluster);
                match roles.contains(&Role::Upstream) {
                    true => self.upstreams.insert(cluster.clone()),
                    false => self.upstreams.remove(cluster),
                };
            }
            EventKind::ListStarted { cluster, kind: Kind::Gateway }
            | EventKind::WatchLost { cluster, kind: Kind::Gateway, .. }
            | EventKind::ClusterRemoved { cluster } => {
                self.last_activity_at.remove(cluster);
            }
            _ => {}
        }
    }

    /// The next bookmark, if it is due before `at` and a route waits for it.
    fn next_before(&mut self, at: UnixMillis, now: UnixMillis, machine: &Machine) -> Option<Event> {
        let due = self.last_activity_at.iter();
        let due = due.map(|(cluster, at)| (at.plus(BOOKMARK_INTERVAL_MS), cluster));
        let (due, cluster) = due.min().filter(|(due, _)| *due < at)?;
        if machine.candidates().is_empty() {
            return None;
        }
        let at = due.max(now);
        let cluster = cluster.clone();
        self.last_activity_at.insert(cluster.clone(), at);
        Some(Event { at, kind: EventKind::Bookmark { cluster, kind: Kind::Gateway } })
    }
}
