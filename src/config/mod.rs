//! The configuration of a live run: a YAML file, and flags that override it.
//!
//! `docs/reference/configuration.md` is generated from the docs of these structs, one row for each key.
//! A value that users have no reason to change is a constant ([`Constants`]).

mod constants;
mod follow;
mod old_keys;
mod read;
mod role;
mod size;
mod validate;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use jiff::fmt::serde::unsigned_duration::friendly::compact::required as duration;
use serde::{Deserialize, Deserializer, Serialize};

use crate::client::{ConnectionSpec, Credentials, Server};
use crate::clock::millis;
use crate::core::contract::membership::JoinRule;
use crate::core::contract::settings::{
    Fraction, MirrorSettings, OrphanMode, OrphanSettings, PlatformKeyMode, Settings, TouchScope,
    TouchSettings,
};
use crate::core::data::ids::{ClusterName, Role};
use crate::core::data::shard::Shard;
use crate::leader::election::Timings;
use crate::nearest::require_known;

pub use constants::{Constants, ElectionConstants, ExecutorConstants, WatchConstants};
pub(crate) use follow::follow;
pub use read::{ConfigError, ConfigSource, override_settings};
pub(crate) use role::role_name;
pub use size::Size;

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The clusters and their roles. Without this list, one cluster with every role.
    #[serde(deserialize_with = "or_default")]
    pub clusters: Vec<ClusterConfig>,
    #[serde(deserialize_with = "or_default")]
    pub discovery: DiscoveryConfig,
    /// Decide and log, but write nothing.
    pub dry_run: bool,
    #[serde(deserialize_with = "or_default")]
    pub leader_election: LeaderElectionConfig,
    #[serde(deserialize_with = "or_default")]
    pub mirror: MirrorConfig,
    #[serde(deserialize_with = "or_default")]
    pub touch: TouchConfig,
    #[serde(deserialize_with = "or_default")]
    pub orphans: OrphansConfig,
    #[serde(deserialize_with = "or_default")]
    pub limits: LimitsConfig,
    #[serde(deserialize_with = "or_default")]
    pub event_log: EventLogConfig,
    #[serde(deserialize_with = "or_default")]
    pub events: EventsConfig,
    #[serde(deserialize_with = "or_default")]
    pub admin: AdminConfig,
    #[serde(deserialize_with = "or_default")]
    pub log: LogConfig,
    #[serde(skip)]
    pub constants: Constants,
}

/// Accepts a section whose keys are all commented out.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// One cluster, and how to connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterConfig {
    /// The name in logs, metrics and hub labels (`org/team-1` for the label `cluster-org_team-1`).
    pub name: ClusterName,
    /// One or more of `upstream`, `hub`, `edge`; one cluster is the hub (`downstream` is read as `hub`).
    #[serde(with = "role")]
    pub roles: Vec<Role>,
    /// The kubeconfig file; followed while it changes. Default: the one that kubectl would use, else
    /// the pod's ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in that file; default: its current context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Use the pod's ServiceAccount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
}

/// Clusters that are found while throughline runs, beside the list `clusters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DiscoveryConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milo: Option<MiloConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secrets: Option<KubeconfigSecretsConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_dir: Option<KubeconfigDirConfig>,
}

/// The Projects of a Milo API server; each is an upstream by its name. An empty path is the pod's
/// ServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MiloConfig {
    /// The kubeconfig of the Milo API server whose Projects are upstreams; default: as for a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in that file; default: its current context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The kubeconfig for the projects, if its server or credentials differ from those of
    /// `kubeconfig`; the path of the server is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_kubeconfig: Option<PathBuf>,
    /// Only Projects with these labels; passed to the API server unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// List ProjectControlPlanes and reach projects by their Services.
    pub internal_service_discovery: bool,
    /// `needed`: follow the projects that hub objects name; `all`: follow every one.
    pub join: JoinRule,
}

/// Secrets that hold a kubeconfig each, under the key `kubeconfig`. The Secret's name is the cluster's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigSecretsConfig {
    /// The configured cluster that holds the Secrets.
    pub cluster: ClusterName,
    /// Their namespace.
    pub namespace: String,
    /// Their labels; passed to the API server unchanged.
    #[serde(default = "kubeconfig_label")]
    pub label_selector: String,
    /// The roles of these clusters; never `hub`.
    #[serde(with = "role", default = "upstream")]
    pub roles: Vec<Role>,
}

