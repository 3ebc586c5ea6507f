//! `throughline export`: the event log of a run.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throughline::config::ConfigSource;
use throughline::event_log::export::LogExport;

use super::out::{exit_code, print_with};

/// The path of the configuration in the manifests, for `kubectl exec` into a pod.
const MOUNTED_CONFIG: &str = "/etc/throughline/config/config.yaml";

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The configuration of the run [default: the one that is mounted in throughline's pod]
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG", default_value = MOUNTED_CONFIG,
          hide_default_value = true)]
    config: PathBuf,
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let source = ConfigSource { file: Some(args.config.clone()), ..ConfigSource::default() };
    // The files that it names need not exist here.
    let config = source.load()?;
    let none = || format!("{} sets no eventLog.file: there is no log", args.config.display());
    let file = config.event_log.file.with_context(none)?;
    let export = LogExport::open(&file)?;
    let first = export.first_part();
    let missing = export.missing_parts();
    if first > 1 {
        say!("the log begins with part {first}; those before are deleted");
    }
    if missing > 0 {
        say!("warning: {missing} parts of {} are missing; the copy has a gap", file.display());
    }
    let is_whole = print_with(|out| Ok(export.write_to(out)?)).unwrap_or_else(|error| {
        say!("throughline: the copy is incomplete: {error:#}");
        false
    });
    Ok(exit_code(is_whole && missing == 0))
}
