//! Follows the configuration file in a running instance: its clusters change with the file.
//!
//! A task reads the file's metadata every few seconds. A changed file is used once two checks show the
//! same content, so that a file is never used half written. Only `clusters` is followed: any other key
//! takes effect at the next start, and its change is one log line. A broken file, or one without
//! `clusters`, changes nothing. A file without the hub, or without more than a third of the clusters,
//! at once or within a minute, needs SIGHUP, which reads the file at once; another hub needs a restart.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::SignalStream;
use tokio_stream::{Stream, StreamExt};
use tracing::{info, warn};

use super::{ClusterConfig, Config, ConfigError, ConfigSource};
use crate::clock::wall_clock_now;
use crate::core::contract::cause::{About, Cause, Problem};
use crate::core::data::ids::{ClusterName, Role};
use crate::environment::blocking;
use crate::file_stamp::FileStamp;
use crate::metrics::{Metrics, ReloadResult};
use crate::problems::Outside;

/// The time between two checks, and between the two that must agree.
const CHECK_EVERY: Duration = Duration::from_secs(3);

/// What leaves within this time counts together, as for discovery.
const COUNTED_TOGETHER: Duration = Duration::from_secs(60);

/// The most clusters or keys that a log line names; it counts the rest.
const NAMED_MAX: usize = 20;

/// Follows the source's file and SIGHUP, from inside a Tokio runtime, while a receiver exists. Sends
/// each new list of clusters. Without a file there is nothing to reload, and SIGHUP ends the run, as
/// when a terminal closes.
///
/// # Errors
/// The signal can't be listened for.
pub(crate) fn follow(
    source: ConfigSource,
    started: &Config,
    metrics: Arc<Metrics>,
    problems: Outside,
) -> io::Result<mpsc::Receiver<Vec<ClusterConfig>>> {
    let (clusters, followed) = mpsc::channel(1);
    if source.file.is_none() {
        return Ok(followed);
    }
    let hangups = SignalStream::new(signal(SignalKind::hangup())?);
    let follower = Follower::new(source, started.clone(), metrics, problems, clusters);
    tokio::spawn(follower.run(hangups));
    Ok(followed)
}

/// The file at one check.
#[derive(Clone, PartialEq, Eq)]
struct FileCheck {
    /// `None` while the file can't be read. A ConfigMap's files are symbolic links through a directory
    /// that is swapped; the target file is used.
    stamp: Option<FileStamp>,
    text: Result<String, ConfigError>,
}

struct Follower {
    source: ConfigSource,
    /// The configuration at the start.
    started: Config,
    /// The current clusters.
    clusters: Vec<ClusterConfig>,
    /// Earlier lists, each with when it was replaced; none from before a person's word.
    former: Vec<(Instant, Vec<ClusterConfig>)>,
    metrics: Arc<Metrics>,
    problems: Outside,
    followed: mpsc::Sender<Vec<ClusterConfig>>,
    /// The file as last used or refused; `None` until the first check.
    decided: Option<FileCheck>,
    /// A changed file that must be the same at the next check.
    candidate: Option<FileCheck>,
}

impl Follower {
    fn new(
        source: ConfigSource,
        started: Config,
        metrics: Arc<Metrics>,
        problems: Outside,
        followed: mpsc::Sender<Vec<ClusterConfig>>,
    ) -> Self {
        let clusters = started.clusters.clone();
        Self {
            source,
            started,
            clusters,
            former: Vec::new(),
            metrics,
            problems,
            followed,
            decided: None,
            candidate: None,
        }
    }

    /// Checks periodically, and at once on SIGHUP.
    async fn run(mut self, mut hangups: impl Stream<Item = ()> + Unpin) {
        loop {
            tokio::select! {
                () = self.followed.closed() => return,
                Some(()) = hangups.next() => {
                    info!("SIGHUP: reading the configuration file again");
                    self.check_now().await;
                }
                () = sleep(CHECK_EVERY) => self.check().await,
            }
        }
    }

    async fn check(&mut self) {
        let source = self.source.clone();
        // An unchanged file with no check pending is not even read.
        let decided = self.decided.as_ref().filter(|_| self.candidate.is_none());
        let known = decided.map(|file| file.stamp);
        let checked =
            blocking(move || (known != Some(stamp(&source))).then(|| FileCheck::read(&source)));
        let Some(file) = checked.await.flatten() else { return };

        if self.candidate.as_ref() == Some(&file) {
            return self.decide(file, false).await;
        }
        match &mut self.decided {
            // The file was touched, or written with the same content.
            Some(decided) if decided.text == file.text => {
                decided.stamp = file.stamp;
                self.candidate = None;
            }
            _ => self.candidate = Some(file),
        }
    }

