//! Clusters that are found while the program runs: the sections `discovery` and `fleet`, and the
//! platform operator's own spelling of the former.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::role;
use crate::client::Credentials;
use crate::core::contract::membership::JoinRule;
use crate::core::data::ids::{ClusterName, Role};

/// The label of the kubeconfig Secrets that multicluster-runtime's provider reads.
const KUBECONFIG_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig=true";

/// The sources of clusters beside the list `clusters`. Any number of them may be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DiscoveryConfig {
    /// The projects of a Milo API server, as upstreams.
    pub milo: Option<MiloConfig>,
    /// Secrets that hold a kubeconfig each.
    pub kubeconfig_secrets: Option<KubeconfigSecretsConfig>,
    /// A directory of kubeconfig files.
    pub kubeconfig_dir: Option<KubeconfigDirConfig>,
    /// This and the three below are the platform operator's spelling of `milo`; `None` in a loaded
    /// configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<DiscoveryMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery_kubeconfig_path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_kubeconfig_path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_service_discovery: Option<bool>,
}

/// The operator's word for whether it discovers anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DiscoveryMode {
    /// Nothing.
    Single,
    Milo,
}

/// Projects of a Milo API server. Each is an upstream by the Project's name.
///
/// An empty path is the pod's own ServiceAccount, as it is for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MiloConfig {
    /// Where the projects are listed. If absent, as kubectl finds it or, in a pod, the pod's own
    /// cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's current context if absent; also of `project_kubeconfig`, if that is absent.
    pub context: Option<String>,
    /// Whose server and credentials reach the projects, with the path replaced; those of
    /// `kubeconfig` if absent.
    pub project_kubeconfig: Option<PathBuf>,
    /// Only Projects with these labels; all if absent.
    pub label_selector: Option<String>,
    /// List `projectcontrolplanes` in the infrastructure cluster instead of `projects`, and reach
    /// each by its Service there.
    pub internal_service_discovery: bool,
    pub join: JoinRule,
}

/// Secrets that hold a kubeconfig each, under the key `kubeconfig`. The Secret's name is the
/// cluster's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigSecretsConfig {
    /// The configured cluster that holds the Secrets.
    pub cluster: ClusterName,
    pub namespace: String,
    /// Never empty in a loaded configuration: not every Secret is a kubeconfig.
    pub label_selector: String,
    /// Of each of the clusters: upstream, edge or both.
    #[serde(with = "role")]
    pub roles: Vec<Role>,
}

impl Default for KubeconfigSecretsConfig {
    fn default() -> Self {
        Self {
            cluster: "".into(),
            namespace: String::new(),
            label_selector: KUBECONFIG_LABEL.into(),
            roles: vec![Role::Upstream],
        }
    }
}

/// A directory of kubeconfig files. The file's name without its extension is the cluster's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigDirConfig {
    pub path: PathBuf,
    /// Of each of the clusters: upstream, edge or both.
    #[serde(with = "role")]
    pub roles: Vec<Role>,
}

impl Default for KubeconfigDirConfig {
    fn default() -> Self {
        Self { path: PathBuf::new(), roles: vec![Role::Upstream] }
    }
}

/// How clusters join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetConfig {
    /// First lists of one host that may be under way at the same time.
    pub lists_in_parallel: usize,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self { lists_in_parallel: 8 }
    }
}

/// What the metrics tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsConfig {
    /// Whether metrics have a label for each cluster. If absent, they do for up to 200 clusters.
    pub per_cluster: Option<bool>,
}

impl MiloConfig {
    /// Those with which the projects are listed.
    pub fn credentials(&self) -> Credentials {
        match self.kubeconfig.clone() {
            Some(file) if file.as_os_str().is_empty() => Credentials::InCluster,
            file => Credentials::Kubeconfig { file, context: self.context.clone() },
        }
    }

    /// Those with which a project is reached, at a server of its own.
    pub fn project_credentials(&self) -> Credentials {
        match self.project_kubeconfig.clone() {
            None => self.credentials(),
            Some(file) if file.as_os_str().is_empty() => Credentials::InCluster,
            file => Credentials::Kubeconfig { file, context: None },
        }
    }
}

impl DiscoveryConfig {
    /// Whether clusters with this role may be found.
    pub fn may_find(&self, role: Role) -> bool {
        let secrets = self.kubeconfig_secrets.as_ref().map(|secrets| &secrets.roles);
        let files = self.kubeconfig_dir.as_ref().map(|dir| &dir.roles);
        (self.milo.is_some() && role == Role::Upstream)
            || [secrets, files].into_iter().flatten().any(|roles| roles.contains(&role))
    }

    /// The same in this program's spelling: the operator's keys become `milo`.
    pub(super) fn normalized(self) -> Self {
        let Self { milo, kubeconfig_secrets, kubeconfig_dir, .. } = &self;
        let milo = milo.clone().or_else(|| {
            // For the operator, a path that is not set is the pod's own ServiceAccount.
            let path = |path: &Option<PathBuf>| Some(path.clone().unwrap_or_default());
            (self.mode == Some(DiscoveryMode::Milo)).then(|| MiloConfig {
                kubeconfig: path(&self.discovery_kubeconfig_path),
                project_kubeconfig: path(&self.project_kubeconfig_path),
                internal_service_discovery: self.internal_service_discovery.unwrap_or(false),
                ..MiloConfig::default()
            })
        });
        Self {
            milo,
            kubeconfig_secrets: kubeconfig_secrets.clone(),
            kubeconfig_dir: kubeconfig_dir.clone(),
            ..Self::default()
        }
    }
}
