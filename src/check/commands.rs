//! The commands in remedies: each can be pasted into a shell as it stands.

use crate::config::Config;
use crate::core::data::ids::ClusterName;

/// What commands are made of: how this check was called, and the clusters by their place in the file.
#[derive(Debug)]
pub(super) struct Commands {
    check: String,
    clusters: Vec<(ClusterName, Option<String>)>,
}

impl Commands {
    /// `check` is the command line of this check.
    pub(super) fn new(check: &str, config: &Config) -> Self {
        let clusters = config.clusters.iter().map(|c| (c.name.clone(), c.context.clone()));
        Self { check: check.to_owned(), clusters: clusters.collect() }
    }

    fn context(&self, cluster: &str) -> Option<&str> {
        let (_, context) = self.clusters.iter().find(|(name, _)| name.as_str() == cluster)?;
        context.as_deref()
    }

    /// Whether commands can tell this cluster from others: its context is configured.
    pub(super) fn has_context(&self, cluster: &str) -> bool {
        self.context(cluster).is_some()
    }

    /// `kubectl`, with the context that is configured for the cluster.
    pub(super) fn kubectl(&self, cluster: &str) -> String {
        self.with_context("kubectl", "--context", cluster)
    }

    pub(super) fn helm(&self, cluster: &str) -> String {
        self.with_context("helm", "--kube-context", cluster)
    }

    fn with_context(&self, program: &str, flag: &str, cluster: &str) -> String {
        match self.context(cluster) {
            Some(context) => format!("{program} {flag} {}", shell_word(context)),
            None => program.to_owned(),
        }
    }

    /// The key of a cluster in the configuration: `clusters[0]`.
    pub(super) fn cluster_key(&self, cluster: &str) -> Option<String> {
        let at = self.clusters.iter().position(|(name, _)| name.as_str() == cluster)?;
        Some(format!("clusters[{at}]"))
    }

    /// This check again, with these settings, each `PATH=VALUE`.
    pub(super) fn check_with(&self, settings: &[String]) -> String {
        let settings = settings.iter().map(|s| format!(" --set {}", shell_word(s)));
        settings.fold(self.check.clone(), |command, setting| command + &setting)
    }
}

/// A text as one word of a POSIX shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_configured_context_and_quotes_what_a_shell_would_read() {
        let config = serde_json::json!({ "clusters": [
            { "name": "hub", "roles": ["hub"], "context": "the hub's" },
            { "name": "edge", "roles": ["edge"], "context": "arn:aws:eks:eu:1:cluster/edge" },
            { "name": "here", "roles": ["upstream"] },
        ] });
        let config: Config = serde_json::from_value(config).unwrap();
        let commands = Commands::new("throughline check", &config);
        assert_eq!(commands.kubectl("hub"), r"kubectl --context 'the hub'\''s'");
        assert_eq!(commands.kubectl("edge"), "kubectl --context arn:aws:eks:eu:1:cluster/edge");
        assert_eq!(commands.kubectl("here"), "kubectl");
        assert_eq!(commands.helm("elsewhere"), "helm");
        assert_eq!(commands.cluster_key("edge").as_deref(), Some("clusters[1]"));
        let settings =
            ["touch.scope=gateway".to_owned(), r#"clusters[0].roles=["hub"]"#.to_owned()];
        assert_eq!(
            commands.check_with(&settings),
            r#"throughline check --set touch.scope=gateway --set 'clusters[0].roles=["hub"]'"#
        );
        assert_eq!(shell_word(""), "''");
    }
}
