//! Checks whether the Lease can be used, and whether a throughline holds it. The checks never take it: they
//! send their writes with `dryRun=All`.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};

use super::client::{Cluster, call_error, is_ours, manager, millis, owners};
use super::cluster::failure;
use super::finding::{Check, Draft, about};
use super::permissions::LEASES;
use crate::client::CallError;
use crate::clock::wall_clock_now;
use crate::config::Config;
use crate::core::cause::{About, Cause, Facts};
use crate::core::data::ids::{Kind, ObjectKey, Role};
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::data::time::UnixMillis;
use crate::report::duration;

/// How long a Lease that looks expired is given to be renewed, at most: clocks may differ.
const RENEWAL_MAX: Duration = Duration::from_secs(10);

pub(super) async fn check(config: &Config, clusters: &[Cluster]) -> Vec<Draft> {
    let Some(holder) = config.election_cluster() else {
        let why = if !clusters.iter().any(|cluster| cluster.has(Role::Hub)) {
            "not needed: no hub is configured"
        } else if config.dry_run {
            "not needed: nothing is written (dryRun)"
        } else {
            "`leaderElection.enabled` is false: this process always leads, so run only one"
        };
        return [Check::Lease, Check::Leader].map(|check| Draft::passed(check, None, why)).into();
    };
    let Some(cluster) = clusters.iter().find(|cluster| *cluster.name() == holder.name) else {
        return Vec::new();
    };
    let unseen = if !cluster.is_reached {
        Some(cluster.unseen())
    } else if cluster.denied.contains(&LEASES) {
        Some("a permission for Leases is missing".to_owned())
    } else {
        None
    };
    match unseen {
        Some(unseen) => {
            let skip = |check| Draft::skipped(check, Some(cluster.name()), unseen.as_str());
            [Check::Lease, Check::Leader].map(skip).into()
        }
        None => LeaseCheck::new(config, cluster).await.run().await,
    }
}

struct LeaseCheck<'a> {
    cluster: &'a Cluster,
    key: ObjectKey,
    api: Api<Lease>,
}

impl<'a> LeaseCheck<'a> {
    async fn new(config: &Config, cluster: &'a Cluster) -> Self {
        let election = &config.leader_election;
        let namespace = match &election.lease_namespace {
            Some(namespace) => namespace.clone(),
            None => {
                cluster.client.default_namespace().await.unwrap_or_else(|_| "default".to_owned())
            }
        };
        let api = Api::namespaced(cluster.kube.clone(), &namespace);
        Self { cluster, key: ObjectKey::new(namespace, &*election.lease_name), api }
    }

    async fn run(&self) -> Vec<Draft> {
        let lease = match self.read().await {
            Ok(lease) => lease,
            Err(error) => return vec![self.unusable("get", &error)],
        };
        let (verb, written) = match &lease {
            None => ("create", self.create().await),
            Some(lease) => ("update", self.update(lease).await),
        };
        match written {
            // A conflict means that another process wrote it first, and so that it can be written.
            Ok(()) | Err(CallError::Status { code: 409, .. }) => {}
            Err(error) => return vec![self.unusable(verb, &error)],
        }
        let evidence = format!("{verb} of Lease {} as a dry run", self.key);
        let usable = Draft::passed(Check::Lease, Some(self.cluster.name()), evidence);
        vec![usable, self.leader(lease).await]
    }

