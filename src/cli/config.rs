//! `throughline config`, and the flags that it shares with `throughline run`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kube::config::Kubeconfig;
use throughline::clock::wall_clock_now;
use throughline::config::{
    Config, ConfigErrors, ConfigSource, FlagValue, LoadedConfig, LogConfig, Overrides,
};
use throughline::logging;
use throughline::outside_text::plain_json::{plain_json, plain_yaml};

use super::out;
use super::settings::{SettingArgs, flag_value};

/// The clusters and how to connect to them. Flags override the file, which overrides the defaults.
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    /// The configuration file (YAML)
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    config: Option<PathBuf>,
    /// A cluster and its roles (upstream, hub, edge); repeatable; replaces the file's clusters
    #[arg(long, value_name = "NAME=ROLE[+ROLE…][,kubeconfig=FILE][,context=CTX][,in-cluster]")]
    cluster: Vec<String>,
    /// The kubeconfig file, if there is only one cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig context, if there is only one cluster
    #[arg(long, value_name = "CTX")]
    context: Option<String>,
    /// off, error, warn, info, debug, trace, or target=level,…; RUST_LOG overrides it
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// The log format; auto is text on a terminal and JSON otherwise
    #[arg(long, value_name = "FORMAT", value_parser = ["auto", "text", "json"])]
    log_format: Option<String>,
}

impl ClusterArgs {
    /// Loads the configuration for a command whose output is not its log: unless a level is set,
    /// only warnings and errors are logged. `values` are those of other flags.
    pub(super) fn load_quietly(&self, values: Vec<FlagValue>) -> anyhow::Result<Config> {
        Ok(print_warnings(init_quiet_log(self.source(values).load()?)?))
    }

    /// What is looked at when nothing says which clusters there are: a kubeconfig's context.
    pub(super) fn default_context(&self) -> Option<String> {
        if self.config.is_some() || !self.cluster.is_empty() {
            return None;
        }
        let current = || {
            let read = match &self.kubeconfig {
                Some(file) => Kubeconfig::read_from(file),
                None => Kubeconfig::read(),
            };
            read.ok()?.current_context.filter(|context| !context.is_empty())
        };
        let context = self.context.clone().or_else(current);
        Some(match (context, &self.kubeconfig) {
            (Some(context), Some(file)) => {
                format!("the kubeconfig context {context} of {}", file.display())
            }
            (Some(context), None) => format!("the kubeconfig context {context}"),
            (None, Some(file)) => format!("the kubeconfig {}", file.display()),
            (None, None) => "the cluster that this pod runs in, or kubectl's default".to_owned(),
        })
    }

    pub(super) fn source(&self, values: Vec<FlagValue>) -> ConfigSource {
        let log_flags = [
            optional("--log-level", "log.level", self.log_level.as_deref()),
            optional("--log-format", "log.format", self.log_format.as_deref()),
        ];
        let overrides = Overrides {
            clusters: self.cluster.clone(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            values: log_flags.into_iter().flatten().chain(values).collect(),
        };
        ConfigSource { file: self.config.clone(), overrides }
    }
}

/// The configuration of a live run.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Decide and log, but write nothing to any cluster
    #[arg(long)]
    dry_run: bool,
    /// Write the run's event log to this file
    #[arg(long, value_name = "FILE")]
    event_log: Option<String>,
    /// The address for probes and metrics; port 0 takes any free port
    #[arg(long, value_name = "IP:PORT")]
    admin_address: Option<String>,
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten, next_help_heading = "Settings (use --set for any other key of the file)")]
    settings: SettingArgs,
}

impl ConfigArgs {
    /// Loads the configuration from the file and the flags.
    pub(super) fn load(&self) -> Result<LoadedConfig, ConfigErrors> {
        self.source().load()
    }

    /// The file and the flags.
    pub(super) fn source(&self) -> ConfigSource {
        let dry_run = self.dry_run.then(|| FlagValue::Named {
            flag: "--dry-run".to_owned(),
            key: "dryRun",
            value: true.into(),
        });
        let flags = [
            event_log_flag(self.event_log.as_deref()),
            optional("--admin-address", "admin.address", self.admin_address.as_deref()),
        ];
        let flags = dry_run.into_iter().chain(flags.into_iter().flatten());
        self.clusters.source(flags.chain(self.settings.values()).collect())
    }

    /// Like [`ClusterArgs::load_quietly`], for a command that reports the warnings itself.
    pub(super) fn load_for_report(&self) -> anyhow::Result<LoadedConfig> {
        init_quiet_log(self.load()?)
    }
}

/// The event log of a command other than `run`: the file from the flag, or a new name. The file
/// from the configuration belongs to the live run and is never used.
pub(super) fn own_event_log(flag: Option<&str>, command: &str) -> PathBuf {
    let new_name = || format!("throughline-{command}-{}.jsonl", wall_clock_now().0);
    flag.map_or_else(new_name, str::to_owned).into()
}

pub(super) fn event_log_flag(file: Option<&str>) -> Option<FlagValue> {
    optional("--event-log", "eventLog.file", file)
}

fn optional(flag: &str, key: &'static str, value: Option<&str>) -> Option<FlagValue> {
    value.map(|value| flag_value(flag, key, value))
}

fn init_quiet_log(mut loaded: LoadedConfig) -> anyhow::Result<LoadedConfig> {
    let log = &mut loaded.config.log;
    if log.level == LogConfig::default().level {
        "warn".clone_into(&mut log.level);
    }
    logging::init(log)?;
    Ok(loaded)
}

fn print_warnings(LoadedConfig { config, warnings, .. }: LoadedConfig) -> Config {
    for warning in &warnings {
        say!("warning: {warning}");
    }
    config
}

/// `throughline config`.
#[derive(Debug, Args)]
pub(super) struct PrintArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Check this file (instead of --config) where its kubeconfigs are not; says what it did not see
    #[arg(long, value_name = "FILE")]
    offline: Option<PathBuf>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = ConfigFormat::Yaml)]
    output: ConfigFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConfigFormat {
    /// The format of the configuration file
    Yaml,
    /// The same keys as JSON
    Json,
}

/// Prints the configuration in effect; warnings go to standard error.
pub(super) fn print(args: &PrintArgs) -> anyhow::Result<ExitCode> {
    let loaded = match &args.offline {
        None => args.config.load()?,
        Some(file) => {
            let source = ConfigSource { file: Some(file.clone()), ..args.config.source() };
            source.load_offline()?
        }
    };
    for unchecked in &loaded.unchecked {
        say!("not checked: {unchecked}");
    }
    let config = print_warnings(loaded);
    let text = match args.output {
        ConfigFormat::Yaml => plain_yaml(&config).context("printing as YAML")?,
        ConfigFormat::Json => plain_json(&config).context("printing as JSON")?,
    };
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
