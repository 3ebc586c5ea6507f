//! `throughline record`: watches only, and writes an event log.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use throughline::clock::{millis, until};
use throughline::config::EventLogConfig;
use throughline::record::{Recording, Tally};
use throughline::report::{count, duration};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::config::ConfigArgs;
use super::out::one_thread;
use super::run::stop_on_signals;
use super::settings::duration_ms;

/// Not all of it was recorded.
const INCOMPLETE: u8 = 1;

/// How often the counter line changes.
const TICK: Duration = Duration::from_millis(500);

/// `throughline record`.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Where to write, as --event-log; a name with the time in it when there is none. It must not
    /// be there yet
    #[arg(value_name = "FILE", conflicts_with = "event_log")]
    file: Option<PathBuf>,
    /// Stop by itself after so long
    #[arg(long = "for", value_name = "DURATION", value_parser = duration_ms)]
    for_ms: Option<u64>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Records until a signal comes, or the time is up.
pub(super) fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let config = args.config.load_quietly()?;
    let file = args.file.clone().unwrap_or_else(|| args.config.own_event_log("record"));
    let log = EventLogConfig { file: Some(file.clone()), ..config.event_log.clone() };
    let runtime = one_thread()?;
    let code = runtime.block_on(async {
        let mut stop = stop_on_signals()?;
        let (mut recording, began) = (Recording::start(&config, &log)?, Instant::now());
        let (file, counter) = (file.display().to_string(), io::stderr().is_terminal());
        let clusters = count(config.clusters.len(), "cluster");
        eprintln!("recording {clusters} to {file}; {}", how_it_ends(args.for_ms, log.redact));
        let end = until(args.for_ms.map(|ms| began + Duration::from_millis(ms)));
        let mut end = std::pin::pin!(end);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = recording.next() => {}
                _ = tick.tick(), if counter => {
                    let line = told(recording.tally(), recording.bytes(), began);
                    // What is logged next takes the line's place.
                    eprint!("\x1b[K{line}\r");
                    drop(io::stderr().flush());
                }
                () = &mut end => break,
                _ = stop.changed() => break,
            }
        }
        let (tally, bytes, lost) = recording.finish().await;
        if counter {
            eprint!("\x1b[K");
        }
        eprintln!("recorded {}", told(&tally, bytes, began));
        eprintln!("replay it: throughline replay {file}");
        anyhow::Ok(if is_whole(&tally, lost) { ExitCode::SUCCESS } else { INCOMPLETE.into() })
    });
    runtime.shutdown_background();
    code
}

fn how_it_ends(for_ms: Option<u64>, redact: bool) -> String {
    let end = match for_ms {
        Some(ms) => format!("for {}, or until SIGINT (Ctrl-C)", duration(ms)),
        None => "until SIGINT (Ctrl-C) or SIGTERM".to_owned(),
    };
    let redacted = if redact { "addresses and keys are replaced" } else { "nothing is redacted" };
    format!("{redacted}; {end}").replace('\u{a0}', " ")
}

/// `1,204 events, 300 connectors, 2.1 MB, 11 watches live, 32.0 s`.
fn told(tally: &Tally, bytes: u64, began: Instant) -> String {
    let events = count(usize::try_from(tally.events).unwrap_or(usize::MAX), "event");
    let connectors = count(tally.connectors.len(), "connector");
    let watches = match tally.dark.len() {
        0 => format!("{} live", count(tally.watches, "watch")),
        dark => format!("{} of {} live", tally.watches - dark, count(tally.watches, "watch")),
    };
    let losses = match tally.losses {
        0 => String::new(),
        1 => " (lost once)".to_owned(),
        losses => format!(" (lost {losses} times)"),
    };
    let lasted = duration(millis(began.elapsed()));
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

/// Whether everything was seen and written, as far as that can be told; says what was not.
fn is_whole(tally: &Tally, lost: u64) -> bool {
    for (cluster, kind) in &tally.dark {
        eprintln!("incomplete: {kind} in {cluster} could not be watched at the end");
    }
    if lost > 0 {
        eprintln!("incomplete: {lost} lines could not be written");
    }
    tally.dark.is_empty() && lost == 0
}
