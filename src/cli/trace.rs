//! `throughline trace`: each hop of one connector.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use throughline::core::contract::cause::State;
use throughline::core::data::ids::{ClusterName, NamespacedName};
use throughline::core::view::fleet::{Connector, Fleet};
use throughline::inspect::find;
use throughline::inspect::trace;
use throughline::instance;

use super::out::{Output, block_on, exit_code, print_json, print_with, report_options};
use super::source::{OpenedSource, SourceArgs};
use super::values::object_key;

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Trace one connector, by its name upstream or at the hub and the edges.
    ///
    /// Exit codes: 0 every hop is ok, 1 one is not, 2 no such connector, bad usage or bad input.
    #[command(after_long_help = "\
Examples:
  throughline trace connector default/home-lab --config live.yaml
  throughline trace connector default/home-lab --state http://127.0.0.1:8080 -o json")]
    Connector(TraceTarget),
    /// Trace every connector behind one gateway at an edge.
    ///
    /// Exit codes: 0 every hop is ok, 1 one is not, 2 no such gateway, bad usage or bad input.
    #[command(after_long_help = "\
Examples:
  throughline trace gateway ns-1/app --config live.yaml")]
    Gateway(TraceTarget),
}

#[derive(Debug, Args)]
struct TraceTarget {
    /// The namespace and name of the object
    #[arg(value_name = "NAMESPACE/NAME", value_parser = object_key)]
    name: NamespacedName,
    /// Choose the object in this cluster when several have the same name
    #[arg(long = "in", value_name = "CLUSTER")]
    only_in: Option<ClusterName>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    source: SourceArgs,
}

type Find = fn(&Fleet, &NamespacedName, Option<&ClusterName>) -> anyhow::Result<Vec<Connector>>;

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let (target, find): (_, Find) = match &args.command {
        TraceCommand::Connector(target) => (target, find::connector),
        TraceCommand::Gateway(target) => (target, find::gateway),
    };
    let find = |fleet: &Fleet| find(fleet, &target.name, target.only_in.as_ref());
    let within = target.source.within();
    let mut kubectl = BTreeMap::new();
    let fleet = match target.source.open()? {
        OpenedSource::EventLog(fleet) => *fleet,
        OpenedSource::Instance(url) => block_on(instance::fleet(url, within))?,
        OpenedSource::Clusters(config) => block_on(async {
            let mut watcher = target.source.watch(&config).await?;
            // The hops determine the fields whose owners to fetch.
            let found = find(&watcher.fleet())?;
            watcher.fetch_field_owners(&found, within).await;
            kubectl = watcher.kubectl().clone();
            Ok(watcher.fleet())
        })?,
    };
    let found = find(&fleet)?;
    match target.output {
        Output::Text => {
            let kubectl = |cluster: &ClusterName| kubectl.get(cluster).cloned();
            let options = report_options();
            print_with(|out| Ok(trace::connectors(&fleet, &found, &kubectl, &options, out)?))?;
        }
        Output::Json => {
            let Fleet { at_ms, source, .. } = fleet;
            print_json(&json!({ "atMs": at_ms, "source": source, "connectors": found }))?;
        }
    }
    Ok(exit_code(found.iter().all(|connector| connector.state == State::Ok)))
}