/// A directory of kubeconfig files. The file's name without its extension is the cluster's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigDirConfig {
    /// The directory.
    pub path: PathBuf,
    /// The roles of these clusters; never `hub`.
    #[serde(with = "role", default = "upstream")]
    pub roles: Vec<Role>,
}

/// The label of the kubeconfig Secrets that multicluster-runtime's provider reads.
fn kubeconfig_label() -> String {
    "sigs.k8s.io/multicluster-runtime-kubeconfig=true".to_owned()
}

fn upstream() -> Vec<Role> {
    vec![Role::Upstream]
}

/// Which instance mirrors, nudges and deletes: the holder of a Lease in the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElectionConfig {
    /// Elect the instance that mirrors, nudges and deletes. If off, every instance does.
    pub enabled: bool,
    /// The namespace of the Lease, in the hub; default: the pod's, the context's, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_namespace: Option<String>,
    /// The name of the Lease; shards above 0 append their number, for example `-1-of-4`.
    pub lease_name: String,
    /// Another instance takes over after this long without a renewal; whole seconds.
    #[serde(with = "duration")]
    pub lease_duration: Duration,
    /// The number of shards. An instance runs shard *ordinal modulo shards*; its ordinal is the last
    /// part of `POD_NAME`, or `THROUGHLINE_SHARD`. The limits per second and per minute are divided
    /// among the shards; each has at least 1.
    pub shards: u16,
}

/// What is written at the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MirrorConfig {
    /// Hub writes per second for changes that do not affect routing; `0`: no limit.
    pub deferred_per_second: u32,
    /// The nudge annotation; empty: never nudge.
    pub nudge_key: String,
}

/// What is written at the edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TouchConfig {
    /// Touch Gateways; off beside a sidecar that does.
    pub enabled: bool,
    /// The trigger annotation; Envoy Gateway needs the prefix `gateway.envoyproxy.io/`.
    pub key: String,
    /// The platform stamp: `observe`, `write` or `off`.
    pub platform_key: PlatformKeyMode,
    /// `gateway`: one touch for each affected Gateway; always correct. `gatewayClass`: one for all
    /// Gateways of a class, if every class has an EnvoyProxy with `mergeGateways: true`.
    pub scope: TouchScope,
    /// Touches per second at one edge; `0`: no limit.
    pub max_per_second: u32,
}

/// Routes whose upstream Gateway is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OrphansConfig {
    /// `off`, `report` or `delete`; `delete` needs `eventLog.file`.
    pub mode: OrphanMode,
    /// A younger route is never an orphan.
    #[serde(with = "duration")]
    pub min_age: Duration,
    /// Also delete the routes of projects that were deleted.
    pub deleted_projects: bool,
}

/// How much may go at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitsConfig {
    /// Hold removals and deletes while a larger share of one upstream, or removals of the fleet, would go,
    /// from 10 objects on.
    pub max_share: Fraction,
    /// At most this many removals in any minute, half of them at once, and as many deletes.
    pub max_per_minute: u32,
}

/// The log from which a run can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventLogConfig {
    /// The file for the event log; default: no log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The size of all parts together, at least `1Mi`; one part is a quarter.
    pub size: Size,
    /// Replace addresses and keys; the log still replays.
    pub redact: bool,
}

/// Kubernetes Events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventsConfig {
    /// Post Kubernetes Events on Connectors, Gateways, routes and the Lease; none in a dry run.
    pub enabled: bool,
}

/// The server for probes, metrics and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminConfig {
    /// Where probes, metrics, `/state` and the live page are served; port 0 takes any free port.
    pub address: SocketAddr,
    /// Who may read `/state`: `loopback` (clients on the same host), `everyone` or `off`.
    pub state: StateAccess,
}

/// Who may read `/state`, which names every connector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateAccess {
    #[default]
    Loopback,
    Everyone,
    Off,
}

/// The log for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LogConfig {
    /// `info`, or `throughline=debug,kube=warn`; `RUST_LOG` overrides it.
    pub level: String,
    /// `text`, `json` or `auto`, which is `text` on a terminal and otherwise `json`.
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    #[default]
    Auto,
    Text,
    Json,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_namespace: None,
            lease_name: "throughline".to_owned(),
            lease_duration: Duration::from_secs(15),
            shards: 1,
        }
    }
}

impl Default for MirrorConfig {
    fn default() -> Self {
        let MirrorSettings { deferrable_per_second, nudge_key, .. } = MirrorSettings::default();
        Self { deferred_per_second: deferrable_per_second, nudge_key }
    }
}

