//! Whether the Lease can be used, and who has it. It is never taken: what would be written is sent
//! with `dryRun=All`.

use serde_json::{Value, json};

use super::cluster::Look;
use super::finding::Group;
use crate::client::CallError;
use crate::clock::wall;
use crate::config::Config;
use crate::core::ids::Role;
use crate::core::objects::FIELD_MANAGER;
use crate::core::time::UnixMillis;
use crate::report::duration;

/// A Lease as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Empty when nobody holds it.
    pub(super) holder: String,
    pub(super) renewed: Option<UnixMillis>,
    pub(super) lease_ms: u64,
    /// Written by throughline, as far as `managedFields` tell.
    pub(super) ours: bool,
    /// Who wrote it.
    managers: Vec<String>,
}

impl Held {
    pub(super) fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let renewed = spec["renewTime"].as_str().and_then(UnixMillis::parse_rfc3339);
        let fields = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let managers: Vec<_> =
            fields.filter_map(|f| f["manager"].as_str()).map(str::to_owned).collect();
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            renewed,
            lease_ms: spec["leaseDurationSeconds"].as_u64().unwrap_or_default() * 1_000,
            ours: managers.iter().any(|m| m == FIELD_MANAGER) || managers.is_empty(),
            managers,
        }
    }
}

/// Where the Lease is, for requests and for people.
pub(super) struct Place {
    namespace: String,
    name: String,
}

impl Place {
    pub(super) async fn of(config: &Config, look: &Look) -> Result<Self, CallError> {
        let election = &config.leader_election;
        let namespace = match &election.lease_namespace {
            Some(namespace) => namespace.clone(),
            None => look.asked.cluster.default_namespace().await?,
        };
        Ok(Self { namespace, name: election.lease_name.clone() })
    }

