//! `throughline version`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use throughline::build_info;
use throughline::instance;
use throughline::outside_text::lines;
use throughline::report::moment;

use super::out::{ValueOutput, one_thread, print};
use super::settings::duration_ms;

pub(super) const EXAMPLES: &str = "\
Examples:
  throughline version
  kubectl port-forward deploy/throughline 8080 & throughline version --state http://127.0.0.1:8080";

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Also ask a running instance at its admin address, for example http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    state: Option<String>,
    /// With --state: how long to wait for the answer
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "10s",
          requires = "state")]
    timeout: u64,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = ValueOutput::Text)]
    output: ValueOutput,
}

/// Prints the program's own version even when the instance does not answer.
pub(super) fn run(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let within = Duration::from_millis(args.timeout);
    let instance = args
        .state
        .as_ref()
        .map(|url| one_thread()?.block_on(instance::info(url, within)))
        .transpose();
    let (version, commit) = (build_info::VERSION, build_info::COMMIT);
    if args.output == ValueOutput::Text {
        let mut text = format!("throughline {version} (commit {commit})\n");
        if let Ok(Some(running)) = &instance {
            let _ = writeln!(
                text,
                "running     {} (commit {}), since {} UTC",
                running.version,
                running.commit,
                moment(running.since_ms)
            );
        }
        print(&lines(&text))?;
    }
    args.output.print(&json!({
        "client": {"version": version, "commit": commit},
        "instance": instance.as_ref().ok().and_then(Option::as_ref),
    }))?;
    instance.map(|_| ExitCode::SUCCESS)
}