impl Default for TouchConfig {
    fn default() -> Self {
        let TouchSettings { enabled, key, platform_key, scope, max_per_second, .. } =
            TouchSettings::default();
        Self { enabled, key, platform_key, scope, max_per_second }
    }
}

impl Default for OrphansConfig {
    fn default() -> Self {
        let OrphanSettings { mode, min_age_ms, deleted_projects, .. } = OrphanSettings::default();
        Self { mode, min_age: Duration::from_millis(min_age_ms), deleted_projects }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let OrphanSettings { max_share, max_per_minute, .. } = OrphanSettings::default();
        Self { max_share, max_per_minute }
    }
}

impl Default for EventLogConfig {
    fn default() -> Self {
        Self { file: None, size: Size(1 << 30), redact: true }
    }
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self { enabled: true }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([0, 0, 0, 0], 8080)), state: StateAccess::default() }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::default() }
    }
}

impl Config {
    /// The configuration with only the upstreams in `only`; unchanged if `only` is empty. The cluster
    /// that holds kubeconfig Secrets stays.
    ///
    /// # Errors
    /// `only` names a cluster that is not configured, and there is no discovery, which might find it.
    pub(crate) fn narrowed(&self, only: &[ClusterName]) -> anyhow::Result<Self> {
        let mut config = self.clone();
        if only.is_empty() {
            return Ok(config);
        }
        if config.discovery == DiscoveryConfig::default() {
            require_known(only, self.upstreams())?;
        }
        let secrets = config.discovery.kubeconfig_secrets.as_ref().map(|s| s.cluster.clone());
        let stays = |cluster: &ClusterConfig| {
            cluster.roles.iter().any(|role| *role != Role::Upstream)
                || only.contains(&cluster.name)
                || secrets.as_ref() == Some(&cluster.name)
        };
        config.clusters.retain(stays);
        Ok(config)
    }

    /// The names of the configured upstreams.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &ClusterName> {
        let is_upstream = |cluster: &&ClusterConfig| cluster.roles.contains(&Role::Upstream);
        self.clusters.iter().filter(is_upstream).map(|cluster| &cluster.name)
    }

    /// A configuration with these settings, as far as keys and constants cover them.
    pub fn deciding_by(settings: &Settings) -> Self {
        let Settings { mirror, touch, orphans, .. } = settings;
        let nudge_key = if mirror.nudge { mirror.nudge_key.clone() } else { String::new() };
        Self {
            mirror: MirrorConfig { deferred_per_second: mirror.deferrable_per_second, nudge_key },
            touch: TouchConfig {
                enabled: touch.enabled,
                key: touch.key.clone(),
                platform_key: touch.platform_key,
                scope: touch.scope,
                max_per_second: touch.max_per_second,
            },
            orphans: OrphansConfig {
                mode: orphans.mode,
                min_age: Duration::from_millis(orphans.min_age_ms),
                deleted_projects: orphans.deleted_projects,
            },
            limits: LimitsConfig {
                max_share: orphans.max_share,
                max_per_minute: orphans.max_per_minute,
            },
            constants: Constants { settings: settings.clone(), ..Constants::default() },
            ..Self::default()
        }
    }

    /// The cluster that holds the Lease: the hub. `None` if no leader is elected.
    pub fn election_cluster(&self) -> Option<&ClusterConfig> {
        self.election_cluster_of(&self.clusters)
    }

    /// The same if these were the clusters.
    pub(crate) fn election_cluster_of<'c>(
        &self,
        clusters: &'c [ClusterConfig],
    ) -> Option<&'c ClusterConfig> {
        let is_elected = self.leader_election.enabled && !self.dry_run;
        clusters.iter().find(|c| c.roles.contains(&Role::Hub)).filter(|_| is_elected)
    }

    /// The timings of the leader election.
    pub fn election_timings(&self) -> Timings {
        self.timings_of(millis(self.leader_election.lease_duration))
    }

    /// The timings for a Lease of this duration.
    fn timings_of(&self, lease_ms: u64) -> Timings {
        let Constants { election, executor, .. } = &self.constants;
        let timings = Timings::of(lease_ms, executor.timeout_ms);
        Timings {
            renew_deadline_ms: election.renew_deadline_ms.unwrap_or(timings.renew_deadline_ms),
            retry_ms: election.retry_ms.unwrap_or(timings.retry_ms),
            ..timings
        }
    }

    /// Sets the shard of this instance from its environment.
    ///
    /// # Errors
    /// There are several shards, and no variable gives this instance's.
    pub fn with_shard(mut self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let shards = self.leader_election.shards;
        if shards > 1 {
            let (name, text) = [SHARD_VARIABLE, POD_VARIABLE]
                .into_iter()
                .find_map(|name| Some((name, variable(name).filter(|text| !text.is_empty())?)))
                .with_context(|| no_shard(shards, "neither is set"))?;
            let digits = text.rsplit('-').next().filter(|_| name == POD_VARIABLE);
            let ordinal = digits.unwrap_or(&text).parse();
            let ordinal =
                ordinal.ok().with_context(|| no_shard(shards, &format!("{name} is {text:?}")))?;
            self.constants.settings.shard = Shard::of_ordinal(ordinal, shards);
        }
        Ok(self)
    }

    /// The settings of the machine.
    pub fn settings(&self) -> Settings {
        let mut settings = self.constants.settings.clone();

        let MirrorConfig { deferred_per_second, nudge_key } = &self.mirror;
        settings.mirror.deferrable_per_second = *deferred_per_second;
        settings.mirror.nudge = !nudge_key.is_empty();
        settings.mirror.nudge_key.clone_from(nudge_key);

        let TouchConfig { enabled, key, platform_key, scope, max_per_second } = &self.touch;
        settings.touch.enabled = *enabled;
        settings.touch.key.clone_from(key);
        settings.touch.platform_key = *platform_key;
        settings.touch.scope = *scope;
        settings.touch.max_per_second = *max_per_second;

        let OrphansConfig { mode, min_age, deleted_projects } = self.orphans;
        settings.orphans.mode = mode;
        settings.orphans.min_age_ms = millis(min_age);
        settings.orphans.deleted_projects = deleted_projects;

        let LimitsConfig { max_share, max_per_minute } = self.limits;
        settings.mirror.max_share = max_share;
        settings.orphans.max_share = max_share;
        settings.mirror.max_removals_per_minute = max_per_minute;
        settings.orphans.max_per_minute = max_per_minute;
        settings
    }
}

