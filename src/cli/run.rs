//! `throughline run`, and signals.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throughline::logging;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_stream::wrappers::SignalStream;
use tokio_stream::{Stream, StreamExt};

use super::config::ConfigArgs;
use super::out::{block_on, exit_code};

/// `throughline run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Decide and log, but write nothing to any cluster
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs until a signal.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let mut source = args.config.source();
    source.set.extend(args.dry_run.then(|| "dryRun=true".to_owned()));
    let config = source.load()?.with_shard(|name| std::env::var(name).ok())?;
    logging::init(&config.log)?;
    let run = async {
        let stop = stop_on_signals()?;
        throughline::run::run(config, source, stop).await
    };
    // Without a runtime nothing has run, so that error is not logged.
    let ended = block_on(async { Ok(run.await) })?;
    if let Err(error) = &ended {
        tracing::error!("{error:#}");
    }
    Ok(exit_code(ended.is_ok()))
}

/// Becomes true at the first SIGTERM or SIGINT. A second one ends the process immediately.
pub(super) fn stop_on_signals() -> anyhow::Result<watch::Receiver<bool>> {
    let listen = |kind, name, code| {
        let signals = SignalStream::new(signal(kind).context("listening for signals")?);
        anyhow::Ok(signals.map(move |()| (name, code)))
    };
    let terminated = listen(SignalKind::terminate(), "SIGTERM", 143)?;
    let interrupted = listen(SignalKind::interrupt(), "SIGINT", 130)?;
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(handle_signals(terminated.merge(interrupted), stop));
    Ok(stopping)
}

async fn handle_signals(
    mut signals: impl Stream<Item = (&'static str, i32)> + Unpin,
    stop: watch::Sender<bool>,
) {
    let Some((name, _)) = signals.next().await else { return };
    tracing::info!("{name}: stopping; a second signal ends the process immediately");
    stop.send_replace(true);
    let Some((name, code)) = signals.next().await else { return };
    tracing::warn!("second {name}: ending immediately");
    std::process::exit(code);
}
