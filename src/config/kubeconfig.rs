//! Whether each connection is configured: its kubeconfig file and context exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kube::config::{Kubeconfig, KubeconfigError};

use super::ClusterConfig;
use super::validate::Validator;

/// Kubernetes sets this variable in every container.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

/// How something is reached, and the keys that say so.
pub(super) struct Reach<'a> {
    /// The keys of the whole, of the file and of the context.
    pub(super) whole_key: String,
    pub(super) kubeconfig_key: String,
    pub(super) context_key: String,
    /// As kubectl finds it if `None`.
    pub(super) kubeconfig: Option<&'a Path>,
    /// The current one if `None`.
    pub(super) context: Option<&'a str>,
}

/// Each kubeconfig is read once: hundreds of clusters may be contexts of one.
#[derive(Default)]
pub(super) struct Kubeconfigs(BTreeMap<Option<PathBuf>, Result<Rc<Kubeconfig>, String>>);

impl Kubeconfigs {
    /// kubectl's own if `file` is `None`.
    fn read(&mut self, file: Option<&Path>) -> Result<Rc<Kubeconfig>, String> {
        let entry = self.0.entry(file.map(Path::to_owned)).or_insert_with(|| {
            let read = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
            read.map(Rc::new).map_err(|error| describe(&error))
        });
        entry.clone()
    }
}

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
            self.in_pod(&key("inCluster"), "this cluster");
            return;
        }
        self.reach(&Reach {
            whole_key: format!("clusters[{i}]"),
            kubeconfig_key: key("kubeconfig"),
            context_key: key("context"),
            kubeconfig: cluster.kubeconfig.as_deref(),
            context: cluster.context.as_deref(),
        });
    }

    /// Warns about a connection with the pod's ServiceAccount outside a pod.
    pub(super) fn in_pod(&mut self, key: &str, what: &str) {
        if self.offline.is_none() && std::env::var_os(IN_POD).is_none() {
            let message =
                format!("not running in a pod ({IN_POD} is not set), so {what} cannot be reached");
            self.warning(key, message);
        }
    }

    /// Checks that the kubeconfig can be read and has the context; offline, notes that nobody looked.
    pub(super) fn reach(&mut self, reach: &Reach<'_>) {
        let source = match reach.kubeconfig {
            Some(file) => format!("{}", file.display()),
            None => "kubectl's kubeconfig".to_owned(),
        };
        if let Some(unchecked) = &mut self.offline {
            return unchecked.kubeconfig(source, reach.context);
        }
        match self.kubeconfigs.read(reach.kubeconfig) {
            Ok(kubeconfig) => self.context(reach, &kubeconfig, &source),
            Err(error) => self.unreadable_kubeconfig(reach, &source, &error),
        }
    }

    fn unreadable_kubeconfig(&mut self, reach: &Reach<'_>, source: &str, error: &str) {
        match (reach.kubeconfig, reach.context) {
            (Some(file), _) => {
                let message = unreadable_file(file, error);
                self.error(&reach.kubeconfig_key, message);
            }
            (None, Some(context)) => {
                let message = format!(
                    "found {context:?}, but {source} {error}; accepted: a context in $KUBECONFIG, \
                     in ~/.kube/config or in the file that the key kubeconfig names"
                );
                self.error(&reach.context_key, message);
            }
            (None, None) if std::env::var_os(IN_POD).is_some() => {}
            (None, None) => {
                let message = format!(
                    "no connection: {source} {error}, and this is not a pod; set kubeconfig and \
                     context (--kubeconfig, --context)"
                );
                self.warning(&reach.whole_key, message);
            }
        }
    }

    fn context(&mut self, reach: &Reach<'_>, kubeconfig: &Kubeconfig, source: &str) {
        let names: Vec<_> =
            kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        let accepted = match names.as_slice() {
            [] => format!("{source} has no contexts"),
            names => format!("accepted from {source}: {}", names.join(", ")),
        };
        let current = kubeconfig.current_context.as_deref().filter(|c| !c.is_empty());
        match (reach.context, current) {
            (Some(context), _) if !names.contains(&context) => {
                self.error(&reach.context_key, format!("found {context:?}; {accepted}"));
            }
            (None, Some(current)) if !names.contains(&current) => self.error(
                &reach.kubeconfig_key,
                format!(
                    "the current context of {source} is {current:?}, which it does not define; \
                     {accepted}"
                ),
            ),
            (None, None) => self.error(
                &reach.context_key,
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
