//! The commands in remedies: each can be pasted into a shell as it stands.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::core::cause::shell_word;
use crate::core::data::ids::ClusterName;
use crate::kubectl::{ClusterFlags, cluster_flags};

/// What commands are made of: how this check was called, and the clusters by their place in the file.
#[derive(Debug)]
pub(super) struct Commands {
    check: String,
    clusters: Vec<ClusterName>,
    flags: BTreeMap<ClusterName, ClusterFlags>,
}

impl Commands {
    /// `check` is the command line of this check.
    pub(super) fn new(check: &str, config: &Config) -> Self {
        let clusters = config.clusters.iter().map(|cluster| cluster.name.clone()).collect();
        Self { check: check.to_owned(), clusters, flags: cluster_flags(config) }
    }

    /// Without flags for a cluster that was discovered: its connection is in no kubeconfig.
    fn flags(&self, cluster: &str) -> ClusterFlags {
        self.flags.get(cluster).cloned().unwrap_or_default()
    }

    /// Whether commands can tell this cluster from others.
    pub(super) fn can_name(&self, cluster: &str) -> bool {
        self.flags(cluster).name_a_cluster()
    }

    pub(super) fn kubectl(&self, cluster: &str) -> String {
        self.flags(cluster).kubectl()
    }

    pub(super) fn helm(&self, cluster: &str) -> String {
        self.flags(cluster).helm()
    }

    /// The key of a cluster in the configuration: `clusters[0]`.
    pub(super) fn cluster_key(&self, cluster: &str) -> Option<String> {
        let at = self.clusters.iter().position(|name| name.as_str() == cluster)?;
        Some(format!("clusters[{at}]"))
    }

    /// This check again, with these settings, each `PATH=VALUE`.
    pub(super) fn check_with(&self, settings: &[String]) -> String {
        let settings = settings.iter().map(|s| format!(" --set {}", shell_word(s)));
        settings.fold(self.check.clone(), |command, setting| command + &setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_configured_cluster_and_quotes_what_a_shell_would_read() {
        let config = serde_json::json!({ "clusters": [
            { "name": "hub", "roles": ["hub"], "context": "the hub's" },
            { "name": "edge", "roles": ["edge"], "kubeconfig": "/no/such file" },
            { "name": "here", "roles": ["upstream"] },
        ] });
        let config: Config = serde_json::from_value(config).unwrap();
        let commands = Commands::new("throughline check", &config);
        assert_eq!(commands.kubectl("hub"), r"kubectl --context 'the hub'\''s'");
        assert_eq!(commands.kubectl("edge"), "kubectl --kubeconfig '/no/such file'");
        assert_eq!(commands.kubectl("here"), "kubectl");
        assert_eq!(commands.helm("elsewhere"), "helm");
        assert!(commands.can_name("edge") && !commands.can_name("here"));
        assert_eq!(commands.cluster_key("edge").as_deref(), Some("clusters[1]"));
        let settings =
            ["touch.scope=gateway".to_owned(), r#"clusters[0].roles=["hub"]"#.to_owned()];
        assert_eq!(
            commands.check_with(&settings),
            r#"throughline check --set touch.scope=gateway --set 'clusters[0].roles=["hub"]'"#
        );
    }
}