    fn all(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn one(&self) -> String {
        format!("{}/{}", self.all(), self.name)
    }

    /// The Lease; `None` when there is none yet.
    pub(super) async fn read(&self, look: &Look) -> Result<Option<Value>, CallError> {
        match look.asked.get::<Value>(&self.one()).await {
            Ok(object) => Ok(Some(object)),
            Err(CallError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease {}/{}", self.namespace, self.name)
    }
}

/// Looks at the Lease.
pub(super) async fn look(config: &Config, looks: &[Look]) -> Group {
    let mut group = Group::new("leader election");
    let Some(cluster) = config.election_cluster() else {
        let why = if !looks.iter().any(|look| look.has(Role::Downstream)) {
            "none is needed: there is no downstream cluster to lead at"
        } else if config.dry_run {
            "none is needed: nothing is written (dryRun)"
        } else {
            "none is wanted (leaderElection.enabled): this process always leads, so let it be the \
             only one"
        };
        group.passed("election", why);
        return group;
    };
    let Some(look) = looks.iter().find(|look| look.name() == cluster.name.as_str()) else {
        return group;
    };
    if !look.reached {
        group.skipped("lease", "the Lease can't be looked at", unreached(look));
        return group;
    }
    let place = match Place::of(config, look).await {
        Ok(place) => place,
        Err(error) => {
            group.skipped("lease", "the Lease's namespace can't be told", error.to_string());
            return group;
        }
    };
    match place.read(look).await {
        Err(error) => refused(&mut group, &place, "get", &error),
        Ok(None) => {
            tried(&mut group, &place, "create", create(look, &place).await.err());
            group.passed("holder", "nobody holds it: there is none yet");
        }
        Ok(Some(object)) => {
            let updated = look.asked.put(&dry(&place.one()), &object).await;
            tried(&mut group, &place, "update", updated.err());
            holder(&mut group, &place, &Held::of(&object), now(look));
        }
    }
    group
}

/// The API server's time now, by our clock.
pub(super) fn now(look: &Look) -> UnixMillis {
    UnixMillis(wall().0.saturating_add_signed(-look.ahead_ms))
}

pub(super) fn unreached(look: &Look) -> String {
    format!("{} was not reached", look.name())
}

fn dry(path: &str) -> String {
    format!("{path}?dryRun=All&fieldManager={FIELD_MANAGER}")
}

async fn create(look: &Look, place: &Place) -> Result<Value, CallError> {
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": place.namespace, "name": place.name },
        "spec": { "holderIdentity": "throughline-check", "leaseDurationSeconds": 15 },
    });
    look.asked.post(&dry(&place.all()), &object).await
}

fn tried(group: &mut Group, place: &Place, verb: &str, error: Option<CallError>) {
    match error {
        // Somebody else was quicker: so it can be written.
        None | Some(CallError::Status { code: 409, .. }) => {
            group.passed("lease", format!("{place} can be used ({verb}, tried as a dry run)"));
        }
        Some(error) => refused(group, place, verb, &error),
    }
}

fn refused(group: &mut Group, place: &Place, verb: &str, error: &CallError) {
    let remedy = match error {
        CallError::Status { code: 403, message, .. }
            if message.contains("forbidden: User") || verb == "get" =>
        {
            format!(
                "grant get, create and update on leases of API group coordination.k8s.io in \
                 namespace {} to the user or ServiceAccount",
                place.namespace
            )
        }
        CallError::Status { code: 403 | 422, .. } => {
            "an admission policy or a quota says no: let it pass this Lease".to_owned()
        }
        CallError::Status { code: 404, .. } => format!(
            "create namespace {}, or name another one in leaderElection.leaseNamespace",
            place.namespace
        ),
        _ => "see the API server's log".to_owned(),
    };
    let what = format!("{place} can't be used: nobody would be elected, nothing mirrored");
    group.failed("lease", what, format!("{verb}: {error}"), remedy);
}

fn holder(group: &mut Group, place: &Place, held: &Held, now: UnixMillis) {
    if held.holder.is_empty() {
        group.passed("holder", "nobody holds it: it was released");
        return;
    }
    let holder = &held.holder;
    let age = held.renewed.map(|at| now.since(at));
    let ago = age.map_or("never renewed".to_owned(), |ms| format!("renewed {} ago", duration(ms)));
    if !held.ours {
        let by = super::finding::and(&held.managers);
        group.warned(
            "holder",
            format!("{holder} holds it ({ago}), and is no throughline"),
            format!("{place} was last written by {by}"),
            "two programs that share a Lease shut each other out: give throughline one of its own \
             by leaderElection.leaseName",
        );
    } else if age.is_none_or(|ms| ms > held.lease_ms) {
        let lease = duration(held.lease_ms);
        group.warned(
            "holder",
            format!("{holder} holds it and does not renew it: nobody leads"),
            format!("{place}: {ago}, and lasts {lease}"),
            "see why its process is gone, or can't reach the Lease; a throughline that is started \
             takes it by itself, a lease later",
        );
    } else {
        group.passed("holder", format!("{holder} leads ({ago}); one more replica would stand by"));
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
        let mut group = Group::new("g");
        let place = Place { namespace: "a".into(), name: "l".into() };
        holder_of(&mut group, &place, &object);
        let finding = group.findings().remove(0);
        (finding.level, finding.what)
    }

    fn holder_of(group: &mut Group, place: &Place, object: &Value) {
        holder(group, place, &Held::of(object), NOW);
    }

    #[test]
    fn whoever_holds_it_is_told_and_how_well() {
        for (manager, name, age_ms, level, told) in [
            ("throughline", "pod-1", 2_000, Level::Passed, "leads"),
            ("throughline", "pod-1", 16_000, Level::Warning, "does not renew"),
            ("throughline", "", 16_000, Level::Passed, "released"),
            ("kube-scheduler", "node-1", 2_000, Level::Warning, "no throughline"),
        ] {
            let (found, what) = found(manager, name, age_ms);
            assert_eq!(found, level, "{what}");
            assert!(what.contains(told), "{what}");
        }
    }
}
