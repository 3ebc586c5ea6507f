//! How a person reaches the clusters: what a command must say to act on the right one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::remedy::Remedy;
use crate::config::Config;
use crate::core::data::ids::ClusterName;

/// What is known about reaching the clusters with kubectl.
#[derive(Clone, Debug, Default)]
pub struct ClusterAccess {
    /// The flags with which kubectl reaches a cluster as it is configured here.
    flags: BTreeMap<ClusterName, String>,
    /// The hubs that serve Karmada's API.
    karmada: BTreeSet<ClusterName>,
}

impl ClusterAccess {
    /// Of the clusters in this configuration. One without a kubeconfig or a context has no flags:
    /// kubectl finds it in the same way.
    pub fn new(config: &Config) -> Self {
        let mut access = Self::default();
        for cluster in &config.clusters {
            let file = cluster.kubeconfig.as_deref().map(Path::display);
            let file = file.map(|file| format!(" --kubeconfig {}", quoted(&file.to_string())));
            let context = cluster.context.as_deref();
            let context = context.map(|context| format!(" --context {}", quoted(context)));
            let flags = [file, context].into_iter().flatten().collect::<String>();
            if !flags.is_empty() {
                access.flags.insert(cluster.name.clone(), flags);
            }
        }
        access
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
                let flags = self.flags.get(cluster).map_or("", String::as_str);
                format!("{what}:\nkubectl{flags} {arguments}")
            }
        }
    }
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClusterConfig;
    use crate::core::data::ids::Role;

    #[test]
    fn a_command_says_how_its_cluster_is_reached() {
        let cluster = |name: &str, kubeconfig: Option<&str>, context: Option<&str>| ClusterConfig {
            name: name.into(),
            roles: vec![Role::Hub],
            kubeconfig: kubeconfig.map(Into::into),
            context: context.map(str::to_owned),
            in_cluster: false,
        };
        let clusters = vec![
            cluster("plain", None, None),
            cluster("context", None, Some("kind-hub")),
            cluster("both", Some("/tmp/my clusters/it's"), Some("admin@hub")),
        ];
        let access = ClusterAccess::new(&Config { clusters, ..Config::default() });
        let spelled = |name: &str| {
            access.spell(&Remedy::kubectl(&name.into(), "look", "get pods".to_owned()))
        };
        assert_eq!(spelled("plain"), "look:\nkubectl get pods");
        assert_eq!(spelled("context"), "look:\nkubectl --context kind-hub get pods");
        assert_eq!(
            spelled("both"),
            r"look:
kubectl --kubeconfig '/tmp/my clusters/it'\''s' --context admin@hub get pods"
        );
        assert_eq!(spelled("elsewhere"), "look:\nkubectl get pods");
    }
}
