//! `throughline orphans`: lists routes that may be orphaned, deletes them once, restores them.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use throughline::config::EventLogConfig;
use throughline::core::contract::settings::OrphanSettings;
use throughline::core::data::time::UnixMillis;
use throughline::core::orphans::keep_reason::{KeepReason, OrphanCandidate};
use throughline::orphans::{DeleteResult, DeletedRoutesFound, OrphanCleanup, deleted_routes};
use throughline::outside_text::lines;
use throughline::outside_text::plain_json::plain_yaml;
use throughline::report::{count, duration};

use super::config::{ClusterArgs, event_log_flag, own_event_log};
use super::examples;
use super::out::{ValueOutput, one_thread, print};
use super::settings::KeyArgs;

/// What happens to a restored route by itself.
const AGAIN: &str = "\
warning: while orphans.mode is delete, a running instance deletes these routes again unless their parent \
Gateways exist upstream; restore those first, or annotate the routes with \
throughline.datumapis.com/paused: \"true\"";

/// The exit code when a route needs attention: an orphan that stands, or one that is not judged.
const ATTENTION: u8 = 1;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct OrphansArgs {
    #[command(subcommand)]
    command: Option<OrphansCommand>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = ValueOutput::Text)]
    output: ValueOutput,
    /// Wait for the settling time before listing the routes
    #[arg(long)]
    wait: bool,
    /// Delete the orphans once; waits for the settling time and asks for confirmation
    #[arg(long)]
    delete: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "delete")]
    yes: bool,
    /// Write what is deleted to this event log, for `orphans restore` [default: a name with the
    /// current time]
    #[arg(long, value_name = "FILE", requires = "delete")]
    event_log: Option<String>,
    #[command(flatten, next_help_heading = "Clusters (the same flags as for `run`)")]
    clusters: ClusterArgs,
    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Debug, Subcommand)]
enum OrphansCommand {
    /// Print the routes that throughline deleted, as manifests for `kubectl create -f -`.
    ///
    /// Reads the event log, those of earlier runs beside it, and FILE.deleted.jsonl.
    ///
    /// Exit codes: 0 printed, 1 no deletes recorded, or objects skipped that throughline does not
    /// delete, 2 bad usage or input.
    #[command(after_long_help = examples::RESTORE)]
    Restore {
        /// The event log, or its FILE.deleted.jsonl alone; `-` for an event log on standard input
        file: String,
    },
}

pub(super) fn run(args: &OrphansArgs) -> anyhow::Result<ExitCode> {
    if let Some(OrphansCommand::Restore { file }) = &args.command {
        return print_manifests(file);
    }
    if args.delete && !args.yes && !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        bail!("--delete asks for confirmation, and there is no terminal: add --yes");
    }
    let event_log = args.event_log.as_deref();
    let values = event_log_flag(event_log).into_iter().chain(args.keys.values()).collect();
    let config = args.clusters.load_quietly(values)?;
    let file = args.delete.then(|| own_event_log(event_log, "orphans"));
    let log = file.map(|file| EventLogConfig { file: Some(file), ..EventLogConfig::default() });
    if let Some(EventLogConfig { file: Some(file), .. }) = &log {
        say!("backup of deleted routes: {}", file.display());
    }
    let runtime = one_thread()?;
    let code = runtime.block_on(async {
        let mut cleanup = OrphanCleanup::start(&config, log)?;
        cleanup.wait_for_lists().await;
        if args.wait || args.delete {
            cleanup.wait_for_settling().await;
        }
        let found = cleanup.candidates();
        if args.output == ValueOutput::Text {
            print(&lines(&listing(&found, cleanup.settings(), cleanup.now())))?;
        }
        let orphans = found.iter().filter(|c| c.is_orphan()).count();
        let mut results = None;
        if args.delete && orphans > 0 && (args.yes || is_confirmed(&mut cleanup, orphans).await?) {
            results = Some(cleanup.delete(|result| say!("{}", result_text(result))).await);
        }
        let left = if results.is_some() { cleanup.candidates() } else { found.clone() };
        cleanup.finish().await;
        args.output.print(&serde_json::json!({ "candidates": found, "deletes": results }))?;
        let results = results.unwrap_or_default();
        let failed = results.iter().any(|r| !matches!(r.outcome, "applied" | "not_found"));
        let was_tried = |c: &OrphanCandidate| {
            results.iter().any(|r| (&r.cluster, &r.route) == (&c.cluster, &c.route))
        };
        let attention = failed || left.iter().any(|c| needs_attention(c) && !was_tried(c));
        anyhow::Ok(if attention { ExitCode::from(ATTENTION) } else { ExitCode::SUCCESS })
    });
    runtime.shutdown_background();
    code
}

/// An orphan that stands, or a route that cannot be judged.
fn needs_attention(candidate: &OrphanCandidate) -> bool {
    let Some(keep) = candidate.kept else { return true };
    matches!(
        keep,
        KeepReason::Budget
            | KeepReason::ShareExceeded
            | KeepReason::Settling
            | KeepReason::ListsIncomplete
            | KeepReason::Stale
            | KeepReason::ResourceVersionRegressed
            | KeepReason::ClusterUnknown
            | KeepReason::ClusterGone
            | KeepReason::NamespaceUnproved
    )
}

