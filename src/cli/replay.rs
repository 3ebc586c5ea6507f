//! `throughline replay`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use throughline::config::change_settings;
use throughline::core::ids::ObjectKey;
use throughline::core::settings::Settings;
use throughline::event_log::{Reader, holds_outcomes};
use throughline::replay::{self, Mode, Options, Replay};
use throughline::report;

use super::out::{look, print_with};
use super::settings::{SettingArgs, duration_ms};

/// The replay did not converge, or did not verify.
const NOT_CONVERGED: u8 = 1;

/// How a replay is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// One page that needs nothing else: the timeline, to look at and to pass on.
    Html,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Event logs; `-` is standard input; .gz and .zst are read, too
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Carry actions out on top of the recording, or compare with the recorded ones [default:
    /// verify when the log holds outcomes, else what-if]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Tell of this connector only, by its name upstream or at the hub and edges
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_key)]
    connector: Option<ObjectKey>,
    /// What to print: a story for people, everything for programs, or a page for a browser
    #[arg(long, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// After the last line, virtual time goes on until nothing is due, for at most this long
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "15m")]
    run_on: u64,
    /// How long the carrier takes from hub to edge in a what-if
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "50ms")]
    carrier_delay: u64,
    /// Write what entered and left the machine to this file, as an event log that verifies
    #[arg(long, value_name = "FILE")]
    event_log: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Settings that change decisions")]
    settings: SettingArgs,
}

/// `NAMESPACE/NAME`.
pub(super) fn object_key(text: &str) -> Result<ObjectKey, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(ObjectKey::new(namespace, name))
        }
        _ => Err("expected NAMESPACE/NAME, for example default/home-lab".to_owned()),
    }
}

/// Replays each file and tells of it.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    if args.files.len() > 1 && args.event_log.is_some() {
        bail!("--event-log takes one FILE to replay, and {} were given", args.files.len());
    }
    if args.files.len() > 1 && args.output == Form::Html {
        bail!(
            "--output html makes a page of one FILE, and {} were given: replay them one at a time",
            args.files.len()
        );
    }
    let options = report::Options { connector: args.connector.clone(), ..look() };
    let mut good = true;
    for file in &args.files {
        let replay = replay_file(args, file)?;
        for warning in &replay.warnings {
            eprintln!("{warning}");
        }
        good &= replay.verdict.good;
        let is_read = print_with(|out| {
            match args.output {
                Form::Text => report::text(&replay, &options, out)?,
                Form::Json => report::json(&replay, &options, out)?,
                Form::Html => report::html(&replay, &options, out)?,
            }
            Ok(())
        })?;
        if !is_read {
            break;
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

fn replay_file(args: &ReplayArgs, file: &str) -> anyhow::Result<Replay> {
    let mut reader = Reader::open(file)?;
    let mode = match args.mode {
        Some(mode) => Some(mode),
        // A file that can't be opened is the reader's to tell.
        None => holds_outcomes(file)
            .ok()
            .flatten()
            .map(|outcomes| if outcomes { Mode::Verify } else { Mode::WhatIf }),
    };
    let options = Options {
        mode,
        run_on_ms: args.run_on,
        carrier_delay_ms: args.carrier_delay,
        ..Options::default()
    };
    let log = args.event_log.as_deref().map(|path| create(path, file)).transpose()?;
    let mut progress = Progress::new(file);
    let settings = |settings: &mut Settings| Ok(change_settings(settings, &args.settings.given())?);
    let replay = replay::replay(&mut reader, file, settings, &options, log, |r| {
        progress.tick(r.line_number(), || r.progress());
    });
    progress.clear();
    replay
}

/// The log that is read must not be written to.
pub(super) fn refuse_same(path: &Path, input: &str) -> anyhow::Result<()> {
    let same = |input: &Path| Some(input.canonicalize().ok()? == path.canonicalize().ok()?);
    if same(Path::new(input)) == Some(true) {
        bail!("--event-log {}: that is the file to replay", path.display());
    }
    Ok(())
}

fn create(path: &Path, input: &str) -> anyhow::Result<BufWriter<File>> {
    refuse_same(path, input)?;
    let file = File::create(path).with_context(|| format!("--event-log {}", path.display()))?;
    Ok(BufWriter::new(file))
}

/// A line on standard error, where that is a terminal and it takes long.
struct Progress<'a> {
    file: &'a str,
    shown: bool,
    next: Instant,
    is_terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(file: &'a str) -> Self {
        let next = Instant::now() + Duration::from_millis(500);
        Self { file, shown: false, next, is_terminal: io::stderr().is_terminal() }
    }

    fn tick(&mut self, line: u64, share: impl FnOnce() -> Option<f64>) {
        if !self.is_terminal || !line.is_multiple_of(1024) || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(200);
        self.shown = true;
        let share = share().map_or(String::new(), |s| format!(" ({:.0} %)", s * 100.0));
        eprint!("\r{}: line {line}{share} ", self.file);
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
