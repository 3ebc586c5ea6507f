//! `throughline events`: the Kubernetes Events about a connector's objects.

use std::process::ExitCode;

use clap::Args;
use throughline::core::data::ids::{ClusterName, ObjectKey};
use throughline::events::read::read;
use throughline::report;
use throughline::trace::trace_connector;

use super::out::{WideOutput, one_thread, print_with};
use super::replay::object_key;
use super::source::LiveArgs;

/// The exit code when not all Events could be read.
const INCOMPLETE: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// The connector, by its name upstream or at the hub and the edges
    #[arg(value_name = "NAMESPACE/NAME", value_parser = object_key)]
    name: ObjectKey,
    /// Choose the connector in this cluster when several have the same name
    #[arg(long = "in", value_name = "CLUSTER")]
    only_in: Option<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = WideOutput::Text)]
    output: WideOutput,
    #[command(flatten)]
    live: LiveArgs,
}

pub(super) fn run(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let config = args.live.load(Vec::new())?;
    let cluster = args.only_in.as_deref().map(ClusterName::from);
    let runtime = one_thread()?;
    let found = runtime.block_on(async {
        let mut watcher = args.live.watch(&config).await?;
        let snapshot = watcher.snapshot();
        let traces = trace_connector(&snapshot, &args.name, cluster.as_ref())?;
        let mut found = Vec::new();
        for trace in &traces {
            let client = |cluster: &ClusterName| watcher.client(cluster);
            found.push(read(&snapshot.view, trace, client, args.live.within()).await);
        }
        anyhow::Ok(found)
    });
    runtime.shutdown_background();
    let found = found?;
    let mut is_whole = true;
    for events in &found {
        is_whole &= events.unread.is_empty();
        if args.output.is_text() {
            let options = args.output.report_options();
            print_with(|out| Ok(report::object_events(events, &options, out)?))?;
        }
        args.output.print(events)?;
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { INCOMPLETE.into() })
}
