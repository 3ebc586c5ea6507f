//! The rules for values of the right type that are invalid alone or together.

use std::collections::BTreeSet;

use super::{Config, Size};
use crate::clock::millis;
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::Role;
use crate::core::data::objects::{PLATFORM_KEY, UPSTREAM_STATUS};
use crate::leader::election::LEASE_MAX_MS;
use crate::outside_text::brief;

const SHARDS_MAX: u16 = 256;

/// A smaller log is rotated all the time and keeps nothing.
const EVENT_LOG_MIN: Size = Size(1 << 20);

/// The longest value of a label.
const LABEL_MAX: usize = 63;

impl Config {
    /// All errors: `KEY: found …; accepted: …`.
    pub(super) fn validate(&self) -> Vec<String> {
        let problems = [
            self.clusters(),
            self.discovered(),
            self.annotation_keys(),
            self.election(),
            self.orphans(),
            self.event_log(),
            self.log_level(),
        ];
        problems.into_iter().flatten().map(|problem| brief(&problem).into_owned()).collect()
    }

    fn clusters(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        let mut hubs = Vec::new();
        for (i, cluster) in self.clusters.iter().enumerate() {
            let name = &cluster.name;
            if name.as_str().is_empty() {
                problems.push(format!("clusters[{i}].name: found no name; accepted: a unique one"));
            } else if !names.insert(name) {
                problems.push(format!("clusters[{i}].name: another cluster is named {name}, too"));
            }
            if cluster.roles.is_empty() {
                let accepted = "accepted: one or more of upstream, hub, edge";
                problems.push(format!("clusters[{i}].roles: found no roles; {accepted}"));
            }
            if cluster.roles.contains(&Role::Hub) {
                hubs.push(name);
            }
            if cluster.in_cluster && (cluster.kubeconfig.is_some() || cluster.context.is_some()) {
                let message = "cannot be combined with kubeconfig or context";
                problems.push(format!("clusters[{i}].inCluster: {message}"));
            }
        }
        if let [first, second, ..] = hubs.as_slice() {
            problems
                .push(format!("clusters: {first} and {second} are both hub; accepted: one hub"));
        }
        problems
    }

    fn discovered(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let secrets = self.discovery.kubeconfig_secrets.as_ref();
        let dir = self.discovery.kubeconfig_dir.as_ref();
        if let Some(cluster) = secrets.map(|secrets| &secrets.cluster)
            && !self.clusters.iter().any(|configured| configured.name == *cluster)
        {
            let message = format!("found {cluster}, but no configured cluster has this name");
            problems.push(format!("discovery.kubeconfigSecrets.cluster: {message}"));
        }
        let secrets = secrets.map(|secrets| ("kubeconfigSecrets", &secrets.roles));
        let dir = dir.map(|dir| ("kubeconfigDir", &dir.roles));
        for (section, roles) in [secrets, dir].into_iter().flatten() {
            if roles.is_empty() || roles.contains(&Role::Hub) {
                let message = "accepted: upstream, edge or both; a hub is never discovered";
                problems.push(format!("discovery.{section}.roles: {message}"));
            }
        }
        problems
    }

    fn annotation_keys(&self) -> Vec<String> {
        let touch = &self.touch.key;
        let nudge = &self.mirror.nudge_key;
        let nudge = Some(nudge).filter(|key| !key.is_empty());
        let keys = [("touch.key", Some(touch)), ("mirror.nudgeKey", nudge)];
        let keys = keys.into_iter().filter_map(|(name, key)| Some((name, key?)));
        let mut problems = Vec::new();
        for (name, key) in keys {
            if !is_annotation_key(key) {
                let accepted =
                    "accepted: a DNS name, a slash and up to 63 letters, digits, -, _ and .";
                problems.push(format!("{name}: found {key:?}; {accepted}"));
            } else if [UPSTREAM_STATUS, PLATFORM_KEY].contains(&key.as_str()) {
                problems.push(format!("{name}: found {key:?}, which the platform itself writes"));
            }
        }
        if nudge == Some(touch) {
            problems.push(format!("mirror.nudgeKey: found {touch:?}, which is touch.key, too"));
        }
        problems
    }

    fn election(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let election = &self.leader_election;
        let lease_ms = millis(election.lease_duration);
        let is_usable = |seconds: &u64| self.timings_of(seconds * 1_000).are_usable();
        let most = LEASE_MAX_MS / 1_000;
        let least = (1..most).find(is_usable).unwrap_or_default();
        let is_accepted =
            lease_ms.is_multiple_of(1_000) && (least..=most).contains(&(lease_ms / 1_000));
        if election.enabled && !is_accepted {
            let found = format!("found {:?}", election.lease_duration);
            problems.push(format!(
                "leaderElection.leaseDuration: {found}; accepted: whole seconds from {least}s to {most}s"
            ));
        }
        if !(1..=SHARDS_MAX).contains(&election.shards) {
            let found = election.shards;
            problems
                .push(format!("leaderElection.shards: found {found}; accepted: 1 to {SHARDS_MAX}"));
        }
        let found = election.lease_name.len();
        if election.shards > 1 && found > LABEL_MAX {
            problems.push(format!(
                "leaderElection.leaseName: found {found} characters; accepted with several shards, whose \
                 Leases it labels: {LABEL_MAX}"
            ));
        }
        problems
    }

    fn log_level(&self) -> Vec<String> {
        let error = crate::logging::filter(&self.log.level).err();
        error.into_iter().map(|message| format!("log.level: {message}")).collect()
    }

    fn event_log(&self) -> Vec<String> {
        let size = self.event_log.size;
        if self.event_log.file.is_none() || size.0 >= EVENT_LOG_MIN.0 {
            return Vec::new();
        }
        vec![format!("eventLog.size: found {size}; accepted: {EVENT_LOG_MIN} or more")]
    }

    fn orphans(&self) -> Vec<String> {
        let is_recorded = self.event_log.file.is_some() || self.dry_run;
        if self.orphans.mode != OrphanMode::Delete || is_recorded {
            return Vec::new();
        }
        let message =
            "found delete without eventLog.file: no route is deleted that is not recorded first";
        vec![format!("orphans.mode: {message}")]
    }
}

/// Whether an API server accepts an annotation with this key.
fn is_annotation_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_part = |text: &str, inside: &[char]| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || inside.contains(&c))
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_dns = |prefix: &str| prefix.split('.').all(|label| is_part(label, &['-']));
    prefix.is_none_or(|prefix| prefix.len() <= 253 && is_dns(prefix))
        && name.len() <= 63
        && is_part(name, &['-', '_', '.'])
}
