//! `throughline orphans`: lists routes that may be orphaned, prints deleted ones as manifests.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use throughline::core::contract::cause::Cause;
use throughline::core::data::ids::ClusterName;
use throughline::core::data::time::UnixMillis;
use throughline::core::view::orphans::OrphanCandidate;
use throughline::orphans::{Candidates, DeletedRoutesFound, candidates, deleted_routes};
use throughline::outside_text::lines;
use throughline::outside_text::plain_json::plain_yaml;
use throughline::report::{count, duration};

use super::config::ConfigArgs;
use super::out::{Output, block_on, exit_code, print, print_json};
use super::values::cluster_name;

/// The warning that a running instance may delete restored routes again.
const AGAIN: &str = "\
warning: while orphans.mode is delete, a running instance deletes these routes again unless their parent \
Gateways exist upstream; restore those first, or annotate the routes with \
throughline.datumapis.com/paused: \"true\"";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct OrphansArgs {
    #[command(subcommand)]
    command: Option<OrphansCommand>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Only this upstream; repeatable
    #[arg(long = "upstream", value_name = "NAME", value_parser = cluster_name)]
    upstreams: Vec<ClusterName>,
    #[command(flatten, next_help_heading = "Clusters (the same flags as for `run`)")]
    config: ConfigArgs,
}

#[derive(Debug, Subcommand)]
enum OrphansCommand {
    /// Print the routes that throughline deleted, as manifests for `kubectl create -f -`.
    ///
    /// Reads FILE.deleted.jsonl, which a run writes beside its event log FILE.
    ///
    /// Exit codes: 0 printed, 1 no deletes recorded, or lines skipped that throughline did not write, 2
    /// bad usage or input.
    #[command(after_long_help = "\
Examples:
  throughline orphans restore run.jsonl | kubectl create -f -")]
    Restore {
        /// The event log, or its FILE.deleted.jsonl
        file: String,
    },
}

pub(super) fn run(args: &OrphansArgs) -> anyhow::Result<ExitCode> {
    if let Some(OrphansCommand::Restore { file }) = &args.command {
        return print_manifests(file);
    }
    let config = args.config.load_quietly()?;
    let candidates = block_on(candidates(&config, &args.upstreams))?;
    for line in &candidates.not_shown {
        say!("warning: {line}");
    }
    let found = &candidates.found;
    match args.output {
        Output::Text => print(&lines(&listing(&candidates)))?,
        Output::Json => print_json(&json!({ "candidates": found }))?,
    }
    Ok(exit_code(!candidates.is_partly_unseen && !found.iter().any(needs_attention)))
}

/// Whether an orphan remains, or a route can't be judged.
fn needs_attention(candidate: &OrphanCandidate) -> bool {
    !matches!(
        candidate.kept,
        Some(
            Cause::RouteSettling | Cause::RouteProtected | Cause::RouteNotOrphaned | Cause::Paused
        )
    )
}

/// The candidates with their evidence, and a summary.
fn listing(candidates: &Candidates) -> String {
    let Candidates { found, at: now, is_partly_unseen, .. } = candidates;
    let unseen =
        if *is_partly_unseen { "; not every cluster can be read, see the warnings" } else { "" };
    let mut text = String::new();
    if found.is_empty() {
        return format!("no orphaned routes{unseen}\n");
    }
    for candidate in found {
        let OrphanCandidate { cluster, route, created_at, evidence, .. } = candidate;
        let age = created_at
            .map_or("of unknown age".to_owned(), |at| format!("created {} ago", span(*now, at)));
        let verdict = match (candidate.kept, &candidate.kept_because) {
            (Some(cause), Some(why)) => format!("kept ({}): {why}", cause.as_str()),
            _ => "orphan".to_owned(),
        };
        let _ = writeln!(text, "{route} at {cluster} ({age})\n  {verdict}");
        let Some(evidence) = evidence else { continue };
        let parents = evidence.parents.iter().map(|(name, exists)| {
            let state = match exists {
                Some(true) => "exists",
                Some(false) => "does not exist",
                None => "unknown",
            };
            format!("{name} ({state})")
        });
        let proven = if evidence.namespace_proved { "proven by its uid" } else { "not proven" };
        let _ = writeln!(
            text,
            "  parent Gateways: {}\n  upstream namespace: {} in {}, {proven}",
            parents.collect::<Vec<_>>().join(", "),
            evidence.upstream_namespace,
            evidence.upstream
        );
    }
    let orphans = found.iter().filter(|c| c.kept.is_none()).count();
    let kept = found.len() - orphans;
    let _ = writeln!(text, "\n{}, {kept} kept{unseen}", count(orphans, "orphan"));
    if orphans > 0 {
        text.push_str("a run with `orphans.mode: delete` deletes orphans\n");
    }
    text
}

/// In whole seconds, and without the no-break spaces of wrapped text.
fn span(now: UnixMillis, at: UnixMillis) -> String {
    match now.since(at) {
        ms @ 1_000..60_000 => format!("{} s", ms / 1_000),
        ms => duration(ms).replace('\u{a0}', " "),
    }
}

fn print_manifests(file: &str) -> anyhow::Result<ExitCode> {
    let DeletedRoutesFound { routes, skipped } = deleted_routes(file)?;
    for line in &skipped {
        say!("skipped: {line}");
    }
    let mut text = String::new();
    for route in routes.values() {
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
    } else if skipped.is_empty() {
        say!("no delete is recorded");
    }
    Ok(exit_code(!routes.is_empty() && skipped.is_empty()))
}
