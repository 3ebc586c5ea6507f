//! What changes when a newly loaded configuration takes the place of the one in force, and what a
//! changed file alone may not do.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::{ClusterConfig, Config, LOCAL_CLUSTER};
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::{ClusterName, Role};

/// Sections that are the machine's settings.
const SETTINGS: [&str; 5] = ["mirror", "touch", "orphans", "stall", "retry"];

/// Other keys that take effect without a restart.
const OTHERS: [&str; 2] = ["log.level", "shutdown.graceMs"];

/// Log lines name at most so many clusters or keys, and count the rest.
const NAMED_MAX: usize = 20;

/// A newly loaded configuration against the one in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReloadedConfig {
    /// In force from now on: as loaded, except for what waits for a restart.
    pub(super) config: Config,
    /// Clusters that are new, or have other roles than before.
    pub(super) joined: Vec<ClusterConfig>,
    /// Clusters that are gone, or have other roles than before. They leave before others join.
    pub(super) left: Vec<ClusterName>,
    /// Clusters with the same roles that are reached in another way.
    pub(super) replaced: Vec<ClusterConfig>,
    /// Keys that take effect: settings, log level, grace period.
    pub(super) changed: Vec<String>,
    /// What takes effect only after a restart: keys, or clusters by name.
    pub(super) waiting: Vec<String>,
}

impl ReloadedConfig {
    /// Compares. `lease` is the cluster that holds the Lease since the start, if there is one.
    pub(super) fn new(in_force: &Config, lease: Option<&ClusterConfig>, loaded: Config) -> Self {
        let (mut changed, mut waiting): (Vec<_>, Vec<_>) =
            changed_keys(in_force, &loaded).into_iter().partition(|key| {
                let section = key.split('.').next().unwrap_or_default();
                SETTINGS.contains(&section) || OTHERS.contains(&key.as_str())
            });
        let mut config = Config {
            clusters: loaded.clusters,
            mirror: loaded.mirror,
            touch: loaded.touch,
            orphans: loaded.orphans,
            stall: loaded.stall,
            retry: loaded.retry,
            shutdown: loaded.shutdown,
            ..in_force.clone()
        };
        config.log.level = loaded.log.level;
        keep_settings(in_force, &mut config, &mut changed, &mut waiting);
        if let Some(lease) = lease {
            keep_lease(lease, &mut config.clusters, &mut waiting);
        }

        let former = by_name(&in_force.clusters);
        for cluster in &mut config.clusters {
            // Another order is no change.
            if let Some(before) = former.get(&cluster.name).filter(|b| same_roles(b, cluster)) {
                cluster.roles.clone_from(&before.roles);
            }
        }
        let present = by_name(&config.clusters);
        let has_left =
            |c: &ClusterConfig| present.get(&c.name).is_none_or(|now| !same_roles(c, now));
        let left = in_force.clusters.iter().filter(|c| has_left(c)).map(|c| c.name.clone());
        let has_joined =
            |c: &&ClusterConfig| former.get(&c.name).is_none_or(|before| !same_roles(before, c));
        let is_replaced = |c: &&ClusterConfig| {
            former.get(&c.name).is_some_and(|b| same_roles(b, c) && !same_connection(b, c))
        };
        Self {
            left: left.collect(),
            joined: config.clusters.iter().filter(has_joined).cloned().collect(),
            replaced: config.clusters.iter().filter(is_replaced).cloned().collect(),
            config,
            changed,
            waiting,
        }
    }

    /// Whether anything takes effect.
    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_empty()
            && self.left.is_empty()
            && self.replaced.is_empty()
            && self.changed.is_empty()
    }

    /// Why a changed file alone does not suffice for this: an empty or truncated file must not make
    /// the fleet leave. `None` if it does.
    pub(super) fn harm(&self, in_force: &Config) -> Option<String> {
        let is_default = |clusters: &[ClusterConfig]| {
            matches!(clusters, [only] if only.name.as_str() == LOCAL_CLUSTER
                && only.kubeconfig.is_none() && only.context.is_none() && !only.in_cluster)
        };
        if is_default(&self.config.clusters) && !is_default(&in_force.clusters) {
            let message = format!(
                "it names no cluster, so that the {} clusters in force would give way to the \
                 default one, {LOCAL_CLUSTER}",
                in_force.clusters.len()
            );
            return Some(message);
        }
        let present = by_name(&self.config.clusters);
        let keeps = |cluster: &ClusterConfig, role: Role| {
            present.get(&cluster.name).is_some_and(|now| now.roles.contains(&role))
        };
        let hub = in_force.clusters.iter().find(|c| c.roles.contains(&Role::Hub));
        if let Some(hub) = hub.filter(|hub| !keeps(hub, Role::Hub)) {
            return Some(format!("it takes away the hub, {}", hub.name));
        }
        let loses = |cluster: &&ClusterConfig| cluster.roles.iter().any(|r| !keeps(cluster, *r));
        let lost: Vec<_> = in_force.clusters.iter().filter(loses).map(|c| &c.name).collect();
        (lost.len() > 1 && lost.len() * 3 > in_force.clusters.len()).then(|| {
            format!(
                "it takes away {} of {} clusters, or roles of them: {}",
                lost.len(),
                in_force.clusters.len(),
                join(&lost)
            )
        })
    }

    /// What takes effect: `2 clusters joined (a, b), 1 left (c), settings changed: touch.windowMs`.
    pub(super) fn describe(&self) -> String {
        let names = |clusters: &[ClusterConfig]| {
            join(&clusters.iter().map(|cluster| &cluster.name).collect::<Vec<_>>())
        };
        let mut parts = Vec::new();
        let mut part = |count: usize, what: &str, names: String| {
            if count > 0 {
                let noun = match (parts.is_empty(), count) {
                    (false, _) => "",
                    (true, 1) => "cluster ",
                    (true, _) => "clusters ",
                };
                parts.push(format!("{count} {noun}{what} ({names})"));
            }
        };
        part(self.joined.len(), "joined", names(&self.joined));
        part(self.left.len(), "left", join(&self.left.iter().collect::<Vec<_>>()));
        part(self.replaced.len(), "reached in another way", names(&self.replaced));
        if !self.changed.is_empty() {
            let keys = join(&self.changed.iter().collect::<Vec<_>>());
            parts.push(format!("settings changed: {keys}"));
        }
        match parts.is_empty() {
            true => "nothing changed".to_owned(),
            false => parts.join(", "),
        }
    }
}