/// Asks the person at the terminal. The watches are followed meanwhile, so that the evidence stays
/// fresh.
async fn is_confirmed(cleanup: &mut OrphanCleanup, orphans: usize) -> anyhow::Result<bool> {
    eprint!("Delete {}? Type {orphans} to confirm: ", count(orphans, "route"));
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = cleanup.follow_while(read).await.context("asking for confirmation")?;
    let confirmed = line.context("reading the answer")?.trim() == orphans.to_string();
    if !confirmed {
        say!("not confirmed: nothing was deleted");
    }
    Ok(confirmed)
}

fn result_text(result: &DeleteResult) -> String {
    let DeleteResult { cluster, route, outcome, error } = result;
    let outcome = if *outcome == "applied" { "deleted" } else { outcome };
    let error = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
    format!("{route} at {cluster}: {outcome}{error}")
}

/// The candidates with their evidence, and a summary.
fn listing(found: &[OrphanCandidate], settings: &OrphanSettings, now: UnixMillis) -> String {
    let mut text = String::new();
    if found.is_empty() {
        return "no orphaned routes\n".to_owned();
    }
    for candidate in found {
        let OrphanCandidate { cluster, route, created_at, evidence, .. } = candidate;
        let age = created_at
            .map_or("of unknown age".to_owned(), |at| format!("created {} ago", span(now, at)));
        let verdict = verdict(candidate, settings, now);
        let _ = writeln!(text, "{route} at {cluster} ({age})\n  {verdict}");
        let Some(evidence) = evidence else { continue };
        let parents: Vec<_> = evidence
            .parents
            .iter()
            .map(|(name, exists)| {
                let state = match exists {
                    Some(true) => "exists",
                    Some(false) => "does not exist",
                    None => "unknown",
                };
                format!("{name} ({state})")
            })
            .collect();
        let proven = if evidence.namespace_proved { "proven by its uid" } else { "not proven" };
        let _ = writeln!(
            text,
            "  parent Gateways: {}\n  upstream namespace: {} in {}, {proven}",
            parents.join(", "),
            evidence.upstream_namespace,
            evidence.upstream
        );
        if let Some(at) = evidence.last_activity_at {
            let _ = writeln!(text, "  last activity of its Gateway watch: {} ago", span(now, at));
        }
        if let Some(at) = evidence.orphan_since {
            let _ = writeln!(text, "  orphaned for {}", span(now, at));
        }
    }
    let orphans = found.iter().filter(|c| c.is_orphan()).count();
    let settling = found.iter().filter(|c| c.kept == Some(KeepReason::Settling)).count();
    let kept = found.len() - orphans - settling;
    let orphans = count(orphans, "orphan");
    let _ = writeln!(text, "\n{orphans}, {settling} settling, {kept} kept");
    if settling > 0 {
        let settle = plain_duration(settings.settle_ms);
        let _ = writeln!(text, "add --wait to list again after the settling time of {settle}");
    }
    text
}

fn verdict(candidate: &OrphanCandidate, settings: &OrphanSettings, now: UnixMillis) -> String {
    let Some(reason) = candidate.kept else { return "orphan: would be deleted".to_owned() };
    let orphan_since = candidate.evidence.as_ref().and_then(|evidence| evidence.orphan_since);
    let why = match (reason, orphan_since, candidate.created_at) {
        (KeepReason::Settling, Some(at), _) => {
            let needed = plain_duration(settings.settle_ms);
            format!("orphaned for {}, needs {needed}", span(now, at))
        }
        (KeepReason::Young, _, Some(at)) => {
            let needed = plain_duration(settings.min_age_ms);
            format!("created {} ago, needs {needed}", span(now, at))
        }
        _ => reason.to_string(),
    };
    format!("kept ({}): {why}", reason.as_str())
}

fn span(now: UnixMillis, at: UnixMillis) -> String {
    plain_duration(now.since(at))
}

/// In whole seconds, and without the no-break spaces that wrapped text needs.
fn plain_duration(ms: u64) -> String {
    match ms {
        1_000..60_000 => format!("{} s", ms / 1_000),
        _ => duration(ms).replace('\u{a0}', " "),
    }
}

fn print_manifests(file: &str) -> anyhow::Result<ExitCode> {
    let DeletedRoutesFound { routes, skipped, warnings } = deleted_routes(file)?;
    for warning in &warnings {
        say!("warning: {warning}");
    }
    for object in &skipped {
        say!("skipped: {object}");
    }
    let mut text = String::new();
    for route in &routes {
        let _ = writeln!(text, "---\n# Deleted at {}.", route.deleted_at);
        if !route.confirmed {
            text.push_str(
                "# The API server did not confirm this delete: the route may still exist.\n",
            );
        }
        let yaml = plain_yaml(&route.manifest).context("writing YAML")?;
        text.push_str(yaml.trim_end());
        text.push('\n');
    }
    print(&text)?;
    if !routes.is_empty() {
        say!("{AGAIN}");
    }
    if routes.is_empty() && skipped.is_empty() {
        say!("this log records no deletes");
    }
    if !skipped.is_empty() {
        let objects = count(skipped.len(), "object");
        say!(
            "skipped {objects}: somebody else wrote into this log; check what it says before you use it"
        );
    }
    let is_good = !routes.is_empty() && skipped.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(ATTENTION) })
}
