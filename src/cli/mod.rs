//! The commands and their arguments.

/// Prints a line for people on standard error. It may quote texts from outside, which must not control
/// the terminal.
macro_rules! say {
    ($($text:tt)*) => { eprintln!("{}", throughline::outside_text::lines(&format!($($text)*))) };
}

mod check;
pub(crate) mod completion;
mod config;
mod demo;
mod export;
mod orphans;
mod out;
mod record;
mod replay;
mod run;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod trace;
mod values;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The exit code for bad usage and for input that cannot be used.
pub(crate) const BAD_INPUT: u8 = 2;

/// Carries the liveness of tunnel connectors from project control planes to the edge, and shows
/// where it is stuck.
#[derive(Debug, Parser)]
#[command(name = "throughline", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller until it is stopped.
    ///
    /// Without configured clusters it uses your current kubeconfig context (in a pod: the pod's own
    /// cluster) for all roles. SIGTERM or SIGINT stops it; a second signal ends it immediately. It
    /// follows its configuration file; SIGHUP reads it at once.
    ///
    /// Exit codes: 0 stopped by a signal, 1 failed, 2 bad usage or configuration.
    #[command(after_long_help = "\
Examples:
  throughline run --config live.yaml
  throughline run --config live.yaml --dry-run --set eventLog.file=run.jsonl")]
    Run(run::RunArgs),
    /// Check whether throughline can run here, and what to fix if not.
    ///
    /// Takes the same flags as `run` and writes nothing to any cluster.
    ///
    /// Exit codes: 0 no check failed (there may be warnings), 1 a check failed, 2 bad usage or
    /// configuration.
    #[command(after_long_help = "\
Examples:
  throughline check --config live.yaml
  throughline check --config live.yaml --upstream shop")]
    Check(Box<check::CheckArgs>),
    /// List all connectors in a table, the worst first.
    ///
    /// Reads the clusters, a running instance or an event log, and writes nothing.
    ///
    /// Exit codes: 0 every connector shown is ok, pending or paused, 1 one is held, unknown or stuck, or a
    /// cluster or source cannot be read, 2 bad usage or input.
    #[command(after_long_help = "\
Examples:
  throughline status --config live.yaml --stuck
  throughline status --state http://127.0.0.1:8080 --watch
  throughline status --log run.jsonl --at +90s -o json")]
    Status(Box<status::StatusArgs>),
    /// Show each hop of a connector: what it has, its last writer, the cause and the remedy.
    ///
    /// Reads the clusters (the same flags as `run`), a running instance or an event log, and writes
    /// nothing.
    ///
    /// Exit codes: 0 every hop is ok, 1 one is not, 2 no such object, or bad usage or input.
    #[command(after_long_help = "\
Examples:
  throughline trace connector default/home-lab --config live.yaml
  throughline trace gateway ns-1/app --state http://127.0.0.1:8080")]
    Trace(Box<trace::TraceArgs>),
    /// Record an event log without writing to any cluster.
    ///
    /// Sends only list and watch requests. SIGTERM or SIGINT (Ctrl-C) ends the recording.
    ///
    /// Exit codes: 0 the recording is complete, 1 the recording is incomplete, 2 bad usage or
    /// configuration.
    #[command(after_long_help = "\
Examples:
  throughline record night.jsonl --config live.yaml --for 10m")]
    Record(Box<record::RecordArgs>),
    /// Replay an event log: show where liveness got lost and what throughline would have done.
    ///
    /// Exit codes: 0 the replay converged (or verified), 1 it did not, 2 bad usage or input.
    #[command(after_long_help = "\
Examples:
  throughline replay run.jsonl
  throughline replay run.jsonl --connector default/home-lab
  throughline replay run.jsonl -o html > run.html")]
    Replay(replay::ReplayArgs),
    /// List HTTPRoutes whose upstream Gateway is gone; a run with `orphans.mode: delete` deletes them.
    ///
    /// Shows the evidence for each route, and why a route is kept. Writes nothing.
    ///
    /// Exit codes: 0 no orphan is left, 1 an orphan is left, a route could not be judged, or a cluster or
    /// source cannot be read, 2 bad usage or configuration.
    #[command(after_long_help = "\
Examples:
  throughline orphans --config live.yaml
  throughline orphans restore run.jsonl | kubectl create -f -")]
    Orphans(Box<orphans::OrphansArgs>),
    /// Validate the configuration and print it with all defaults.
    ///
    /// Takes the same flags as `run`.
    ///
    /// Exit codes: 0 the configuration is valid, as far as it was checked, 2 it is not.
    #[command(after_long_help = "\
Examples:
  throughline config --config live.yaml --set touch.scope=gatewayClass")]
    Config(config::PrintArgs),
    /// Play an event log into in-memory clusters and run the controller against them.
    ///
    /// The clusters are served on loopback with the Kubernetes API protocol. Without LOG, the demo
    /// plays a recorded incident.
    ///
    /// Exit codes: 0 converged, 1 not converged or stopped, 2 bad usage or input.
    #[command(after_long_help = "\
Examples:
  throughline demo
  throughline demo recorded.jsonl --longest-pause 24h")]
    Demo(demo::DemoArgs),
    /// Copy the event log of a run, all of its parts in order, to standard output.
    ///
    /// Copies the log that `eventLog.file` of the configuration names. It may be in use: it is copied up
    /// to its last whole line. `replay`, `status` and `trace` read the copy.
    ///
    /// Exit codes: 0 all of the log was written, 1 a part is missing or the copy broke off, 2 there is no
    /// log, or bad usage or configuration.
    #[command(after_long_help = "\
Examples:
  kubectl exec deploy/throughline -- /throughline export > run.jsonl
  throughline export --config live.yaml | gzip > run.jsonl.gz")]
    Export(export::ExportArgs),
    /// Print the version and commit of this program.
    ///
    /// Exit codes: 0 printed, 2 bad usage.
    #[command(after_long_help = "\
Examples:
  throughline version")]
    Version,
    /// Print a script that completes commands and flags in a shell.
    ///
    /// Exit codes: 0 printed, 2 bad usage.
    #[command(after_long_help = "\
Examples:
  source <(throughline completion bash)
  throughline completion zsh > \"${fpath[1]}/_throughline\"
  throughline completion fish > ~/.config/fish/completions/throughline.fish")]
    Completion(completion::CompletionArgs),
}

/// Runs a command.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Config(args) => config::print(&args),
        Command::Orphans(args) => orphans::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Version => version::run(),
        Command::Completion(args) => completion::run(&args),
    }
}
