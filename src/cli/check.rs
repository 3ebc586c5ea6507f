//! `throughline check`: whether a live run can work here.

use std::process::ExitCode;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use clap::Args;
use serde_json::json;
use throughline::check::{CheckOptions, CheckReport, Level, check};
use throughline::config::LoadedConfig;
use throughline::core::cause::shell_word;
use throughline::core::data::ids::ClusterName;
use throughline::report;
use tokio::time::{Instant, sleep};

use super::config::ConfigArgs;
use super::out::{Progress, ValueOutput, one_thread, print_with, report_options};
use super::settings::duration_ms;
use super::source::cluster_name;

/// The exit code when a check failed.
const FAILED: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = ValueOutput::Text)]
    output: ValueOutput,
    /// Repeat the checks until none fails, for at most this long
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0s")]
    wait: u64,
    /// Of the upstreams, check only this one; repeatable. Without it, a few of those that discovery
    /// finds are checked
    #[arg(long = "upstream", value_name = "NAME", value_parser = cluster_name)]
    upstreams: Vec<ClusterName>,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let LoadedConfig { config, warnings, .. } = args.config.load_for_report()?;
    let runtime = one_thread()?;
    let progress = Progress::new();
    let show = |doing: &str| progress.show(doing);
    let command = command_line();
    let options = CheckOptions {
        warnings: &warnings,
        upstreams: &args.upstreams,
        command: &command,
        progress: &show,
    };
    let report =
        runtime.block_on(repeat_until_passed(Duration::from_millis(args.wait), || async {
            let report = check(&config, &options).await;
            progress.clear();
            report
        }));
    runtime.shutdown_background();
    match args.output {
        ValueOutput::Text => {
            print_with(|out| Ok(report::check(&report, &report_options(), out)?))?;
        }
        ValueOutput::Json | ValueOutput::Yaml => {
            let value = json!({ "well": report.is_passed(), "failed": report.count(Level::Failed),
                "warnings": report.count(Level::Warning), "findings": report.findings });
            args.output.print(&value)?;
        }
    }
    Ok(if report.is_passed() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// This command as a person would type it again.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_word(&word.to_string_lossy()));
    std::iter::once("throughline".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Checks at growing intervals until nothing fails or the time is up; returns the last report.
async fn repeat_until_passed<F: Future<Output = CheckReport>>(
    wait: Duration,
    check: impl Fn() -> F,
) -> CheckReport {
    let until = Instant::now() + wait;
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(10))
        .without_max_times();
    let mut pauses = pauses.build();
    loop {
        let report = check().await;
        let left = until.saturating_duration_since(Instant::now());
        if report.is_passed() || left.is_zero() {
            return report;
        }
        let pause = pauses.next().unwrap_or(left).min(left);
        let mut failures = report.failures();
        if let Some(first) = failures.next() {
            let more = match failures.count() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            say!(
                "trying again for up to {} s: {}: {}{more}",
                left.as_secs_f64().ceil(),
                first.group,
                first.what
            );
        }
        sleep(pause).await;
    }
}
