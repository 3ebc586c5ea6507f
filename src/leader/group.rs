//! The instances that share one fleet, and the names of their Leases.
//!
//! | Lease | holder | what for |
//! |---|---|---|
//! | `NAME-0`, `NAME-1`, … | the shard's leader | each is an election of its own |
//! | `NAME-member-HASH` | the instance, as long as it lives | how many instances share the fleet |
//! | `NAME` | `8 shards` | keeps out instances that have another number of shards, and those that have one: this is their Lease |

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::debug;
use xxhash_rust::xxh3::xxh3_64;

use super::board::ShownLease;
use super::lease::{self, LeaseClient};
use crate::client::{self, CallError, ClusterClient, JSON, with_body};
use crate::core::contract::error_cause::ErrorCause;
use crate::core::data::shard::{Shard, Shards};
use crate::events::Recorder;

/// The label of a group's Leases. Its value is the group's name.
pub(super) const GROUP_LABEL: &str = "throughline.datumapis.com/lease-group";

/// The label of a group's Leases that says how many shards their writer has.
pub(super) const SHARDS_LABEL: &str = "throughline.datumapis.com/shards";

/// The instances that share one fleet by Leases of one name.
#[derive(Clone, Debug)]
pub struct LeaseGroup {
    /// Give it a [`ClusterClient`] of its own: on a connection that others keep busy, renewals would be
    /// late.
    pub cluster: Arc<ClusterClient>,
    /// `None`: the cluster client's default namespace.
    pub namespace: Option<String>,
    pub name: String,
    pub shards: Shards,
    /// How long each request may take.
    pub timeout: Duration,
    /// Changes of leadership are posted to it.
    pub events: Option<Recorder>,
}

impl LeaseGroup {
    pub(super) fn shard_name(&self, shard: Shard) -> String {
        format!("{}-{shard}", self.name)
    }

    pub(super) fn member_prefix(&self) -> String {
        format!("{}-member-", self.name)
    }

    pub(super) fn member_name(&self, identity: &str) -> String {
        format!("{}{:016x}", self.member_prefix(), xxh3_64(identity.as_bytes()))
    }

    /// Who holds the Lease without a number, as long as an instance of the group lives.
    pub(super) fn claimant(&self) -> String {
        format!("{} shards", self.shards.count())
    }

    /// Whether an instance with as many shards wrote it. Another one waits, and shares nothing out.
    pub(super) fn is_of_same_number(&self, lease: &Value) -> bool {
        let count = self.shards.count().to_string();
        lease["metadata"]["labels"][SHARDS_LABEL] == count.as_str()
    }

    /// A client for one of the group's Leases.
    pub(super) fn lease(&self, name: String, events: Option<Recorder>) -> LeaseClient {
        let (cluster, namespace) = (self.cluster.clone(), self.namespace.clone());
        LeaseClient::new(cluster, namespace, name, self.timeout, events)
            .in_group(&self.name, self.shards)
    }

    async fn path(&self) -> Result<String, CallError> {
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => self.cluster.default_namespace().await?,
        };
        Ok(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"))
    }

    /// All Leases of the group, as they are shown at `now`.
    ///
    /// # Errors
    /// The Leases cannot be read: why, and what a person can do.
    pub(super) async fn list(&self, now: u64) -> Result<Vec<ShownLease>, String> {
        let listed = tokio::time::timeout(self.timeout, self.call_list(now)).await;
        listed.unwrap_or(Err(CallError::TimedOut(self.timeout))).map_err(|error| {
            let remedy = match error.cause() {
                ErrorCause::Forbidden => {
                    format!("; grant list on {} to the ServiceAccount", lease::LEASES)
                }
                _ => String::new(),
            };
            format!("list of the Leases of {}: {error}{remedy}", self.name)
        })
    }

    async fn call_list(&self, now: u64) -> Result<Vec<ShownLease>, CallError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Value>,
        }
        let selector = format!("{}%3D{}", GROUP_LABEL.replace('/', "%2F"), self.name);
        let uri = format!("{}?labelSelector={selector}", self.path().await?);
        let answer = self.cluster.call(client::get(&uri, JSON)?, self.timeout).await?;
        let list: List = serde_json::from_slice(&answer)
            .map_err(|e| CallError::Unreadable(format!("not a list of Leases: {e}")))?;
        let shown = list.items.into_iter().map(|mut object| {
            // Items of a list do not say what they are, but what is written back must.
            object["apiVersion"] = json!("coordination.k8s.io/v1");
            object["kind"] = json!("Lease");
            let record = lease::record(&object);
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            ShownLease { version: version.to_owned(), record, object, since: now }
        });
        Ok(shown.collect())
    }

    /// Deletes a Lease that has not changed. Where that fails, the Lease expires all the same.
    pub(super) async fn delete(&self, name: &str, version: &str) {
        let delete = async {
            let body = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"resourceVersion": version},
            });
            let uri = format!("{}/{name}", self.path().await?);
            self.cluster.call(with_body(Request::delete(uri), &body)?, self.timeout).await
        };
        let deleted = tokio::time::timeout(self.timeout, delete).await;
        if let Err(error) = deleted.unwrap_or(Err(CallError::TimedOut(self.timeout))) {
            debug!(lease = name, %error, "could not delete a Lease");
        }
    }
}
