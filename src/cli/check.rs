//! `throughline check`: whether a live run can work here.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use throughline::check::{Level, check};
use throughline::core::data::ids::ClusterName;
use throughline::report;

use super::config::ConfigArgs;
use super::out::{Output, Progress, block_on, exit_code, print_json, print_with, report_options};
use super::values::cluster_name;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Check only this upstream; repeatable [default: all that are configured, and a few of those
    /// that discovery finds]
    #[arg(long = "upstream", value_name = "NAME", value_parser = cluster_name)]
    upstreams: Vec<ClusterName>,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let config = args.config.load_quietly()?;
    let progress = Progress::new();
    progress.show("checking …");
    let report = block_on(check(&config, &args.upstreams));
    progress.clear();
    let report = report?;
    match args.output {
        Output::Text => {
            print_with(|out| Ok(report::check(&report, &report_options(), out)?))?;
        }
        Output::Json => {
            let value = json!({ "well": report.is_passed(), "failed": report.count(Level::Failed),
                "warnings": report.count(Level::Warning), "findings": report.findings });
            print_json(&value)?;
        }
    }
    Ok(exit_code(report.is_passed()))
}
