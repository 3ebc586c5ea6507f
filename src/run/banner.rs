//! The first log line of a run: the program, its clusters, and what it may do.

use tracing::info;

use crate::build_info;
use crate::config::{Config, DiscoveryConfig, role_name};
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::Role;
use crate::report::count;

/// The most clusters that are named; a larger fleet is shown as a number.
const CLUSTERS_NAMED_MAX: usize = 10;

/// Logs the banner. It contains no address and no path of a credential.
pub(super) fn log(config: &Config, orphans: OrphanMode) {
    let event_log = config.event_log.file.as_ref().map(|file| file.display().to_string());
    info!(
        version = build_info::VERSION,
        commit = build_info::COMMIT,
        clusters = clusters(config),
        leads = leads(config),
        orphans = orphans_text(orphans),
        event_log = event_log.as_deref().unwrap_or("none"),
        dry_run = config.dry_run,
        "throughline starts"
    );
}

/// What is done with orphaned routes.
pub(super) fn orphans_text(mode: OrphanMode) -> &'static str {
    match mode {
        OrphanMode::Off => "off",
        OrphanMode::Report => "report only",
        OrphanMode::Delete => "delete",
    }
}

/// `up (upstream), hub (downstream, edge)`, or how many have each role.
fn clusters(config: &Config) -> String {
    let all = &config.clusters;
    let mut parts: Vec<_> = match all.len() <= CLUSTERS_NAMED_MAX {
        true => all.iter().map(|c| format!("{} ({})", c.name, roles(&c.roles))).collect(),
        false => {
            let with = |role: &Role| all.iter().filter(|c| c.roles.contains(role)).count();
            let roles = Role::ALL.into_iter().map(|role| (role_name(role), with(&role)));
            let roles: Vec<_> =
                roles.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
            vec![format!("{}: {}", count(all.len(), "cluster"), roles.join(", "))]
        }
    };
    if config.discovery != DiscoveryConfig::default() {
        parts.push("those that are discovered".to_owned());
    }
    parts.join(", ")
}

fn roles(roles: &[Role]) -> String {
    let names: Vec<_> = roles.iter().map(|role| role_name(*role)).collect();
    names.join(", ")
}

/// Whether the instance may mirror, nudge and delete.
fn leads(config: &Config) -> &'static str {
    match config.election_cluster() {
        _ if config.dry_run => "writes nothing",
        None => "always, without an election",
        Some(_) => "not yet, takes part in the election",
    }
}
