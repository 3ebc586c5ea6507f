//! Checks one cluster by itself: whether it answers, its clock, the kinds it serves, our permissions.

use futures::future::join_all;
use serde_json::Value;

use super::finding::FindingGroup;
use super::permissions::{RequiredPermission, split_resource};
use super::probe_client::{ProbeClient, string_fields};
use super::{name_and_roles, rights};
use crate::client::{CallError, path};
use crate::clock::millis;
use crate::config::Config;
use crate::core::data::ids::{Kind, Role};
use crate::report::{count, duration};

/// The `Date` of an answer is exact to half a second only.
const CLOCK_SKEW_MAX_MS: u64 = 3_000;

/// A cluster, and what the checks of it found.
pub(super) struct CheckedCluster {
    pub(super) client: ProbeClient,
    /// It answers and accepts our credentials.
    pub(super) reached: bool,
    /// How far our clock is ahead of the cluster's; negative when behind.
    pub(super) ahead_ms: i64,
    pub(super) group: FindingGroup,
}

impl CheckedCluster {
    pub(super) fn has(&self, role: Role) -> bool {
        self.client.cluster.roles().contains(&role)
    }

    pub(super) fn name(&self) -> &str {
        self.client.cluster.name().as_str()
    }
}

/// Runs the checks that concern this cluster alone.
pub(super) async fn check(
    client: ProbeClient,
    config: &Config,
    needed: &[RequiredPermission],
) -> CheckedCluster {
    let cluster = client.cluster.clone();
    let title = format!("cluster {}", name_and_roles(cluster.name().as_str(), cluster.roles()));
    let group = FindingGroup::new(title);
    let mut checked = CheckedCluster { client, reached: false, ahead_ms: 0, group };
    let server = match checked.client.server_info().await {
        Ok(server) => server,
        Err(error) => {
            report_unreachable(&mut checked.group, &error);
            return checked;
        }
    };
    checked.reached = true;
    let response_time = duration(millis(server.response_time));
    checked.group.passed("reachable", format!("answered in {response_time}"));
    match server.version {
        Some(version) => checked.group.passed("version", format!("Kubernetes {version}")),
        None => checked.group.skipped(
            "version",
            "its version cannot be read",
            "GET /version was refused or not found",
        ),
    }
    checked.ahead_ms = server.ahead_ms.unwrap_or(0);
    report_clock(&mut checked.group, server.ahead_ms);
    let needed: Vec<_> = needed.iter().filter(|need| need.cluster == *cluster.name()).collect();
    let kinds = config.settings().kinds_watched(cluster.roles());
    let (availability, granted) = tokio::join!(
        join_all(kinds.iter().map(|kind| kind_availability(&checked.client, *kind))),
        rights::fetch(&checked.client, config, &needed),
    );
    for (kind, availability) in kinds.into_iter().zip(availability) {
        report_kind(&mut checked.group, kind, availability);
    }
    rights::report(&mut checked.group, &granted, &needed);
    checked
}

fn report_unreachable(group: &mut FindingGroup, error: &CallError) {
    let (what, remedy) = match error {
        CallError::Status { code: 401, .. } => (
            "rejects the credentials",
            "renew the token or the client certificate in the kubeconfig",
        ),
        CallError::NoClient(_) => {
            ("cannot be connected to", "fix the cluster's kubeconfig, context or inCluster setting")
        }
        CallError::TimedOut(_) => (
            "does not answer",
            "check that its API server is up and that nothing on the way drops packets: a \
             NetworkPolicy, a firewall, a proxy",
        ),
        CallError::Status { .. } => ("answers with an error", "read the API server's log"),
        CallError::Certificate(_) => (
            "cannot be reached over TLS",
            "check certificate-authority-data, the server's name and the client certificate in the \
             kubeconfig",
        ),
        CallError::Unreadable(_) => (
            "gives an answer that is not an API server's",
            "check that the server address in the kubeconfig is that of an API server, and not of a \
             proxy or a login page",
        ),
        CallError::Unreachable(_) => (
            "cannot be reached",
            "check that the server address in the kubeconfig is right, that the server is up, and \
             that it can be reached from here: DNS, NetworkPolicy, firewall, proxy",
        ),
    };
    group.failed("reachable", what, format!("GET /version: {error}"), remedy);
}

fn report_clock(group: &mut FindingGroup, ahead_ms: Option<i64>) {
    let Some(ahead_ms) = ahead_ms else { return };
    let skew_ms = ahead_ms.unsigned_abs();
    if skew_ms <= CLOCK_SKEW_MAX_MS {
        group.passed("clock", "its clock agrees with ours");
        return;
    }
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    group.warned(
        "clock",
        format!("our clock is {} {side} its clock", duration(skew_ms)),
        "compared with the Date header of its answer",
        "synchronise both clocks (NTP): the age of a route is computed from both, and logs of \
         several clusters cannot be compared otherwise",
    );
}

enum KindAvailability {
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

async fn kind_availability(client: &ProbeClient, kind: Kind) -> KindAvailability {
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

fn report_kind(group: &mut FindingGroup, kind: Kind, availability: KindAvailability) {
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
                (detail, format!("install the CustomResourceDefinition {resource}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn clock_skew_is_a_warning() {
        for (ahead_ms, level, text) in [
            (2_900, Level::Passed, "agrees"),
            (-2_900, Level::Passed, "agrees"),
            (61_000, Level::Warning, "ahead of"),
            (-61_000, Level::Warning, "behind"),
        ] {
            let mut group = FindingGroup::new("g");
            report_clock(&mut group, Some(ahead_ms));
            let finding = group.into_findings().remove(0);
            assert_eq!(finding.level, level);
            assert!(finding.what.contains(text), "{}", finding.what);
        }
    }
}
