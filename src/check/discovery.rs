//! Checks the sources of clusters: whether they can be read, and what they show. Of the clusters found,
//! a few are looked at like configured ones.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::CheckedCluster;
use super::finding::{FindingGroup, join_first};
use crate::client::{ClusterClient, ConnectionSpec, Connections, path};
use crate::config::{ClusterConfig, Config, nearest};
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::membership::{JoinRule, OfferState, SourceName};
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::core::data::objects::{UPSTREAM_CLUSTER_NAME, upstream_cluster_name};
use crate::discovery::look::{Found, Look};
use crate::discovery::milo::{CONTROL_PLANES, PROJECTS};
use crate::metrics::Metrics;
use crate::report::count;

/// Without `--upstream`, so many of the clusters that a run would join are looked at.
const CHECKED_MAX: usize = 20;

/// The clusters to look at, of those that were found.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) clusters: Vec<ClusterConfig>,
    pub(super) clients: Vec<Arc<ClusterClient>>,
}

/// The upstreams that hub objects name; `None` where they can't be listed.
pub(super) async fn needed(
    config: &Config,
    clusters: &[CheckedCluster],
) -> Option<BTreeSet<ClusterName>> {
    let hub = clusters.iter().find(|c| c.has(Role::Hub) && c.reached)?;
    let mut kinds = vec![Kind::Connector];
    if config.orphans.mode != OrphanMode::Off {
        kinds.push(Kind::HttpRoute);
    }
    let mut names = BTreeSet::new();
    for kind in kinds {
        let name = |labels: &std::collections::BTreeMap<String, String>| {
            upstream_cluster_name(labels.get(UPSTREAM_CLUSTER_NAME)?)
        };
        let found = hub.client.list(path(kind, None), |item| name(&item.metadata.labels)).await;
        names.extend(found.ok()?.iter().map(|name| ClusterName::from(name.as_str())));
    }
    Some(names)
}

/// Reports what the sources show, and chooses the clusters to look at.
pub(super) fn report(
    group: &mut FindingGroup,
    config: &Config,
    look: &Look,
    needed: Option<&BTreeSet<ClusterName>>,
    only: &[ClusterName],
) -> Vec<ClusterName> {
    let mut chosen = Vec::new();
    for (source, outcome) in &look.sources {
        match outcome {
            None => group.failed(
                "source",
                format!("{source}: no list came in time"),
                "the clusters that it shows are not known",
                "check that the API server is up and can be reached from here",
            ),
            Some(Err(error)) => {
                let (what, remedy) =
                    (format!("{source}: cannot be read"), remedy(config, *source, error.cause));
                group.failed("source", what, error.to_string(), remedy);
            }
            Some(Ok(join)) => {
                let rule = Rule { join: *join, needed, only };
                chosen.extend(report_source(group, *source, look, &rule));
            }
        }
    }
    report_unknown_names(group, config, look, only);
    chosen
}

/// Which clusters a run joins, and which of them are looked at.
struct Rule<'a> {
    join: JoinRule,
    needed: Option<&'a BTreeSet<ClusterName>>,
    only: &'a [ClusterName],
}

