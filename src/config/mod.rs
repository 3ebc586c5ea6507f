//! The configuration of a live run: clusters, roles, timings and features. It is read from a YAML
//! file and flags; every error names the key, the value found and what is accepted.

mod discovery;
mod election;
mod kubeconfig;
mod limits;
mod load;
mod merge;
mod offline;
mod problem;
mod reload;
mod reload_plan;
mod role;
mod selector;
mod sources;
mod validate;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};

use crate::core::contract::settings::{
    MirrorSettings, OrphanSettings, RetrySettings, Settings, StallSettings, TouchSettings,
};
use crate::core::data::ids::{ClusterName, Role};

use crate::leader::election::Timings;

pub use discovery::{
    DiscoveryConfig, DiscoveryMode, FleetConfig, KubeconfigDirConfig, KubeconfigSecretsConfig,
    MetricsConfig, MiloConfig,
};
pub use load::{
    FlagValue, LOCAL_CLUSTER, LoadedConfig, Overrides, load, load_offline, load_text_offline,
    override_settings,
};
pub(crate) use problem::nearest;
pub use problem::{ConfigErrors, ConfigProblem};
pub use reload::ConfigSource;
pub(crate) use reload::follow;
pub(crate) use role::role_name;

/// The whole configuration. Durations are in milliseconds, sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// If empty, one cluster with every role: the current kubeconfig context or, in a pod, the
    /// pod's own cluster.
    pub clusters: Vec<ClusterConfig>,
    /// Clusters that are found while the program runs.
    pub discovery: DiscoveryConfig,
    pub fleet: FleetConfig,
    /// Decide and log, but write nothing to any cluster.
    pub dry_run: bool,
    pub leader_election: LeaderElectionConfig,
    pub watch: WatchConfig,
    pub executor: ExecutorConfig,
    pub event_log: EventLogConfig,
    pub events: EventsConfig,
    pub admin: AdminConfig,
    pub log: LogConfig,
    pub metrics: MetricsConfig,
    pub shutdown: ShutdownConfig,
    /// This and the four below are the machine's [`Settings`].
    pub mirror: MirrorSettings,
    #[serde(serialize_with = "with_stand_in")]
    pub touch: TouchSettings,
    pub orphans: OrphanSettings,
    pub stall: StallSettings,
    pub retry: RetrySettings,
}

/// An event log's header leaves `standInMs` out where it is not set; a configuration has every key.
fn with_stand_in<S: Serializer>(touch: &TouchSettings, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct EveryKey<'a> {
        #[serde(flatten)]
        touch: &'a TouchSettings,
        #[serde(skip_serializing_if = "Option::is_none")]
        stand_in_ms: Option<u64>,
    }
    let stand_in_ms = touch.has_default_stand_in().then_some(touch.stand_in_ms);
    EveryKey { touch, stand_in_ms }.serialize(serializer)
}

impl Config {
    /// The cluster that holds the Lease; `None` if no leader is elected.
    pub fn election_cluster(&self) -> Option<&ClusterConfig> {
        let hub = self.clusters.iter().find(|c| c.roles.contains(&Role::Hub))?;
        if !self.leader_election.enabled || self.dry_run {
            return None;
        }
        let named = self.leader_election.cluster.as_ref();
        named.map_or(Some(hub), |name| self.clusters.iter().find(|c| c.name == *name))
    }

    /// The timings of the leader election.
    pub fn election_timings(&self) -> Timings {
        Timings {
            lease_ms: self.leader_election.lease_duration_ms,
            renew_deadline_ms: self.leader_election.renew_deadline_ms,
            retry_ms: self.leader_election.retry_period_ms,
            write_ms: self.executor.timeout_ms,
        }
    }

    /// The settings that the machine decides by.
    pub fn settings(&self) -> Settings {
        let shards = self.election_cluster().map(|_| self.leader_election.shards);
        Settings {
            shards: shards.and_then(|shards| shards.try_into().ok()).unwrap_or_default(),
            mirror: self.mirror.clone(),
            touch: self.touch.clone(),
            orphans: self.orphans.clone(),
            stall: self.stall.clone(),
            retry: self.retry,
        }
    }
}

/// One cluster and how to connect to it. Without `kubeconfig`, `context` and `inCluster`, the
/// connection is found as kubectl finds it, or else from the pod's ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterConfig {
    /// For an upstream, the name in the hub objects' label
    /// `meta.datumapis.com/upstream-cluster-name`.
    pub name: ClusterName,
    /// Never empty in a loaded configuration.
    #[serde(with = "role")]
    pub roles: Vec<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's current context if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The cluster that this pod runs in, with its ServiceAccount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
}

