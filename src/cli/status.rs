//! `throughline status`: every connector in a table.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use throughline::core::ids::ObjectKey;
use throughline::report::Options;
use throughline::trace::live::Look;
use throughline::trace::{Place, Row, Snapshot, state, table, text};
use tokio::time::sleep;

use super::out::{Output, look, one_thread, print_with};
use super::settings::duration_ms;
use super::source::{Source, SourceArgs};

/// A connector is stuck, or that can't be told.
const STUCK: u8 = 1;

/// `throughline status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Only those that are stuck
    #[arg(long)]
    stuck: bool,
    /// Only those in this namespace, upstream or at hub and edges
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Go on: a terminal shows the table as it is now, a pipe gets each row that changed
    #[arg(short, long, conflicts_with = "log")]
    watch: bool,
    /// With --watch and --state: ask so often
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "2s")]
    every: u64,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    source: SourceArgs,
}

/// Does what the command line says.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let within = args.source.within();
    let mut shown = Shown { args, before: None, stuck: false };
    match args.source.open()? {
        Source::Log(snapshot) => drop(shown.show(&snapshot)?),
        Source::State(url) => one_thread()?.block_on(follow_state(&mut shown, url, within))?,
        Source::Live(config) => {
            let runtime = one_thread()?;
            let ended = runtime.block_on(async {
                let mut look = Look::start(&config)?;
                look.listed(&config, within).await;
                while shown.show(&look.snapshot())? && args.watch {
                    look.changed().await;
                }
                anyhow::Ok(())
            });
            runtime.shutdown_background();
            ended?;
        }
    }
    Ok(if shown.stuck { ExitCode::from(STUCK) } else { ExitCode::SUCCESS })
}

/// An instance that restarts is asked again; one that was never there is an error.
async fn follow_state(shown: &mut Shown<'_>, url: &str, within: Duration) -> anyhow::Result<()> {
    let every = Duration::from_millis(shown.args.every);
    if every.is_zero() {
        bail!("--every 0ms: expected a pause, such as 2s");
    }
    let mut lost = None;
    loop {
        match state::snapshot(url, within).await {
            Ok(snapshot) => {
                lost = None;
                if !shown.show(&snapshot)? || !shown.args.watch {
                    return Ok(());
                }
            }
            Err(error) if shown.before.is_none() => return Err(error),
            Err(error) => {
                let text = format!("{error:#}");
                if lost.as_ref() != Some(&text) {
                    eprintln!("warning: {text}; asked again every {} ms", every.as_millis());
                    lost = Some(text);
                }
            }
        }
        sleep(every).await;
    }
}

type Name = (Option<Place>, Option<ObjectKey>);

/// What was printed.
struct Shown<'a> {
    args: &'a StatusArgs,
    before: Option<BTreeMap<Name, Row>>,
    stuck: bool,
}

impl Shown<'_> {
    /// Prints what is new. False when nobody reads any longer.
    fn show(&mut self, snapshot: &Snapshot) -> anyhow::Result<bool> {
        let rows: Vec<_> = table(snapshot).into_iter().filter(|row| self.is_wanted(row)).collect();
        self.stuck = rows.iter().any(|row| row.stuck.is_some());
        let name = |row: &Row| (row.upstream.clone(), row.replica.clone());
        let now: BTreeMap<_, _> = rows.iter().map(|row| (name(row), row.clone())).collect();
        let Some(before) = self.before.replace(now.clone()) else {
            return self.print(snapshot, &rows);
        };
        if before == now {
            return Ok(true);
        }
        if self.redraws() {
            return self.print(snapshot, &rows);
        }
        let mut rows = rows;
        rows.retain(|row| before.get(&name(row)) != Some(row));
        let gone: Vec<_> = before.into_keys().filter(|name| !now.contains_key(name)).collect();
        print_with(|out| {
            match self.args.output {
                Output::Text => text::rows(snapshot, &rows, false, &look(), out)?,
                Output::Json => lines(&rows, out)?,
            }
            gone.iter().try_for_each(|name| self.print_gone(name, out))
        })
    }

    fn is_wanted(&self, row: &Row) -> bool {
        let namespaces = [row.upstream.as_ref().map(|up| &up.object), row.replica.as_ref()];
        let is_in = |namespace: &String| {
            namespaces.iter().flatten().any(|object| object.namespace == *namespace)
        };
        (!self.args.stuck || row.stuck.is_some()) && self.args.namespace.as_ref().is_none_or(is_in)
    }

    fn redraws(&self) -> bool {
        self.args.watch && self.args.output == Output::Text && io::stdout().is_terminal()
    }

    fn print(&self, snapshot: &Snapshot, rows: &[Row]) -> anyhow::Result<bool> {
        let options: Options = look();
        print_with(|out| {
            match self.args.output {
                Output::Json if self.args.watch => lines(rows, out)?,
                Output::Json => {
                    let (source, at) = (snapshot.source, snapshot.view.at_ms);
                    let all = json!({ "source": source, "atMs": at, "connectors": rows });
                    writeln!(out, "{all:#}")?;
                }
                Output::Text => {
                    if self.redraws() {
                        // To the top, and what stood below goes.
                        write!(out, "\x1b[H\x1b[J")?;
                    }
                    if !rows.is_empty() {
                        text::rows(snapshot, rows, true, &options, out)?;
                        writeln!(out)?;
                    }
                    text::summary(snapshot, rows, &options, out)?;
                }
            }
            Ok(())
        })
    }

    /// A row that is not wanted, or not there, any longer.
    fn print_gone(&self, name: &Name, out: &mut dyn Write) -> anyhow::Result<()> {
        let (upstream, replica) = name;
        match self.args.output {
            Output::Json => {
                writeln!(
                    out,
                    "{}",
                    json!({"upstream": upstream, "replica": replica, "gone": true})
                )?;
            }
            Output::Text => {
                let upstream = upstream.as_ref().map(ToString::to_string);
                let told = upstream.or_else(|| replica.as_ref().map(ToString::to_string));
                let why = if self.args.stuck { "not stuck any longer" } else { "gone" };
                writeln!(out, "{}: {why}", told.unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

fn lines(rows: &[Row], out: &mut dyn Write) -> anyhow::Result<()> {
    for row in rows {
        writeln!(out, "{}", serde_json::to_string(row)?)?;
    }
    Ok(())
}
