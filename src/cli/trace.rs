//! `throughline trace`: where one connector's liveness is stuck.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use throughline::core::data::ids::{ClusterName, ObjectKey};
use throughline::trace::{NotFound, Snapshot, Trace, state, text, trace_connector, trace_gateway};

use super::examples;
use super::out::{Output, one_thread, print_with, report_options};
use super::replay::object_key;
use super::source::{OpenedSource, SourceArgs};

/// The exit code when a hop disagrees or is unknown.
const STUCK: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Trace one connector, by its name upstream or at the hub and the edges.
    ///
    /// Exit codes: 0 every hop agrees, 1 a hop disagrees or is unknown, 2 no such connector, bad
    /// usage or bad input.
    #[command(after_long_help = examples::TRACE_CONNECTOR)]
    Connector(TraceTarget),
    /// Trace every connector behind one gateway at an edge.
    ///
    /// Exit codes: 0 every hop agrees, 1 a hop disagrees or is unknown, 2 no such gateway, bad usage
    /// or bad input.
    #[command(after_long_help = examples::TRACE_GATEWAY)]
    Gateway(TraceTarget),
}

#[derive(Debug, Args)]
struct TraceTarget {
    /// The namespace and name of the object
    #[arg(value_name = "NAMESPACE/NAME", value_parser = object_key)]
    name: ObjectKey,
    /// Choose the object in this cluster when several have the same name
    #[arg(long = "in", value_name = "CLUSTER")]
    only_in: Option<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    source: SourceArgs,
}

type FindTraces = fn(&Snapshot, &ObjectKey, Option<&ClusterName>) -> Result<Vec<Trace>, NotFound>;

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let (target, find): (_, FindTraces) = match &args.command {
        TraceCommand::Connector(target) => (target, trace_connector),
        TraceCommand::Gateway(target) => (target, trace_gateway),
    };
    let cluster = target.only_in.as_deref().map(ClusterName::from);
    let find = |snapshot: &Snapshot| find(snapshot, &target.name, cluster.as_ref());
    let within = target.source.within();
    let traces = match target.source.open()? {
        OpenedSource::EventLog(snapshot) => find(&snapshot)?,
        OpenedSource::Instance(url) => {
            find(&one_thread()?.block_on(state::snapshot(url, within))?)?
        }
        OpenedSource::Clusters(config) => {
            let runtime = one_thread()?;
            let traces = runtime.block_on(async {
                let mut watcher = target.source.watch(&config).await?;
                // The hops of a first trace say whose fields to look up.
                let traces = find(&watcher.snapshot())?;
                watcher.fetch_field_owners(&traces, within).await;
                watcher.find_karmada(&traces, within).await;
                anyhow::Ok(find(&watcher.snapshot())?)
            });
            runtime.shutdown_background();
            traces?
        }
    };
    if target.output == Output::Text {
        print_with(|out| Ok(text::traces(&traces, &report_options(), out)?))?;
    }
    target.output.print(&json!({ "traces": traces }))?;
    let all_ok = traces.iter().all(|trace| trace.state.is_right());
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::from(STUCK) })
}
