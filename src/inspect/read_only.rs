//! The machine, watches and discovery of a live run, for a command that writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::FutureExt;
use tokio::sync::mpsc;

use crate::config::{Config, EventLogConfig};
use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::{EventKind, Outcome};
use crate::core::contract::membership::{Membership, SourceName};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::discovery::Discovery;
use crate::engine::Engine;
use crate::executor::FinishedAction;
use crate::fleet::{Fleet, Member, Origin};
use crate::leader::gate::Gate;
use crate::watch::WatchMessage;

/// The watches that have neither finished their first list nor failed, and the sources of clusters
/// likewise. A one-shot command waits for them before it shows anything.
#[derive(Debug)]
pub(crate) struct PendingLists {
    watches: BTreeSet<(ClusterName, Kind)>,
    sources: BTreeSet<SourceName>,
    /// The number of watches, pending or not.
    all: usize,
}

impl PendingLists {
    fn new(fleet: &Fleet, sources: BTreeSet<SourceName>) -> Self {
        let watches = fleet.watched_kinds();
        Self { all: watches.len(), watches, sources }
    }

    /// Removes the watch or the source that the event reports as listed or lost.
    fn observe(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ListFinished { cluster, kind }
            | EventKind::WatchLost { cluster, kind, .. } => {
                self.watches.remove(&(cluster.clone(), *kind));
            }
            EventKind::DiscoveryFinished { source } | EventKind::DiscoveryLost { source, .. } => {
                self.sources.remove(source);
            }
            _ => {}
        }
    }

    /// Adds the watches of a cluster that joined.
    fn joined(&mut self, cluster: &ClusterName, fleet: &Fleet) {
        let before = self.watches.len();
        let watched = fleet.watched_kinds().into_iter().filter(|(name, _)| name == cluster);
        self.watches.extend(watched);
        self.all += self.watches.len() - before;
    }

    /// Removes the watches of a cluster that left.
    fn left(&mut self, cluster: &ClusterName) {
        self.watches.retain(|(name, _)| name != cluster);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.sources.is_empty()
    }

    /// `12 of 40 lists complete`.
    pub(crate) fn progress(&self) -> String {
        format!("{} of {} lists complete", self.all - self.watches.len(), self.all)
    }

    pub(crate) fn watches(&self) -> Vec<(ClusterName, Kind)> {
        self.watches.iter().cloned().collect()
    }

    /// The clusters whose lists are not complete, and the pending sources.
    pub(crate) fn rest(&self) -> (BTreeSet<&ClusterName>, &BTreeSet<SourceName>) {
        (self.watches.iter().map(|(cluster, _)| cluster).collect(), &self.sources)
    }
}

/// An engine without leadership, whose executor is in dry-run mode.
pub(crate) struct ReadOnlyEngine {
    pub(crate) engine: Engine,
    pub(crate) pending_lists: PendingLists,
    /// Sources that can't be read.
    pub(crate) lost_sources: BTreeMap<SourceName, RequestFailure>,
    events: mpsc::Receiver<WatchMessage>,
    discovery: Discovery,
    discovered: mpsc::Receiver<EventKind>,
    /// The upstreams to include; all if empty.
    upstreams: BTreeSet<ClusterName>,
}

impl ReadOnlyEngine {
    /// Starts discovery and the watches of these kinds. With these settings the machine should decide on
    /// nothing; the dry run prevents writes even if that is wrong. `config` is narrowed to `upstreams`; if
    /// there are any, no other upstream joins.
    pub(crate) fn start(
        config: &Config,
        settings: Settings,
        kinds: impl Fn(&[Role]) -> Vec<Kind> + Send + 'static,
        upstreams: &[ClusterName],
    ) -> Self {
        let no_log = EventLogConfig::default();
        let config = Config { dry_run: true, event_log: no_log, ..config.clone() };
        let (gate, _) = Gate::closed();
        let mut engine = Engine::new(&config, settings, gate, None);
        let (bus, events) = mpsc::channel(config.constants.watch.queue);
        engine.fleet.start_watches(kinds, bus);
        let (bus, discovered) = mpsc::channel(config.constants.watch.queue);
        let upstreams: BTreeSet<_> = upstreams.iter().cloned().collect();
        let only = (!upstreams.is_empty()).then_some(&upstreams);
        let table = engine.fleet.table();
        let connections = engine.fleet.connections();
        let discovery = Discovery::start(&config, table, only, connections, bus, &engine.metrics);
        let pending_lists = PendingLists::new(&engine.fleet, discovery.sources().clone());
        let lost_sources = BTreeMap::new();
        Self { engine, pending_lists, lost_sources, events, discovery, discovered, upstreams }
    }

