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

pub(super) async fn kinds(cluster: &Cluster, kinds: &[Kind]) -> Vec<Draft> {
    let name = cluster.name();
    if !cluster.is_reached {
        return vec![Draft::skipped(Check::Kinds, Some(name), cluster.unseen())];
    }
    let mut drafts = Vec::new();
    let mut counts = Vec::new();
    for served in join_all(kinds.iter().map(|kind| served(cluster, *kind))).await {
        match served {
            Ok(count) => counts.push(count),
            Err(draft) => drafts.push(draft),
        }
    }
    if drafts.is_empty() {
        drafts.push(Draft::passed(Check::Kinds, Some(name), counts.join(", ")));
    }
    drafts
}

/// A kind that is served, with the number of its objects unless we may not list them.
///
/// # Errors
/// The failed check.
async fn served(cluster: &Cluster, kind: Kind) -> Result<String, Draft> {
    let failed = |cause, facts, evidence| {
        let about = About { kind: Some(kind), ..About::cluster(cluster.name()) };
        Err(Draft::failed(Check::Kinds, cause, about, facts, evidence))
    };
    let unknown = |error: &CallError| {
        let evidence = format!("list of {}: {error}", kind.resource());
        failed(Cause::of_read(error.cause()), failure(cluster, error), evidence)
    };
    let page = cluster.api(kind).list(&ListParams::default().limit(1)).await;
    let error = match page.map_err(call_error) {
        Ok(page) => {
            let first = i64::try_from(page.items.len()).unwrap_or_default();
            let objects = first + page.metadata.remaining_item_count.unwrap_or_default();
            return Ok(format!("{kind} {objects}"));
        }
        Err(error) => error,
    };
    let is_refused = error.code() == Some(403);
    if !is_refused && error.code() != Some(404) {
        return unknown(&error);
    }
    // The core group is always served; for others an API server answers 403 before it looks for the
    // group.
    let Some((group, version)) = kind.api_version().split_once('/') else {
        return Ok(kind.to_string());
    };
    match cluster.serves(kind.resource(), version).await {
        Ok(true) if is_refused => Ok(kind.to_string()),
        Ok(true) => unknown(&error),
        Ok(false) => {
            let mut evidence = format!("no {} in {}", kind.resource(), kind.api_version());
            let versions = versions(cluster, kind.resource(), group).await;
            if !versions.is_empty() {
                evidence += &format!(", but in {}", versions.join(", "));
            }
            failed(Cause::KindNotServed, Facts::default(), evidence)
        }
        Err(error) => unknown(&error),
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