/// Puts back the settings that take effect only at a restart.
fn keep_settings(
    in_force: &Config,
    config: &mut Config,
    changed: &mut Vec<String>,
    waiting: &mut Vec<String>,
) {
    let former = in_force.settings();
    let mut settings = config.settings();
    let mut kept: Vec<String> =
        former.needs_restart(&settings).into_iter().map(ToOwned::to_owned).collect();
    settings.keep_until_restart(&former);
    // No route is deleted that is not recorded first, and the event log opens at a start only.
    let unrecorded = config.event_log.file.is_none() && !config.dry_run;
    if unrecorded && settings.orphans.mode == OrphanMode::Delete {
        settings.orphans.mode = former.orphans.mode;
        kept.push("orphans.mode".to_owned());
    }
    config.mirror = settings.mirror;
    config.touch = settings.touch;
    config.orphans = settings.orphans;
    config.stall = settings.stall;
    config.retry = settings.retry;
    kept.retain(|key| changed.contains(key));
    changed.retain(|key| !kept.contains(key));
    waiting.extend(kept);
    waiting.sort();
    waiting.dedup();
}

/// The election asks the cluster that it has asked since the start. Watches and writes stay with it:
/// otherwise this instance would write to a cluster whose Lease it does not hold.
fn keep_lease(lease: &ClusterConfig, clusters: &mut [ClusterConfig], waiting: &mut Vec<String>) {
    match clusters.iter_mut().find(|cluster| cluster.name == lease.name) {
        Some(cluster) if !same_connection(cluster, lease) => {
            *cluster = ClusterConfig { roles: cluster.roles.clone(), ..lease.clone() };
            waiting.push(format!("the connection of {}, which holds the Lease", lease.name));
        }
        Some(_) => {}
        None => waiting.push(format!("the Lease, which stays in {}", lease.name)),
    }
}

fn by_name(clusters: &[ClusterConfig]) -> BTreeMap<&ClusterName, &ClusterConfig> {
    clusters.iter().map(|cluster| (&cluster.name, cluster)).collect()
}

fn same_roles(a: &ClusterConfig, b: &ClusterConfig) -> bool {
    let has = |cluster: &ClusterConfig, role: &Role| cluster.roles.contains(role);
    a.roles.iter().all(|role| has(b, role)) && b.roles.iter().all(|role| has(a, role))
}

fn same_connection(a: &ClusterConfig, b: &ClusterConfig) -> bool {
    (&a.kubeconfig, &a.context, a.in_cluster) == (&b.kubeconfig, &b.context, b.in_cluster)
}

/// The keys in which two configurations differ, apart from their clusters.
fn changed_keys(a: &Config, b: &Config) -> Vec<String> {
    let [a, b] = [a, b].map(|config| {
        let mut value = serde_json::to_value(config).unwrap_or_default();
        if let Some(keys) = value.as_object_mut() {
            keys.remove("clusters");
        }
        value
    });
    let mut keys = Vec::new();
    compare("", &a, &b, &mut keys);
    keys.sort();
    keys
}

fn compare(path: &str, a: &Value, b: &Value, keys: &mut Vec<String>) {
    let (Value::Object(before), Value::Object(after)) = (a, b) else {
        if a != b {
            keys.push(path.to_owned());
        }
        return;
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    for key in gone.chain(after.keys()) {
        let dot = if path.is_empty() { "" } else { "." };
        let none = Value::Null;
        let (a, b) = (before.get(key).unwrap_or(&none), after.get(key).unwrap_or(&none));
        compare(&format!("{path}{dot}{key}"), a, b, keys);
    }
}

fn join(names: &[impl std::fmt::Display]) -> String {
    let mut text = String::new();
    for name in names.iter().take(NAMED_MAX) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a String does not fail.
        let _ = write!(text, "{comma}{name}");
    }
    match names.len().saturating_sub(NAMED_MAX) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// The keys or clusters of `waiting` for a log line.
pub(super) fn list(names: &[String]) -> String {
    join(names)
}

#[cfg(test)]
mod tests;
