//! `throughline orphans`: lists what may be orphaned, deletes it once, brings it back.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use throughline::config::EventLogConfig;
use throughline::core::keep::{Candidate, Keep};
use throughline::core::time::UnixMillis;
use throughline::event_log::Reader;
use throughline::orphans::{Fate, Survey, restore};

use super::config::ConfigArgs;
use super::out::{Output, print, threads};

/// Something is left to be looked at.
const LEFT: u8 = 1;

/// `throughline orphans`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct OrphansArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    config: ConfigArgs,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Look once more when the settling time is over
    #[arg(long)]
    wait: bool,
    /// Delete them, once; waits for the settling time, and asks first
    #[arg(long)]
    delete: bool,
    /// Don't ask
    #[arg(long, requires = "delete")]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print manifests of what an event log says was deleted, for `kubectl create -f -`
    Restore {
        /// The event log, with its rotated parts; `-` for standard input
        file: String,
    },
}

/// Does what the command line says.
pub(super) fn run(args: &OrphansArgs) -> anyhow::Result<ExitCode> {
    if let Some(What::Restore { file }) = &args.what {
        return print_manifests(file);
    }
    if args.delete && !args.yes && !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        bail!("--delete asks before it deletes, and there is no terminal to ask at: add --yes");
    }
    let config = args.config.load_quietly()?;
    let file = args.delete.then(|| args.config.own_event_log("orphans"));
    let log = file.map(|file| EventLogConfig { file: Some(file), ..EventLogConfig::default() });
    if let Some(EventLogConfig { file: Some(file), .. }) = &log {
        eprintln!("what is deleted is kept in {}", file.display());
    }
    let runtime = threads(2)?;
    let code = runtime.block_on(async {
        let mut survey = Survey::start(&config, log)?;
        survey.listed().await;
        if args.wait || args.delete {
            survey.settled().await;
        }
        let (found, now) = (survey.candidates(), survey.now());
        if args.output == Output::Text {
            print(&text(&found, now))?;
        }
        let may_go = found.iter().filter(|c| is_orphan(c)).count();
        let mut fates = None;
        if args.delete && may_go > 0 && (args.yes || confirmed(&mut survey, may_go).await?) {
            fates = Some(survey.delete(|fate| eprintln!("{}", told(fate))).await);
        }
        let left = if fates.is_some() { survey.candidates() } else { found.clone() };
        survey.finish().await;
        if args.output == Output::Json {
            let json = serde_json::json!({ "candidates": found, "deletes": fates });
            print(&format!("{json:#}\n"))?;
        }
        let failed = fates.iter().flatten().any(|f| !matches!(f.outcome, "applied" | "not_found"));
        let is_done = |c: &Candidate| {
            fates.iter().flatten().any(|f| (&f.cluster, &f.route) == (&c.cluster, &c.route))
        };
        let open = left.iter().any(|c| is_open(c) && !is_done(c));
        anyhow::Ok(if failed || open { ExitCode::from(LEFT) } else { ExitCode::SUCCESS })
    });
    runtime.shutdown_background();
    code
}

fn is_orphan(candidate: &Candidate) -> bool {
    matches!(candidate.kept, None | Some(Keep::Budget))
}

/// An orphan that stands, or a route of which it can't be told: somebody should look.
fn is_open(candidate: &Candidate) -> bool {
    let Some(keep) = candidate.kept else { return true };
    matches!(
        keep,
        Keep::Budget
            | Keep::ShareExceeded
            | Keep::Settling
            | Keep::ListsIncomplete
            | Keep::Stale
            | Keep::WentBack
            | Keep::ClusterUnknown
            | Keep::NamespaceUnproved
    )
}

async fn confirmed(survey: &mut Survey, routes: usize) -> anyhow::Result<bool> {
    eprint!("Delete {routes} routes? Type their number to go on: ");
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = survey.meanwhile(read).await.context("asking")?.context("reading the answer")?;
    let yes = line.trim() == routes.to_string();
    if !yes {
        eprintln!("nothing is deleted");
    }
    Ok(yes)
}

fn told(fate: &Fate) -> String {
    let Fate { cluster, route, outcome, error } = fate;
    let outcome = if *outcome == "applied" { "deleted" } else { outcome };
    let error = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
    format!("{route} at {cluster}: {outcome}{error}")
}

/// What was found, for people.
fn text(found: &[Candidate], now: UnixMillis) -> String {
    let mut text = String::new();
    if found.is_empty() {
        return "no route is an orphan\n".to_owned();
    }
    for candidate in found {
        let Candidate { cluster, route, created_at, kept, evidence, .. } = candidate;
        let fate = match kept {
            None => "an orphan: would be deleted".to_owned(),
            Some(keep) => format!("kept, {}: {keep}", keep.as_str()),
        };
        let age = created_at.map_or("of unknown age".to_owned(), |at| ago(now, at));
        let _ = writeln!(text, "{route} at {cluster} ({age})\n  {fate}");
        let Some(evidence) = evidence else { continue };
        let parents: Vec<_> = evidence
            .parents
            .iter()
            .map(|(name, exists)| {
                let state = match exists {
                    Some(true) => "exists",
                    Some(false) => "absent",
                    None => "unknown",
                };
                format!("{name} {state}")
            })
            .collect();
        let proved = if evidence.namespace_proved { "proved by its uid" } else { "not proved" };
        let _ = writeln!(
            text,
            "  parents: {}\n  upstream: {} in {}, {proved}",
            parents.join(", "),
            evidence.upstream_namespace,
            evidence.upstream
        );
        if let Some(at) = evidence.heard_at {
            let _ = writeln!(text, "  its Gateways were heard of {} ago", span(now, at));
        }
        if let Some(at) = evidence.orphan_since {
            let _ = writeln!(text, "  an orphan for {}", span(now, at));
        }
    }
    let orphans = found.iter().filter(|c| is_orphan(c)).count();
    let settling = found.iter().filter(|c| c.kept == Some(Keep::Settling)).count();
    let kept = found.len() - orphans - settling;
    let _ = writeln!(text, "\n{orphans} orphans, {settling} that still settle, {kept} kept");
    if settling > 0 {
        text.push_str("--wait looks once more when the settling time is over\n");
    }
    text
}

fn ago(now: UnixMillis, at: UnixMillis) -> String {
    format!("made {} ago", span(now, at))
}

fn span(now: UnixMillis, at: UnixMillis) -> String {
    let seconds = now.since(at) / 1_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn print_manifests(file: &str) -> anyhow::Result<ExitCode> {
    let mut reader = Reader::open(file)?;
    let found = restore(&mut reader)?;
    for warning in reader.warnings() {
        eprintln!("warning: {warning}");
    }
    let mut text = String::new();
    for deleted in &found {
        text.push_str("---\n");
        if !deleted.answered {
            text.push_str("# The delete was not answered: it may not have been carried out.\n");
        }
        let yaml = serde_saphyr::to_string(&deleted.manifest).context("spelling YAML")?;
        text.push_str(yaml.trim_end());
        text.push('\n');
    }
    print(&text)?;
    if found.is_empty() {
        eprintln!("nothing was deleted, by this log");
        return Ok(ExitCode::from(LEFT));
    }
    Ok(ExitCode::SUCCESS)
}