    async fn check_now(&mut self) {
        let source = self.source.clone();
        if let Some(file) = blocking(move || FileCheck::read(&source)).await {
            self.decide(file, true).await;
        }
    }

    /// Uses or refuses the content of a checked file.
    async fn decide(&mut self, file: FileCheck, is_asked: bool) {
        self.candidate = None;
        let is_first = self.decided.is_none();
        let source = self.source.clone();
        let text = file.text.clone();
        self.decided = Some(file);
        let Some(read) = blocking(move || source.load_text(&text?)).await else { return };
        let mut config = match read {
            Ok(config) => config,
            Err(error) => return self.refuse(&error.to_string()),
        };
        if let Some(why) = self.refusal(&config.clusters, is_asked) {
            return self.refuse(&why);
        }

        self.problems.set(None);
        let mut later = changed_keys(&self.started, &config);
        later.extend(self.keep_lease(&mut config.clusters));
        let change = ClusterChange::between(&self.clusters, &config.clusters);
        if is_first && change.is_empty() && later.is_empty() && !is_asked {
            // The file is the same as at the start.
            return;
        }
        info!("configuration reloaded: {}", change.describe());
        if !later.is_empty() {
            warn!(
                "configuration reloaded, but these take effect at the next start: {}",
                join(&later)
            );
        }
        self.metrics.config_reloaded(ReloadResult::Applied);
        if !change.is_empty() {
            let former = mem::replace(&mut self.clusters, config.clusters.clone());
            if !is_asked {
                self.former.push((Instant::now(), former));
            }
            let _ = self.followed.send(config.clusters).await;
        }
    }

    /// Why this list of clusters is refused. `None` if it may be used.
    fn refusal(&mut self, clusters: &[ClusterConfig], is_asked: bool) -> Option<String> {
        let local = [self.source.local_cluster()];
        if clusters == local && self.clusters != local {
            let followed = self.clusters.len();
            return Some(format!("it names no cluster, but {followed} clusters are followed"));
        }
        // The election stays as it was at the start, so nobody would elect the leader of another hub.
        let lease = self.started.election_cluster();
        let hub = self.started.election_cluster_of(clusters);
        if let Some(hub) = hub.filter(|hub| lease.is_none_or(|lease| lease.name != hub.name)) {
            return Some(format!(
                "it makes {} the hub, for which this process is not in a leader election. A hub \
                 takes effect at a restart: restart this process",
                hub.name
            ));
        }
        if is_asked {
            self.former.clear();
            return None;
        }
        // A file that is written in steps may take away little with each.
        self.former.retain(|(until, _)| until.elapsed() < COUNTED_TOGETHER);
        let in_steps = || self.former.iter().find_map(|(_, former)| harm(former, clusters));
        let harm = harm(&self.clusters, clusters)
            .or_else(|| Some(format!("within a minute, {}", in_steps()?)))?;
        Some(format!(
            "{harm}. A changed file alone may not do that: if it is meant, send SIGHUP to this \
             process (kill -HUP), or restart it"
        ))
    }

    /// Keeps the current configuration, and reports why.
    fn refuse(&mut self, message: &str) {
        let file = self.source.file.as_deref().unwrap_or(Path::new("")).display();
        let about = About::cluster(&ClusterName::from(""));
        let mut problem = Problem::new(Cause::ConfigRefused, about, wall_clock_now());
        problem.facts.file = Some(file.to_string().into());
        problem.facts.error = Some(message.into());
        self.problems.set(Some(problem));
        self.metrics.config_reloaded(ReloadResult::Refused);
    }

    /// Keeps the connection of the Lease's cluster as it was at the start, for the election, watches
    /// and writes: otherwise this instance would write to a cluster whose Lease it does not hold.
    fn keep_lease(&self, clusters: &mut [ClusterConfig]) -> Option<String> {
        let lease = self.started.election_cluster()?;
        match clusters.iter_mut().find(|cluster| cluster.name == lease.name) {
            Some(cluster) if !same_connection(cluster, lease) => {
                *cluster = ClusterConfig { roles: cluster.roles.clone(), ..lease.clone() };
                Some(format!("the connection of {}, which holds the Lease", lease.name))
            }
            Some(_) => None,
            None => Some(format!("the Lease, which stays in {}", lease.name)),
        }
    }
}