/// Which instance mirrors and deletes: the holder of a Lease in the Kubernetes API. Only instances
/// with a hub take part, and none in a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElectionConfig {
    /// If false, this instance always leads, and so does every other instance.
    pub enabled: bool,
    /// The cluster that holds the Lease; the hub if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// If absent, the pod's namespace, the namespace of the kubeconfig context, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_namespace: Option<String>,
    /// Instances that share a Lease take turns, or share its shards.
    pub lease_name: String,
    /// The parts into which the upstreams are shared out among the instances; each has a Lease.
    pub shards: u16,
    /// Another instance may take a Lease that has not been renewed for this long; whole seconds.
    pub lease_duration_ms: u64,
    /// A leader that cannot renew the Lease for this long stops leading.
    pub renew_deadline_ms: u64,
    /// The pause between two attempts to acquire or renew the Lease.
    pub retry_period_ms: u64,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            cluster: None,
            lease_namespace: None,
            lease_name: "throughline".into(),
            shards: 1,
            lease_duration_ms: 15_000,
            renew_deadline_ms: 10_000,
            retry_period_ms: 2_000,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchConfig {
    /// Objects per page of an initial list.
    pub page_size: u32,
    /// The limit for the answer to a request or one page of a list.
    pub timeout_ms: u64,
    /// A watch that delivers no byte, not even a bookmark, for this long is restarted. API servers
    /// send a bookmark about once a minute.
    pub silent_after_ms: u64,
    /// The first pause after a failure; it doubles, with jitter.
    pub backoff_first_ms: u64,
    pub backoff_max_ms: u64,
    /// Events that may wait for the machine; when the queue is full, the watches wait.
    pub queue: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            page_size: 500,
            timeout_ms: 15_000,
            silent_after_ms: 90_000,
            backoff_first_ms: 250,
            backoff_max_ms: 10_000,
            queue: 1024,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutorConfig {
    /// Writes in flight at the same time to one kind in one cluster, each to a different object.
    pub parallel: usize,
    /// Without effect; read because older configurations have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// The limit for one attempt of one write.
    pub timeout_ms: u64,
    /// Attempts of one action before it counts as failed.
    pub tries: usize,
    /// The first pause between attempts; it doubles, with jitter.
    pub backoff_first_ms: u64,
    /// A longer `Retry-After` ends the attempts.
    pub backoff_max_ms: u64,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            parallel: 16,
            queue: None,
            timeout_ms: 5_000,
            tries: 3,
            backoff_first_ms: 100,
            backoff_max_ms: 2_000,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventLogConfig {
    /// If absent, no event log is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// A file that grows past this size is rotated: `FILE` becomes `FILE.1`, and so on.
    pub max_bytes: u64,
    /// The size of all files together, those of earlier runs included; the oldest go first.
    pub keep_bytes: u64,
    /// Rotated files that are this much older than the newest are deleted.
    pub keep_days: u32,
    /// Read for `keepBytes` where that is not set: so many rotated files of `maxBytes` each. `None`
    /// in a loaded configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// Replace addresses and keys by stand-ins; the log replays to the same decisions.
    pub redact: bool,
}

const MIB: u64 = 1024 * 1024;

impl EventLogConfig {
    /// What `keepBytes` is where it is not set: room for `maxBytes` as many times as in the defaults,
    /// or as `keep` says.
    fn keep_bytes_by_count(&self) -> u64 {
        let rotated = self.keep.unwrap_or(3);
        self.max_bytes.saturating_mul(u64::from(rotated) + 1)
    }
}

impl Default for EventLogConfig {
    fn default() -> Self {
        Self {
            file: None,
            max_bytes: 256 * MIB,
            keep_bytes: 1024 * MIB,
            keep_days: 14,
            keep: None,
            redact: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventsConfig {
    /// Post Kubernetes Events on Connectors, Gateways, routes and the Lease; none in a dry run.
    pub enabled: bool,
    /// The most Events, in all clusters together, that are sent in any 60 seconds.
    pub max_per_minute: u32,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self { enabled: true, max_per_minute: 30 }
    }
}

/// Who may read `/state`, which names every connector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateAccess {
    /// Clients on the same host.
    #[default]
    Loopback,
    /// Any client that reaches the port.
    Everyone,
    Off,
}

/// The server for probes, metrics and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminConfig {
    /// Port 0 takes any free port; the log shows which one.
    pub address: SocketAddr,
    pub state: StateAccess,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([0, 0, 0, 0], 8080)), state: StateAccess::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    Text,
    /// One JSON object per line.
    Json,
}

/// The log for people; see [`EventLogConfig`] for the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LogConfig {
    /// Same syntax as `RUST_LOG`: `info`, or `throughline=debug,kube=warn`. `RUST_LOG` overrides it.
    pub level: String,
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long to wait for writes in flight before abandoning them.
    pub grace_ms: u64,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { grace_ms: 10_000 }
    }
}
