//! The source of `trace` and `status`: the clusters, a running instance, or an event log.

use std::time::Duration;

use clap::Args;
use throughline::config::Config;
use throughline::core::data::ids::ClusterName;
use throughline::core::view::fleet::Fleet;
use throughline::event_log::{LogReader, holds_outcomes};
use throughline::inspect::clusters::ClusterWatcher;
use throughline::inspect::log::{self, LogMoment};

use super::config::ConfigArgs;
use super::out::Progress;
use super::values::{cluster_name, duration_ms, moment};

/// Flags without effect if the clusters are not read. `--config` is not among them: it may come from
/// the environment.
const OF_CLUSTERS: [&str; 4] = ["upstreams", "kubeconfig", "context", "set"];

/// Reads the clusters unless another source is named.
#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Read from a running instance at its admin address, for example http://127.0.0.1:8080
    #[arg(long, value_name = "URL", conflicts_with = "log", conflicts_with_all = OF_CLUSTERS)]
    state: Option<String>,
    /// Read from an event log, including its rotated parts
    #[arg(long, value_name = "FILE", conflicts_with = "timeout", conflicts_with_all = OF_CLUSTERS)]
    log: Option<String>,
    /// A moment in the log: RFC 3339, or +90s from its start [default: its end]
    #[arg(long, value_name = "TIME", requires = "log", value_parser = moment)]
    at: Option<LogMoment>,
    /// How long to wait for lists and answers; what does not arrive in time is unknown
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "10s")]
    timeout: u64,
    /// Only this upstream; repeatable
    #[arg(long = "upstream", value_name = "NAME", value_parser = cluster_name)]
    pub(super) upstreams: Vec<ClusterName>,
    #[command(flatten, next_help_heading = "Clusters (the same flags as for `run`)")]
    config: ConfigArgs,
}

/// An opened source.
pub(super) enum OpenedSource<'a> {
    Clusters(Box<Config>),
    Instance(&'a str),
    EventLog(Box<Fleet>),
}

impl SourceArgs {
    pub(super) fn within(&self) -> Duration {
        Duration::from_millis(self.timeout)
    }

    /// Starts to follow the clusters, and waits for their lists. Missing data is reported on standard
    /// error.
    pub(super) async fn watch(&self, config: &Config) -> anyhow::Result<ClusterWatcher> {
        let progress = Progress::new();
        let show = |doing: &str| progress.show(&format!("{doing} …"));
        let watcher = ClusterWatcher::start(config, &self.upstreams, self.within(), show).await;
        progress.clear();
        let watcher = watcher?;
        for line in watcher.not_shown() {
            say!("warning: {line}");
        }
        Ok(watcher)
    }

    /// Reads the log or the configuration; warnings go to standard error, and so does the default source
    /// of a command without one: `--config` was probably forgotten.
    pub(super) fn open(&self) -> anyhow::Result<OpenedSource<'_>> {
        if let Some(url) = &self.state {
            return Ok(OpenedSource::Instance(url));
        }
        let Some(file) = &self.log else {
            if let Some(context) = self.config.default_context() {
                say!(
                    "looking at {context} as the only cluster; --config FILE names others, --state \
                     URL a running instance, --log FILE an event log"
                );
            }
            return Ok(OpenedSource::Clusters(Box::new(self.config.load_quietly()?)));
        };
        let mut reader = LogReader::open(file)?;
        // A run writes its settings into the header. A log without them may still contain outcomes.
        let header = reader.header();
        let acted = !header.recorded
            && (header.settings.is_some() || holds_outcomes(file).ok().flatten() == Some(true));
        let (fleet, warnings) = log::fleet(&mut reader, self.at, acted)?;
        for warning in warnings {
            say!("warning: {warning}");
        }
        Ok(OpenedSource::EventLog(Box::new(fleet)))
    }
}
