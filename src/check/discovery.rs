//! Checks the sources of clusters: whether they can be listed, and which clusters a run joins. Some of
//! these are checked like configured ones. Also checks that a Project exists for each upstream.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;

use super::client::{Cluster, label};
use super::finding::{Check, Draft};
use crate::client::projects::{PROJECTS, PROJECTS_PATH};
use crate::client::{ClusterClient, ConnectionSpec, Connections, ProjectRoot, Server};
use crate::config::{ClusterConfig, Config};
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::membership::{JoinRule, OfferState, SourceName};
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::core::data::objects::{UPSTREAM_CLUSTER_NAME, upstream_cluster_name};
use crate::discovery::kubeconfig::configured_server;
use crate::discovery::milo::project_of_path;
use crate::discovery::offers::{Found, Offers};
use crate::fleet::{Fleet, Member, Origin};
use crate::metrics::Metrics;
use crate::nearest::nearest;
use crate::report::style::count;

/// The most clusters to check, of those that a run would join, without `--upstream`.
const CHECKED_MAX: usize = 20;

const PROJECTS_IN_FLIGHT_MAX: usize = 8;

/// The upstreams that hub objects name; `None` if these can't be listed.
pub(super) async fn needed(config: &Config, clusters: &[Cluster]) -> Option<BTreeSet<ClusterName>> {
    let hub = clusters.iter().find(|cluster| cluster.has(Role::Hub))?;
    let mut kinds = vec![Kind::Connector];
    if config.orphans.mode != OrphanMode::Off {
        kinds.push(Kind::HttpRoute);
    }
    let mut names = BTreeSet::new();
    for kind in kinds {
        let objects = hub.objects(kind).await.ok()?;
        let labels = objects.iter().filter_map(|o| label(&o.metadata, UPSTREAM_CLUSTER_NAME));
        names.extend(
            labels.filter_map(upstream_cluster_name).map(|name| ClusterName::from(name.as_str())),
        );
    }
    Some(names)
}

/// Reports the offers of the sources, and selects the clusters to check: the upstreams in `only`, if
/// given.
pub(super) fn report(
    offers: &Offers,
    needed: Option<&BTreeSet<ClusterName>>,
    only: &[ClusterName],
) -> (Vec<Draft>, Vec<ClusterName>) {
    let mut drafts = Vec::new();
    let mut chosen = Vec::new();
    for (source, outcome) in &offers.sources {
        let error = match outcome {
            Some(Ok(join)) => {
                let of_source = || offers.found.iter().filter(|(_, found)| found.source == *source);
                let (draft, names) = shown(*source, *join, of_source().collect(), needed, only);
                drafts.push(draft);
                drafts.extend(of_source().filter_map(|(name, found)| broken(name, found)));
                chosen.extend(names);
                continue;
            }
            Some(Err(error)) => error.clone(),
            None => RequestFailure::new(ErrorCause::TimedOut, "no list came in time"),
        };
        let facts =
            Facts { source: Some(source.as_str().into()), error: Some(error), ..Facts::default() };
        let subject = About::cluster(&ClusterName::from(source.as_str()));
        let draft =
            Draft::failed(Check::Discovery, Cause::DiscoveryFailing, subject, facts, "its list");
        drafts.push(draft.of_no_cluster());
    }
    (drafts, chosen)
}

fn broken(name: &ClusterName, found: &Found) -> Option<Draft> {
    let OfferState::Broken { error } = &found.state else { return None };
    let source = found.source.as_str();
    let facts = Facts {
        error: Some(error.clone()),
        file: Some(format!("the one that {source} shows").into()),
        ..Facts::default()
    };
    let evidence = format!("shown by {source}");
    let about = About::cluster(name);
    Some(Draft::failed(Check::Discovery, Cause::KubeconfigInvalid, about, facts, evidence))
}

