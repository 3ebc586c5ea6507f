//! `throughline status`: every connector in a table.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use throughline::core::data::ids::ObjectKey;
use throughline::outside_text::one_line;
use throughline::outside_text::plain_json::PlainJson;
use throughline::report::duration;
use throughline::trace::{
    Snapshot, StatusCounts, StatusRow, UpstreamRef, banners, state, status_rows, text,
};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::out::{Output, one_thread, print_with, report_options};
use super::source::{OpenedSource, SourceArgs};

/// The exit code when a connector is stuck or its state is unknown.
const STUCK: u8 = 1;

/// How often an instance is asked for its state.
const FETCH_EVERY: Duration = Duration::from_secs(2);

/// How often a terminal shows how much time has passed.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Show only connectors that are stuck or whose state is unknown
    #[arg(long)]
    stuck: bool,
    /// Show only connectors in this namespace, upstream or at the hub and the edges
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Keep watching: redraw every second on a terminal, print changed rows in a pipe
    #[arg(short, long, conflicts_with = "log")]
    watch: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    source: SourceArgs,
}

pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let within = args.source.within();
    let mut printer = StatusPrinter { args, printed: None, any_stuck: false };
    args.source.say_default();
    match args.source.open()? {
        OpenedSource::EventLog(snapshot) => drop(printer.update(&snapshot)?),
        OpenedSource::Instance(url) => {
            one_thread()?.block_on(follow_state(&mut printer, url, within))?
        }
        OpenedSource::Clusters(config) => {
            let runtime = one_thread()?;
            let ended = runtime.block_on(async {
                let mut watcher = args.source.watch(&config).await?;
                while printer.update(&watcher.snapshot())? && args.watch {
                    if printer.redraws() {
                        let until = Instant::now() + REDRAW_EVERY;
                        let _ = timeout_at(until, watcher.wait_for_change()).await;
                    } else {
                        watcher.wait_for_change().await;
                    }
                }
                anyhow::Ok(())
            });
            runtime.shutdown_background();
            ended?;
        }
    }
    Ok(if printer.any_stuck { ExitCode::from(STUCK) } else { ExitCode::SUCCESS })
}

/// Fails when the instance cannot be reached at first. Once it has answered, it may restart: then the
/// next attempts decide.
async fn follow_state(
    printer: &mut StatusPrinter<'_>,
    url: &str,
    within: Duration,
) -> anyhow::Result<()> {
    let mut last_error = None;
    let mut shown = None;
    loop {
        match state::snapshot(url, within).await {
            Ok(snapshot) => {
                last_error = None;
                if !printer.update(&snapshot)? || !printer.args.watch {
                    return Ok(());
                }
                shown = Some((Instant::now(), snapshot));
            }
            Err(error) if printer.printed.is_none() => return Err(error),
            Err(error) => {
                let text = format!("{error:#}");
                if last_error.as_ref() != Some(&text) && !printer.redraws() {
                    say!("warning: {text}; trying again every {} s", FETCH_EVERY.as_secs());
                }
                last_error = Some(text);
            }
        }
        let next = Instant::now() + FETCH_EVERY;
        let mut is_drawn = last_error.is_none();
        while printer.redraws() && (!is_drawn || Instant::now() + REDRAW_EVERY < next) {
            if is_drawn {
                sleep(REDRAW_EVERY).await;
            }
            is_drawn = true;
            let Some((at, snapshot)) = &shown else { break };
            if !printer.redraw(snapshot, at.elapsed(), last_error.as_deref())? {
                return Ok(());
            }
        }
        sleep_until(next).await;
    }
}

/// Names a connector, upstream and at the hub.
type RowKey = (Option<UpstreamRef>, Option<ObjectKey>);

struct StatusPrinter<'a> {
    args: &'a StatusArgs,
    printed: Option<BTreeMap<RowKey, StatusRow>>,
    any_stuck: bool,
}