fn report_source(
    group: &mut FindingGroup,
    source: SourceName,
    look: &Look,
    rule: &Rule<'_>,
) -> Vec<ClusterName> {
    let of_source = || look.found.iter().filter(|(_, found)| found.source == source);
    let in_state = |wanted: fn(&OfferState) -> bool| {
        let found = of_source().filter(|(_, found)| wanted(&found.state));
        found.map(|(name, _)| name).collect::<Vec<_>>()
    };
    let ready = in_state(|state| *state == OfferState::Ready);
    let others = [
        (in_state(|state| *state == OfferState::NotReady), "not ready"),
        (in_state(|state| *state == OfferState::Deleting), "being deleted"),
        (in_state(|state| matches!(state, OfferState::Broken { .. })), "broken"),
    ];
    let others = others.iter().filter(|(names, _)| !names.is_empty());
    let others: String = others.map(|(names, what)| format!(", {} {what}", names.len())).collect();
    let shown = count(of_source().count(), "cluster");
    group.passed("source", format!("{source}: shows {shown}: {} ready{others}", ready.len()));
    for (name, found) in of_source() {
        if let OfferState::Broken { error } = &found.state {
            let remedy = "correct the kubeconfig; a run tries it again by itself";
            group.failed(
                "offer",
                format!("{name}: no connection can be made of it"),
                error.to_string(),
                remedy,
            );
        }
    }
    let joined: Vec<_> = match (rule.join, rule.needed) {
        (JoinRule::All, _) => ready,
        (JoinRule::Needed, Some(needed)) => {
            let joined: Vec<_> = ready.into_iter().filter(|name| needed.contains(*name)).collect();
            let what = format!(
                "{source}: hub objects name {}, which a run joins",
                count(joined.len(), "ready cluster")
            );
            group.passed("joined", what);
            joined
        }
        (JoinRule::Needed, None) => {
            let what = format!("{source}: not known which clusters a run joins");
            group.skipped("joined", what, "the hub's Connectors and routes cannot be listed");
            Vec::new()
        }
    };
    if !rule.only.is_empty() {
        let named = of_source().filter(|(name, _)| rule.only.contains(name));
        return named.map(|(name, _)| name.clone()).collect();
    }
    let left = joined.len().saturating_sub(CHECKED_MAX);
    if left > 0 {
        let what = format!("{source}: {} of them are not looked at", left);
        group.skipped("joined", what, format!(
            "this looks at {CHECKED_MAX} at most, in order of their names; --upstream NAME looks at the \
             ones that you name"
        ));
    }
    joined.into_iter().take(CHECKED_MAX).cloned().collect()
}

fn report_unknown_names(
    group: &mut FindingGroup,
    config: &Config,
    look: &Look,
    only: &[ClusterName],
) {
    let configured = || config.clusters.iter().map(|cluster| &cluster.name);
    let known: Vec<String> =
        configured().chain(look.found.keys()).map(ToString::to_string).collect();
    for name in only.iter().filter(|name| !known.iter().any(|known| known == name.as_str())) {
        let guess = nearest(name.as_str(), &known);
        let guess = guess.map(|guess| format!("did you mean {guess}? ")).unwrap_or_default();
        let detail = format!("shown are {}", join_first(&known));
        let what = format!("--upstream {name}: no such cluster is configured or discovered");
        group.failed(
            "named",
            what,
            detail,
            format!("{guess}name a cluster as the hub's labels do"),
        );
    }
}

fn remedy(config: &Config, source: SourceName, cause: ErrorCause) -> String {
    let secrets = config.discovery.kubeconfig_secrets.as_ref();
    let secrets = secrets.map_or("", |secrets| secrets.namespace.as_str());
    let internal =
        config.discovery.milo.as_ref().is_some_and(|milo| milo.internal_service_discovery);
    let resource = match source {
        SourceName::Milo if internal => CONTROL_PLANES.to_owned(),
        SourceName::Milo => PROJECTS.to_owned(),
        SourceName::KubeconfigSecrets => format!("secrets in the namespace {secrets}"),
        SourceName::KubeconfigDir => {
            return "check discovery.kubeconfigDir.path and the volume that is mounted there"
                .to_owned();
        }
    };
    match cause {
        ErrorCause::Forbidden => {
            format!("grant get, list and watch on {resource} to the user or ServiceAccount")
        }
        ErrorCause::NotFound => {
            format!("check that the kubeconfig names an API server that serves {resource}")
        }
        _ => "check the kubeconfig of this source, and that its server can be reached from here"
            .to_owned(),
    }
}

/// Clients for the chosen clusters. The entries say their names and roles only.
pub(super) fn connect(
    chosen: &[ClusterName],
    look: &Look,
    connections: &Connections,
    metrics: &Arc<Metrics>,
) -> Chosen {
    let mut clusters = Chosen::default();
    for name in chosen {
        let Some(Found { roles, connection: Some(spec), .. }) = look.found.get(name) else {
            continue;
        };
        let (spec, roles): (ConnectionSpec, Vec<Role>) = (spec.clone(), roles.clone());
        clusters.clusters.push(ClusterConfig {
            name: name.clone(),
            roles: roles.clone(),
            kubeconfig: None,
            context: None,
            in_cluster: false,
        });
        let client = ClusterClient::shared(name.clone(), roles, spec, connections, metrics.clone());
        clusters.clients.push(Arc::new(client));
    }
    clusters
}

/// The longest that the sources may take to list what they show.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(30);

/// The longest that all of the clusters found may take together.
pub(super) const FOUND_MAX: Duration = Duration::from_secs(60);
