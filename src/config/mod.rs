//! What a live run is told: clusters, roles, timings, what is enabled. Read from a YAML file and
//! flags; every error names the key, the value and what is accepted.

mod bounds;
mod check;
mod election;
mod layers;
mod load;
mod problem;
mod reach;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::core::ids::{ClusterName, Role};
use crate::core::settings::{
    MirrorSettings, OrphanSettings, RetrySettings, Settings, StallSettings, TouchSettings,
};

use crate::leader::election::Rules;

pub use load::{Given, LOCAL_CLUSTER, Loaded, Overrides, change_settings, load};
pub(crate) use problem::nearest;
pub use problem::{ConfigErrors, Problem};

/// The whole configuration. Durations are in milliseconds, sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The clusters; empty means the one that kubectl would use (or the own one, in a pod), with
    /// every role.
    pub clusters: Vec<ClusterConfig>,
    /// Decide and log, and write nothing.
    pub dry_run: bool,
    /// Who may mirror and delete.
    pub leader_election: LeaderElectionConfig,
    /// The watches.
    pub watch: WatchConfig,
    /// The writes.
    pub executor: ExecutorConfig,
    /// The event log of the run.
    pub event_log: EventLogConfig,
    /// Kubernetes Events on the objects concerned.
    pub events: EventsConfig,
    /// Probes, metrics, state.
    pub admin: AdminConfig,
    /// The log for people.
    pub log: LogConfig,
    /// Stopping.
    pub shutdown: ShutdownConfig,
    /// See [`Settings`]; so are the four below.
    pub mirror: MirrorSettings,
    /// See [`Settings`].
    pub touch: TouchSettings,
    /// See [`Settings`].
    pub orphans: OrphanSettings,
    /// See [`Settings`].
    pub stall: StallSettings,
    /// See [`Settings`].
    pub retry: RetrySettings,
}

impl Config {
    /// The cluster that holds the Lease; `None` when there is no election.
    pub fn election_cluster(&self) -> Option<&ClusterConfig> {
        let hub = self.clusters.iter().find(|c| c.roles.contains(&Role::Downstream))?;
        if !self.leader_election.enabled || self.dry_run {
            return None;
        }
        let named = self.leader_election.cluster.as_ref();
        named.map_or(Some(hub), |name| self.clusters.iter().find(|c| c.name == *name))
    }

    /// The election's timings.
    pub fn election_rules(&self) -> Rules {
        Rules {
            lease_ms: self.leader_election.lease_duration_ms,
            renew_deadline_ms: self.leader_election.renew_deadline_ms,
            retry_ms: self.leader_election.retry_period_ms,
            write_ms: self.executor.timeout_ms,
        }
    }

    /// The settings that the machine decides by.
    pub fn settings(&self) -> Settings {
        Settings {
            mirror: self.mirror.clone(),
            touch: self.touch.clone(),
            orphans: self.orphans.clone(),
            stall: self.stall.clone(),
            retry: self.retry,
        }
    }
}

/// One cluster and the way to it. Without `kubeconfig`, `context` and `inCluster` it is found as
/// kubectl finds it, or else as a pod finds its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name; for an upstream, the name that replicas' labels carry.
    pub name: ClusterName,
    /// What it is to us; never empty.
    pub roles: Vec<Role>,
    /// A kubeconfig file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; its current one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The cluster of the own pod, by its ServiceAccount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
}

/// Who may mirror and delete: one replica at a time, elected on a Lease of the Kubernetes API.
/// Only a process with a downstream cluster takes part, and none in a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElectionConfig {
    /// Elect a leader. Off means: this process leads, and so does every other one.
    pub enabled: bool,
    /// The cluster that holds the Lease; the downstream one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// The Lease's namespace; when absent the one that the way to the cluster names: the own one in
    /// a pod, the context's, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_namespace: Option<String>,
    /// The Lease's name. Replicas that share it take turns.
    pub lease_name: String,
    /// A Lease that was not renewed for so long is free; whole seconds.
    pub lease_duration_ms: u64,
    /// A leader that could not renew for so long stops.
    pub renew_deadline_ms: u64,
    /// The pause between two attempts.
    pub retry_period_ms: u64,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            cluster: None,
            lease_namespace: None,
            lease_name: "throughline".into(),
            lease_duration_ms: 15_000,
            renew_deadline_ms: 10_000,
            retry_period_ms: 2_000,
        }
    }
}

/// The watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchConfig {
    /// Objects a page of an initial list.
    pub page_size: u32,
    /// A request or a page must be answered in this time.
    pub timeout_ms: u64,
    /// A watch that brought no byte, no bookmark either, for so long is taken up anew. API servers
    /// send a bookmark about once a minute.
    pub silent_after_ms: u64,
    /// The first pause after a failure; doubles, with jitter.
    pub backoff_first_ms: u64,
    /// The longest such pause.
    pub backoff_max_ms: u64,
    /// Events that may wait for the machine; when they are this many, the watches wait.
    pub queue: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            page_size: 500,
            timeout_ms: 15_000,
            silent_after_ms: 90_000,
            backoff_first_ms: 250,
            backoff_max_ms: 30_000,
            queue: 1024,
        }
    }
}

/// The writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutorConfig {
    /// Writes under way at one time, to different objects.
    pub parallel: usize,
    /// Actions that may wait for their turn; when they are this many, no more events are taken.
    pub queue: usize,
    /// One try of one write.
    pub timeout_ms: u64,
    /// Tries of one action before the machine is told that it failed.
    pub tries: usize,
    /// The first pause between tries; doubles, with jitter.
    pub backoff_first_ms: u64,
    /// The longest such pause. A longer `Retry-After` ends the tries.
    pub backoff_max_ms: u64,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            parallel: 16,
            queue: 10_000,
            timeout_ms: 5_000,
            tries: 3,
            backoff_first_ms: 100,
            backoff_max_ms: 2_000,
        }
    }
}

/// The event log of a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventLogConfig {
    /// Where; none is written when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// A file that grows past this is rotated: `FILE` becomes `FILE.1`, and so on.
    pub max_bytes: u64,
    /// Rotated files that are kept.
    pub keep: u32,
    /// Replace addresses and keys by stand-ins; the log replays to the same decisions.
    pub redact: bool,
}

impl Default for EventLogConfig {
    fn default() -> Self {
        Self { file: None, max_bytes: 256 * 1024 * 1024, keep: 3, redact: true }
    }
}

/// Kubernetes Events: what a person should know of an object, told on it. None in a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventsConfig {
    /// Leave Events, of the election on its Lease, too.
    pub enabled: bool,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Who may read `/state`, which names every connector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateAccess {
    /// Whoever asks from the same host.
    #[default]
    Loopback,
    /// Whoever reaches the port.
    Everyone,
    /// Nobody.
    Off,
}

/// Probes, metrics, state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminConfig {
    /// Where to listen; port 0 takes any free one, and the log says which.
    pub address: SocketAddr,
    /// Who may read `/state`.
    pub state: StateAccess,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([0, 0, 0, 0], 8080)), state: StateAccess::default() }
    }
}

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// The log for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LogConfig {
    /// As `RUST_LOG` takes it: `info`, or `throughline=debug,kube=warn`. `RUST_LOG` wins.
    pub level: String,
    /// How it looks.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::default() }
    }
}

/// Stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ShutdownConfig {
    /// Writes under way are waited for this long, then abandoned.
    pub grace_ms: u64,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { grace_ms: 10_000 }
    }
}
