//! What-if: applies the machine's actions in memory, in addition to the recorded changes.

use std::collections::BTreeMap;
use std::io;

use super::overlay::Overlay;
use super::{ReplayOptions, Rerun, not_converged};
use crate::core::contract::action::Action;
use crate::core::contract::cause::State;
use crate::core::contract::event::{Event, EventKind};
use crate::core::data::ids::{ActionId, ClusterName, Kind, Role};
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::core::view::fleet::Source;
use crate::event_log::{LogEntry, LogError};
use throughline_sim::SimClusters;

/// The delay from a decision to its write.
const WRITE_MS: u64 = 10;

/// The machine, and the clusters to which its actions are applied.
struct WhatIf<'a, 'log> {
    rerun: &'a mut Rerun<'log>,
    clusters: SimClusters,
    /// Actions in flight, by the time of their write.
    writes: BTreeMap<(UnixMillis, ActionId), Action>,
}

impl WhatIf<'_, '_> {
    fn feed(&mut self, event: Event) -> io::Result<()> {
        let decided = self.rerun.feed(event)?;
        for record in self.rerun.replay.actions.iter().rev().take(decided) {
            let action = &record.decision.action;
            let at = record.decision.at.plus(WRITE_MS);
            self.writes.insert((at, action.id), action.clone());
        }
        Ok(())
    }

    /// Feeds the events of the clusters' watches to the machine.
    fn feed_watches(&mut self) -> io::Result<()> {
        while let Some(event) = self.clusters.poll_event() {
            self.feed(event)?;
        }
        Ok(())
    }
}

/// Replays in what-if mode; `is_foreign` means that another tool wrote the log.
pub(super) fn run(
    rerun: &mut Rerun<'_>,
    options: &ReplayOptions,
    is_foreign: bool,
    lines: impl Iterator<Item = Result<LogEntry, LogError>>,
) -> anyhow::Result<()> {
    let mut events = lines.filter_map(|line| match line {
        Ok(LogEntry::Event(event)) => Some(Ok(event)),
        Ok(LogEntry::Action(_) | LogEntry::Retired) => None,
        Err(error) => Some(Err(error)),
    });
    let mut overlay = Overlay::default();
    let mut bookmarks = Bookmarks::default();
    let mut clusters = SimClusters::new(&rerun.replay.clusters, options.carrier_delay_ms);
    if let Some(rate) = options.carrier_rate {
        clusters.limit_carrier(rate);
        rerun.replay.carrier_rate = Some(rate);
    }
    let mut what_if = WhatIf { rerun, clusters, writes: BTreeMap::new() };
    let mut now = UnixMillis(0);
    let mut recorded = events.next().transpose()?;
    if let Some(first) = &recorded {
        now = first.at;
        what_if.rerun.begin(now);
        what_if.feed(Event { at: now, kind: EventKind::LeadershipAcquired })?;
    }
    let mut end = UnixMillis(u64::MAX);
    loop {
        let recorded_at = recorded.as_ref().map(|event| event.at);
        let write_at = what_if.writes.keys().next().map(|(at, _)| *at);
        let carrier_at = what_if.clusters.next_due();
        let deadline = what_if.rerun.machine.poll_deadline();
        let Some(at) = [recorded_at, write_at, carrier_at, deadline].into_iter().flatten().min()
        else {
            break;
        };
        if at > end {
            break;
        }
        // A log written by throughline contains the bookmarks of its time.
        if (is_foreign || recorded.is_none())
            && let Some(bookmark) = bookmarks.next_before(at, now, &what_if.rerun.machine)
        {
            now = now.max(bookmark.at);
            what_if.feed(bookmark)?;
            continue;
        }
        now = now.max(at);
        if recorded_at == Some(at) {
            let Some(event) = recorded.take() else { break };
            what_if.rerun.count_recorded(&event);
            bookmarks.observe(&event, &what_if.clusters);
            if let Some(event) = overlay.apply(&mut what_if.clusters, event) {
                what_if.feed(event)?;
            }
            recorded = events.next().transpose()?;
            if recorded.is_none() {
                what_if.rerun.replay.last_at = now;
                end = now.plus(options.run_on_ms);
            }
        } else if write_at == Some(at) {
            what_if.clusters.advance(now);
            let Some(((_, id), action)) = what_if.writes.pop_first() else { break };
            let outcome = what_if.clusters.carry_out(&action);
            what_if.feed_watches()?;
            what_if.feed(Event { at: now, kind: EventKind::ActionFinished { id, outcome } })?;
        } else if carrier_at == Some(at) {
            what_if.clusters.advance(now);
        } else {
            what_if.feed(Event { at: now, kind: EventKind::TimedOut })?;
        }
        what_if.feed_watches()?;
    }
    rerun.flush()?;
    rerun.replay.ended_at = now;
    let fleet = rerun.machine.fleet(Source::Log, &|_| None);
    rerun.replay.held = fleet.count(State::Held);
    rerun.replay.problems = not_converged(&fleet);
    Ok(())
}

const BOOKMARK_INTERVAL_MS: u64 = 60_000;

/// Generates bookmarks for a log without them: other tools record none, and there is no log after the
/// last line. They arrive as from API servers, while a watch is live.
#[derive(Default)]
struct Bookmarks {
    /// When each upstream's Gateway watch was last active; live watches only.
    last_activity_at: BTreeMap<ClusterName, UnixMillis>,
}

impl Bookmarks {
    fn observe(&mut self, event: &Event, clusters: &SimClusters) {
        match &event.kind {
            EventKind::ListFinished { cluster, kind: Kind::Gateway }
            | EventKind::WatchResumed { cluster, kind: Kind::Gateway }
            | EventKind::Bookmark { cluster, kind: Kind::Gateway }
                if clusters.has_role(cluster, Role::Upstream) =>
            {
                self.last_activity_at.insert(cluster.clone(), event.at);
            }
            EventKind::ListStarted { cluster, kind: Kind::Gateway }
            | EventKind::WatchLost { cluster, kind: Kind::Gateway, .. }
            | EventKind::ClusterAdded { cluster, .. }
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
