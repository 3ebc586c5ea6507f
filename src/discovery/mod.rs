//! Clusters that come and go: which ones there are, from a Milo API server, from kubeconfig Secrets
//! and from a directory of kubeconfigs.
//!
//! Each source is a task of its own. It tells the machine what its list contains, what is new and what
//! was withdrawn; the machine decides which of them join and leave. Connections do not pass through
//! the machine, whose events are logged: whoever lets a cluster join asks for its connection here.
//!
//! ```text
//!   Project objects ──► follow ─┐
//!   Secrets ──────────► follow ─┼─► ledger ─► bus: cluster_offered, cluster_withdrawn …
//!   files ──────────► directory ┘      └────► connections, by name
//! ```

mod directory;
mod follow;
pub(crate) mod joiner;
pub(crate) mod kubeconfig;
mod ledger;
pub(crate) mod look;
pub(crate) mod milo;
mod proof;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::{ClusterClient, ConnectionSpec, Connections};
use crate::config::{self, Config};
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::{JoinRule, SourceName};
use crate::core::data::ids::{ClusterName, Role};
use crate::fleet::ClusterTable;
use crate::metrics::Metrics;

use directory::Directory;
use follow::{FindHost, Follower, Proofs};
use ledger::{Connectable, Ledger, Outlets};
use milo::ProjectReader;
pub use milo::ProjectRoot;
use proof::{Question, UnknownNames};
use secrets::SecretReader;

/// The name that the API server of the Projects has in metrics and logs.
const ROOT: &str = "discovery/milo";

/// The sources of clusters of a run. Its end ends them.
pub(crate) struct Discovery {
    connections: Connectable,
    changes: mpsc::UnboundedReceiver<(ClusterName, ConnectionSpec)>,
    projects: Option<Arc<ProjectRoot>>,
    ask: Option<mpsc::UnboundedSender<Question>>,
    unknown: UnknownNames,
    sources: BTreeSet<SourceName>,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = self.connections.len();
        f.debug_struct("Discovery")
            .field("sources", &self.sources)
            .field("connections", &connections)
            .finish_non_exhaustive()
    }
}

/// What all sources of a run are made from.
struct Parts<'a> {
    config: &'a Config,
    only: Option<&'a BTreeSet<ClusterName>>,
    outlets: Outlets,
    tasks: JoinSet<()>,
    sources: BTreeSet<SourceName>,
}

impl Parts<'_> {
    fn ledger(&mut self, source: SourceName, join: JoinRule, roles: &[Role]) -> Ledger {
        self.sources.insert(source);
        Ledger::new(source, join, roles.to_vec(), self.only.cloned(), self.outlets.clone())
    }
}

impl Discovery {
    /// Starts the configured sources; their events go to `bus`. Secrets are read in one of
    /// `clusters`. Where `only` names clusters, no other is offered.
    pub(crate) fn start(
        config: &Config,
        clusters: &ClusterTable,
        only: Option<&BTreeSet<ClusterName>>,
        connections: &Connections,
        bus: mpsc::Sender<EventKind>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (changes_to, changes) = mpsc::unbounded_channel();
        let connectable = Connectable::default();
        let outlets = Outlets { bus, connections: connectable.clone(), changes: changes_to };
        let (tasks, sources) = (JoinSet::new(), BTreeSet::new());
        let mut parts = Parts { config, only, outlets, tasks, sources };
        let (projects, ask) = match start_milo(&mut parts, connections, metrics) {
            Some((projects, ask)) => (Some(projects), Some(ask)),
            None => (None, None),
        };
        start_secrets(&mut parts, clusters.clone());
        start_directory(&mut parts);
        let Parts { sources, tasks, .. } = parts;
        let unknown = UnknownNames::default();
        Self { connections: connectable, changes, projects, ask, unknown, sources, _tasks: tasks }
    }

    /// The connection that a source offers under this name; `None` where it offers none any longer.
    pub(crate) fn connection(
        &self,
        source: SourceName,
        cluster: &ClusterName,
    ) -> Option<ConnectionSpec> {
        self.connections.get(source, cluster)
    }

