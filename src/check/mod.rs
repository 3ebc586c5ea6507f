//! Checks whether a live run can work with a configuration: what would fail, the evidence, and the
//! remedy.
//!
//! The checks read objects and review their permissions. They write nothing: requests for the Lease are
//! dry runs (`dryRun=All`), which API servers validate and do not carry out. The message of a failed
//! check is the sentence of a [`Cause`](crate::core::contract::cause::Cause). One mistake is one
//! finding: its consequences are not reported beside it, and a check without the objects it needs is
//! skipped.
//!
//! ```text
//!  configuration, event log, sources ─► each cluster: reachable, kinds, permissions (in parallel)
//!                                         ├─► the Lease ├─► hub and upstreams ├─► each edge ├─► carrier
//! ```

mod carrier;
mod client;
mod cluster;
mod connectors;
mod discovery;
mod edge;
mod finding;
mod lease;
mod local;
pub mod permissions;
mod rights;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;

use crate::config::{ClusterConfig, Config};
use crate::core::data::ids::{ClusterName, Role};
use crate::discovery::offers;
use crate::fleet::Fleet;
use crate::kubectl;
use crate::metrics::Metrics;
use crate::nearest::require_known;
use client::Cluster;
use finding::Draft;

pub use finding::{Check, CheckReport, Finding, Level};

/// The most discovered clusters to check in parallel.
const FOUND_IN_FLIGHT_MAX: usize = 8;

/// The longest time for the sources to list their clusters.
const OFFERS_WITHIN: Duration = Duration::from_secs(30);

/// Runs all checks once. Checks only the upstreams in `only`, or all if it is empty. A cluster that
/// does not answer does not affect the checks of others.
///
/// # Errors
/// `only` names a cluster that is neither configured nor discovered.
pub async fn check(config: &Config, only: &[ClusterName]) -> anyhow::Result<CheckReport> {
    let whole = config;
    let config = &whole.narrowed(only)?;
    let metrics = Arc::new(Metrics::new());
    let mut fleet = Fleet::new(config, &metrics);
    let connected = |cluster: &ClusterConfig| {
        Some(Cluster::new(fleet.table().get(&cluster.name)?, kubeconfig_of(cluster)))
    };
    let clusters: Vec<_> = config.clusters.iter().filter_map(connected).collect();
    let connections = fleet.connections();
    let (checked, projects, offers) = tokio::join!(
        join_all(clusters.into_iter().map(|cluster| alone(cluster, config))),
        discovery::projects(config, connections, &metrics),
        offers::list(config, fleet.table(), connections, &metrics, OFFERS_WITHIN),
    );
    let knows_all = offers.sources.values().all(|source| matches!(source, Some(Ok(_))));
    if knows_all {
        require_known(only, whole.upstreams().chain(offers.found.keys()))?;
    }
    let mut drafts = vec![local::configuration(whole), local::event_log(config)];
    drafts.extend(projects);
    let (mut clusters, findings): (Vec<_>, Vec<_>) = checked.into_iter().unzip();
    drafts.extend(findings.into_iter().flatten());

    if offers.sources.is_empty() {
        drafts.push(Draft::passed(Check::Discovery, None, "no source of clusters is configured"));
    } else {
        let named = discovery::needed(config, &clusters).await;
        let (found, chosen) = discovery::report(&offers, named.as_ref(), only);
        drafts.extend(found);
        let joined = discovery::connect(&chosen, &offers, &mut fleet);
        let checks = joined.into_iter().map(|cluster| alone(cluster, config));
        let checked = futures::stream::iter(checks).buffered(FOUND_IN_FLIGHT_MAX);
        for (cluster, findings) in checked.collect::<Vec<_>>().await {
            clusters.push(cluster);
            drafts.extend(findings);
        }
    }

    let followed: Vec<_> = whole.upstreams().chain(offers.found.keys()).cloned().collect();
    let edges = clusters.iter().filter(|cluster| cluster.has(Role::Edge));
    let (lease, connectors, edges, carrier) = tokio::join!(
        lease::check(config, &clusters),
        connectors::check(whole, &clusters, knows_all.then_some(&followed)),
        join_all(edges.map(|edge| edge::check(config, edge))),
        carrier::check(config, &clusters),
    );
    drafts.extend([lease, connectors, carrier].into_iter().chain(edges).flatten());
    drafts.sort_by_key(|draft| draft.check);
    let contexts = kubectl::own_contexts(config);
    let kubectl = |cluster: &ClusterName| contexts.get(cluster).cloned();
    let findings = drafts.into_iter().map(|draft| draft.finding(&kubectl)).collect();
    Ok(CheckReport { findings })
}

/// The checks of one cluster by itself.
async fn alone(mut cluster: Cluster, config: &Config) -> (Cluster, Vec<Draft>) {
    let mut drafts = vec![cluster::reachable(&mut cluster).await];
    let kinds = config.settings().kinds_watched(cluster.client.roles());
    drafts.extend(cluster::kinds(&cluster, &kinds).await);
    drafts.extend(rights::check(&mut cluster, config).await);
    (cluster, drafts)
}

/// The kubeconfig of a cluster, for people.
fn kubeconfig_of(cluster: &ClusterConfig) -> String {
    if cluster.in_cluster {
        return "the pod's ServiceAccount".to_owned();
    }
    let file = match &cluster.kubeconfig {
        Some(file) => file.display().to_string(),
        None => "kubectl's kubeconfig".to_owned(),
    };
    match &cluster.context {
        Some(context) => format!("{file} (context {context})"),
        None => file,
    }
}
