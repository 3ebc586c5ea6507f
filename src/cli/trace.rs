//! `throughline trace`: where one connector's liveness is stuck.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use throughline::core::ids::{ClusterName, ObjectKey};
use throughline::trace::live::Look;
use throughline::trace::{Found, NotFound, Snapshot, State, connector, gateway, state, text};

use super::out::{Output, look, one_thread, print, print_with};
use super::replay::object_key;
use super::source::{Source, SourceArgs};

/// A hop disagrees, or can't be told.
const STUCK: u8 = 1;

/// `throughline trace`.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A connector, by its name upstream or at hub and edges.
    ///
    /// Exit codes: 0 every hop agrees, 1 one disagrees or can't be told, 2 no such object, bad usage
    /// or input.
    Connector(Target),
    /// A gateway at an edge: every connector that stands behind it.
    ///
    /// Exit codes: 0 every hop agrees, 1 one disagrees or can't be told, 2 no such object, bad usage
    /// or input.
    Gateway(Target),
}

#[derive(Debug, Args)]
struct Target {
    /// What to trace
    #[arg(value_name = "NAMESPACE/NAME", value_parser = object_key)]
    name: ObjectKey,
    /// Of several that are called alike, the one in this cluster
    #[arg(long = "in", value_name = "CLUSTER")]
    one_in: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    source: SourceArgs,
}

type Find = fn(&Snapshot, &ObjectKey, Option<&ClusterName>) -> Result<Found, NotFound>;

/// Does what the command line says.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let (target, find): (_, Find) = match &args.what {
        What::Connector(target) => (target, connector),
        What::Gateway(target) => (target, gateway),
    };
    let cluster = target.one_in.as_deref().map(ClusterName::from);
    let found = |snapshot: &Snapshot| find(snapshot, &target.name, cluster.as_ref());
    let within = target.source.within();
    let Found(traces) = match target.source.open()? {
        Source::Log(snapshot) => found(&snapshot)?,
        Source::State(url) => found(&one_thread()?.block_on(state::snapshot(url, within))?)?,
        Source::Live(config) => {
            let runtime = one_thread()?;
            let traces = runtime.block_on(async {
                let mut look = Look::start(&config)?;
                look.listed(&config, within).await;
                let Found(first) = found(&look.snapshot())?;
                look.ask_writers(&first, within).await;
                anyhow::Ok(found(&look.snapshot())?)
            });
            runtime.shutdown_background();
            traces?
        }
    };
    match target.output {
        Output::Text => drop(print_with(|out| Ok(text::traces(&traces, &look(), out)?))?),
        Output::Json => print(&format!("{:#}\n", json!({ "traces": traces })))?,
    }
    let well = traces.iter().all(|trace| trace.state == State::Ok);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(STUCK) })
}
