//! Checks whether the Lease can be used, and who holds it. The checks never take it: they send their
//! writes with `dryRun=All`.

use serde_json::{Value, json};

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::finding::{FindingGroup, join_with_and};
use super::permissions::LEASES;
use super::shards;
use crate::client::CallError;
use crate::clock::wall_clock_now;
use crate::config::Config;
use crate::core::data::ids::Role;
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::data::time::UnixMillis;
use crate::report::duration;

/// A Lease as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObservedLease {
    /// Empty when nobody holds it.
    pub(super) holder: String,
    pub(super) renewed: Option<UnixMillis>,
    pub(super) duration_ms: u64,
    /// Whether throughline wrote it, by `managedFields`; true where there are none.
    pub(super) is_ours: bool,
    managers: Vec<String>,
}

impl ObservedLease {
    pub(super) fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let renewed = spec["renewTime"].as_str().and_then(UnixMillis::parse_rfc3339);
        let fields = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let managers: Vec<_> =
            fields.filter_map(|f| f["manager"].as_str()).map(str::to_owned).collect();
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            renewed,
            duration_ms: spec["leaseDurationSeconds"].as_u64().unwrap_or_default() * 1_000,
            is_ours: managers.iter().any(|m| m == FIELD_MANAGER) || managers.is_empty(),
            managers,
        }
    }
}

pub(super) struct LeaseLocation {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl LeaseLocation {
    pub(super) async fn of(config: &Config, cluster: &CheckedCluster) -> Result<Self, CallError> {
        let election = &config.leader_election;
        let namespace = match &election.lease_namespace {
            Some(namespace) => namespace.clone(),
            None => cluster.client.cluster.default_namespace().await?,
        };
        Ok(Self { namespace, name: election.lease_name.clone() })
    }

    pub(super) fn collection_path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection_path(), self.name)
    }

    /// The Lease; `None` when it does not exist yet.
    pub(super) async fn read(&self, cluster: &CheckedCluster) -> Result<Option<Value>, CallError> {
        match cluster.client.get::<Value>(&self.path()).await {
            Ok(object) => Ok(Some(object)),
            Err(CallError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Display for LeaseLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease {}/{}", self.namespace, self.name)
    }
}

pub(super) async fn check(
    config: &Config,
    clusters: &[CheckedCluster],
    commands: &Commands,
) -> FindingGroup {
    let mut group = FindingGroup::new("leader election");
    let Some(holder) = config.election_cluster() else {
        let why = if !clusters.iter().any(|cluster| cluster.has(Role::Hub)) {
            "not needed: no hub is configured"
        } else if config.dry_run {
            "not needed: nothing is written (dryRun)"
        } else {
            "disabled (leaderElection.enabled): this process always leads, so run only one"
        };
        group.passed("election", why);
        return group;
    };
    let named = |cluster: &&CheckedCluster| cluster.name() == holder.name.as_str();
    let Some(cluster) = clusters.iter().find(named) else { return group };
    if !cluster.reached {
        group.skipped("lease", "the Lease cannot be checked", not_reached(cluster));
        return group;
    }
    if cluster.denies(LEASES) {
        let why = format!("a permission for leases is missing, as reported for {}", cluster.name());
        group.skipped("lease", "the Lease cannot be checked", why);
        return group;
    }
    let kubectl = &commands.kubectl(cluster.name());
    let location = match LeaseLocation::of(config, cluster).await {
        Ok(location) => location,
        Err(error) => {
            group.skipped("lease", "the Lease's namespace is not known", error.to_string());
            return group;
        }
    };
    let shards = config.settings().shards;
    match location.read(cluster).await {
        Err(error) => report_unusable(&mut group, &location, "get", &error, kubectl),
        Ok(None) => {
            let created = create_dry(cluster, &location).await;
            report_dry_run(&mut group, &location, "create", created.err(), kubectl);
            if shards.is_one() {
                group.passed("holder", "nobody holds it: it does not exist yet");
            }
        }
        Ok(Some(object)) => {
            let updated = cluster.client.put(&dry_run(&location.path()), &object).await;
            report_dry_run(&mut group, &location, "update", updated.err(), kubectl);
            let (lease, now) = (ObservedLease::of(&object), server_time(cluster));
            if shards.is_one() {
                report_holder(&mut group, &location, &lease, now);
            }
        }
    }
    if !shards.is_one() {
        shards::report(&mut group, cluster, &location, shards, server_time(cluster)).await;
    }
    group
}

/// The time by the cluster's clock.
pub(super) fn server_time(cluster: &CheckedCluster) -> UnixMillis {
    let ahead_ms = cluster.ahead_ms.unwrap_or(0);
    UnixMillis(wall_clock_now().0.saturating_add_signed(-ahead_ms))
}

pub(super) fn not_reached(cluster: &CheckedCluster) -> String {
    format!("{} was not reached", cluster.name())
}

fn dry_run(path: &str) -> String {
    format!("{path}?dryRun=All&fieldManager={FIELD_MANAGER}")
}

async fn create_dry(
    cluster: &CheckedCluster,
    location: &LeaseLocation,
) -> Result<Value, CallError> {
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": location.namespace, "name": location.name },
        "spec": { "holderIdentity": "throughline-check", "leaseDurationSeconds": 15 },
    });
    cluster.client.post(&dry_run(&location.collection_path()), &object).await
}

