//! Checks whether a cluster serves a kind, in the version that throughline uses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::finding::FindingGroup;
use super::permissions::split_resource;
use super::probe_client::{ProbeClient, string_fields};
use crate::client::{CallError, path};
use crate::core::data::ids::Kind;
use crate::report::count;

pub(super) enum KindAvailability {
    /// The number of objects is `None` where we may not list them.
    Served {
        objects: Option<u64>,
    },
    /// Not served in the version that throughline uses.
    NotServed {
        other_versions: Vec<String>,
    },
    Unknown(CallError),
}

pub(super) async fn availability(client: &ProbeClient, kind: Kind) -> KindAvailability {
    use KindAvailability::{NotServed, Served, Unknown};
    let (plural, group) = split_resource(kind.resource());
    let version = version_without_group(kind);
    match client.count(&path(kind, None)).await {
        Ok(count) => Served { objects: Some(count) },
        // The core group is always served.
        Err(CallError::Status { code: 403, .. }) if group.is_empty() => Served { objects: None },
        // An API server answers 403 before it looks whether the kind exists.
        Err(error @ CallError::Status { code: 403 | 404, .. }) => {
            match client.is_served(group, version, plural).await {
                Ok(true) if error.code() == Some(403) => Served { objects: None },
                Ok(true) => Unknown(error),
                Ok(false) => {
                    NotServed { other_versions: served_versions(client, group, plural).await }
                }
                Err(error) => Unknown(error),
            }
        }
        Err(error) => Unknown(error),
    }
}

fn version_without_group(kind: Kind) -> &'static str {
    let version = kind.api_version();
    version.rsplit('/').next().unwrap_or(version)
}

async fn served_versions(client: &ProbeClient, group: &str, plural: &str) -> Vec<String> {
    let Ok(found) = client.get::<Value>(&format!("/apis/{group}")).await else { return Vec::new() };
    let mut versions = Vec::new();
    for version in string_fields(&found["versions"], "version") {
        if client.is_served(group, version, plural).await.unwrap_or(false) {
            versions.push(version.to_owned());
        }
    }
    versions
}

/// For each kind that `at` does not serve at all: another cluster that serves it in the version used.
pub(super) async fn copies(
    at: &CheckedCluster,
    clusters: &[CheckedCluster],
) -> BTreeMap<Kind, String> {
    let mut copies = BTreeMap::new();
    let missing = |availability: &KindAvailability| matches!(availability, KindAvailability::NotServed { other_versions } if other_versions.is_empty());
    let kinds = at.answers.iter().flat_map(|answers| &answers.kinds);
    for (kind, _) in kinds.filter(|(_, availability)| missing(availability)) {
        let (plural, group) = split_resource(kind.resource());
        for other in clusters.iter().filter(|other| other.reached && other.name() != at.name()) {
            let served = other.client.is_served(group, version_without_group(*kind), plural).await;
            if served.unwrap_or(false) {
                copies.insert(*kind, other.name().to_owned());
                break;
            }
        }
    }
    copies
}

/// `from`: another cluster that serves the kind.
pub(super) fn report(
    group: &mut FindingGroup,
    kind: Kind,
    availability: KindAvailability,
    (at, from): (&str, Option<&str>),
    commands: &Commands,
) {
    use KindAvailability::{NotServed, Served, Unknown};
    let (resource, group_version) = (kind.resource(), kind.api_version());
    let version = version_without_group(kind);
    match availability {
        Served { objects: Some(objects) } => {
            let objects = count(usize::try_from(objects).unwrap_or(usize::MAX), "object");
            group.passed("kind", format!("serves {resource} in {version}: {objects}"));
        }
        Served { objects: None } => {
            group.passed("kind", format!("serves {resource} in {version}"));
        }
        NotServed { other_versions } => {
            let what = format!("does not serve {resource} in {version}");
            let (detail, remedy) = if other_versions.is_empty() {
                let detail = format!("GET /apis/{group_version} does not list it");
                (detail, install(kind, at, from, commands))
            } else {
                let detail = format!("served only in {}", other_versions.join(", "));
                let remedy = format!(
                    "the installed platform is older or newer than this throughline: make the \
                     CustomResourceDefinition {resource} serve {version}, or install the throughline \
                     that matches the platform"
                );
                (detail, remedy)
            };
            group.failed("kind", what, detail, remedy);
        }
        Unknown(error) => {
            let detail = format!("GET {}: {error}", path(kind, None));
            let remedy = error.remedy("list", kind).unwrap_or_else(|| {
                "read the API server's log: look for a conversion webhook, an aggregated API or etcd"
                    .to_owned()
            });
            group.failed("kind", format!("cannot list {resource}"), detail, remedy);
        }
    }
}

/// How to get a kind that is not served: as another cluster has it, which fits the platform that is
/// installed, or else as its project publishes it.
fn install(kind: Kind, at: &str, from: Option<&str>, commands: &Commands) -> String {
    let resource = kind.resource();
    let (plural, group) = split_resource(resource);
    let explanation = format!("install the CustomResourceDefinition {resource} at {at}");
    if let Some(from) = from.filter(|from| commands.can_name(from) && commands.can_name(at)) {
        return format!(
            "{explanation}, as {from} has it:\n\
             {} get crd {resource} -o yaml | sed -E '/^  (resourceVersion|uid):/d' | {} create -f -",
            commands.kubectl(from),
            commands.kubectl(at)
        );
    }
    let file = match group {
        "gateway.networking.k8s.io" => format!("{GATEWAY_API}/standard-install.yaml"),
        _ => format!("{PLATFORM_CRDS}/{group}_{plural}.yaml"),
    };
    format!("{explanation}:\n{} apply --server-side -f {file}", commands.kubectl(at))
}

const GATEWAY_API: &str = "https://github.com/kubernetes-sigs/gateway-api/releases/latest/download";
const PLATFORM_CRDS: &str =
    "https://raw.githubusercontent.com/datum-cloud/network-services-operator/main/config/crd/bases";