/// The offers of one source, and the clusters to check among them.
fn shown(
    source: SourceName,
    join: JoinRule,
    found: Vec<(&ClusterName, &Found)>,
    needed: Option<&BTreeSet<ClusterName>>,
    only: &[ClusterName],
) -> (Draft, Vec<ClusterName>) {
    let is_ready = |(_, found): &&(&ClusterName, &Found)| found.state == OfferState::Ready;
    let ready: Vec<_> = found.iter().filter(is_ready).map(|(name, _)| (*name).clone()).collect();
    let mut evidence =
        format!("{source}: {}, {} ready", count(found.len(), "cluster"), ready.len());
    let state = |(_, found): &(&ClusterName, &Found)| match found.state {
        OfferState::Ready => "ready",
        OfferState::NotReady => "not ready",
        OfferState::Deleting => "being deleted",
        OfferState::Broken { .. } => "broken",
    };
    for what in ["not ready", "being deleted", "broken"] {
        let clusters = found.iter().filter(|found| state(found) == what).count();
        if clusters > 0 {
            evidence += &format!(", {clusters} {what}");
        }
    }
    let joined = match (join, needed) {
        (JoinRule::All, _) => ready,
        (JoinRule::Needed, Some(needed)) => {
            ready.into_iter().filter(|name| needed.contains(name)).collect()
        }
        (JoinRule::Needed, None) => {
            let unseen = format!("{evidence}; which of them hub objects name");
            return (Draft::skipped(Check::Discovery, None, unseen), Vec::new());
        }
    };
    evidence += &format!("; a run joins {}", joined.len());
    if !only.is_empty() {
        let named = found.into_iter().map(|(name, _)| name).filter(|name| only.contains(name));
        return (Draft::passed(Check::Discovery, None, evidence), named.cloned().collect());
    }
    let left = joined.len().saturating_sub(CHECKED_MAX);
    if left > 0 {
        evidence += &format!("; {left} of them are not checked, but by name with --upstream");
    }
    let chosen = joined.into_iter().take(CHECKED_MAX).collect();
    (Draft::passed(Check::Discovery, None, evidence), chosen)
}

/// Joins the clusters with these names.
pub(super) fn connect(chosen: &[ClusterName], offers: &Offers, fleet: &mut Fleet) -> Vec<Cluster> {
    let connect = |name: &ClusterName| {
        let Found { roles, source, connection, .. } = offers.found.get(name)?;
        let client = fleet.join(Member {
            name: name.clone(),
            roles: roles.clone(),
            connection: connection.clone()?,
            origin: Origin::Discovered,
        });
        Some(Cluster::new(client, format!("the kubeconfig that {source} shows")))
    };
    chosen.iter().filter_map(connect).collect()
}

/// Checks that a Project exists for each configured upstream whose server is a project control plane: a
/// Milo API server answers 200 under any name, so a misspelled one looks like an empty upstream.
pub(super) async fn projects(
    config: &Config,
    connections: &Connections,
    metrics: &Arc<Metrics>,
) -> Vec<Draft> {
    let questions = config.clusters.iter().filter_map(|cluster| {
        let server = configured_server(cluster)?;
        let (project, root) = project_of_path(server.path())?;
        let project = project.to_owned();
        let root = root.to_owned();
        let spec = ConnectionSpec { server: Server::Path(root), ..cluster.connection() };
        let name = ClusterName::from(format!("{}/projects", cluster.name).as_str());
        let client = ClusterClient::new(name, Vec::new(), spec, connections, metrics.clone());
        Some(ask(cluster, project, Arc::new(client)))
    });
    let questions: Vec<_> = questions.collect();
    let drafts: Vec<_> =
        futures::stream::iter(questions).buffered(PROJECTS_IN_FLIGHT_MAX).collect().await;
    if drafts.is_empty() {
        let evidence = "no configured upstream is a project control plane";
        return vec![Draft::passed(Check::Project, None, evidence)];
    }
    drafts
}

async fn ask(cluster: &ClusterConfig, project: String, root: Arc<ClusterClient>) -> Draft {
    let name = &cluster.name;
    let asked = format!("GET {PROJECTS_PATH}/{project}");
    let found = ProjectRoot::new(root.clone(), super::client::REQUEST_TIMEOUT)
        .exists(&ClusterName::from(project.as_str()))
        .await;
    match found {
        Ok(true) => Draft::passed(Check::Project, Some(name), asked),
        Ok(false) => {
            let file = super::kubeconfig_of(cluster);
            let mut root = Cluster::new(root, file.clone());
            root.is_reached = true;
            let projects = root.others(PROJECTS, "v1alpha1").await;
            let names = projects.unwrap_or_default().into_iter().filter_map(|o| o.metadata.name);
            let names: Vec<_> = names.collect();
            let mut evidence = format!("{asked}: 404");
            if let Some(similar) = nearest(&project, &names) {
                evidence += &format!("; did you mean {similar}?");
            }
            let facts = Facts {
                upstream: Some(ClusterName::from(project.as_str())),
                file: Some(file.into()),
                ..Facts::default()
            };
            let about = About::cluster(name);
            Draft::failed(Check::Project, Cause::ProjectMissing, about, facts, evidence)
        }
        Err(error) => Draft::skipped(Check::Project, Some(name), format!("{asked}: {error}")),
    }
}
