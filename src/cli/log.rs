//! `throughline log`: the event log of a run.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use throughline::config::{ConfigSource, Overrides};
use throughline::event_log::export::LogExport;
use throughline::instance;

use super::out::{is_broken_pipe, one_thread, print_with};
use super::settings::duration_ms;

/// The exit code when not all of the log was written.
const INCOMPLETE: u8 = 1;

/// Where the manifests mount the configuration, for `kubectl exec` into a pod.
const MOUNTED_CONFIG: &str = "/etc/throughline/config/config.yaml";

pub(super) const EXAMPLES: &str = "\
Examples:
  kubectl exec deploy/throughline -- /throughline log export > run.jsonl.zst
  throughline log export --state http://127.0.0.1:8080 > run.jsonl.zst
  throughline log export --log live.jsonl > run.jsonl.zst";

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Write the event log, all of its parts in order, to standard output, compressed by zstd.
    ///
    /// The log may be in use: it is copied up to its last whole line. `replay`, `status` and `trace`
    /// read the copy. Without --log and --state it copies the log that the configuration names: that
    /// of --config, or the one that is mounted in throughline's pod.
    ///
    /// Exit codes: 0 all of the log was written, 1 a part is missing or the copy broke off, 2 there is
    /// no log, standard output is a terminal, or bad usage.
    #[command(after_long_help = EXAMPLES)]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// Copy this log, including its rotated parts
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    log: Option<PathBuf>,
    /// Copy the log of a running instance at its admin address, for example http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    state: Option<String>,
    /// The configuration file of the run, whose `eventLog.file` is copied
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    config: Option<PathBuf>,
    /// With --state: the longest pause between two pieces of the answer
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "30s",
          requires = "state")]
    timeout: u64,
}

pub(super) fn run(args: &LogArgs) -> anyhow::Result<ExitCode> {
    let LogCommand::Export(args) = &args.command;
    if io::stdout().is_terminal() {
        bail!(
            "the log is compressed, and standard output is a terminal: add > run.jsonl.zst, or read \
             it with | zstd -d"
        );
    }
    let copied = match &args.state {
        Some(url) => copy_from_instance(url, Duration::from_millis(args.timeout))?,
        None => copy_file(args)?,
    };
    match copied {
        Ok(is_whole) => Ok(if is_whole { ExitCode::SUCCESS } else { INCOMPLETE.into() }),
        Err(error) => {
            say!("throughline: the copy is incomplete: {error:#}");
            Ok(INCOMPLETE.into())
        }
    }
}

/// Whether the copy is whole, or why it broke off.
type Copied = anyhow::Result<bool>;

fn copy_from_instance(url: &str, within: Duration) -> anyhow::Result<Copied> {
    let mut begun = false;
    let copied = print_with(|out| {
        let take = |bytes: &[u8]| {
            begun = true;
            Ok(out.write_all(bytes)?)
        };
        one_thread()?.block_on(instance::stream(url, "/log", within, take))
    });
    match copied {
        Err(error) if !begun && !is_broken_pipe(&error) => Err(error),
        copied => Ok(copied),
    }
}

fn copy_file(args: &ExportArgs) -> anyhow::Result<Copied> {
    let file = match &args.log {
        Some(file) => file.clone(),
        None => configured_log(args.config.clone())?,
    };
    let export = LogExport::open(&file)?;
    if export.first_part() > 1 {
        say!(
            "the log begins with part {}; retention has deleted those before",
            export.first_part()
        );
    }
    let missing = export.missing_parts();
    if missing > 0 {
        say!("warning: {missing} parts of {} are missing; the copy has a gap", file.display());
    }
    Ok(print_with(|out| Ok(export.write_compressed(out)?)).map(|is_read| is_read && missing == 0))
}

/// The event log that a configuration names. No other file of the configuration is opened.
fn configured_log(config: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let mounted = PathBuf::from(MOUNTED_CONFIG);
    let file = config.or_else(|| mounted.exists().then_some(mounted)).context(
        "which log? Name it with --log FILE, name the configuration of the run with --config FILE, or \
         name the instance with --state URL",
    )?;
    let overrides = Overrides::default();
    let loaded = ConfigSource { file: Some(file.clone()), overrides }.load_offline()?;
    let none =
        || format!("{} sets no eventLog.file: a run with it writes no event log", file.display());
    loaded.config.event_log.file.with_context(none)
}
