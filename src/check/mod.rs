//! Checks whether a live run can work with a configuration: what would fail, the evidence, and what to
//! do about it.
//!
//! The checks read objects and ask about their own permissions. They write nothing: the Lease is tried
//! with requests that API servers validate and do not carry out (`dryRun=All`).
//!
//! ```text
//!  each cluster: reachable? kinds? permissions? ──┬─► election: the Lease
//!   (in parallel)                                 ├─► upstreams: the namespaces of the hub Connectors
//!                                                 ├─► each edge: Envoy Gateway
//!                                                 └─► hub and edges: carrier, other writers
//! ```

mod carrier;
mod cluster;
mod edge;
mod election;
mod finding;
mod identity;
pub mod permissions;
mod probe_client;
mod rights;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::client::ClusterClient;
use crate::config::{Config, ConfigProblem, role_name};
use crate::core::data::ids::Role;
use crate::metrics::Metrics;
use cluster::CheckedCluster;
use finding::{FindingGroup, join_with_and};
use probe_client::ProbeClient;

pub use finding::{CheckReport, Finding, Level};

const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Runs all checks once. `warnings` are those of loading the configuration. A cluster that does not
/// answer does not keep the others from being checked.
pub async fn check(config: &Config, warnings: &[ConfigProblem]) -> CheckReport {
    let needed = permissions::required_permissions(config);
    let metrics = Arc::new(Metrics::new());
    let timeout = Duration::from_millis(config.watch.timeout_ms).min(REQUEST_TIMEOUT_MAX);
    let clusters = config.clusters.iter().map(|cluster| {
        let client = ClusterClient::new(cluster.clone(), metrics.clone());
        let client = ProbeClient { cluster: Arc::new(client), timeout };
        cluster::check(client, config, &needed)
    });
    let clusters = join_all(clusters).await;
    let edges = clusters.iter().filter(|cluster: &&CheckedCluster| cluster.has(Role::Edge));
    let (election, identity, edges, carrier, writers) = tokio::join!(
        election::check(config, &clusters),
        identity::check(&clusters),
        join_all(edges.map(|cluster| edge::check(config, cluster))),
        carrier::check(&clusters),
        writers::check(config, &clusters),
    );
    let mut findings = configuration(config, warnings).into_findings();
    findings.extend(clusters.into_iter().flat_map(|cluster| cluster.group.into_findings()));
    let groups = [election, identity].into_iter().chain(edges).chain([carrier, writers]);
    findings.extend(groups.flat_map(FindingGroup::into_findings));
    CheckReport { findings }
}

fn configuration(config: &Config, warnings: &[ConfigProblem]) -> FindingGroup {
    let mut group = FindingGroup::new("configuration");
    let clusters = crate::report::count(config.clusters.len(), "cluster");
    let dry = if config.dry_run { ", nothing is written (dryRun)" } else { "" };
    group.passed("configuration", format!("is valid: {clusters}{dry}"));
    for ConfigProblem { origin, key, message } in warnings {
        let what = if key.is_empty() { "has an unusual setting".to_owned() } else { key.clone() };
        group.warned(
            "configuration",
            what,
            message,
            format!("check {origin}; keep the setting if you mean it"),
        );
    }
    group
}

/// `hub (hub and edge)`.
fn name_and_roles(name: &str, roles: &[Role]) -> String {
    let roles: Vec<_> = roles.iter().map(|role| role_name(*role)).collect();
    format!("{name} ({})", join_with_and(&roles))
}
