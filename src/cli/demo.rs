//! `throughline demo`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use throughline::config::LogConfig;
use throughline::{demo, logging, report};

use super::out::{Output, is_broken_pipe, look, print_with, threads};
use super::replay::refuse_same;
use super::run::stop_on_signals;
use super::settings::duration_ms;

/// It did not converge, or was stopped.
const NOT_CONVERGED: u8 = 1;
/// The clusters, the run pointed at them, and the show are one process.
const THREADS: usize = 4;
/// The show tells of writes and lost watches itself.
const LOG_LEVEL: &str = "warn,throughline::narrate=off,throughline::watch=error,kube_client=error,\
                         kube_client::client::builder=off";

/// `throughline demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// The event log to play; - is standard input; .gz and .zst are read, too [default: a recorded
    /// incident that is part of the program]
    #[arg(value_name = "LOG")]
    log: Option<String>,
    /// Longer pauses of the recording are cut to this; 24h plays it in real time
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "2s")]
    longest_pause: u64,
    /// Keep the run's event log in this file; it can be replayed
    #[arg(long, value_name = "FILE")]
    event_log: Option<PathBuf>,
    /// What to print: the story as it happens, or everything, for programs, at the end
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Plays the log.
pub(super) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    if let (Some(log), Some(kept)) = (&args.log, &args.event_log) {
        refuse_same(kept, log)?;
    }
    logging::init(&LogConfig { level: LOG_LEVEL.to_owned(), ..LogConfig::default() })?;
    let options = demo::Options {
        log: args.log.clone(),
        longest_pause_ms: args.longest_pause,
        event_log: args.event_log.clone(),
        report: (args.output == Output::Text).then(look),
    };
    let runtime = threads(THREADS)?;
    let played = runtime.block_on(async {
        let stop = stop_on_signals()?;
        demo::run(&options, stop, &mut io::stdout()).await
    });
    runtime.shutdown_background();
    let written = played.and_then(|replay| {
        if args.output == Output::Json {
            print_with(|out| Ok(report::json(&replay, &report::Options::default(), out)?))?;
        }
        Ok(replay.verdict.good)
    });
    match written {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(NOT_CONVERGED)),
        // Nobody reads any longer.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}
