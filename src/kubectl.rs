//! Commands for people: how their kubectl and helm reach a cluster, and words of a shell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kube::config::Kubeconfig;

use crate::config::{ClusterConfig, Config};
use crate::core::cause::shell_word;
use crate::core::data::ids::ClusterName;

/// How a person reaches one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFlags {
    kubeconfig: Option<String>,
    context: Option<String>,
}

impl ClusterFlags {
    /// kubectl, with the flags that lead to the cluster; without flags where it finds the cluster as
    /// throughline does.
    pub fn kubectl(&self) -> String {
        self.program("kubectl", "--context")
    }

    pub fn helm(&self) -> String {
        self.program("helm", "--kube-context")
    }

    fn program(&self, program: &str, context_flag: &str) -> String {
        let flags = [("--kubeconfig", &self.kubeconfig), (context_flag, &self.context)];
        let flags = flags.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        flags.fold(program.to_owned(), |command, (flag, value)| {
            format!("{command} {flag} {}", shell_word(value))
        })
    }

    /// Whether the flags name a cluster, so that a command cannot act on another one.
    pub fn name_a_cluster(&self) -> bool {
        *self != Self::default()
    }
}

/// For each configured cluster, how the person at this shell reaches it.
pub fn cluster_flags(config: &Config) -> BTreeMap<ClusterName, ClusterFlags> {
    let own = Kubeconfig::read().unwrap_or_default();
    // Each file is read once: hundreds of clusters may be contexts of one.
    let with_context = config.clusters.iter().filter(|cluster| cluster.context.is_some());
    let files: BTreeSet<_> = with_context.filter_map(|c| c.kubeconfig.as_deref()).collect();
    let read = |file: &Path| Kubeconfig::read_from(file).unwrap_or_default();
    let files: BTreeMap<_, _> = files.into_iter().map(|file| (file, read(file))).collect();
    let of = |cluster: &ClusterConfig| {
        let configured = cluster.kubeconfig.as_deref().and_then(|file| files.get(file));
        (cluster.name.clone(), flags(cluster, &own, configured))
    };
    config.clusters.iter().map(of).collect()
}

/// Where the person's own kubeconfig has the same context, for the same server, that is preferred:
/// throughline's credentials may do too little. They may list an edge's Connectors, for example, and
/// not get one of them.
fn flags(
    cluster: &ClusterConfig,
    own: &Kubeconfig,
    configured: Option<&Kubeconfig>,
) -> ClusterFlags {
    let context = cluster.context.clone();
    let servers = context.as_deref().zip(configured).map(|(context, configured)| {
        [own, configured].map(|kubeconfig| server(kubeconfig, context))
    });
    let is_own = servers.is_some_and(|[own, configured]| own.is_some() && own == configured);
    let file = cluster.kubeconfig.as_ref().filter(|_| !is_own);
    ClusterFlags { kubeconfig: file.map(|file| file.display().to_string()), context }
}

/// The server of a context.
fn server(kubeconfig: &Kubeconfig, context: &str) -> Option<String> {
    let context = kubeconfig.contexts.iter().find(|c| c.name == context)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|c| c.name == context.cluster)?;
    cluster.cluster.as_ref()?.server.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(contexts: &[(&str, &str)]) -> Kubeconfig {
        let contexts = contexts.iter().map(|(name, server)| {
            let cluster = serde_json::json!({ "name": name, "cluster": { "server": server } });
            let context = serde_json::json!({ "name": name, "context": { "cluster": name } });
            (cluster, context)
        });
        let (clusters, contexts): (Vec<_>, Vec<_>) = contexts.unzip();
        let config = serde_json::json!({ "clusters": clusters, "contexts": contexts });
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn a_command_leads_to_the_configured_cluster_and_no_other() {
        let theirs = kubeconfig(&[("hub", "https://hub:6443"), ("it's", "https://k3s:6443")]);
        let spelled = |own: &[(&str, &str)], file: Option<&str>, context: Option<&str>| {
            let cluster = serde_json::json!({ "name": "c", "roles": ["hub"], "kubeconfig": file,
                "context": context });
            let cluster: ClusterConfig = serde_json::from_value(cluster).unwrap();
            let found = flags(&cluster, &kubeconfig(own), Some(&theirs));
            (found.kubectl(), found.helm(), found.name_a_cluster())
        };
        let kubectl = |own, file, context| spelled(own, file, context).0;
        let file = Some("/etc/my clusters/k");
        let in_file = "kubectl --kubeconfig '/etc/my clusters/k'";
        assert_eq!(kubectl(&[], None, None), "kubectl");
        assert_eq!(kubectl(&[], None, Some("hub")), "kubectl --context hub");
        assert_eq!(kubectl(&[], file, None), in_file);
        assert_eq!(kubectl(&[], file, Some("hub")), format!("{in_file} --context hub"));
        // The person's own context of that name: for the same server, and for another one.
        assert_eq!(
            kubectl(&[("hub", "https://hub:6443")], file, Some("hub")),
            "kubectl --context hub"
        );
        assert_eq!(
            kubectl(&[("it's", "https://elsewhere:6443")], file, Some("it's")),
            format!(r"{in_file} --context 'it'\''s'")
        );
        let (_, helm, names) = spelled(&[], None, Some("arn:aws:eks:eu:1:cluster/edge"));
        assert_eq!(helm, "helm --kube-context arn:aws:eks:eu:1:cluster/edge");
        assert!(names && !spelled(&[], None, None).2);
        assert_eq!(shell_word(""), "''");
    }
}
