//! Whether the connection to each cluster is configured: its kubeconfig file and context exist.

use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};

use super::ClusterConfig;
use super::validate::Validator;

/// Kubernetes sets this variable in every container.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

impl Validator<'_> {
    /// Checks how `clusters[i]` is reached; connects to nothing.
    pub(super) fn connection(&mut self, i: usize, cluster: &ClusterConfig) {
        let key = |name: &str| format!("clusters[{i}].{name}");
        if cluster.in_cluster {
            for (name, is_set) in [
                ("kubeconfig", cluster.kubeconfig.is_some()),
                ("context", cluster.context.is_some()),
            ] {
                if is_set {
                    let message = "cannot be combined with inCluster: true; accepted: one of them";
                    self.error(key(name), message);
                }
            }
            if std::env::var_os(IN_POD).is_none() {
                let message = format!(
                    "not running in a pod ({IN_POD} is not set), so this cluster cannot be reached"
                );
                self.warning(key("inCluster"), message);
            }
            return;
        }
        let (read, source) = match &cluster.kubeconfig {
            Some(file) => (Kubeconfig::read_from(file), format!("{}", file.display())),
            None => (Kubeconfig::read(), "kubectl's kubeconfig".to_owned()),
        };
        match read {
            Ok(kubeconfig) => self.context(&key, cluster, &kubeconfig, &source),
            Err(error) => self.unreadable_kubeconfig(i, cluster, &source, &describe(&error)),
        }
    }

    fn unreadable_kubeconfig(
        &mut self,
        i: usize,
        cluster: &ClusterConfig,
        source: &str,
        error: &str,
    ) {
        match (&cluster.kubeconfig, &cluster.context) {
            (Some(file), _) => {
                let message = unreadable_file(file, error);
                self.error(format!("clusters[{i}].kubeconfig"), message);
            }
            (None, Some(context)) => {
                let message = format!(
                    "found {context:?}, but {source} {error}; accepted: a context in $KUBECONFIG, \
                     in ~/.kube/config or in the file that the key kubeconfig names"
                );
                self.error(format!("clusters[{i}].context"), message);
            }
            (None, None) if std::env::var_os(IN_POD).is_some() => {}
            (None, None) => {
                let message = format!(
                    "no connection: {source} {error}, and this is not a pod; set kubeconfig and \
                     context (--kubeconfig, --context)"
                );
                self.warning(format!("clusters[{i}]"), message);
            }
        }
    }

    fn context(
        &mut self,
        key: &impl Fn(&str) -> String,
        cluster: &ClusterConfig,
        kubeconfig: &Kubeconfig,
        source: &str,
    ) {
        let names: Vec<_> =
            kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        let accepted = match names.as_slice() {
            [] => format!("{source} has no contexts"),
            names => format!("accepted from {source}: {}", names.join(", ")),
        };
        let current = kubeconfig.current_context.as_deref().filter(|c| !c.is_empty());
        match (&cluster.context, current) {
            (Some(context), _) if !names.contains(&context.as_str()) => {
                self.error(key("context"), format!("found {context:?}; {accepted}"));
            }
            (None, Some(current)) if !names.contains(&current) => self.error(
                key("kubeconfig"),
                format!(
                    "the current context of {source} is {current:?}, which it does not define; \
                     {accepted}"
                ),
            ),
            (None, None) => self.error(
                key("context"),
                format!("not set, and {source} has no current context; {accepted}"),
            ),
            _ => {}
        }
    }
}

fn unreadable_file(file: &Path, error: &str) -> String {
    format!("found {:?}, which {error}; accepted: a kubeconfig file", file.display().to_string())
}

/// A kubeconfig holds credentials, so an error never quotes its content.
fn describe(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => format!("cannot be read ({error})"),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => {
                format!("is not a valid kubeconfig (line {}, column {})", at.line(), at.column())
            }
            None => "is not a valid kubeconfig".to_owned(),
        },
        other => format!("cannot be used ({other})"),
    }
}
