//! Whether what `discovery` names exists and makes sense.

use std::path::Path;

use super::discovery::{DiscoveryMode, MiloConfig};
use super::kubeconfig::Reach;
use super::role::role_name;
use super::selector::selector_defect;
use super::validate::Validator;
use crate::core::data::ids::Role;

/// More first lists than this at once overwhelm the server that they ask.
const LISTS_MAX: usize = 256;

impl Validator<'_> {
    pub(super) fn discovery(&mut self) {
        let config = self.config;
        if let Some(milo) = &config.discovery.milo {
            self.milo(milo);
        }
        if let Some(secrets) = &config.discovery.kubeconfig_secrets {
            let key = |name: &str| format!("discovery.kubeconfigSecrets.{name}");
            self.secrets_cluster(&key("cluster"), secrets.cluster.as_str());
            if !is_namespace(&secrets.namespace) {
                let message = match secrets.namespace.as_str() {
                    "" => "not set; accepted: a namespace name".to_owned(),
                    found => format!("found {found:?}; accepted: a namespace name"),
                };
                self.error(key("namespace"), message);
            }
            if secrets.label_selector.trim().is_empty() {
                let message = "found no label selector, but not every Secret is a kubeconfig; \
                               accepted: a label selector, such as team=a";
                self.error(key("labelSelector"), message);
            }
            self.label_selector(&key("labelSelector"), &secrets.label_selector);
            self.discovered_roles(&key("roles"), &secrets.roles);
        }
        if let Some(dir) = &config.discovery.kubeconfig_dir {
            self.kubeconfig_dir(&dir.path);
            self.discovered_roles("discovery.kubeconfigDir.roles", &dir.roles);
        }
        let lists = config.fleet.lists_in_parallel;
        if !(1..=LISTS_MAX).contains(&lists) {
            let message = format!("found {lists}; accepted: 1 to {LISTS_MAX}");
            self.error("fleet.listsInParallel", message);
        }
    }

    /// The operator's keys, before they became `discovery.milo`.
    pub(super) fn operator_keys(&mut self) {
        let merged = self.merged;
        let is_set = |name: &str| merged.origin(&format!("discovery.{name}")).is_some();
        let mode = merged.value("discovery.mode").and_then(|mode| mode.as_str());
        let has_milo = merged.value("discovery.milo").is_some_and(|milo| !milo.is_null());
        const REST: [&str; 3] =
            ["discoveryKubeconfigPath", "internalServiceDiscovery", "projectKubeconfigPath"];
        for name in ["mode"].into_iter().chain(REST).filter(|name| has_milo && is_set(name)) {
            let message = "cannot be combined with discovery.milo; accepted: one of them";
            self.error(format!("discovery.{name}"), message);
        }
        let is_milo = serde_json::to_value(DiscoveryMode::Milo)
            .is_ok_and(|milo| mode.is_some_and(|mode| milo == mode));
        if !has_milo && !is_milo {
            for name in REST.into_iter().filter(|name| is_set(name)) {
                let message = "has no effect without discovery.mode: milo";
                self.warning(format!("discovery.{name}"), message);
            }
        }
    }

    fn milo(&mut self, milo: &MiloConfig) {
        // In the spelling that was used.
        let own_words = self.merged.value("discovery.milo").is_some_and(|milo| !milo.is_null());
        let [kubeconfig_key, project_key] = match own_words {
            true => ["discovery.milo.kubeconfig", "discovery.milo.projectKubeconfig"],
            false => ["discovery.discoveryKubeconfigPath", "discovery.projectKubeconfigPath"],
        };
        let context = milo.context.as_deref();
        self.milo_server(
            kubeconfig_key,
            "discovery.milo.context",
            milo.kubeconfig.as_deref(),
            context,
        );
        if let Some(project) = &milo.project_kubeconfig {
            self.milo_server(project_key, project_key, Some(project), None);
        }
        if let Some(selector) = &milo.label_selector {
            self.label_selector("discovery.milo.labelSelector", selector);
        }
    }

    fn milo_server(
        &mut self,
        kubeconfig_key: &str,
        context_key: &str,
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) {
        if kubeconfig.is_none_or(|file| !file.as_os_str().is_empty()) {
            return self.reach(&Reach {
                whole_key: "discovery.milo".to_owned(),
                kubeconfig_key: kubeconfig_key.to_owned(),
                context_key: context_key.to_owned(),
                kubeconfig,
                context,
            });
        }
        if context.is_some() {
            let message = "cannot be combined with an empty kubeconfig, the pod's own \
                           ServiceAccount; accepted: one of them";
            self.error(context_key, message);
        }
        self.in_pod(kubeconfig_key, "the API server of the projects");
    }

    fn kubeconfig_dir(&mut self, path: &Path) {
        let (key, shown) = ("discovery.kubeconfigDir.path", path.display().to_string());
        if shown.is_empty() {
            self.error(key, "not set; accepted: a directory of kubeconfig files");
        } else if let Some(unchecked) = &mut self.offline {
            unchecked.other(format!("{shown}: whether it is a directory, and its kubeconfigs"));
        } else if !path.is_dir() {
            let message = format!(
                "found {shown:?}, which is not a directory; accepted: a directory of kubeconfig files"
            );
            self.error(key, message);
        }
    }

    fn secrets_cluster(&mut self, key: &str, name: &str) {
        let clusters = &self.config.clusters;
        if clusters.iter().any(|cluster| cluster.name.as_str() == name)
            || !self.is_usable("clusters")
        {
            return;
        }
        let names: Vec<_> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let found = match name {
            "" => "not set".to_owned(),
            name => format!("found {name:?}, but no configured cluster has this name"),
        };
        self.error(key, format!("{found}; accepted: {}", names.join(", ")));
    }

    fn label_selector(&mut self, key: &str, selector: &str) {
        if let Some(defect) = selector_defect(selector) {
            let message = format!(
                "found {selector:?}, which {defect}; accepted: a label selector, such as \
                 env in (prod, staging),team=a"
            );
            self.error(key, message);
        }
    }

    /// A hub is one cluster that a person chose: it is never found.
    fn discovered_roles(&mut self, key: &str, roles: &[Role]) {
        let accepted = "accepted: upstream, edge, or both";
        if roles.is_empty() {
            self.error(key, format!("found no roles; {accepted}"));
        } else if roles.contains(&Role::Hub) {
            let hub = role_name(Role::Hub);
            let message = format!("found {hub}, but a {hub} is never discovered; {accepted}");
            self.error(key, message);
        } else if (1..roles.len()).any(|at| roles[..at].contains(&roles[at])) {
            self.error(key, "found a role twice; accepted: each role once");
        }
    }
}

fn is_namespace(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len())
        && name.chars().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