impl FileCheck {
    fn read(source: &ConfigSource) -> Self {
        // Before the content: a write in between is detected later.
        Self { stamp: stamp(source), text: source.read_file() }
    }
}

fn stamp(source: &ConfigSource) -> Option<FileStamp> {
    FileStamp::of(source.file.as_ref()?)
}

/// The difference between a new list of clusters and the current one.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClusterChange {
    /// New clusters, and clusters with changed roles.
    joined: Vec<ClusterName>,
    /// Clusters that are gone, and clusters with changed roles.
    left: Vec<ClusterName>,
    /// Clusters with the same roles and a changed connection.
    replaced: Vec<ClusterName>,
}

impl ClusterChange {
    fn between(before: &[ClusterConfig], after: &[ClusterConfig]) -> Self {
        let mut change = Self::default();
        let former = by_name(before);
        for cluster in after {
            let name = cluster.name.clone();
            match former.get(&name) {
                Some(before) if before.has_roles(&cluster.roles) => {
                    if !same_connection(before, cluster) {
                        change.replaced.push(name);
                    }
                }
                _ => change.joined.push(name),
            }
        }
        let present = by_name(after);
        let has_left =
            |c: &&ClusterConfig| present.get(&c.name).is_none_or(|now| !now.has_roles(&c.roles));
        change.left.extend(before.iter().filter(has_left).map(|c| c.name.clone()));
        change
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `2 clusters joined (a, b), 1 left (c)`.
    fn describe(&self) -> String {
        let parts = [
            (&self.joined, "joined"),
            (&self.left, "left"),
            (&self.replaced, "reached in another way"),
        ];
        let mut text = String::new();
        for (names, what) in parts.into_iter().filter(|(names, _)| !names.is_empty()) {
            let noun = match (text.is_empty(), names.len()) {
                (false, _) => "",
                (true, 1) => "cluster ",
                (true, _) => "clusters ",
            };
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a String does not fail.
            let _ = write!(text, "{comma}{} {noun}{what} ({})", names.len(), join(names));
        }
        if text.is_empty() { "the clusters are the same".to_owned() } else { text }
    }
}

/// Why this change needs SIGHUP. `None` if the changed file is enough.
fn harm(before: &[ClusterConfig], after: &[ClusterConfig]) -> Option<String> {
    let present = by_name(after);
    let keeps = |cluster: &ClusterConfig, role: Role| {
        present.get(&cluster.name).is_some_and(|now| now.roles.contains(&role))
    };
    let hub = before.iter().find(|c| c.roles.contains(&Role::Hub));
    if let Some(hub) = hub.filter(|hub| !keeps(hub, Role::Hub)) {
        return Some(format!("it takes away the hub, {}", hub.name));
    }
    let loses = |cluster: &&ClusterConfig| cluster.roles.iter().any(|r| !keeps(cluster, *r));
    let lost: Vec<_> = before.iter().filter(loses).map(|c| c.name.clone()).collect();
    (lost.len() > 1 && lost.len() * 3 > before.len()).then(|| {
        let some = lost.len();
        let all = before.len();
        format!("it takes away {some} of {all} clusters, or roles of them: {}", join(&lost))
    })
}

fn by_name(clusters: &[ClusterConfig]) -> BTreeMap<&ClusterName, &ClusterConfig> {
    clusters.iter().map(|cluster| (&cluster.name, cluster)).collect()
}

fn same_connection(a: &ClusterConfig, b: &ClusterConfig) -> bool {
    (&a.kubeconfig, &a.context, a.in_cluster) == (&b.kubeconfig, &b.context, b.in_cluster)
}

/// The keys that differ between two configurations, apart from their clusters.
fn changed_keys(a: &Config, b: &Config) -> Vec<String> {
    let [a, b] = [a, b].map(|config| {
        let config = Config { clusters: Vec::new(), ..config.clone() };
        serde_json::to_value(config).unwrap_or_default()
    });
    let mut keys = Vec::new();
    compare("", &a, &b, &mut keys);
    keys.sort();
    keys
}

fn compare(path: &str, a: &Value, b: &Value, keys: &mut Vec<String>) {
    let (Value::Object(before), Value::Object(after)) = (a, b) else {
        if a != b {
            keys.push(path.to_owned());
        }
        return;
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    for key in gone.chain(after.keys()) {
        let dot = if path.is_empty() { "" } else { "." };
        compare(&format!("{path}{dot}{key}"), &a[key], &b[key], keys);
    }
}

fn join(names: &[impl std::fmt::Display]) -> String {
    let named: Vec<_> = names.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests;
