//! The command line's words, and what each does.

mod check;
mod config;
mod demo;
mod orphans;
mod out;
mod record;
mod replay;
mod run;
mod settings;
mod source;
mod status;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Bad usage, or input that can't be used.
pub(crate) const BAD_INPUT: u8 = 2;

/// Carries tunnel-connector liveness from project control planes to the edge, and says where it
/// got lost.
#[derive(Debug, Parser)]
#[command(name = "throughline", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch clusters and carry liveness from hop to hop, until told to stop.
    ///
    /// With no clusters configured it is the one that kubectl would use, or the own one in a pod,
    /// with every role. SIGTERM and SIGINT stop it; a second one ends it at once. Exit codes: 0
    /// stopped, 1 failed, 2 bad usage or configuration.
    Run(run::RunArgs),
    /// Say whether a live run can work here, what hinders it, and what to do: the same flags as `run`.
    ///
    /// Nothing is written anywhere. Exit codes: 0 nothing hinders it (it may warn), 1 something
    /// does, 2 bad usage or configuration.
    Check(Box<check::CheckArgs>),
    /// Show every connector in a table, the stuck ones first.
    ///
    /// From the same places as `trace`. Exit codes: 0 none is stuck, 1 one is, or can't be told, 2 bad
    /// usage or input.
    Status(Box<status::StatusArgs>),
    /// Say where a connector's liveness is stuck: each hop, who wrote it, why, and what to do.
    ///
    /// From the clusters (named as for `run`; nothing is written), from a running instance, or
    /// from an event log at a moment. Exit codes: 0 every hop agrees, 1 one disagrees or can't be
    /// told, 2 no such object, bad usage or input.
    Trace(Box<trace::TraceArgs>),
    /// Watch only, and write what is seen to an event log, until told to stop.
    ///
    /// It asks for nothing but lists and watches. SIGTERM and SIGINT stop it. Exit codes: 0 all of
    /// it was recorded, 1 not all of it, 2 bad usage or configuration.
    Record(Box<record::RecordArgs>),
    /// Replay an event log: where liveness got lost, and what throughline would have done.
    ///
    /// Exit codes: 0 converged (or verified), 1 not, 2 bad usage or input.
    Replay(replay::ReplayArgs),
    /// List routes that may be orphaned, with the evidence and their fate; delete them once.
    ///
    /// Exit codes: 0 none stands that should go, 1 one does, or it can't be told, 2 bad usage or
    /// configuration.
    Orphans(Box<orphans::OrphansArgs>),
    /// Print the configuration in effect, checked; the same flags as `run`.
    ///
    /// Exit codes: 0 it can be used, 2 it can't.
    Config(config::PrintArgs),
    /// Show a live run with no cluster at hand: an event log is played into clusters in memory.
    ///
    /// They are served on loopback by the API server's protocol, and the same program as `run` is
    /// pointed at them. With no LOG it is the recorded incident. Exit codes: 0 converged, 1 not (or
    /// stopped), 2 bad usage or input.
    Demo(demo::DemoArgs),
}

/// Does what the command line says.
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
    }
}
