//! `throughline check`: whether a live run can work here.

use std::process::ExitCode;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use clap::Args;
use serde_json::json;
use throughline::check::{Level, Report, check};
use throughline::config::Loaded;
use throughline::report;
use tokio::time::{Instant, sleep};

use super::config::ConfigArgs;
use super::out::{Output, look, one_thread, print, print_with};
use super::settings::duration_ms;

/// Something hinders it.
const HINDERED: u8 = 1;

/// `throughline check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Look again until nothing fails, for at most so long
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0s")]
    wait: u64,
}

/// Looks, waits where that was asked for, and prints what was found last.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let Loaded { config, warnings } = args.config.load_for_report()?;
    let runtime = one_thread()?;
    let report = runtime
        .block_on(until_well(Duration::from_millis(args.wait), || check(&config, &warnings)));
    runtime.shutdown_background();
    match args.output {
        Output::Text => {
            print_with(|out| Ok(report::check(&report, &look(), out)?))?;
        }
        Output::Json => {
            let json = json!({ "well": report.is_well(), "failed": report.count(Level::Failed),
                "warnings": report.count(Level::Warning), "findings": report.findings });
            print(&format!("{json:#}\n"))?;
        }
    }
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::from(HINDERED) })
}

/// Looks again and again, ever more rarely, until nothing fails or the time is up.
async fn until_well<F: Future<Output = Report>>(wait: Duration, look: impl Fn() -> F) -> Report {
    let until = Instant::now() + wait;
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(10))
        .without_max_times();
    let mut pauses = pauses.build();
    loop {
        let report = look().await;
        let left = until.saturating_duration_since(Instant::now());
        if report.is_well() || left.is_zero() {
            return report;
        }
        let pause = pauses.next().unwrap_or(left).min(left);
        let mut failures = report.failures();
        if let Some(first) = failures.next() {
            let more = match failures.count() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            eprintln!(
                "waiting, for {} s at most: {}: {}{more}",
                left.as_secs_f64().ceil(),
                first.group,
                first.what
            );
        }
        sleep(pause).await;
    }
}
