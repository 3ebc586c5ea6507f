//! How a person reaches the clusters: what a command must say to act on the right one.

use std::collections::{BTreeMap, BTreeSet};

use super::remedy::Remedy;
use crate::config::Config;
use crate::core::data::ids::ClusterName;
use crate::kubectl::{ClusterFlags, cluster_flags};

/// What is known about reaching the clusters with kubectl.
#[derive(Clone, Debug, Default)]
pub struct ClusterAccess {
    flags: BTreeMap<ClusterName, ClusterFlags>,
    /// The hubs that serve Karmada's API.
    karmada: BTreeSet<ClusterName>,
}

impl ClusterAccess {
    /// Of the clusters in this configuration.
    pub fn new(config: &Config) -> Self {
        Self { flags: cluster_flags(config), karmada: BTreeSet::new() }
    }

    /// The hub serves Karmada's API, so that commands may name Karmada's objects.
    pub fn set_karmada(&mut self, hub: &ClusterName) {
        self.karmada.insert(hub.clone());
    }

    pub(super) fn has_karmada(&self, hub: &ClusterName) -> bool {
        self.karmada.contains(hub)
    }

    /// A remedy as traces carry it: one line of explanation, and the command on a line of its own.
    pub(super) fn spell(&self, remedy: &Remedy) -> String {
        let Remedy { what, command } = remedy;
        match command {
            None => what.clone(),
            Some((None, command)) => format!("{what}:\n{command}"),
            Some((Some(cluster), arguments)) => {
                let flags = self.flags.get(cluster).cloned().unwrap_or_default();
                format!("{what}:\n{} {arguments}", flags.kubectl())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_how_its_cluster_is_reached() {
        let clusters = serde_json::json!({ "clusters": [
            { "name": "plain", "roles": ["hub"] },
            { "name": "context", "roles": ["edge"], "context": "kind-edge" },
        ] });
        let access = ClusterAccess::new(&serde_json::from_value(clusters).unwrap());
        let spelled = |name: &str| {
            access.spell(&Remedy::kubectl(&name.into(), "look", "get pods".to_owned()))
        };
        assert_eq!(spelled("plain"), "look:\nkubectl get pods");
        assert_eq!(spelled("context"), "look:\nkubectl --context kind-edge get pods");
        assert_eq!(spelled("elsewhere"), "look:\nkubectl get pods");
    }
}
