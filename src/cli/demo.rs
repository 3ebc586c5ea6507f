//! `throughline demo`.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throughline::config::LogConfig;
use throughline::{demo, logging, report};
use tokio::runtime::Builder;

use super::out::{Output, exit_code, is_broken_pipe, print_with, report_options};
use super::run::stop_on_signals;
use super::values::duration_ms;

/// The API servers, the run and the demo itself share one process.
const THREADS: usize = 4;
/// The demo prints writes and lost watches itself.
const LOG_LEVEL: &str = "warn,throughline::problems=off,throughline::watch=error,kube_client=error,\
                         kube_client::client::builder=off";

/// `throughline demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// The event log to play (.gz too); - is standard input [default: a built-in recorded
    /// incident]
    #[arg(value_name = "LOG")]
    log: Option<String>,
    /// Shorten longer pauses of the recording to this; 24h plays it in real time
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "2s")]
    longest_pause: u64,
    /// Keep the clusters, throughline and its live page running after the end, until Ctrl-C
    #[arg(long)]
    linger: bool,
    /// The output format: a story while the demo runs, or a JSON report at the end
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Plays the log.
pub(super) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    logging::init(&LogConfig { level: LOG_LEVEL.to_owned(), ..LogConfig::default() })?;
    let options = demo::DemoOptions {
        log: args.log.clone(),
        longest_pause_ms: args.longest_pause,
        linger: args.linger,
        report: report_options(),
    };
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    let played = runtime.block_on(async {
        let stop = stop_on_signals()?;
        match args.output {
            Output::Text => demo::run(&options, stop, &mut io::stdout()).await,
            Output::Json => demo::run(&options, stop, &mut io::sink()).await,
        }
    });
    runtime.shutdown_background();
    let written = played.and_then(|replay| {
        if args.output == Output::Json {
            print_with(|out| Ok(report::json(&replay, &report::ReportOptions::default(), out)?))?;
        }
        Ok(replay.is_good())
    });
    match written {
        Ok(is_good) => Ok(exit_code(is_good)),
        // The reader has closed the pipe.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}
