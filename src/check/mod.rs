//! Checks whether a live run can work with a configuration: what would fail, the evidence, and what to
//! do about it.
//!
//! The checks read objects and ask about their own permissions. They write nothing: the Lease is tried
//! with requests that API servers validate and do not carry out (`dryRun=All`).
//!
//! ```text
//!  each cluster: reachable? kinds? permissions? ─► roles: ──┬─► election: the Lease
//!   (in parallel)                                  swapped? ├─► upstreams: the namespaces of the hub Connectors
//!                                                           ├─► each edge: Envoy Gateway
//!                                                           └─► hub and edges: carrier, other writers
//! ```
//!
//! One mistake is one finding: what follows from a finding is not reported beside it.

mod carrier;
mod clock;
mod cluster;
mod commands;
mod discovery;
mod edge;
mod election;
mod envoy_gateway;
mod finding;
mod identity;
mod karmada;
mod kinds;
mod leases;
pub mod permissions;
mod probe_client;
mod project;
mod rights;
mod roles;
mod shards;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::client::{ClusterClient, ConnectionSpec, Connections};
use crate::config::{ClusterConfig, Config, ConfigProblem, role_name};
use crate::core::data::ids::{ClusterName, Role};
use crate::discovery::look;
use crate::fleet::ClusterTable;
use crate::metrics::Metrics;
use crate::report::count;
use cluster::CheckedCluster;
use commands::Commands;
use finding::{FindingGroup, join_first, join_with_and};
use probe_client::ProbeClient;

pub use finding::{CheckReport, Finding, Level};

const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// How many of the clusters that were found are checked at the same time.
const FOUND_IN_FLIGHT_MAX: usize = 8;

/// What a check takes beside the configuration.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// The warnings of loading the configuration.
    pub warnings: &'a [ConfigProblem],
    /// Of the upstreams, only these; all if empty.
    pub upstreams: &'a [ClusterName],
    /// The command line of this check, for remedies that repeat it with another setting.
    pub command: &'a str,
    /// Receives what is being done.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

impl std::fmt::Debug for CheckOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckOptions").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

/// Runs all checks once. A cluster that does not answer does not keep the others from being checked.
pub async fn check(config: &Config, options: &CheckOptions<'_>) -> CheckReport {
    let commands = &Commands::new(options.command, config);
    let upstreams =
        config.clusters.iter().filter(|cluster| cluster.roles.contains(&Role::Upstream));
    let mut followed: Vec<_> = upstreams.map(|cluster| cluster.name.to_string()).collect();
    let config = &look::narrowed(config, options.upstreams);
    let metrics = Arc::new(Metrics::new());
    let timeout = Duration::from_millis(config.watch.timeout_ms).min(REQUEST_TIMEOUT_MAX);
    let connections = Connections::default();
    let client = |cluster: &ClusterConfig| {
        let (name, roles) = (cluster.name.clone(), cluster.roles.clone());
        let spec = ConnectionSpec::from(cluster);
        Arc::new(ClusterClient::shared(name, roles, spec, &connections, metrics.clone()))
    };
    let clients: Vec<_> = config.clusters.iter().map(client).collect();
    let table: ClusterTable = clients.iter().map(|c| (c.name().clone(), c.clone())).collect();
    let needed = permissions::required_permissions(config);
    (options.progress)(&format!("asking {}", count(clients.len(), "cluster")));
    let checks = clients
        .into_iter()
        .map(|cluster| cluster::check(ProbeClient { cluster, timeout }, config, &needed));
    let (mut clusters, projects, look) = tokio::join!(
        join_all(checks),
        project::check(config, &connections, &metrics, timeout),
        look::look(config, &table, &connections, &metrics, discovery::LOOK_MAX),
    );
    let mut sources = FindingGroup::new("discovery");
    let mut config = config.clone();
    if !look.sources.is_empty() || !options.upstreams.is_empty() {
        let needed = discovery::needed(&config, &clusters).await;
        let (needed, only) = (needed.as_ref(), options.upstreams);
        let chosen = discovery::report(&mut sources, &config, &look, needed, only);
        let found = discovery::connect(&chosen, &look, &connections, &metrics);
        config.clusters.extend(found.clusters);
        clusters.extend(
            check_found(&config, found.clients, timeout, &mut sources, options.progress).await,
        );
    }
    let config = &config;
    followed.extend(look.found.keys().map(ToString::to_string));
    let knows_all = look.sources.values().all(|source| matches!(source, Some(Ok(_))));
    let followed = knows_all.then_some(&followed[..]);
    let needed = permissions::required_permissions(config);
    cluster::report(&mut clusters, &needed, commands).await;
    (options.progress)("comparing the tiers");
    let mut findings = configuration(config, table.all().len(), options.warnings).into_findings();
    findings.extend([sources, projects].into_iter().flat_map(FindingGroup::into_findings));
    if let Some(swapped) = roles::check(&clusters, commands).await {
        findings.extend(clusters.into_iter().flat_map(CheckedCluster::without_roles));
        findings.extend(swapped.into_findings());
        return CheckReport { findings };
    }
    let edges = clusters.iter().filter(|cluster: &&CheckedCluster| cluster.has(Role::Edge));
    let (election, identity, edges, carrier, writers) = tokio::join!(
        election::check(config, &clusters, commands),
        identity::check(&clusters, followed, commands),
        join_all(edges.map(|cluster| edge::check(config, cluster, commands))),
        carrier::check(&clusters, commands),
        writers::check(config, &clusters, commands),
    );
    findings.extend(clusters.into_iter().flat_map(|cluster| cluster.group.into_findings()));
    let groups = [election, identity].into_iter().chain(edges).chain([carrier, writers]);
    findings.extend(groups.flat_map(FindingGroup::into_findings));
    CheckReport { findings }
}

/// Checks the clusters that were found, a few at a time and for a limited time.
async fn check_found(
    config: &Config,
    clients: Vec<Arc<ClusterClient>>,
    timeout: Duration,
    sources: &mut FindingGroup,
    progress: &(dyn Fn(&str) + Sync),
) -> Vec<CheckedCluster> {
    let needed = permissions::required_permissions(config);
    let names: Vec<_> = clients.iter().map(|client| client.name().clone()).collect();
    let all = clients.len();
    let checks = clients
        .into_iter()
        .map(|cluster| cluster::check(ProbeClient { cluster, timeout }, config, &needed));
    let mut checks = futures::stream::iter(checks).buffer_unordered(FOUND_IN_FLIGHT_MAX);
    let until = Instant::now() + discovery::FOUND_MAX;
    let mut checked: Vec<CheckedCluster> = Vec::new();
    while let Ok(Some(cluster)) = timeout_at(until, checks.next()).await {
        checked.push(cluster);
        progress(&format!("{} of {all} discovered clusters checked", checked.len()));
    }
    let is_left = |name: &&ClusterName| !checked.iter().any(|c| c.name() == name.as_str());
    let left: Vec<_> = names.iter().filter(is_left).map(ClusterName::as_str).collect();
    if !left.is_empty() {
        let what = format!("{} did not answer in time", count(left.len(), "discovered cluster"));
        let remedy = "check them by themselves, with --upstream and their names";
        sources.failed("time", what, join_first(&left), remedy);
    }
    checked.sort_by(|a, b| a.name().cmp(b.name()));
    checked
}

fn configuration(config: &Config, clusters: usize, warnings: &[ConfigProblem]) -> FindingGroup {
    let mut group = FindingGroup::new("configuration");
    let clusters = count(clusters, "cluster");
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
