//! Checks whether the Lease of each shard can be used, and whether a throughline holds it. The checks
//! never take it: they send their writes with `dryRun=All`.

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use serde_json::json;

use super::client::{Cluster, call_error};
use super::cluster::failure;
use super::finding::{Check, Draft};
use crate::client::CallError;
use crate::clock::wall_clock_now;
use crate::config::Config;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::data::ids::{Kind, NamespacedName, Role};
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::data::shard::Shard;
use crate::core::data::time::UnixMillis;
use crate::field_owner::field_owner;
use crate::leader::group::Group;
use crate::leader::lease::{LEASES, is_fresh, renewal_within};

pub(super) async fn check(config: &Config, clusters: &[Cluster]) -> Vec<Draft> {
    let elected = config.election_cluster().map(|cluster| &cluster.name);
    let Some(cluster) = clusters.iter().find(|cluster| Some(cluster.name()) == elected) else {
        let why = if !clusters.iter().any(|cluster| cluster.has(Role::Hub)) {
            "not needed: no hub is configured"
        } else if config.dry_run {
            "not needed: nothing is written (dryRun)"
        } else {
            "`leaderElection.enabled` is false: this process always leads, so run only one"
        };
        return [Check::Lease, Check::Leader].map(|check| Draft::passed(check, None, why)).into();
    };
    let unseen = if !cluster.is_reached {
        Some(cluster.unseen())
    } else if cluster.denied.contains(&LEASES) {
        Some("a permission for Leases is missing".to_owned())
    } else {
        None
    };
    if let Some(unseen) = unseen {
        let skip = |check| Draft::skipped(check, Some(cluster.name()), unseen.as_str());
        return [Check::Lease, Check::Leader].map(skip).into();
    }
    let namespace = &*cluster.lease_namespace(config).await;
    let of = config.leader_election.shards;
    let check = async |index| {
        let group = Group::new(&config.leader_election.lease_name, Shard { index, of });
        let key = NamespacedName::new(namespace, group.own_lease());
        let api = Api::namespaced(cluster.kube.clone(), namespace);
        LeaseCheck { cluster, key, api }.run().await
    };
    join_all((0..of).map(check)).await.into_iter().flatten().collect()
}

struct LeaseCheck<'a> {
    cluster: &'a Cluster,
    key: NamespacedName,
    api: Api<Lease>,
}

