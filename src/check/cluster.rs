//! Checks one cluster: whether it answers, and whether it serves the kinds of its roles.

use futures::future::join_all;
use kube::api::ListParams;
use tokio::time::Instant;

use super::client::{Cluster, call_error};
use super::finding::{Check, Draft};
use crate::client::CallError;
use crate::clock::millis;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::data::ids::Kind;
use crate::report::duration;

/// Sends the first request. A refusal to show the version is an answer, too.
pub(super) async fn reachable(cluster: &mut Cluster) -> Draft {
    let sent = Instant::now();
    let version = match cluster.kube.apiserver_version().await.map_err(call_error) {
        Ok(version) => version.git_version,
        Err(CallError::Status { code: 403 | 404, .. }) => "its version is not visible".to_owned(),
        Err(error) => {
            let cause = Cause::of_read(error.cause());
            let facts = failure(cluster, &error);
            let evidence = format!("GET /version: {error}");
            let about = About::cluster(cluster.name());
            return Draft::failed(Check::Reachable, cause, about, facts, evidence);
        }
    };
    cluster.is_reached = true;
    let evidence = format!("{version}, {}", duration(millis(sent.elapsed())));
    Draft::passed(Check::Reachable, Some(cluster.name()), evidence)
}

/// The facts of a failed request.
pub(super) fn failure(cluster: &Cluster, error: &CallError) -> Facts {
    Facts {
        error: Some(error.failure()),
        file: Some(cluster.file.as_str().into()),
        ..Facts::default()
    }
}

enum Served {
    /// The number of objects is `None` if we may not list them.
    Yes(Option<i64>),
    /// Only these versions are served, not the one that throughline uses.
    No(Vec<String>),
    Unknown(CallError),
}

pub(super) async fn kinds(cluster: &Cluster, kinds: &[Kind]) -> Vec<Draft> {
    let name = cluster.name();
    if !cluster.is_reached {
        return vec![Draft::skipped(Check::Kinds, Some(name), cluster.unseen())];
    }
    let mut drafts = Vec::new();
    let mut counts = Vec::new();
    let served = join_all(kinds.iter().map(|kind| served(cluster, *kind))).await;
    for (kind, served) in kinds.iter().zip(served) {
        let subject = || About { kind: Some(*kind), ..About::cluster(name) };
        match served {
            Served::Yes(Some(objects)) => counts.push(format!("{kind} {objects}")),
            Served::Yes(None) => counts.push(kind.to_string()),
            Served::No(versions) => {
                let mut evidence = format!("no {} in {}", kind.resource(), kind.api_version());
                if !versions.is_empty() {
                    evidence += &format!(", but in {}", versions.join(", "));
                }
                let cause = Cause::KindNotServed;
                let facts = Facts::default();
                drafts.push(Draft::failed(Check::Kinds, cause, subject(), facts, evidence));
            }
            Served::Unknown(error) => {
                let cause = Cause::of_read(error.cause());
                let evidence = format!("list of {}: {error}", kind.resource());
                let facts = failure(cluster, &error);
                drafts.push(Draft::failed(Check::Kinds, cause, subject(), facts, evidence));
            }
        }
    }
    if drafts.is_empty() {
        drafts.push(Draft::passed(Check::Kinds, Some(name), counts.join(", ")));
    }
    drafts
}

async fn served(cluster: &Cluster, kind: Kind) -> Served {
    let page = cluster.api(kind).list(&ListParams::default().limit(1)).await;
    let error = match page.map_err(call_error) {
        Ok(page) => {
            let first = i64::try_from(page.items.len()).unwrap_or_default();
            return Served::Yes(Some(
                first + page.metadata.remaining_item_count.unwrap_or_default(),
            ));
        }
        Err(error) => error,
    };
    let is_refused = error.code() == Some(403);
    if !is_refused && error.code() != Some(404) {
        return Served::Unknown(error);
    }
    // The core group is always served; for others an API server answers 403 before it looks for the
    // group.
    let Some((group, version)) = kind.api_version().split_once('/') else {
        return Served::Yes(None);
    };
    match cluster.serves(kind.resource(), version).await {
        Ok(true) if is_refused => Served::Yes(None),
        Ok(true) => Served::Unknown(error),
        Ok(false) => Served::No(versions(cluster, kind.resource(), group).await),
        Err(error) => Served::Unknown(error),
    }
}

/// The versions in which a resource is served.
async fn versions(cluster: &Cluster, resource: &str, group: &str) -> Vec<String> {
    let Ok(groups) = cluster.kube.list_api_groups().await else { return Vec::new() };
    let mut served = Vec::new();
    for version in groups.groups.iter().filter(|g| g.name == group).flat_map(|g| &g.versions) {
        if cluster.serves(resource, &version.version).await.unwrap_or(false) {
            served.push(version.version.clone());
        }
    }
    served
}
