//! Checks whether there is a Project behind each configured upstream that is a project control plane: a
//! Milo API server answers 200 under any name, so a misspelled one looks like an empty upstream.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::finding::FindingGroup;
use super::probe_client::ProbeClient;
use crate::client::{CallError, ClusterClient, ConnectionSpec, Connections, Server};
use crate::config::{ClusterConfig, Config, nearest};
use crate::core::data::ids::ClusterName;
use crate::discovery::ProjectRoot;
use crate::discovery::kubeconfig::configured_server;
use crate::discovery::milo::{PROJECTS, PROJECTS_PATH, project_of_path};
use crate::metrics::Metrics;

const IN_FLIGHT_MAX: usize = 8;

/// What was found out about one upstream's Project.
struct Answer {
    cluster: ClusterName,
    project: String,
    found: Result<bool, CallError>,
    /// A Project with a similar name.
    similar: Option<String>,
}

pub(super) async fn check(
    config: &Config,
    connections: &Connections,
    metrics: &Arc<Metrics>,
    timeout: Duration,
) -> FindingGroup {
    let mut group = FindingGroup::new("projects of the upstreams");
    let questions = config.clusters.iter().filter_map(|cluster| {
        let server = configured_server(cluster)?;
        let (project, root) = project_of_path(server.path())?;
        let (project, root) = (project.to_owned(), root.to_owned());
        Some(ask(cluster, project, root, connections, metrics, timeout))
    });
    let questions: Vec<_> = questions.collect();
    let mut answers = futures::stream::iter(questions).buffered(IN_FLIGHT_MAX);
    while let Some(answer) = answers.next().await {
        report(&mut group, &answer);
    }
    group
}

async fn ask(
    cluster: &ClusterConfig,
    project: String,
    root: String,
    connections: &Connections,
    metrics: &Arc<Metrics>,
    timeout: Duration,
) -> Answer {
    let spec = ConnectionSpec { server: Server::Path(root), ..ConnectionSpec::from(cluster) };
    let name = ClusterName::from(format!("{}/projects", cluster.name).as_str());
    let client = ClusterClient::shared(name, Vec::new(), spec, connections, metrics.clone());
    let client = Arc::new(client);
    let found = ProjectRoot::new(client.clone(), timeout)
        .exists(&ClusterName::from(project.as_str()))
        .await;
    let similar = if matches!(found, Ok(false)) {
        let client = ProbeClient { cluster: client, timeout };
        let names = client.list(PROJECTS_PATH, |item| Some(item.metadata.name)).await;
        let names = names.unwrap_or_default();
        nearest(&project, &names).map(str::to_owned)
    } else {
        None
    };
    Answer { cluster: cluster.name.clone(), project, found, similar }
}

fn report(group: &mut FindingGroup, answer: &Answer) {
    let Answer { cluster, project, found, similar } = answer;
    match found {
        Ok(true) => group.passed("project", format!("{cluster}: there is a Project {project}")),
        Ok(false) => {
            let guess = match similar {
                Some(similar) => format!("did you mean {similar}? "),
                None => String::new(),
            };
            let remedy = format!(
                "{guess}correct the path of the server in the kubeconfig of {cluster}, or create the \
                 Project; without one, its control plane answers like an empty upstream, and nobody \
                 ever cleans it up"
            );
            let detail = format!("GET {PROJECTS_PATH}/{project}: 404");
            group.failed(
                "project",
                format!("{cluster}: there is no Project {project}"),
                detail,
                remedy,
            );
        }
        Err(error) => {
            let what = format!("{cluster}: not known whether there is a Project {project}");
            let detail = match error.code() {
                Some(403) => format!("{error}; grant get on {PROJECTS} to let this be checked"),
                _ => format!("GET {PROJECTS_PATH}/{project}: {error}"),
            };
            group.skipped("project", what, detail);
        }
    }
}
