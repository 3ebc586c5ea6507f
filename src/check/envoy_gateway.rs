//! Which Envoy Gateway runs at an edge, and whether touches reach its extension servers.

use super::commands::Commands;
use super::finding::FindingGroup;
use super::probe_client::{ListItem, ProbeClient};
use crate::core::cause::shell_word;

/// Gateway annotations enter Envoy Gateway's configuration since this version: they became metadata of
/// the virtual hosts then (envoyproxy/gateway#3602).
const VERSION_MIN: (u32, u32) = (1, 1);

/// The version that throughline was measured with.
const VERSION_MEASURED: &str = "v1.8.1";

/// Envoy Gateway's Deployment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Deployed {
    /// The image's tag.
    pub(super) version: String,
    namespace: String,
    name: String,
    /// The Helm release that it belongs to, where Helm's annotations say so.
    release: Option<String>,
}

/// `None` where there is none, or where we may not list it.
pub(super) async fn deployed(client: &ProbeClient) -> Option<Deployed> {
    let (path, labels) = ("/apis/apps/v1/deployments", Some("control-plane=envoy-gateway"));
    client.list_labelled(path, labels, deployment).await.ok()?.into_iter().next()
}

fn deployment(item: ListItem) -> Option<Deployed> {
    let containers = &item.spec["template"]["spec"]["containers"];
    let image = containers.as_array()?.first()?["image"].as_str()?;
    let (name, tag) = image.rsplit_once(':')?;
    let is_tag = !name.is_empty() && !tag.contains('/');
    let meta = item.metadata;
    is_tag.then(|| Deployed {
        version: tag.to_owned(),
        release: meta.annotations.get("meta.helm.sh/release-name").cloned(),
        namespace: meta.namespace,
        name: meta.name,
    })
}

/// Whether touches have no effect with this version. A tag that is no version may be any.
pub(super) fn is_too_old(version: &str) -> bool {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor)), Some(_)) =
        (numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    (major, minor) < VERSION_MIN
}

pub(super) fn report_too_old(
    group: &mut FindingGroup,
    edge: &str,
    found: &Deployed,
    commands: &Commands,
) {
    let Deployed { version, namespace, name, release } = found;
    let (major, minor) = VERSION_MIN;
    let chart = format!("oci://docker.io/envoyproxy/gateway-helm --version {VERSION_MEASURED}");
    let release = shell_word(release.as_deref().unwrap_or("eg"));
    group.failed(
        "envoy-gateway",
        format!("Envoy Gateway {version} is too old: touches have no effect"),
        format!(
            "Deployment {namespace}/{name}; before v{major}.{minor} the annotations of a Gateway do \
             not enter Envoy Gateway's configuration, so its extension servers are not called"
        ),
        format!(
            "upgrade Envoy Gateway to v{major}.{minor} or newer; throughline was measured with \
             {VERSION_MEASURED}. Its CustomResourceDefinitions come first:\n\
             helm show crds {chart} | {} apply --server-side --force-conflicts -f -\n\
             {} upgrade {release} {chart} -n {namespace} --reuse-values",
            commands.kubectl(edge),
            commands.helm(edge)
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_1_1_are_too_old() {
        for old in ["v1.0.2", "1.0.0", "v0.6.0", "v1.0.0-rc.1"] {
            assert!(is_too_old(old), "{old}");
        }
        for fits in ["v1.1.0", "v1.8.1", "v1.8.1-rc.1", "v2.0.0", "latest", "v0", "f973bfa"] {
            assert!(!is_too_old(fits), "{fits}");
        }
    }
}
