//! Checks one cluster by itself: whether it answers, its clock, the kinds it serves, our permissions.

use futures::future::join_all;

use super::commands::Commands;
use super::finding::{Finding, FindingGroup};
use super::kinds::KindAvailability;
use super::permissions::RequiredPermission;
use super::probe_client::ProbeClient;
use super::{clock, kinds, name_and_roles, rights};
use crate::client::CallError;
use crate::clock::millis;
use crate::config::Config;
use crate::core::data::ids::{Kind, Role};
use crate::report::duration;

/// A cluster, and what the checks of it found.
pub(super) struct CheckedCluster {
    pub(super) client: ProbeClient,
    /// It answers and accepts our credentials.
    pub(super) reached: bool,
    /// How far our clock is ahead of the cluster's; negative when behind. `None` if it sent no time.
    pub(super) ahead_ms: Option<i64>,
    pub(super) group: FindingGroup,
    /// What it answered; `None` if it was not reached, or is reported.
    pub(super) answers: Option<Answers>,
    /// The resources for which a permission is missing.
    denied: Vec<&'static str>,
}

/// What a cluster answered about itself.
pub(super) struct Answers {
    pub(super) kinds: Vec<(Kind, KindAvailability)>,
    granted: rights::GrantedPermissions,
}

impl CheckedCluster {
    pub(super) fn has(&self, role: Role) -> bool {
        self.client.cluster.roles().contains(&role)
    }

    pub(super) fn name(&self) -> &str {
        self.client.cluster.name().as_str()
    }

    /// Whether a permission for this resource is missing, and reported as such.
    pub(super) fn denies(&self, resource: &str) -> bool {
        self.denied.contains(&resource)
    }

    /// The findings that do not depend on the cluster's roles.
    pub(super) fn without_roles(self) -> Vec<Finding> {
        let mut findings = self.group.into_findings();
        findings.retain(|finding| ["reachable", "version", "clock"].contains(&finding.check));
        findings
    }
}

/// Asks this cluster whether it can be used. [`report`] reports the answers.
pub(super) async fn check(
    client: ProbeClient,
    config: &Config,
    needed: &[RequiredPermission],
) -> CheckedCluster {
    let cluster = client.cluster.clone();
    let title = format!("cluster {}", name_and_roles(cluster.name().as_str(), cluster.roles()));
    let mut checked = CheckedCluster {
        client,
        reached: false,
        ahead_ms: None,
        group: FindingGroup::new(title),
        answers: None,
        denied: Vec::new(),
    };
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
    checked.ahead_ms = server.ahead_ms;
    let needed: Vec<_> = needed.iter().filter(|need| need.cluster == *cluster.name()).collect();
    let kinds = config.settings().kinds_watched(cluster.roles());
    let (availability, granted) = tokio::join!(
        join_all(kinds.iter().map(|kind| kinds::availability(&checked.client, *kind))),
        rights::fetch(&checked.client, config, &needed),
    );
    checked.denied = granted.denied(&needed);
    checked.answers =
        Some(Answers { kinds: kinds.into_iter().zip(availability).collect(), granted });
    checked
}

/// Reports what the clusters answered. A remedy may name another cluster, so all are known by now.
pub(super) async fn report(
    clusters: &mut [CheckedCluster],
    needed: &[RequiredPermission],
    commands: &Commands,
) {
    clock::report(clusters);
    let copies = join_all(clusters.iter().map(|at| kinds::copies(at, clusters))).await;
    for (cluster, copies) in clusters.iter_mut().zip(copies) {
        let name = cluster.name().to_owned();
        let Some(answers) = cluster.answers.take() else { continue };
        for (kind, availability) in answers.kinds {
            let from = copies.get(&kind).map(String::as_str);
            kinds::report(&mut cluster.group, kind, availability, (&name, from), commands);
        }
        let needed: Vec<_> = needed.iter().filter(|need| need.cluster.as_str() == name).collect();
        rights::report(&mut cluster.group, &answers.granted, &needed, &commands.kubectl(&name));
    }
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
