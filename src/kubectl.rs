//! The kubectl commands with which an operator reaches a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kube::config::Kubeconfig;

use crate::client::Entries;
use crate::config::{ClusterConfig, Config};
use crate::core::contract::cause::shell_word;
use crate::core::data::ids::ClusterName;

/// The kubectl command for each configured cluster that a context of the reader's own kubeconfig
/// reaches. It never uses the configured file: throughline's credentials may not have the permissions.
pub(crate) fn own_contexts(config: &Config) -> BTreeMap<ClusterName, String> {
    let own = Kubeconfig::read().unwrap_or_default();
    // Each file is read once: hundreds of clusters may be contexts of one file.
    let mut files = BTreeMap::new();
    let read = |file: &&PathBuf| Kubeconfig::read_from(file).unwrap_or_default();
    let commands = config.clusters.iter().filter_map(|cluster| {
        let configured = match &cluster.kubeconfig {
            Some(file) => &*files.entry(file).or_insert_with_key(read),
            None => &own,
        };
        let context = own_context(cluster, &own, configured)?;
        Some((cluster.name.clone(), format!("kubectl --context {}", shell_word(context))))
    });
    commands.collect()
}

/// The context of the reader's kubeconfig with the cluster's server. A context of the same name comes
/// first.
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
    std::iter::once(named).chain(others).find(|context| server(own, context) == Some(target))
}

/// The server of a context.
fn server<'a>(kubeconfig: &'a Kubeconfig, context: &String) -> Option<&'a String> {
    Entries::of(kubeconfig, Some(context)).cluster?.server.as_ref()
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
    fn a_context_of_the_readers_own_leads_to_the_same_server() {
        let theirs = kubeconfig(&[("hub", "https://hub:6443")]);
        let context = |own: &[(&str, &str)], more: serde_json::Value| {
            let mut cluster = serde_json::json!({ "name": "c", "roles": ["hub"] });
            cluster.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let cluster: ClusterConfig = serde_json::from_value(cluster).unwrap();
            own_context(&cluster, &kubeconfig(own), &theirs).cloned()
        };
        let hub = || serde_json::json!({ "context": "hub" });
        let there = "https://hub:6443";
        let elsewhere = "https://other:6443";
        assert_eq!(context(&[("a", there), ("hub", there)], hub()).as_deref(), Some("hub"));
        assert_eq!(context(&[("hub", elsewhere), ("a", there)], hub()).as_deref(), Some("a"));
        assert_eq!(context(&[("hub", elsewhere)], hub()), None);
        assert_eq!(context(&[("hub", there)], serde_json::json!({})), None, "no current context");
        let pod = serde_json::json!({ "inCluster": true });
        assert_eq!(context(&[("hub", there)], pod), None);
    }
}
