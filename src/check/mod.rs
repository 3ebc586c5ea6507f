//! Whether a live run can work with a configuration: what hinders it, what came back, what to do.
//!
//! It reads, asks about its own rights, and writes nothing: where the Lease is tried, by requests that
//! API servers check and don't carry out (`dryRun=All`).
//!
//! ```text
//!  each cluster: answers? kinds? rights? ──┬─► election: the Lease
//!   (side by side)                         ├─► each edge: Envoy Gateway
//!                                          └─► hub and edges: carrier, other writers
//! ```

mod ask;
mod carrier;
mod cluster;
mod edge;
mod election;
mod finding;
pub mod need;
mod rights;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::client::Cluster;
use crate::config::{Config, Problem};
use crate::core::ids::Role;
use crate::metrics::Metrics;
use ask::Asked;
use cluster::Look;
use finding::{Group, and};

pub use finding::{Finding, Level, Report};

/// An answer that takes longer counts as none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at everything once. `warnings` are those of loading the configuration. A cluster that does
/// not answer costs its own findings only.
pub async fn check(config: &Config, warnings: &[Problem]) -> Report {
    let (needs, metrics) = (need::needs(config), Arc::new(Metrics::new()));
    let timeout = Duration::from_millis(config.watch.timeout_ms).min(PATIENCE);
    let looks = config.clusters.iter().map(|cluster| {
        let asked = Cluster::new(cluster.clone(), metrics.clone());
        let asked = Asked { cluster: Arc::new(asked), timeout };
        cluster::look(asked, config, &needs)
    });
    let looks = join_all(looks).await;
    let with = |role| looks.iter().filter(move |l: &&Look| l.has(role));
    let (election, edges, carrier, writers) = tokio::join!(
        election::look(config, &looks),
        join_all(with(Role::Edge).map(|look| edge::look(config, look))),
        carrier::look(&looks),
        writers::look(config, &looks),
    );
    let mut findings = configuration(config, warnings).findings();
    findings.extend(looks.into_iter().flat_map(|look| look.group.findings()));
    let groups = std::iter::once(election).chain(edges).chain([carrier, writers]);
    findings.extend(groups.flat_map(Group::findings));
    Report { findings }
}

/// What can be told without asking anybody.
fn configuration(config: &Config, warnings: &[Problem]) -> Group {
    let mut group = Group::new("configuration");
    let clusters = crate::report::count(config.clusters.len(), "cluster");
    let dry = if config.dry_run { ", and writes nothing (dryRun)" } else { "" };
    group.passed("configuration", format!("can be used: {clusters}{dry}"));
    for Problem { origin, key, message } in warnings {
        let what = if key.is_empty() { "it looks odd".to_owned() } else { key.clone() };
        group.warned(
            "configuration",
            what,
            message,
            format!("look at {origin}; leave it where it is meant"),
        );
    }
    group
}

/// A cluster's name and roles, as groups are headed.
fn title(name: &str, roles: &[Role]) -> String {
    let roles: Vec<_> = roles
        .iter()
        .map(|role| match role {
            Role::Upstream => "upstream",
            Role::Downstream => "downstream",
            Role::Edge => "edge",
        })
        .collect();
    format!("{name} ({})", and(&roles))
}
