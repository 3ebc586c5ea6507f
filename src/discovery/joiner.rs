//! Discovery for commands that read the clusters without a live run's loop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Discovery, proof};
use crate::config::Config;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::{Membership, SourceName};
use crate::core::data::ids::ClusterName;
use crate::engine::{Engine, PendingLists};
use crate::fleet::{Member, Origin};

/// The most events of the sources that wait.
const QUEUE: usize = 256;

/// The longest time to ask for upstreams that no source offers.
const UNKNOWN_WITHIN: Duration = Duration::from_secs(5);

/// Carries out the machine's decisions to join or leave clusters.
pub(crate) struct Joiner {
    discovery: Discovery,
    events: mpsc::Receiver<EventKind>,
    /// Sources that can't be read.
    lost: BTreeMap<SourceName, RequestFailure>,
    /// Whether only some clusters are included.
    is_narrowed: bool,
}

impl Joiner {
    /// If `only` names clusters, no other joins.
    pub(crate) fn start(config: &Config, engine: &Engine, only: &[ClusterName]) -> Self {
        let (bus, events) = mpsc::channel(QUEUE);
        let only: BTreeSet<_> = only.iter().cloned().collect();
        let only = (!only.is_empty()).then_some(&only);
        let table = engine.fleet.table();
        let connections = engine.fleet.connections();
        let discovery = Discovery::start(config, table, only, connections, bus, &engine.metrics);
        Self { discovery, events, lost: BTreeMap::new(), is_narrowed: only.is_some() }
    }

    pub(crate) fn sources(&self) -> &BTreeSet<SourceName> {
        self.discovery.sources()
    }

    /// Asks the root for upstreams that hub objects name and no source offers, once every list is
    /// complete, and reports to the machine which are gone.
    pub(crate) async fn ask_for_unknown(&self, engine: &mut Engine) {
        let Some(root) = self.discovery.projects().filter(|_| !self.is_narrowed) else { return };
        let names = engine.machine.unknown_upstreams();
        for cluster in proof::gone_among(&root, names, UNKNOWN_WITHIN).await {
            engine.handle_event(EventKind::ClusterGone { source: SourceName::Milo, cluster });
        }
    }

    /// Sources that can't be read, with the error.
    pub(crate) fn lost(&self) -> &BTreeMap<SourceName, RequestFailure> {
        &self.lost
    }

    /// The next event of a source; waits forever without a source. Cancel-safe.
    pub(crate) async fn next(&mut self) -> EventKind {
        let Some(event) = self.events.recv().await else { return std::future::pending().await };
        match &event {
            EventKind::DiscoveryLost { source, error } => {
                self.lost.insert(*source, error.clone());
            }
            EventKind::DiscoveryFinished { source } | EventKind::DiscoveryResumed { source } => {
                self.lost.remove(source);
            }
            _ => {}
        }
        event
    }

    /// Joins and removes clusters as the machine decided. `pending` then waits for those that joined.
    pub(crate) fn carry_out(&self, engine: &mut Engine, pending: &mut PendingLists) {
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
                    pending.joined(&name, &engine.fleet);
                }
                Membership::Leave { cluster, .. } => {
                    if engine.fleet.origin(&cluster) == Some(Origin::Discovered) {
                        self.discovery.connections.left(&cluster);
                        engine.leave(&cluster);
                        pending.left(&cluster);
                    }
                }
            }
        }
    }
}
