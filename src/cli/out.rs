//! Shared by the commands: standard output, exit codes and the async runtime.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use throughline::outside_text::plain_json::plain_json;
use throughline::report;
use tokio::runtime::Builder;

/// The output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Prints to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    print_with(|out| Ok(out.write_all(text.as_bytes())?)).map(drop)
}

/// Prints `value` as JSON.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&plain_json(value)?)
}

/// Lets `write` print to standard output. False if the reader has closed the pipe, which is not an
/// error.
pub(super) fn print_with(
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(error) if is_broken_pipe(&error) => Ok(false),
        written => written.context("writing to standard output").map(|()| true),
    }
}

pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// How to write a report to standard output: the width is `$COLUMNS`, the terminal's width, or 100.
pub(super) fn report_options() -> report::ReportOptions {
    let stdout = io::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let columns = columns.or_else(|| Some(terminal_size::terminal_size_of(&stdout)?.0.0.into()));
    report::ReportOptions {
        color: stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        width: columns.filter(|c| *c >= 40).unwrap_or(100),
        connector: None,
    }
}

/// Does the work of a command on one thread: that is enough for the machine, and everything else waits
/// for the network. No task runs after the work has ended: a watch can't mistake the end of the command
/// for the end of its connection, and log that. Nor are threads waited for, which may hang.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// The exit code of a command that did its work: 0, or 1 if what it found or did is not good.
pub(super) fn exit_code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A progress line on the terminal; nothing if standard error is not a terminal. The next line that is
/// printed overwrites it.
pub(super) struct Progress(bool);

impl Progress {
    pub(super) fn new() -> Self {
        Self(io::stderr().is_terminal())
    }

    pub(super) fn show(&self, line: &str) {
        if self.0 {
            let mut err = io::stderr().lock();
            // A closed terminal is no reason to stop.
            let _ = write!(err, "\x1b[K{line}\r").and_then(|()| err.flush());
        }
    }

    pub(super) fn clear(&self) {
        self.show("");
    }
}
