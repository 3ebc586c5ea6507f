//! The clusters that exist, and that come and go: from a Milo API server, from kubeconfig Secrets and
//! from a directory of kubeconfigs.
//!
//! Each source is a task. It sends the machine the content of its list, additions and withdrawals; the
//! machine decides which clusters join and leave. Connections do not pass through the machine, whose
//! events are logged: the loop gets a joining cluster's connection from here.
//!
//! ```text
//!   Project objects ──► follow ─┐
//!   Secrets ──────────► follow ─┼─► ledger ─► bus: cluster_offered, cluster_withdrawn …
//!   files ──────────► directory ┘      └────► connections, by name
//! ```

mod directory;
mod follow;
pub(crate) mod kubeconfig;
mod ledger;
pub(crate) mod milo;
pub(crate) mod offers;
mod proof;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{Instrument, error_span};

use crate::client::{ClusterClient, Connections, ProjectRoot};
use crate::config::{Config, DiscoveryConfig, MiloConfig, WatchConstants};
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::{JoinRule, SourceName};
use crate::core::data::ids::{ClusterName, Role};
use crate::environment::here;
use crate::fleet::ClusterTable;
use crate::metrics::Metrics;

use directory::Directory;
use follow::{Follower, Question};
use ledger::{Connectable, Ledger};
use milo::ProjectReader;
use proof::UnknownNames;

/// The longest time to ask for names that no list contains, for a command that looks once.
const UNKNOWN_WITHIN: Duration = Duration::from_secs(5);

/// The sources of clusters of a run. Dropping it stops them.
pub(crate) struct Discovery {
    /// The connections of the offered clusters.
    pub(crate) connections: Connectable,
    /// With discovery by Projects: the root that proves whether one exists, and the channel for
    /// questions.
    milo: Option<(Arc<ProjectRoot>, mpsc::UnboundedSender<Question>)>,
    unknown: UnknownNames,
    sources: BTreeSet<SourceName>,
    tasks: JoinSet<()>,
}

impl Discovery {
    /// Starts the configured sources; their events go to `bus`. Secrets are read in one of `clusters`.
    /// If `only` names clusters, no other is offered.
    pub(crate) fn start(
        config: &Config,
        clusters: &ClusterTable,
        only: Option<&BTreeSet<ClusterName>>,
        connections: &Connections,
        bus: mpsc::Sender<EventKind>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let mut discovery = Self {
            connections: Connectable::default(),
            milo: None,
            unknown: UnknownNames::default(),
            sources: BTreeSet::new(),
            tasks: JoinSet::new(),
        };
        let offered = discovery.connections.clone();
        let ledger = |source, join, roles: &[Role]| {
            let only = only.cloned();
            Ledger::new(source, join, roles.to_vec(), only, bus.clone(), offered.clone())
        };
        let watch = &config.constants.watch;
        let DiscoveryConfig { milo, kubeconfig_secrets, kubeconfig_dir, .. } = &config.discovery;
        if let Some(milo) = milo {
            // The name for metrics and logs.
            let name = ClusterName::from("discovery/milo");
            let spec = milo::root(milo);
            let client = ClusterClient::new(name, Vec::new(), spec, connections, metrics.clone());
            let ledger = ledger(SourceName::Milo, milo.join, &[Role::Upstream]);
            discovery.start_milo(milo, Arc::new(client), ledger, watch, &bus);
        }
        if let Some(secrets) = kubeconfig_secrets {
            let source = SourceName::KubeconfigSecrets;
            let clusters = clusters.clone();
            let host = secrets.cluster.clone();
            let follower = Follower {
                find_host: Box::new(move || clusters.get(&host)),
                objects: secrets::objects(secrets),
                reader: Box::new(secrets::offer),
                ledger: ledger(source, JoinRule::All, &secrets.roles),
                config: watch.clone(),
                ask: None,
            };
            discovery.spawn(source, follower.run());
        }
        if let Some(directory) = kubeconfig_dir {
            let source = SourceName::KubeconfigDir;
            let ledger = ledger(source, JoinRule::All, &directory.roles);
            discovery.spawn(source, Directory::new(directory.path.clone(), ledger).run());
        }
        discovery
    }

    fn spawn(&mut self, source: SourceName, task: impl Future<Output = ()> + Send + 'static) {
        self.sources.insert(source);
        self.tasks.spawn(here(task.instrument(error_span!("discovery", %source))));
    }

    fn start_milo(
        &mut self,
        milo: &MiloConfig,
        client: Arc<ClusterClient>,
        ledger: Ledger,
        watch: &WatchConstants,
        bus: &mpsc::Sender<EventKind>,
    ) {
        // A ProjectControlPlane that is gone is no evidence about its Project.
        if !milo.internal_service_discovery {
            let timeout = Duration::from_millis(watch.timeout_ms);
            let root = Arc::new(ProjectRoot::new(client.clone(), timeout));
            let (ask, questions) = mpsc::unbounded_channel();
            self.spawn(SourceName::Milo, proof::run(root.clone(), questions, bus.clone()));
            self.milo = Some((root, ask));
        }
        let reader = ProjectReader::new(milo);
        let follower = Follower {
            find_host: Box::new(move || Some(client.clone())),
            objects: milo::objects(milo, watch.page_size),
            reader: Box::new(move |project, _| reader.offer(project)),
            ledger,
            config: watch.clone(),
            ask: self.milo.as_ref().map(|(_, ask)| ask.clone()),
        };
        self.spawn(SourceName::Milo, follower.run());
    }

    /// The Projects, if clusters are discovered by them.
    pub(crate) fn projects(&self) -> Option<Arc<ProjectRoot>> {
        self.milo.as_ref().map(|(root, _)| root.clone())
    }

    /// Asks the root for names that hub objects use and no list contains, each at most once an hour. A
    /// 404 leads to `cluster_gone`. Names no longer given are forgotten.
    pub(crate) fn ask_for_unknown(&mut self, names: Vec<ClusterName>) {
        let Some((_, ask)) = &self.milo else { return };
        for name in self.unknown.due(names) {
            // The receiver is gone only when the run ends.
            let _ = ask.send(Question::Unknown(name));
        }
    }

    /// Asks the root for such names once, and returns those without a Project.
    pub(crate) async fn find_gone(&self, names: Vec<ClusterName>) -> Vec<ClusterName> {
        let Some((root, _)) = &self.milo else { return Vec::new() };
        proof::gone_among(root, names, UNKNOWN_WITHIN).await
    }

    /// The configured sources.
    pub(crate) fn sources(&self) -> &BTreeSet<SourceName> {
        &self.sources
    }
}