    /// The clusters that are missing: one line for each reason.
    pub(crate) fn not_shown(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (source, error) in &self.lost_sources {
            lines.push(format!(
                "the clusters of {source} are not shown, because it cannot be read: {error}"
            ));
        }
        let table = self.engine.fleet.table();
        let is_absent = |name: &&ClusterName| !table.contains(name);
        for name in self.upstreams.iter().filter(is_absent) {
            lines.push(format!(
                "{name} is not shown: it is not configured, and not among the discovered clusters \
                 that a run joins"
            ));
        }
        lines
    }

    /// Waits for the next event of a watch, a source or a timer, handles what `prepare` makes of it, and
    /// lets clusters join and leave. Cancel-safe.
    pub(crate) async fn handle_next(&mut self, prepare: impl FnOnce(EventKind) -> EventKind) {
        let mut deadline = pin!(self.engine.deadline());
        let kind = loop {
            tokio::select! {
                Some(message) = self.events.recv() => {
                    // Ignore events of a cluster that has left.
                    if self.engine.fleet.is_current(&message) {
                        break message.kind;
                    }
                }
                Some(kind) = self.discovered.recv() => break kind,
                () = &mut deadline => break EventKind::TimedOut,
            }
        };
        self.pending_lists.observe(&kind);
        match &kind {
            EventKind::DiscoveryLost { source, error } => {
                self.lost_sources.insert(*source, error.clone());
            }
            EventKind::DiscoveryFinished { source } | EventKind::DiscoveryResumed { source } => {
                self.lost_sources.remove(source);
            }
            _ => {}
        }
        self.handle_event(prepare(kind));
        self.carry_out_memberships();
    }

    /// Joins and removes clusters as the machine decided, and waits for those that joined.
    fn carry_out_memberships(&mut self) {
        let engine = &mut self.engine;
        while let Some(change) = engine.machine.poll_membership() {
            match change {
                Membership::Join { source, cluster: name, roles } => {
                    if engine.fleet.origin(&name) == Some(Origin::Configured) {
                        continue;
                    }
                    let Some(connection) = self.discovery.connections.get(source, &name) else {
                        engine.handle_event(EventKind::ClusterRemoved { cluster: name });
                        continue;
                    };
                    let origin = Origin::Discovered;
                    engine.join(Member { name: name.clone(), roles, connection, origin });
                    self.pending_lists.joined(&name, &engine.fleet);
                }
                Membership::Leave { cluster, .. } => {
                    if engine.fleet.origin(&cluster) == Some(Origin::Discovered) {
                        self.discovery.connections.left(&cluster);
                        engine.leave(&cluster);
                        self.pending_lists.left(&cluster);
                    }
                }
            }
        }
    }

    /// Handles an event. The machine's decisions are not attempted.
    pub(crate) fn handle_event(&mut self, kind: EventKind) {
        self.engine.handle_event(kind);
        while let Some(finished) = self.engine.executor.next_finished().now_or_never() {
            self.engine.handle_finished(FinishedAction { outcome: Outcome::Dropped, ..finished });
        }
    }

    /// Once every list is complete or has failed: asks the root for upstreams that hub objects name and
    /// no source offers, and reports to the machine which are gone.
    pub(crate) async fn ask_for_unknown(&mut self) {
        if !self.upstreams.is_empty() {
            return;
        }
        let names = self.engine.machine.unknown_upstreams();
        for cluster in self.discovery.find_gone(names).await {
            self.engine.handle_event(EventKind::ClusterGone { source: SourceName::Milo, cluster });
        }
    }
}
