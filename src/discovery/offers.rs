//! Reads the sources once, for commands that don't follow them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::Discovery;
use crate::client::{ConnectionSpec, Connections};
use crate::config::Config;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::{JoinRule, OfferState, SourceName};
use crate::core::data::ids::{ClusterName, Role};
use crate::fleet::ClusterTable;
use crate::metrics::Metrics;

/// A cluster that a source offers.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) source: SourceName,
    pub(crate) roles: Vec<Role>,
    pub(crate) state: OfferState,
    pub(crate) connection: Option<ConnectionSpec>,
}

/// The offers of the sources.
#[derive(Debug)]
pub(crate) struct Offers {
    pub(crate) found: BTreeMap<ClusterName, Found>,
    /// By source: the rule by which its clusters join, or why it can't be read; `None` if no answer
    /// came in time.
    pub(crate) sources: BTreeMap<SourceName, Option<Result<JoinRule, RequestFailure>>>,
}

/// Lists the configured sources once, for at most `within`. Secrets are read in one of `clusters`.
pub(crate) async fn list(
    config: &Config,
    clusters: &ClusterTable,
    connections: &Connections,
    metrics: &Arc<Metrics>,
    within: Duration,
) -> Offers {
    let (bus, mut events) = mpsc::channel(config.constants.watch.queue);
    let discovery = Discovery::start(config, clusters, None, connections, bus, metrics);
    let sources = discovery.sources().iter().map(|source| (*source, None)).collect();
    let mut offers = Offers { found: BTreeMap::new(), sources };
    let until = Instant::now() + within;
    let mut rules = BTreeMap::new();
    while offers.sources.values().any(Option::is_none) {
        let Ok(Some(event)) = timeout_at(until, events.recv()).await else { break };
        match event {
            EventKind::DiscoveryStarted { source, join } => drop(rules.insert(source, join)),
            EventKind::ClusterOffered { source, cluster, roles, state, .. } => {
                let connection = discovery.connections.get(source, &cluster);
                // A name of the file, or of an earlier source, takes precedence.
                let is_taken = clusters.contains(&cluster)
                    || offers.found.get(&cluster).is_some_and(|found| found.source < source);
                if !is_taken {
                    offers.found.insert(cluster, Found { source, roles, state, connection });
                }
            }
            EventKind::DiscoveryFinished { source } => {
                let join = rules.get(&source).copied().unwrap_or_default();
                offers.sources.insert(source, Some(Ok(join)));
            }
            EventKind::DiscoveryLost { source, error } => {
                offers.sources.insert(source, Some(Err(error)));
            }
            _ => {}
        }
    }
    offers
}