    /// The Lease; `None` when it does not exist yet.
    async fn read(&self) -> Result<Option<Lease>, CallError> {
        match self.api.get(&self.key.name).await.map_err(call_error) {
            Ok(lease) => Ok(Some(lease)),
            Err(CallError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self) -> Result<(), CallError> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.key.name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some("throughline-check".to_owned()),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            }),
        };
        self.api.create(&dry_run(), &lease).await.map(drop).map_err(call_error)
    }

    async fn update(&self, lease: &Lease) -> Result<(), CallError> {
        self.api.replace(&self.key.name, &dry_run(), lease).await.map(drop).map_err(call_error)
    }

    fn about(&self) -> About {
        About { object: Some(self.key.clone()), ..about(self.cluster.name()) }
    }

    fn unusable(&self, verb: &'static str, error: &CallError) -> Draft {
        let mut facts = failure(self.cluster, error);
        facts.hub = Some(self.cluster.name().clone());
        // Of a refusal by RBAC; a webhook or a quota names no user.
        if error.code() == Some(403) && error.to_string().contains(" User ") {
            facts.verb = Some("get,create,update".into());
            facts.key = Some(LEASES.into());
            facts.role = Some("throughline-leases".into());
            facts.account = self.cluster.account.clone();
        }
        let evidence = format!("{verb} as a dry run: {error}");
        Draft::failed(Check::Lease, Cause::LeaseUnusable, self.about(), facts, evidence)
    }

    async fn leader(&self, lease: Option<Lease>) -> Draft {
        let mut seen = Holder::of(lease.as_ref());
        if let Holder::Somebody { spec, .. } = &seen
            && !is_fresh(spec, wall_clock_now())
        {
            let before = renewed(spec);
            tokio::time::sleep((expires_after(spec) / 3).min(RENEWAL_MAX)).await;
            match self.read().await {
                Ok(now) => seen = Holder::of(now.as_ref()).unless_renewed_at(before),
                Err(error) => {
                    let unseen = format!("whether Lease {} is renewed: {error}", self.key);
                    return Draft::skipped(Check::Leader, Some(self.cluster.name()), unseen);
                }
            }
        }
        let page = self.cluster.api(Kind::Connector).list(&ListParams::default().limit(1)).await;
        let connectors = page.map(|page| !page.items.is_empty()).map_err(call_error);
        self.judge(seen, connectors)
    }

    /// `connectors`: whether the hub has any.
    fn judge(&self, seen: Holder, connectors: Result<bool, CallError>) -> Draft {
        let name = Some(self.cluster.name());
        let mut facts = Facts { hub: name.cloned(), ..Facts::default() };
        let evidence = match seen {
            Holder::Somebody { spec, writer: Writer::Throughline } => {
                let ago = renewed(&spec).map(|at| duration(wall_clock_now().since(at)));
                let ago = ago.unwrap_or_default();
                let holder = spec.holder_identity.unwrap_or_default();
                return Draft::passed(Check::Leader, name, format!("{holder}, renewed {ago} ago"));
            }
            Holder::Somebody { writer: Writer::Unknown, .. } => {
                let unseen = format!("who wrote `holderIdentity` of Lease {}", self.key);
                return Draft::skipped(Check::Leader, name, unseen);
            }
            Holder::Somebody { spec, writer: Writer::Other(manager) } => {
                facts.holder = spec.holder_identity.map(Into::into);
                let evidence = format!("`holderIdentity` was written by {manager}");
                let cause = Cause::NoLeader;
                return Draft::failed(Check::Leader, cause, self.about(), facts, evidence);
            }
            Holder::Expired(holder) => format!("{holder} holds it and does not renew it"),
            Holder::Nobody => "nobody holds it".to_owned(),
        };
        match connectors {
            Ok(true) => {
                let cause = Cause::NoLeader;
                Draft::failed(Check::Leader, cause, self.about(), facts, evidence).warning_if(true)
            }
            Ok(false) => Draft::passed(
                Check::Leader,
                name,
                format!("{evidence}; there are no Connectors yet"),
            ),
            Err(error) => {
                let unseen = format!("{evidence}; whether there are Connectors: {error}");
                Draft::skipped(Check::Leader, name, unseen)
            }
        }
    }
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

/// Who holds the Lease.
enum Holder {
    Nobody,
    /// The name of somebody who does not renew it.
    Expired(String),
    Somebody {
        spec: Box<LeaseSpec>,
        writer: Writer,
    },
}

