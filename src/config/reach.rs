//! Whether the way to a cluster exists: its kubeconfig file and context.

use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};

use super::ClusterConfig;
use super::check::Checker;

/// What a pod always has.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

/// Checks the way to the `i`-th cluster.
pub(super) fn check(checker: &mut Checker<'_>, i: usize, cluster: &ClusterConfig) {
    let key = |name: &str| format!("clusters[{i}].{name}");
    if cluster.in_cluster {
        for (name, given) in
            [("kubeconfig", cluster.kubeconfig.is_some()), ("context", cluster.context.is_some())]
        {
            if given {
                let message = "stands beside inCluster: true; accepted: one of the two";
                checker.error(key(name), message);
            }
        }
        if std::env::var_os(IN_POD).is_none() {
            let message = format!("this is no pod, as {IN_POD} is not set: out of reach from here");
            checker.warning(key("inCluster"), message);
        }
        return;
    }
    let (read, place) = match &cluster.kubeconfig {
        Some(file) => (Kubeconfig::read_from(file), format!("{}", file.display())),
        None => (Kubeconfig::read(), "kubectl's kubeconfig".to_owned()),
    };
    let kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            let error = said(&error);
            match (&cluster.kubeconfig, &cluster.context) {
                (Some(file), _) => checker.error(key("kubeconfig"), no_file(file, &error)),
                (None, Some(context)) => {
                    let message = format!(
                        "found {context:?}, and {place} {error}; accepted: a context of a \
                         kubeconfig that $KUBECONFIG, ~/.kube/config or the key kubeconfig names"
                    );
                    checker.error(key("context"), message);
                }
                (None, None) if std::env::var_os(IN_POD).is_some() => {}
                (None, None) => {
                    let message = format!(
                        "no way to it: {place} {error}, and this is no pod; say which by \
                         kubeconfig and context (--kubeconfig, --context)"
                    );
                    checker.warning(format!("clusters[{i}]"), message);
                }
            }
            return;
        }
    };
    let names: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let accepted = match names.as_slice() {
        [] => format!("{place} has no contexts"),
        names => format!("accepted, of {place}: {}", names.join(", ")),
    };
    match (&cluster.context, kubeconfig.current_context.as_deref().filter(|c| !c.is_empty())) {
        (Some(context), _) if !names.contains(&context.as_str()) => {
            checker.error(key("context"), format!("found {context:?}; {accepted}"));
        }
        (None, Some(current)) if !names.contains(&current) => checker.error(
            key("kubeconfig"),
            format!("the current context of {place} is {current:?}, which it lacks; {accepted}"),
        ),
        (None, None) => checker
            .error(key("context"), format!("not said, and {place} has no current one; {accepted}")),
        _ => {}
    }
}

fn no_file(file: &Path, error: &str) -> String {
    format!("found {:?}, which {error}; accepted: a kubeconfig file", file.display().to_string())
}

/// What is wrong with a kubeconfig, without a word of its content: it holds keys.
fn said(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => format!("can't be read ({error})"),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("is no kubeconfig (line {}, column {})", at.line(), at.column()),
            None => "is no kubeconfig".to_owned(),
        },
        other => format!("can't be used ({other})"),
    }
}