fn report_dry_run(
    group: &mut FindingGroup,
    location: &LeaseLocation,
    verb: &str,
    error: Option<CallError>,
    kubectl: &str,
) {
    match error {
        // A conflict means that another process wrote it first, and so that it can be written.
        None | Some(CallError::Status { code: 409, .. }) => {
            group.passed("lease", format!("{location} can be used ({verb}, as a dry run)"));
        }
        Some(error) => report_unusable(group, location, verb, &error, kubectl),
    }
}

fn report_unusable(
    group: &mut FindingGroup,
    location: &LeaseLocation,
    verb: &str,
    error: &CallError,
    kubectl: &str,
) {
    let remedy = match error {
        CallError::Status { code: 403, message, .. }
            if message.contains("forbidden: User") || verb == "get" =>
        {
            format!(
                "grant get, create and update on leases of API group coordination.k8s.io in \
                 namespace {} to the user or ServiceAccount",
                location.namespace
            )
        }
        CallError::Status { code: 403 | 422, .. } => {
            "let the admission policy or the quota that refuses it accept this Lease".to_owned()
        }
        CallError::Status { code: 404, .. } => format!(
            "create namespace {0}, or name another one in leaderElection.leaseNamespace:\n\
             {kubectl} create namespace {0}",
            location.namespace
        ),
        _ => "read the API server's log".to_owned(),
    };
    let what = format!("{location} cannot be used: no leader is elected and nothing is mirrored");
    group.failed("lease", what, format!("{verb}: {error}"), remedy);
}

fn report_holder(
    group: &mut FindingGroup,
    location: &LeaseLocation,
    lease: &ObservedLease,
    now: UnixMillis,
) {
    if lease.holder.is_empty() {
        group.passed("holder", "nobody holds it: it was released");
        return;
    }
    let holder = &lease.holder;
    let age = lease.renewed.map(|at| now.since(at));
    let ago = age.map_or("never renewed".to_owned(), |ms| format!("renewed {} ago", duration(ms)));
    if !lease.is_ours {
        let managers = join_with_and(&lease.managers);
        group.warned(
            "holder",
            format!("{holder} holds it ({ago}), and is not a throughline"),
            format!("{location} was written by {managers}"),
            "two programs that share a Lease lock each other out: give throughline its own with \
             leaderElection.leaseName",
        );
    } else if age.is_none_or(|ms| ms > lease.duration_ms) {
        let expires = duration(lease.duration_ms);
        group.warned(
            "holder",
            format!("{holder} holds it and does not renew it: nobody leads"),
            format!("{location}: {ago}, expires after {expires}"),
            "find out why that instance stopped, or cannot reach the Lease; a new instance takes the \
             Lease over by itself",
        );
    } else {
        group.passed("holder", format!("{holder} leads ({ago}); other instances stand by"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    const NOW: UnixMillis = UnixMillis(1_795_252_772_000);

    fn found(manager: &str, holder: &str, age_ms: u64) -> (Level, String) {
        let renewed = UnixMillis(NOW.0 - age_ms).to_string();
        let object = json!({
            "metadata": { "managedFields": [{ "manager": manager }] },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        });
        let mut group = FindingGroup::new("g");
        let location = LeaseLocation { namespace: "a".into(), name: "l".into() };
        report_holder(&mut group, &location, &ObservedLease::of(&object), NOW);
        let finding = group.into_findings().remove(0);
        (finding.level, finding.what)
    }

    #[test]
    fn the_holder_is_named_and_judged_by_its_last_renewal() {
        for (manager, name, age_ms, level, text) in [
            ("throughline", "pod-1", 2_000, Level::Passed, "leads"),
            ("throughline", "pod-1", 16_000, Level::Warning, "does not renew"),
            ("throughline", "", 16_000, Level::Passed, "released"),
            ("kube-scheduler", "node-1", 2_000, Level::Warning, "not a throughline"),
        ] {
            let (found, what) = found(manager, name, age_ms);
            assert_eq!(found, level, "{what}");
            assert!(what.contains(text), "{what}");
        }
    }
}
