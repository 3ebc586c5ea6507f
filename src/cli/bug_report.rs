//! `throughline bug-report`: one archive of what is known about a problem.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use throughline::bug_report::BugReport;
use throughline::build_info;
use throughline::check::{CheckOptions, check};
use throughline::clock::wall_clock_now;
use throughline::config::Config;
use throughline::event_log::export::LogExport;
use throughline::events::read::read;
use throughline::instance;
use throughline::report::{self, ReportOptions, count};
use throughline::trace::live::ClusterWatcher;
use throughline::trace::{Snapshot, StatusRow, Trace, state, status_rows, text, trace_connector};

use super::out::{Progress, one_thread};
use super::settings::TouchArgs;
use super::source::LiveArgs;

/// The exit code when the archive lacks something.
const INCOMPLETE: u8 = 1;

/// How many of the stuck connectors are traced.
const TRACES_MAX: usize = 20;

#[derive(Debug, Args)]
pub(super) struct BugReportArgs {
    /// The archive to write; must not exist yet [default: a name with the current time]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Ask a running instance at its admin address, for example http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    state: Option<String>,
    /// The event log, including its rotated parts [default: that of --state, or of the configuration]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten, next_help_heading = "Settings that change how connectors are judged")]
    touch: TouchArgs,
}

pub(super) fn run(args: &BugReportArgs) -> anyhow::Result<ExitCode> {
    let now = wall_clock_now();
    let file = args.output.clone();
    let file = file.unwrap_or_else(|| format!("throughline-bug-report-{}.tar.gz", now.0).into());
    let archive = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
    let archive = archive.with_context(|| format!("cannot create {}", file.display()))?;
    let mut report = BugReport::new(now);
    let runtime = one_thread()?;
    let collected = runtime.block_on(args.collect(&mut report));
    runtime.shutdown_background();
    let written = collected.and_then(|()| {
        report.write_to(&archive).with_context(|| format!("writing {}", file.display()))
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&file);
        return Err(error);
    }
    let bytes = archive.metadata().map(|metadata| metadata.len()).unwrap_or_default();
    say!("{}, {bytes} bytes, is sent nowhere. It holds:", file.display());
    say!("{}", report.contents().trim_end());
    let mut is_whole = true;
    for part in report.parts() {
        if let Some(error) = &part.error {
            is_whole = false;
            say!("missing: {}: {error}", part.name.trim_end_matches(".error.txt"));
        }
    }
    say!(
        "Addresses, keys and tokens are replaced; names are not. Read it before you send it: tar -xzf {}",
        file.display()
    );
    Ok(if is_whole { ExitCode::SUCCESS } else { INCOMPLETE.into() })
}

impl BugReportArgs {
    /// Adds every part. Fails only on a configuration that cannot be used.
    async fn collect(&self, report: &mut BugReport) -> anyhow::Result<()> {
        let progress = Progress::new();
        let within = self.live.within();
        // Without a word about clusters, those of the current kubeconfig may be others than the
        // instance's.
        let is_about_clusters = self.live.names_clusters() || self.state.is_none();
        let config = is_about_clusters.then(|| self.live.load(self.touch.values())).transpose()?;
        let info = match &self.state {
            Some(url) => Some(instance::info(url, within).await),
            None => None,
        };
        let client = json!({"version": build_info::VERSION, "commit": build_info::COMMIT});
        let running = info.as_ref().and_then(|info| info.as_ref().ok());
        let versions = json!({"client": client, "instance": running});
        report.value("version.yaml", "the versions", Ok(versions));
        if let Some(url) = &self.state {
            progress.show("asking the instance");
            match state::snapshot(url, within).await {
                Ok(snapshot) => drop(add_state(report, "instance", &snapshot)),
                Err(error) => {
                    report.text("instance/status.txt", "the connectors", Err(error));
                }
            }
            let metrics = instance::get(url, "/metrics", within).await;
            let metrics = metrics.map(|text| String::from_utf8_lossy(&text).into_owned());
            report.text("instance/metrics.txt", "its metrics", metrics);
        } else {
            report.leave_out("instance/metrics.txt", "metrics", "add --state URL of the instance");
        }
        match &config {
            Some(config) => self.collect_from_clusters(config, report, &progress).await,
            None => {
                let why = "add --config FILE, with which the clusters are checked and read, too";
                report.leave_out("clusters", "the clusters", why);
            }
        }
        progress.show("reading the event log");
        let log = self.log(config.as_ref(), within).await;
        report.event_log("event-log.jsonl.zst", "the event log", log);
        progress.clear();
        Ok(())
    }

