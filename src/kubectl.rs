//! Commands for people: how their kubectl and helm reach a cluster, and words of a shell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kube::config::Kubeconfig;

use crate::config::{ClusterConfig, Config};
use crate::core::contract::cause::shell_word;
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
        let flags = [("--kubeconfig", &self.kubeconfig), ("--context", &self.context)];
        let flags = flags.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        flags.fold("kubectl".to_owned(), |command, (flag, value)| {
            format!("{command} {flag} {}", shell_word(value))
        })
    }
}

/// For each configured cluster, how the person at this shell reaches it.
pub fn cluster_flags(config: &Config) -> BTreeMap<ClusterName, ClusterFlags> {
    let own = Kubeconfig::read().unwrap_or_default();
    let files = files(config);
    let of = |cluster: &ClusterConfig| {
        let configured = cluster.kubeconfig.as_deref().and_then(|file| files.get(file));
        (cluster.name.clone(), flags(cluster, &own, configured))
    };
    config.clusters.iter().map(of).collect()
}

/// The configured files. Each is read once: hundreds of clusters may be contexts of one.
fn files(config: &Config) -> BTreeMap<&Path, Kubeconfig> {
    let files: BTreeSet<_> =
        config.clusters.iter().filter_map(|c| c.kubeconfig.as_deref()).collect();
    let read = |file: &Path| Kubeconfig::read_from(file).unwrap_or_default();
    files.into_iter().map(|file| (file, read(file))).collect()
}

/// kubectl for each configured cluster to which a context of the reader's own kubeconfig leads. Never with
/// the configured file: throughline's credentials may do too little.
pub fn own_contexts(config: &Config) -> BTreeMap<ClusterName, String> {
    let own = Kubeconfig::read().unwrap_or_default();
    let files = files(config);
    let of = |cluster: &ClusterConfig| {
        let file = cluster.kubeconfig.as_deref();
        let configured = file.map_or(Some(&own), |file| files.get(file))?;
        let context = own_context(cluster, &own, configured)?;
        Some((cluster.name.clone(), format!("kubectl --context {}", shell_word(context))))
    };
    config.clusters.iter().filter_map(of).collect()
}

/// The context that leads to a cluster's server; that of the same name before any other.
fn own_context<'a>(
    cluster: &'a ClusterConfig,
    own: &'a Kubeconfig,
    configured: &'a Kubeconfig,
) -> Option<&'a String> {
    if cluster.in_cluster {
        return None;
    }
    let named = cluster.context.as_ref().or(configured.current_context.as_ref())?;
    let target = server(configured, named)?;
    let others = own.contexts.iter().map(|context| &context.name);
    std::iter::once(named)
        .chain(others)
        .find(|context| server(own, context).as_ref() == Some(&target))
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
        let kubectl = |own: &[(&str, &str)], file: Option<&str>, context: Option<&str>| {
            let cluster = serde_json::json!({ "name": "c", "roles": ["hub"], "kubeconfig": file,
                "context": context });
            let cluster: ClusterConfig = serde_json::from_value(cluster).unwrap();
            flags(&cluster, &kubeconfig(own), Some(&theirs)).kubectl()
        };
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
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_context_of_the_readers_own_leads_to_the_same_server() {
        let theirs = kubeconfig(&[("hub", "https://hub:6443")]);
        let context = |own: &[(&str, &str)], more: serde_json::Value| {
            let mut cluster = serde_json::json!({ "name": "c", "roles": ["hub"] });
            cluster.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let cluster: ClusterConfig = serde_json::from_value(cluster).unwrap();
            own_context(&cluster, &kubeconfig(own), &theirs).cloned()
        };
        let hub = || serde_json::json!({ "context": "hub" });
        let (there, elsewhere) = ("https://hub:6443", "https://other:6443");
        assert_eq!(context(&[("a", there), ("hub", there)], hub()).as_deref(), Some("hub"));
        assert_eq!(context(&[("hub", elsewhere), ("a", there)], hub()).as_deref(), Some("a"));
        assert_eq!(context(&[("hub", elsewhere)], hub()), None);
        assert_eq!(context(&[("hub", there)], serde_json::json!({})), None, "no current context");
        let pod = serde_json::json!({ "inCluster": true });
        assert_eq!(context(&[("hub", there)], pod), None);
    }
}