impl StatusPrinter<'_> {
    /// Prints the table, or what has changed in it. False when the reader has closed the pipe.
    fn update(&mut self, snapshot: &Snapshot) -> anyhow::Result<bool> {
        let rows = status_rows(snapshot).into_iter().filter(|row| self.is_selected(row));
        let rows: Vec<_> = rows.collect();
        self.any_stuck = rows.iter().any(StatusRow::needs_a_look);
        let key = |row: &StatusRow| (row.upstream.clone(), row.hub_key.clone());
        let now = rows.iter().map(|row| (key(row), row.clone())).collect();
        // On a terminal time passes, even where nothing else changes.
        let is_redrawn = self.redraws();
        let before = self.printed.take().filter(|_| !is_redrawn);
        let now: &BTreeMap<_, _> = self.printed.insert(now);
        let Some(before) = before else { return self.print(snapshot, &rows) };
        if before == *now {
            return Ok(true);
        }
        let mut rows = rows;
        rows.retain(|row| before.get(&key(row)) != Some(row));
        let gone: Vec<_> = before.into_keys().filter(|key| !now.contains_key(key)).collect();
        print_with(|out| {
            match self.args.output {
                Output::Text => text::rows(snapshot, &rows, false, &report_options(), out)?,
                Output::Json => print_json_lines(&rows, out)?,
            }
            gone.iter().try_for_each(|key| self.print_gone(key, out))
        })
    }

    /// Draws a state that is some time old, and why there is none newer. Only a terminal is drawn on.
    fn redraw(
        &self,
        snapshot: &Snapshot,
        age: Duration,
        error: Option<&str>,
    ) -> anyhow::Result<bool> {
        let mut snapshot = snapshot.clone();
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        if error.is_none() {
            snapshot.view.at_ms = snapshot.view.at_ms.plus(age_ms);
        }
        let rows = status_rows(&snapshot).into_iter().filter(|row| self.is_selected(row));
        let goes_on = self.print(&snapshot, &rows.collect::<Vec<_>>())?;
        let Some(error) = error.filter(|_| goes_on) else { return Ok(goes_on) };
        print_with(|out| {
            let age = duration(age_ms);
            Ok(writeln!(out, "no answer for {age}, so this is old: {}", one_line(error))?)
        })
    }

    fn is_selected(&self, row: &StatusRow) -> bool {
        let names = [row.upstream.as_ref().map(|up| &up.object), row.hub_key.as_ref()];
        let is_in = |namespace: &String| {
            names.iter().flatten().any(|object| object.namespace == *namespace)
        };
        let upstreams = self.args.source.upstreams();
        let is_named = |row: &StatusRow| {
            row.upstream.as_ref().is_some_and(|upstream| upstreams.contains(&upstream.cluster))
        };
        (upstreams.is_empty() || is_named(row))
            && (!self.args.stuck || row.needs_a_look())
            && self.args.namespace.as_ref().is_none_or(is_in)
    }

    fn redraws(&self) -> bool {
        self.args.watch && self.args.output == Output::Text && io::stdout().is_terminal()
    }

    fn print(&self, snapshot: &Snapshot, rows: &[StatusRow]) -> anyhow::Result<bool> {
        let output = self.args.output;
        if output == Output::Json && !self.args.watch {
            let (source, at) = (snapshot.source, snapshot.view.at_ms);
            let (counts, causes) = (StatusCounts::of(rows), banners(snapshot, rows));
            let all = json!({ "source": source, "atMs": at, "counts": counts,
                "causes": causes, "connectors": rows });
            return output.print(&all).map(|()| true);
        }
        let options = report_options();
        print_with(|out| {
            match output {
                Output::Json => print_json_lines(rows, out)?,
                Output::Text => {
                    if self.redraws() {
                        // Cursor to the top left, then clear the screen below.
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

    /// Prints that a row is no longer selected or no longer exists.
    fn print_gone(&self, key: &RowKey, out: &mut dyn Write) -> anyhow::Result<()> {
        let (upstream, hub_key) = key;
        let gone = json!({"upstream": upstream, "replica": hub_key, "gone": true});
        match self.args.output {
            Output::Json => print_json_lines(&[gone], out)?,
            Output::Text => {
                let upstream = upstream.as_ref().map(ToString::to_string);
                let name = upstream.or_else(|| hub_key.as_ref().map(ToString::to_string));
                let why = if self.args.stuck { "no longer stuck or unknown" } else { "gone" };
                writeln!(out, "{}: {why}", one_line(&name.unwrap_or_default()))?;
            }
        }
        Ok(())
    }
}

fn print_json_lines(rows: &[impl Serialize], out: &mut dyn Write) -> anyhow::Result<()> {
    for row in rows {
        serde_json::to_writer(PlainJson::new(&mut *out), row)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