impl LeaseCheck<'_> {
    async fn run(&self) -> Vec<Draft> {
        let lease = match self.read().await {
            Ok(lease) => lease,
            Err(error) => return vec![self.unusable("get", &error)],
        };
        let dry_run = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let (verb, written) = match &lease {
            None => ("create", self.api.create(&dry_run, &self.new_lease()).await),
            Some(lease) => ("update", self.api.replace(self.key.name(), &dry_run, lease).await),
        };
        match written.map_err(call_error) {
            // A conflict means that another process wrote it first, and so that it can be written.
            Ok(_) | Err(CallError::Status { code: 409, .. }) => {}
            Err(error) => return vec![self.unusable(verb, &error)],
        }
        let evidence = format!("{verb} of Lease {} as a dry run", self.key);
        let usable = Draft::passed(Check::Lease, Some(self.cluster.name()), evidence);
        vec![usable, self.leader(lease).await]
    }

    /// The Lease; `None` when it does not exist yet.
    async fn read(&self) -> Result<Option<Lease>, CallError> {
        match self.api.get(self.key.name()).await.map_err(call_error) {
            Ok(lease) => Ok(Some(lease)),
            Err(CallError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new_lease(&self) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.key.name().to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some("throughline-check".to_owned()),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            }),
        }
    }

    fn about(&self) -> About {
        About { object: Some(self.key.clone()), ..About::cluster(self.cluster.name()) }
    }

    fn unusable(&self, verb: &'static str, error: &CallError) -> Draft {
        let mut facts = failure(self.cluster, error);
        facts.hub = Some(self.cluster.name().clone());
        // A refusal by RBAC; a webhook or a quota names no user.
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
        let name = Some(self.cluster.name());
        let mut seen = Holder::of(lease.as_ref());
        let mut is_renewed = true;
        if let Some(before) = seen.as_ref().filter(|seen| !seen.is_fresh(wall_clock_now())) {
            tokio::time::sleep(renewal_within(before.lease_ms)).await;
            let later = match self.read().await {
                Ok(lease) => Holder::of(lease.as_ref()),
                Err(error) => {
                    let unseen = format!("whether Lease {} is renewed: {error}", self.key);
                    return Draft::skipped(Check::Leader, name, unseen);
                }
            };
            is_renewed = later.as_ref().is_some_and(|later| later.renewed != before.renewed);
            seen = later;
        }
        let mut facts = Facts { hub: name.cloned(), ..Facts::default() };
        let evidence = match seen {
            None => "nobody holds it".to_owned(),
            Some(Holder { holder, .. }) if !is_renewed => {
                format!("{holder} holds it and does not renew it")
            }
            Some(Holder { holder, writer, .. }) => match writer.as_deref() {
                Some(FIELD_MANAGER) => {
                    let evidence = format!("{holder} renews Lease {}", self.key);
                    return Draft::passed(Check::Leader, name, evidence);
                }
                None => {
                    let unseen = format!("who wrote `holderIdentity` of Lease {}", self.key);
                    return Draft::skipped(Check::Leader, name, unseen);
                }
                Some(manager) => {
                    facts.holder = Some(holder.into());
                    let evidence = format!("`holderIdentity` was written by {manager}");
                    let cause = Cause::NoLeader;
                    return Draft::failed(Check::Leader, cause, self.about(), facts, evidence);
                }
            },
        };
        let page = self.cluster.api(Kind::Connector).list(&ListParams::default().limit(1)).await;
        match page.map_err(call_error) {
            Ok(page) if page.items.is_empty() => {
                let evidence =
                    format!("Lease {}: {evidence}; there are no Connectors yet", self.key);
                Draft::passed(Check::Leader, name, evidence)
            }
            Ok(_) => {
                let cause = Cause::NoLeader;
                Draft::failed(Check::Leader, cause, self.about(), facts, evidence).into_warning()
            }
            Err(error) => {
                let unseen = format!("{evidence}; whether there are Connectors: {error}");
                Draft::skipped(Check::Leader, name, unseen)
            }
        }
    }
}

/// The holder of a Lease.
struct Holder {
    holder: String,
    /// The field manager that wrote this name; `None` if that is not visible.
    writer: Option<String>,
    renewed: Option<UnixMillis>,
    lease_ms: u64,
}

impl Holder {
    /// `None` if the Lease has no holder.
    fn of(lease: Option<&Lease>) -> Option<Self> {
        let lease = lease?;
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let writer = field_owner(&json!(lease), &["spec", "holderIdentity"]);
        let renewed = spec.renew_time.as_ref().map(|at| at.0.as_millisecond());
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(15));
        Some(Self {
            holder,
            writer: writer.map(|writer| writer.manager),
            renewed: renewed.and_then(|ms| u64::try_from(ms).ok()).map(UnixMillis),
            lease_ms: seconds.unwrap_or_default().saturating_mul(1_000),
        })
    }

    fn is_fresh(&self, now: UnixMillis) -> bool {
        is_fresh(self.renewed, self.lease_ms, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_795_252_772_000);

    fn lease(holder: &str, age_ms: u64) -> Lease {
        let renewed = UnixMillis(NOW.0 - age_ms).to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        });
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn a_renewal_by_a_holder_counts_by_its_age() {
        assert!(Holder::of(Some(&lease("", 0))).is_none() && Holder::of(None).is_none());
        let holder = |age_ms| Holder::of(Some(&lease("a", age_ms))).unwrap();
        assert!(holder(0).writer.is_none(), "no managedFields");
        assert!(holder(2_000).is_fresh(NOW) && !holder(16_000).is_fresh(NOW));
        assert!(!holder(0).is_fresh(UnixMillis(NOW.0 - 60_000)), "in the future");
    }
}