/// Who wrote the holder's name, by `managedFields`.
enum Writer {
    Throughline,
    /// Another field manager.
    Other(String),
    Unknown,
}

impl Holder {
    fn of(lease: Option<&Lease>) -> Self {
        let Some(lease) = lease else { return Self::Nobody };
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
            return Self::Nobody;
        }
        let mut owners: Vec<_> = owners(&lease.metadata, &["f:spec", "f:holderIdentity"]).collect();
        let writer = if owners.iter().any(|owner| is_ours(owner)) {
            Writer::Throughline
        } else {
            owners.pop().map_or(Writer::Unknown, |owner| Writer::Other(manager(owner).to_owned()))
        };
        Self::Somebody { spec: Box::new(spec), writer }
    }

    /// Expired if it was last renewed at this time.
    fn unless_renewed_at(self, before: Option<UnixMillis>) -> Self {
        match self {
            Self::Somebody { spec, .. } if renewed(&spec) == before => {
                Self::Expired(spec.holder_identity.unwrap_or_default())
            }
            seen => seen,
        }
    }
}

fn renewed(spec: &LeaseSpec) -> Option<UnixMillis> {
    millis(spec.renew_time.as_ref()?)
}

fn expires_after(spec: &LeaseSpec) -> Duration {
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(15));
    Duration::from_secs(seconds.unwrap_or_default())
}

/// Whether it was renewed lately, by our clock. A renewal in the future proves nothing.
fn is_fresh(spec: &LeaseSpec, now: UnixMillis) -> bool {
    let limit = crate::clock::millis(expires_after(spec));
    renewed(spec).is_some_and(|at| at <= now && now.since(at) <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: UnixMillis = UnixMillis(1_795_252_772_000);

    fn lease(holder: &str, age_ms: u64, managers: &[(&str, &str)]) -> Lease {
        let managers = managers.iter().map(|(manager, field)| {
            json!({ "manager": manager, "fieldsType": "FieldsV1",
                "fieldsV1": { "f:spec": { *field: {} } } })
        });
        let renewed = UnixMillis(NOW.0 - age_ms).to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "managedFields": managers.collect::<Vec<_>>() },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        });
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn the_owner_of_the_holders_name_says_whether_it_is_a_throughline() {
        const HOLDER: &str = "f:holderIdentity";
        for (managers, expected) in [
            (&[("throughline", HOLDER)][..], "ours"),
            (&[("kube-scheduler", HOLDER)], "kube-scheduler"),
            // An older entry of ours owns another field.
            (&[("throughline", "f:leaseDurationSeconds"), ("kubectl", HOLDER)], "kubectl"),
            (&[], "unknown"),
        ] {
            let Holder::Somebody { writer, .. } = Holder::of(Some(&lease("a", 0, managers))) else {
                panic!("somebody holds it");
            };
            let writer = match writer {
                Writer::Throughline => "ours".to_owned(),
                Writer::Other(manager) => manager,
                Writer::Unknown => "unknown".to_owned(),
            };
            assert_eq!(writer, expected);
        }
        assert!(matches!(Holder::of(Some(&lease("", 0, &[]))), Holder::Nobody));
        assert!(matches!(Holder::of(None), Holder::Nobody));
    }

    #[test]
    fn a_renewal_counts_by_its_age_or_by_a_newer_one() {
        let spec = |age_ms| lease("a", age_ms, &[]).spec.unwrap();
        assert!(is_fresh(&spec(2_000), NOW) && !is_fresh(&spec(16_000), NOW));
        assert!(!is_fresh(&spec(0), UnixMillis(NOW.0 - 60_000)), "in the future");
        let now = Holder::of(Some(&lease("a", 16_000, &[])));
        assert!(matches!(now.unless_renewed_at(renewed(&spec(18_000))), Holder::Somebody { .. }));
        let now = Holder::of(Some(&lease("a", 16_000, &[])));
        assert!(matches!(now.unless_renewed_at(renewed(&spec(16_000))), Holder::Expired(_)));
    }
}
