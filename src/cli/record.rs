//! `throughline record`: watches the clusters and writes an event log, without acting.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use throughline::clock::{millis, sleep_until_opt, wall_clock_now};
use throughline::record::{RecordingStats, WatchRecorder};
use throughline::report::{count, duration};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::config::ConfigArgs;
use super::out::{Progress, block_on, exit_code};
use super::run::stop_on_signals;
use super::values::duration_ms;

/// How often the progress line is redrawn.
const TICK: Duration = Duration::from_millis(500);

/// `throughline record`.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// The file to write; must not exist yet [default: a name with the current time]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Stop after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration_ms)]
    for_ms: Option<u64>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Records until a signal arrives or the time is up.
pub(super) fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let config = args.config.load_quietly()?;
    // The configured file belongs to the live run.
    let new_file = || PathBuf::from(format!("throughline-record-{}.jsonl", wall_clock_now().0));
    let file = args.file.clone().unwrap_or_else(new_file);
    block_on(async {
        let mut stop = stop_on_signals()?;
        let mut recording = WatchRecorder::start(&config, file.clone())?;
        let started = Instant::now();
        let file = file.display().to_string();
        let progress = Progress::new();
        let clusters = count(config.clusters.len(), "cluster");
        say!(
            "recording {clusters} to {file}; {}",
            redaction_and_end(args.for_ms, config.event_log.redact)
        );
        let end = sleep_until_opt(args.for_ms.map(|ms| started + Duration::from_millis(ms)));
        let mut end = std::pin::pin!(end);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = recording.next() => {}
                _ = tick.tick() => {
                    progress.show(&summary(recording.stats(), recording.bytes(), started));
                }
                () = &mut end => break,
                _ = stop.changed() => break,
            }
        }
        let (stats, bytes, lost) = recording.finish().await;
        progress.clear();
        say!("recorded {}", summary(&stats, bytes, started));
        say!("replay it: throughline replay {file}");
        Ok(exit_code(report_gaps(&stats, lost)))
    })
}

fn redaction_and_end(for_ms: Option<u64>, redact: bool) -> String {
    let end = match for_ms {
        Some(ms) => format!("for {}, or until SIGINT (Ctrl-C)", duration(ms)),
        None => "until SIGINT (Ctrl-C) or SIGTERM".to_owned(),
    };
    let redacted = if redact { "addresses and keys are redacted" } else { "nothing is redacted" };
    format!("{redacted}; {end}").replace('\u{a0}', " ")
}

/// `1,204 events, 300 connectors, 2.1 MB, 11 watches live, 32.0 s`.
fn summary(stats: &RecordingStats, bytes: u64, started: Instant) -> String {
    let events = count(stats.events, "event");
    let connectors = count(stats.connectors(), "connector");
    let watches = match stats.not_live.len() {
        0 => format!("{} live", count(stats.watches, "watch")),
        not_live => {
            format!("{} of {} live", stats.watches - not_live, count(stats.watches, "watch"))
        }
    };
    let losses = match stats.losses {
        0 => String::new(),
        1 => " (lost once)".to_owned(),
        losses => format!(" (lost {losses} times)"),
    };
    let lasted = duration(millis(started.elapsed()));
    format!("{events}, {connectors}, {}, {watches}{losses}, {lasted}", size(bytes))
        .replace('\u{a0}', " ")
}

fn size(bytes: u64) -> String {
    let tenth = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", tenth(1_000)),
        1_000_000..1_000_000_000 => format!("{} MB", tenth(1_000_000)),
        _ => format!("{} GB", tenth(1_000_000_000)),
    }
}

/// Prints each known gap in the recording. True if there is none.
fn report_gaps(stats: &RecordingStats, lost: u64) -> bool {
    for (cluster, kind) in &stats.not_live {
        say!("incomplete: {kind} in {cluster} was not being watched at the end");
    }
    if lost > 0 {
        let lines = count(lost, "line");
        say!("incomplete: {lines} could not be written");
    }
    stats.not_live.is_empty() && lost == 0
}
