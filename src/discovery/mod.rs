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
pub(crate) mod joiner;
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
use crate::config::{Config, DiscoveryConfig, KubeconfigSecretsConfig, MiloConfig};
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

/// The common parts of all sources of a run.
struct Parts<'a> {
    config: &'a Config,
    only: Option<&'a BTreeSet<ClusterName>>,
    bus: mpsc::Sender<EventKind>,
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
        let parts = Parts { config, only, bus };
        let DiscoveryConfig { milo, kubeconfig_secrets, kubeconfig_dir, .. } = &config.discovery;
        if let Some(milo) = milo {
            discovery.start_milo(milo, &parts, connections, metrics);
        }
        if let Some(secrets) = kubeconfig_secrets {
            discovery.start_secrets(secrets, &parts, clusters.clone());
        }
        if let Some(directory) = kubeconfig_dir {
            let ledger = discovery.ledger(
                SourceName::KubeconfigDir,
                JoinRule::All,
                &directory.roles,
                &parts,
            );
            let directory = Directory::new(directory.path.clone(), ledger);
            discovery.spawn(SourceName::KubeconfigDir, directory.run());
        }
        discovery
    }

    fn ledger(
        &mut self,
        source: SourceName,
        join: JoinRule,
        roles: &[Role],
        parts: &Parts<'_>,
    ) -> Ledger {
        self.sources.insert(source);
        let only = parts.only.cloned();
        let bus = parts.bus.clone();
        Ledger::new(source, join, roles.to_vec(), only, bus, self.connections.clone())
    }

    fn spawn(&mut self, source: SourceName, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(here(task.instrument(error_span!("discovery", %source))));
    }

    fn start_milo(
        &mut self,
        milo: &MiloConfig,
        parts: &Parts<'_>,
        connections: &Connections,
        metrics: &Arc<Metrics>,
    ) {
        // The name for metrics and logs.
        let name = ClusterName::from("discovery/milo");
        let spec = milo::root(milo);
        let client = ClusterClient::new(name, Vec::new(), spec, connections, metrics.clone());
        let client = Arc::new(client);
        let watch = &parts.config.constants.watch;
        // A ProjectControlPlane that is gone is no evidence about its Project.
        if !milo.internal_service_discovery {
            let timeout = Duration::from_millis(watch.timeout_ms);
            let root = Arc::new(ProjectRoot::new(client.clone(), timeout));
            let (ask, questions) = mpsc::unbounded_channel();
            self.spawn(SourceName::Milo, proof::run(root.clone(), questions, parts.bus.clone()));
            self.milo = Some((root, ask));
        }
        let reader = ProjectReader::new(milo);
        let follower = Follower {
            find_host: Box::new(move || Some(client.clone())),
            objects: milo::objects(milo, watch.page_size),
            reader: Box::new(move |project, _| reader.offer(project)),
            ledger: self.ledger(SourceName::Milo, milo.join, &[Role::Upstream], parts),
            config: watch.clone(),
            ask: self.milo.as_ref().map(|(_, ask)| ask.clone()),
        };
        self.spawn(SourceName::Milo, follower.run());
    }

    fn start_secrets(
        &mut self,
        secrets: &KubeconfigSecretsConfig,
        parts: &Parts<'_>,
        clusters: ClusterTable,
    ) {
        let host = secrets.cluster.clone();
        let source = SourceName::KubeconfigSecrets;
        let follower = Follower {
            find_host: Box::new(move || clusters.get(&host)),
            objects: secrets::objects(secrets),
            reader: Box::new(secrets::offer),
            ledger: self.ledger(source, JoinRule::All, &secrets.roles, parts),
            config: parts.config.constants.watch.clone(),
            ask: None,
        };
        self.spawn(source, follower.run());
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

    /// The configured sources.
    pub(crate) fn sources(&self) -> &BTreeSet<SourceName> {
        &self.sources
    }
}
