//! `throughline status`: every connector in a table.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use throughline::clock::millis;
use throughline::core::data::ids::NamespacedName;
use throughline::core::view::fleet::{Connector, Fleet, UpstreamName};
use throughline::inspect::status;
use throughline::instance;
use throughline::outside_text::one_line;
use throughline::outside_text::plain_json::PlainJson;
use throughline::report::duration;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::out::{Output, block_on, exit_code, print_json, print_with, report_options};
use super::source::{OpenedSource, SourceArgs};

/// How often an instance is queried for its state, and a terminal is redrawn.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Show only connectors that are stuck or held, or whose state is unknown
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
    let mut printer = StatusPrinter { args, printed: None, is_any_bad: false };
    match args.source.open()? {
        OpenedSource::EventLog(fleet) => drop(printer.update(*fleet)?),
        OpenedSource::Instance(url) => block_on(follow_state(&mut printer, url, within))?,
        OpenedSource::Clusters(config) => block_on(async {
            let mut watcher = args.source.watch(&config).await?;
            while printer.update(watcher.fleet())? && args.watch {
                if printer.redraws() {
                    let until = Instant::now() + REDRAW_EVERY;
                    let _ = timeout_at(until, watcher.wait_for_change()).await;
                } else {
                    watcher.wait_for_change().await;
                }
            }
            printer.is_any_bad |= !watcher.not_shown().is_empty();
            Ok(())
        })?,
    }
    Ok(exit_code(!printer.is_any_bad))
}

/// Fails if the instance cannot be reached at first. After its first answer it may restart, and later
/// attempts decide.
async fn follow_state(
    printer: &mut StatusPrinter<'_>,
    url: &str,
    within: Duration,
) -> anyhow::Result<()> {
    let mut last_error = None;
    let mut last = None;
    loop {
        let next = Instant::now() + REDRAW_EVERY;
        let error =
            instance::fleet(url, within).await.map(|fleet| last = Some((Instant::now(), fleet)));
        let error = error.err();
        let Some((at, fleet)) = &last else { return error.map_or(Ok(()), Err) };
        let text = error.map(|error| format!("{error:#}"));
        let goes_on = match &text {
            None => printer.update(fleet.clone())?,
            Some(text) if printer.redraws() => printer.redraw(fleet, at.elapsed(), text)?,
            Some(text) => {
                if last_error.as_ref() != Some(text) {
                    say!("warning: {text}; trying again every {} s", REDRAW_EVERY.as_secs());
                }
                true
            }
        };
        last_error = text;
        if !goes_on || !printer.args.watch {
            return Ok(());
        }
        sleep_until(next).await;
    }
}

/// Names a connector, upstream and at the hub.
type RowKey = (Option<UpstreamName>, Option<NamespacedName>);

struct StatusPrinter<'a> {
    args: &'a StatusArgs,
    printed: Option<BTreeMap<RowKey, Connector>>,
    /// Whether somebody has to look: at a connector shown, or at what cannot be read.
    is_any_bad: bool,
}

impl StatusPrinter<'_> {
    /// Prints the table, or its changes. False if the reader has closed the pipe.
    fn update(&mut self, mut fleet: Fleet) -> anyhow::Result<bool> {
        let shown = self.selected(&mut fleet);
        self.is_any_bad = shown.iter().any(status::needs_a_look) || fleet.is_partly_unseen();
        let key = |of: &Connector| (of.upstream.clone(), of.name.clone());
        let now = shown.iter().map(|of| (key(of), of.clone())).collect();
        // On a terminal the ages change, even if nothing else does.
        let is_redrawn = self.redraws();
        let before = self.printed.take().filter(|_| !is_redrawn);
        let now: &BTreeMap<_, _> = self.printed.insert(now);
        let Some(before) = before else { return self.print(&fleet, &shown) };
        if before == *now {
            return Ok(true);
        }
        let mut changed = shown;
        changed.retain(|of| before.get(&key(of)) != Some(of));
        let is_gone = |(key, _): &(RowKey, _)| !now.contains_key(key);
        let gone: Vec<_> = before.into_iter().filter(is_gone).map(|(_, of)| of).collect();
        print_with(|out| {
            match self.args.output {
                Output::Text => status::rows(&fleet, &changed, false, &report_options(), out)?,
                Output::Json => print_json_lines(&changed, out)?,
            }
            gone.iter().try_for_each(|of| self.print_gone(of, out))
        })
    }

    /// Draws an older state, with the error that prevents a newer one. Draws only on a terminal.
    fn redraw(&self, fleet: &Fleet, age: Duration, error: &str) -> anyhow::Result<bool> {
        let mut fleet = fleet.clone();
        let shown = self.selected(&mut fleet);
        let age = duration(millis(age));
        Ok(self.print(&fleet, &shown)?
            && print_with(|out| {
                Ok(writeln!(out, "no answer for {age}, so this is old: {}", one_line(error))?)
            })?)
    }

    /// The connectors to show, the worst first.
    fn selected(&self, fleet: &mut Fleet) -> Vec<Connector> {
        status::sort(&mut fleet.connectors);
        fleet.connectors.iter().filter(|of| self.is_selected(of)).cloned().collect()
    }

    fn is_selected(&self, connector: &Connector) -> bool {
        let upstream = connector.upstream.as_ref();
        let names = [upstream.map(|up| &up.object), connector.name.as_ref()];
        let is_in = |namespace: &String| {
            names.iter().flatten().any(|object| object.namespace() == *namespace)
        };
        let upstreams = &self.args.source.upstreams;
        (upstreams.is_empty() || upstream.is_some_and(|up| upstreams.contains(&up.cluster)))
            && (!self.args.stuck || status::needs_a_look(connector))
            && self.args.namespace.as_ref().is_none_or(is_in)
    }

    fn redraws(&self) -> bool {
        self.args.watch && self.args.output == Output::Text && io::stdout().is_terminal()
    }

    fn print(&self, fleet: &Fleet, shown: &[Connector]) -> anyhow::Result<bool> {
        let output = self.args.output;
        if output == Output::Json && !self.args.watch {
            let fleet = Fleet { connectors: shown.to_vec(), ..fleet.clone() };
            return print_json(&fleet).map(|()| true);
        }
        let options = report_options();
        print_with(|out| {
            match output {
                Output::Json => print_json_lines(shown, out)?,
                Output::Text => {
                    if self.redraws() {
                        // Cursor to the top left, then clear the screen below.
                        write!(out, "\x1b[H\x1b[J")?;
                    }
                    if !shown.is_empty() {
                        status::rows(fleet, shown, true, &options, out)?;
                        writeln!(out)?;
                    }
                    status::summary(fleet, shown, &options, out)?;
                }
            }
            Ok(())
        })
    }

    /// Prints that a connector is no longer selected or no longer exists.
    fn print_gone(&self, gone: &Connector, out: &mut dyn Write) -> anyhow::Result<()> {
        let Connector { upstream, name, .. } = gone;
        let row = json!({"upstream": upstream, "name": name, "gone": true});
        match self.args.output {
            Output::Json => print_json_lines(&[row], out)?,
            Output::Text => {
                let why = if self.args.stuck { "no longer stuck, held or unknown" } else { "gone" };
                writeln!(out, "{}: {why}", one_line(&gone.title()))?;
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