    /// A cluster left that had joined.
    pub(crate) fn left(&self, cluster: &ClusterName) {
        self.connections.left(cluster);
    }

    /// Waits until other credentials for a joined cluster are found.
    pub(crate) async fn changed(&mut self) -> (ClusterName, ConnectionSpec) {
        match self.changes.recv().await {
            Some(change) => change,
            // No source is left that could tell.
            None => std::future::pending().await,
        }
    }

    /// The Projects, where they are what clusters are discovered by.
    pub(crate) fn projects(&self) -> Option<Arc<ProjectRoot>> {
        self.projects.clone()
    }

    /// Has the root asked for names that hub objects name and no list contains, each at most once an
    /// hour. `cluster_gone` comes of those that answer 404. Names that are no longer among them are
    /// forgotten.
    pub(crate) fn ask_for_unknown(&mut self, names: Vec<ClusterName>) {
        let Some(ask) = &self.ask else { return };
        for name in self.unknown.due(names) {
            // The receiver is gone only when the run ends.
            let _ = ask.send(Question::Unknown(name));
        }
    }

    /// The configured sources.
    pub(crate) fn sources(&self) -> &BTreeSet<SourceName> {
        &self.sources
    }
}

fn start_milo(
    parts: &mut Parts<'_>,
    connections: &Connections,
    metrics: &Arc<Metrics>,
) -> Option<(Arc<ProjectRoot>, mpsc::UnboundedSender<Question>)> {
    let milo = parts.config.discovery.milo.as_ref()?;
    let client = root_client(milo, connections, metrics);
    let timeout = Duration::from_millis(parts.config.constants.watch.timeout_ms);
    // A ProjectControlPlane that is gone says nothing about its Project.
    let projects = (!milo.internal_service_discovery)
        .then(|| Arc::new(ProjectRoot::new(client.clone(), timeout)));
    let (mut asked, mut proofs) = (None, None);
    if let Some(root) = projects {
        let (ask, questions) = mpsc::unbounded_channel();
        let (answers, proven) = mpsc::unbounded_channel();
        parts.tasks.spawn(proof::run(root.clone(), questions, answers));
        asked = Some((root, ask.clone()));
        proofs = Some(Proofs { ask, proven });
    }
    let follower = Follower {
        find_host: Box::new(move || Some(client.clone())) as FindHost,
        objects: milo::objects(milo, parts.config.constants.watch.page_size),
        reader: ProjectReader::new(milo),
        ledger: parts.ledger(SourceName::Milo, milo.join, &[Role::Upstream]),
        config: parts.config.constants.watch.clone(),
        proofs,
    };
    parts.tasks.spawn(follower.run());
    asked
}

/// The API server that holds the Projects.
fn root_client(
    milo: &config::MiloConfig,
    connections: &Connections,
    metrics: &Arc<Metrics>,
) -> Arc<ClusterClient> {
    let name = ClusterName::from(ROOT);
    let spec = milo::root(milo);
    Arc::new(ClusterClient::shared(name, Vec::new(), spec, connections, metrics.clone()))
}

fn start_secrets(parts: &mut Parts<'_>, clusters: ClusterTable) {
    let Some(secrets) = &parts.config.discovery.kubeconfig_secrets else { return };
    let host = secrets.cluster.clone();
    let follower = Follower {
        find_host: Box::new(move || clusters.get(&host)) as FindHost,
        objects: secrets::objects(secrets),
        reader: SecretReader,
        ledger: parts.ledger(SourceName::KubeconfigSecrets, JoinRule::All, &secrets.roles),
        config: parts.config.constants.watch.clone(),
        proofs: None,
    };
    parts.tasks.spawn(follower.run());
}

fn start_directory(parts: &mut Parts<'_>) {
    let Some(directory) = &parts.config.discovery.kubeconfig_dir else { return };
    let ledger = parts.ledger(SourceName::KubeconfigDir, JoinRule::All, &directory.roles);
    parts.tasks.spawn(Directory::new(directory.path.clone(), ledger).run());
}