/// The variable with the number of the shard.
const SHARD_VARIABLE: &str = "THROUGHLINE_SHARD";
/// The variable with the pod's name, which ends in its ordinal in a StatefulSet.
const POD_VARIABLE: &str = "POD_NAME";

fn no_shard(shards: u16, found: &str) -> String {
    format!(
        "leaderElection.shards is {shards}, and nothing says which of them is this instance's: set \
         {POD_VARIABLE} to the name of a StatefulSet's pod, such as throughline-3, or {SHARD_VARIABLE} to \
         a number; {found}"
    )
}

impl ClusterConfig {
    /// Whether these are its roles, in any order.
    pub(crate) fn has_roles(&self, roles: &[Role]) -> bool {
        self.roles.iter().all(|role| roles.contains(role))
            && roles.iter().all(|role| self.roles.contains(role))
    }

    pub fn connection(&self) -> ConnectionSpec {
        let credentials = if self.in_cluster {
            Credentials::InCluster
        } else {
            let file = self.kubeconfig.clone();
            let context = self.context.clone();
            Credentials::Kubeconfig { file, context }
        };
        ConnectionSpec { credentials, server: Server::AsConfigured }
    }
}

impl MiloConfig {
    /// The credentials for listing the projects.
    pub fn credentials(&self) -> Credentials {
        credentials(self.kubeconfig.clone(), self.context.clone())
    }

    /// The credentials for the projects' control planes; each has another server.
    pub fn project_credentials(&self) -> Credentials {
        match &self.project_kubeconfig {
            None => self.credentials(),
            file => credentials(file.clone(), None),
        }
    }
}

fn credentials(file: Option<PathBuf>, context: Option<String>) -> Credentials {
    if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
        return Credentials::InCluster;
    }
    Credentials::Kubeconfig { file, context }
}

impl DiscoveryConfig {
    /// Whether clusters with this role may be discovered.
    pub fn may_find(&self, role: Role) -> bool {
        let secrets = self.kubeconfig_secrets.as_ref().map(|secrets| &secrets.roles);
        let files = self.kubeconfig_dir.as_ref().map(|dir| &dir.roles);
        (self.milo.is_some() && role == Role::Upstream)
            || [secrets, files].into_iter().flatten().any(|roles| roles.contains(&role))
    }
}