    async fn collect_from_clusters(
        &self,
        config: &Config,
        report: &mut BugReport,
        progress: &Progress,
    ) {
        report.value("config.yaml", "the configuration", Ok(config));
        let show = |doing: &str| progress.show(doing);
        let upstreams = self.live.upstreams();
        // Not the command line, which may name folders of this machine.
        let command = "throughline check";
        let options = CheckOptions { warnings: &[], upstreams, progress: &show, command };
        let checked = check(config, &options).await;
        let text = in_text(|out| report::check(&checked, &ReportOptions::default(), out));
        report.text("clusters/check.txt", "what `check` finds", text);
        let within = self.live.within();
        let mut watcher = match self.live.watch(config).await {
            Ok(watcher) => watcher,
            Err(error) => {
                report.text("clusters/status.txt", "the connectors", Err(error));
                return;
            }
        };
        let snapshot = watcher.snapshot();
        let traces = stuck(&snapshot, &status_rows(&snapshot));
        watcher.fetch_field_owners(&traces, within).await;
        watcher.find_karmada(&traces, within).await;
        let snapshot = watcher.snapshot();
        let traces = add_state(report, "clusters", &snapshot);
        add_events(report, &watcher, &snapshot, &traces, within).await;
    }

    async fn log(&self, config: Option<&Config>, within: Duration) -> anyhow::Result<Vec<u8>> {
        let mut log = Vec::new();
        if let (None, Some(url)) = (&self.log, &self.state) {
            let take = |bytes: &[u8]| {
                log.extend_from_slice(bytes);
                Ok(())
            };
            instance::stream(url, "/log", within, take).await?;
            return Ok(log);
        }
        let configured = || config.and_then(|config| config.event_log.file.clone());
        let file =
            self.log.clone().or_else(configured).context(
                "add --log FILE, or --state URL of an instance that writes an event log",
            )?;
        copy_log(&file, &mut log)?;
        Ok(log)
    }
}

fn copy_log(file: &Path, log: &mut Vec<u8>) -> anyhow::Result<()> {
    Ok(LogExport::open(file)?.write_compressed(log)?)
}

/// Adds what a snapshot shows. Returns the traces of what is stuck.
fn add_state(report: &mut BugReport, from: &str, snapshot: &Snapshot) -> Vec<Trace> {
    let name = |file: &str| format!("{from}/{file}");
    let rows = status_rows(snapshot);
    let table = in_text(|out| {
        text::rows(snapshot, &rows, true, &ReportOptions::default(), out)?;
        text::summary(snapshot, &rows, &ReportOptions::default(), out)
    });
    report.text(&name("status.txt"), "every connector", table);
    report.value(&name("state.yaml"), "all that is known of each", Ok(&snapshot.view));
    let traces = stuck(snapshot, &rows);
    let all = rows.iter().filter(|row| row.stuck.is_some()).count();
    let traced = in_text(|out| {
        writeln!(out, "{} of {} stuck", count(traces.len(), "connector"), all)?;
        text::traces(&traces, &ReportOptions::default(), out)
    });
    report.text(&name("traces.txt"), "the hops of what is stuck", traced);
    traces
}

/// Traces of the connectors that are stuck, the first ones of the table.
fn stuck(snapshot: &Snapshot, rows: &[StatusRow]) -> Vec<Trace> {
    let traces = rows.iter().filter(|row| row.stuck.is_some()).take(TRACES_MAX).filter_map(|row| {
        let upstream = row.upstream.as_ref();
        let cluster = upstream.map(|upstream| &upstream.cluster);
        let name = upstream.map(|upstream| &upstream.object).or(row.hub_key.as_ref())?;
        trace_connector(snapshot, name, cluster).ok()
    });
    traces.flatten().collect()
}

async fn add_events(
    report: &mut BugReport,
    watcher: &ClusterWatcher,
    snapshot: &Snapshot,
    traces: &[Trace],
    within: Duration,
) {
    let mut found = Vec::new();
    for trace in traces {
        let client = |cluster: &_| watcher.client(cluster);
        found.push(read(&snapshot.view, trace, client, within).await);
    }
    let unread = found.iter().flat_map(|events| &events.unread);
    let mut unread: Vec<_> = unread
        .map(|tier| format!("{}: {}", tier.cluster, tier.error.as_deref().unwrap_or_default()))
        .collect();
    unread.sort_unstable();
    unread.dedup();
    report.value("clusters/events.yaml", "the Events about what is stuck", Ok(&found));
    if !unread.is_empty() {
        report.leave_out("clusters/events.yaml", "Events that were not read", &unread.join("\n"));
    }
}

fn in_text(
    write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> anyhow::Result<String> {
    let mut text = Vec::new();
    write(&mut text)?;
    Ok(String::from_utf8(text)?)
}
