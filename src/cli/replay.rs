//! `throughline replay`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use throughline::config::override_settings;
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::NamespacedName;
use throughline::event_log::{LogReader, holds_outcomes};
use throughline::replay::{self, Replay, ReplayMode, ReplayOptions};
use throughline::report;
use throughline_sim::CarrierRate;

use super::out::{Progress, exit_code, print_with, report_options};
use super::values::{duration_ms, object_key};

/// A replay that ends sooner shows no progress.
const FIRST_PROGRESS_AFTER: Duration = Duration::from_millis(500);
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// The output format of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplayFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// A self-contained web page with the timeline
    Html,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Event logs to replay (.gz too); - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Apply the decided actions on top of the recording (what-if), or compare them with the
    /// recorded ones (verify) [default: verify if the log holds outcomes, otherwise what-if]
    #[arg(long, value_enum)]
    mode: Option<ReplayMode>,
    /// Report on this connector only; accepts its upstream name or its name at the hub and edges
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_key)]
    connector: Option<NamespacedName>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = ReplayFormat::Text)]
    output: ReplayFormat,
    /// The simulated delay of the carrier from hub to edge (what-if)
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "50ms")]
    carrier_delay: u64,
    /// Changed Connectors that the simulated carrier copies per second, in order (what-if);
    /// Karmada's default limits allow 20 [default: no limit]
    #[arg(long, value_name = "CHANGES", allow_negative_numbers = true)]
    carrier_rate: Option<CarrierRate>,
    /// Write the replay's events and actions to this file, as an event log that verifies
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Override a setting of the log's header, for example touch.windowMs=200;
    /// repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Replays each file and prints its report.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    if args.files.len() > 1 && args.save.is_some() {
        bail!("--save works with one FILE, but {} were given", args.files.len());
    }
    if args.files.len() > 1 && args.output == ReplayFormat::Html {
        bail!(
            "--output html works with one FILE, but {} were given: replay them one at a time",
            args.files.len()
        );
    }
    let options = report::ReportOptions { connector: args.connector.clone(), ..report_options() };
    let mut good = true;
    let mut unknown = Vec::new();
    for file in &args.files {
        let replay = replay_file(args, file)?;
        for warning in &replay.warnings {
            say!("{warning}");
        }
        if replay.events == 0 {
            bail!(
                "{file}: the log holds no events, so there is nothing to replay; a run or a recording \
                 writes them once it can list its clusters"
            );
        }
        if let Some(name) = &args.connector
            && let Err(error) = report::require_connector(&replay, name)
        {
            unknown.push(error);
            continue;
        }
        good &= replay.is_good();
        let is_read = print_with(|out| {
            match args.output {
                ReplayFormat::Text => report::text(&replay, &options, out)?,
                ReplayFormat::Json => report::json(&replay, &options, out)?,
                ReplayFormat::Html => report::html(&replay, &options, out)?,
            }
            Ok(())
        })?;
        if !is_read {
            break;
        }
    }
    // With several logs, only some may have the connector.
    if let [first, ..] = &unknown[..]
        && unknown.len() == args.files.len()
    {
        bail!("{first}");
    }
    unknown.iter().for_each(|error| say!("{error}"));
    Ok(exit_code(good))
}

fn replay_file(args: &ReplayArgs, file: &str) -> anyhow::Result<Replay> {
    let mut reader = LogReader::open(file)?;
    let mode = match args.mode {
        Some(mode) => Some(mode),
        // If the file cannot be read, the reader reports the error.
        None => holds_outcomes(file)
            .ok()
            .flatten()
            .map(|outcomes| if outcomes { ReplayMode::Verify } else { ReplayMode::WhatIf }),
    };
    let options = ReplayOptions {
        mode,
        carrier_delay_ms: args.carrier_delay,
        carrier_rate: args.carrier_rate,
        ..ReplayOptions::default()
    };
    let mut log = args.save.as_deref().map(|path| create(path, file)).transpose()?;
    let log = log.as_mut().map(|log| log as &mut dyn Write);
    let progress = Progress::new();
    let mut redraw_at = Instant::now() + FIRST_PROGRESS_AFTER;
    let settings = |settings: &mut Settings| {
        *settings = override_settings(settings, &args.set)?;
        Ok(())
    };
    let replay = replay::replay(&mut reader, file, settings, &options, log, |r| {
        let line = r.line_number();
        if !line.is_multiple_of(1024) || Instant::now() < redraw_at {
            return;
        }
        redraw_at = Instant::now() + REDRAW_EVERY;
        let share = r.progress().map_or(String::new(), |s| format!(" ({:.0} %)", s * 100.0));
        progress.show(&format!("{file}: line {line}{share}"));
    });
    progress.clear();
    replay
}

/// Refuses to overwrite the log that the command reads.
fn create(path: &Path, input: &str) -> anyhow::Result<BufWriter<File>> {
    let existing = path.canonicalize().ok();
    if existing.is_some() && existing == Path::new(input).canonicalize().ok() {
        bail!("{}: this is the file to replay; name another one", path.display());
    }
    let file = File::create(path).with_context(|| path.display().to_string())?;
    Ok(BufWriter::new(file))
}
