//! `throughline config`, and the flags that select the clusters.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throughline::client::read_kubeconfig;
use throughline::config::{Config, ConfigError, ConfigSource, LogConfig};
use throughline::logging;
use throughline::outside_text::plain_json::plain_yaml;

use super::out;

/// The configuration. Flags override the file, which overrides the defaults.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The configuration file (YAML)
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    config: Option<PathBuf>,
    /// Set any key of the file, for example touch.scope=gatewayClass; the value is YAML; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The kubeconfig file, if there is only one cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig context, if there is only one cluster
    #[arg(long, value_name = "CTX")]
    context: Option<String>,
    /// off, error, warn, info, debug, trace, or target=level,…; RUST_LOG overrides it
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

impl ConfigArgs {
    pub(super) fn source(&self) -> ConfigSource {
        let level = self.log_level.iter().map(|level| format!("log.level={level}"));
        ConfigSource {
            file: self.config.clone(),
            set: self.set.iter().cloned().chain(level).collect(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }

    pub(super) fn load(&self) -> Result<Config, ConfigError> {
        self.source().load()
    }

    /// Loads the configuration for a command whose output is not its log: unless a level is set, only
    /// warnings and errors are logged.
    pub(super) fn load_quietly(&self) -> anyhow::Result<Config> {
        let config = self.load()?;
        let mut log = config.log.clone();
        if log.level == LogConfig::default().level {
            "warn".clone_into(&mut log.level);
        }
        logging::init(&log)?;
        Ok(config)
    }

    /// The default cluster if none is configured: a kubeconfig's context.
    pub(super) fn default_context(&self) -> Option<String> {
        if self.config.is_some() || self.set.iter().any(|set| set.starts_with("clusters")) {
            return None;
        }
        let current = || {
            let read = read_kubeconfig(self.kubeconfig.as_deref());
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
}

/// `throughline config`.
#[derive(Debug, Args)]
pub(super) struct PrintArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Prints the configuration in effect.
pub(super) fn print(args: &PrintArgs) -> anyhow::Result<ExitCode> {
    let config = args.config.load()?;
    out::print(&plain_yaml(&config).context("printing as YAML")?)?;
    Ok(ExitCode::SUCCESS)
}
