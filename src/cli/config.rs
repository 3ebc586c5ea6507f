//! `throughline config`, and the flags that it shares with `throughline run`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use throughline::clock::wall;
use throughline::config::{self, Config, ConfigErrors, Given, Loaded, LogConfig, Overrides};
use throughline::logging;

use super::out;
use super::settings::{SettingArgs, given};

/// Which clusters there are, and how they are looked at. Flags go before the file, which goes before
/// the defaults.
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    /// The configuration file, in YAML
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    config: Option<PathBuf>,
    /// A cluster, instead of the file's; may be repeated. Roles: upstream, downstream, edge
    #[arg(long, value_name = "NAME=ROLE[+ROLE…][,kubeconfig=FILE][,context=CTX][,in-cluster]")]
    cluster: Vec<String>,
    /// The kubeconfig file, where there is one cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context, where there is one cluster
    #[arg(long, value_name = "CTX")]
    context: Option<String>,
    /// off, error, warn, info, debug, trace, or target=level,…; RUST_LOG goes before it
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Text on a terminal and JSON otherwise, or always one of them
    #[arg(long, value_name = "FORMAT", value_parser = ["auto", "text", "json"])]
    log_format: Option<String>,
    #[command(flatten, next_help_heading = "Settings (--set reaches every key of the file)")]
    settings: SettingArgs,
}

impl ClusterArgs {
    /// Reads the file and lays the flags over it, for commands that print something else than their
    /// log: that tells of warnings only, unless it was asked for more.
    pub(super) fn load_quietly(&self) -> anyhow::Result<Config> {
        Ok(warned(quiet(self.load(Vec::new())?)?))
    }

    fn load(&self, more: Vec<Given>) -> Result<Loaded, ConfigErrors> {
        let words = [
            word("--log-level", "log.level", self.log_level.as_deref()),
            word("--log-format", "log.format", self.log_format.as_deref()),
        ];
        let words = words.into_iter().flatten();
        let overrides = Overrides {
            clusters: self.cluster.clone(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            values: more.into_iter().chain(words).chain(self.settings.given()).collect(),
        };
        config::load(self.config.as_deref(), &overrides)
    }
}

/// The configuration of a live run.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Decide and log, and write nothing to any cluster
    #[arg(long)]
    dry_run: bool,
    /// Write the run's event log to this file
    #[arg(long, value_name = "FILE")]
    event_log: Option<String>,
    /// Where probes and metrics are served; port 0 takes any free one
    #[arg(long, value_name = "IP:PORT")]
    admin_address: Option<String>,
    #[command(flatten)]
    clusters: ClusterArgs,
}

impl ConfigArgs {
    /// The event log that the flag names, or else one of the command's own: that of a live run with
    /// the same configuration is not touched.
    pub(super) fn own_event_log(&self, command: &str) -> PathBuf {
        let named = || format!("throughline-{command}-{}.jsonl", wall().0);
        self.event_log.clone().unwrap_or_else(named).into()
    }

    /// Reads the file and lays the flags over it.
    pub(super) fn load(&self) -> Result<Loaded, ConfigErrors> {
        let dry_run = self.dry_run.then(|| Given::Flag {
            flag: "--dry-run".to_owned(),
            key: "dryRun",
            value: true.into(),
        });
        let words = [
            word("--event-log", "eventLog.file", self.event_log.as_deref()),
            word("--admin-address", "admin.address", self.admin_address.as_deref()),
        ];
        self.clusters.load(dry_run.into_iter().chain(words.into_iter().flatten()).collect())
    }

    /// As [`ClusterArgs::load_quietly`].
    pub(super) fn load_quietly(&self) -> anyhow::Result<Config> {
        Ok(warned(self.load_for_report()?))
    }

    /// The same, for a command that tells of the configuration's warnings itself.
    pub(super) fn load_for_report(&self) -> anyhow::Result<Loaded> {
        quiet(self.load()?)
    }
}

fn word(flag: &str, key: &'static str, word: Option<&str>) -> Option<Given> {
    word.map(|word| given(flag, key, word))
}

/// Begins to log, quietly.
fn quiet(mut loaded: Loaded) -> anyhow::Result<Loaded> {
    let log = &mut loaded.config.log;
    if log.level == LogConfig::default().level {
        "warn".clone_into(&mut log.level);
    }
    logging::init(log)?;
    Ok(loaded)
}

fn warned(Loaded { config, warnings }: Loaded) -> Config {
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    config
}

/// `throughline config`.
#[derive(Debug, Args)]
pub(super) struct PrintArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// As the file would have it.
    Yaml,
    /// The same, as JSON.
    Json,
}

/// Prints the configuration in effect; warnings go to standard error.
pub(super) fn print(args: &PrintArgs) -> anyhow::Result<ExitCode> {
    let loaded = args.config.load()?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    let text = match args.output {
        Output::Yaml => serde_saphyr::to_string(&loaded.config).context("printing as YAML")?,
        Output::Json => {
            serde_json::to_string_pretty(&loaded.config).context("printing as JSON")? + "\n"
        }
    };
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
