//! throughline: carries the liveness of tunnel connectors from project control planes to the edge.
//!
//! The code map, in the order data flows.
//!
//! A live run:
//!
//! - [`config`]: the configuration, from a YAML file and flags
//! - [`logging`]: the log for people, as text or JSON
//! - `nearest`: the name that a misspelled one stands for
//! - [`outside_text`]: what texts from outside must not bring to a terminal, nor out of the process
//! - [`run`]: the whole program: start, the loop, shutdown
//! - `engine`: machine, executor and event log together, shared by a live run and a single look
//! - `discovery`: which clusters there are: Milo's projects, kubeconfig Secrets, a directory
//! - [`fleet`]: the clusters of a run: who joins, who leaves, and their watches
//! - [`client`]: connections to clusters: requests, time-outs, classified errors
//! - [`watch`]: one watch of one kind in one cluster → events
//! - [`clock`]: monotonic wall-clock time for events
//! - [`environment`]: the computer that a run is on, which a simulation replaces
//! - [`core`]: the pure machine, events → actions; no clock, no I/O: the package `crates/core`. In it
//!   `contract` (what goes in and out), `data`, `status` (JSON, liveness, digest), `world` (what the
//!   watches show), `rules` (one file each), `controller` (carries plans out), and `view` (what is
//!   known at one moment: the fleet)
//! - [`leader`]: leader election on a Lease: which instance mirrors and deletes
//! - [`executor`]: the only writer: a queue for each cluster, order per object, outcomes
//! - [`apply`]: one action → one API request → one outcome
//!
//! What a live run reports:
//!
//! - [`observer`]: who watches a live run
//! - [`problems`]: what is open, told to people once: in the log, as Events, in `/state`
//! - [`events`]: Kubernetes Events on the objects concerned
//! - [`metrics`]: counters and gauges for Prometheus
//! - [`admin`]: probes, metrics and state over HTTP
//! - [`event_log`]: the versioned JSON-lines format: reading, writing, redaction
//! - [`live_log`]: the event log of a live run: written outside the loop, rotated
//!
//! - [`build_info`]: version and commit of the program
//!
//! Other commands:
//!
//! - [`check`]: whether throughline can run here: rights, kinds, Lease, Envoy Gateway, carrier
//! - [`look`]: the fleet from outside: from clusters, an instance or an event log; `status` and `trace` print it
//! - `field_owner`: who owns a field, by `managedFields`
//! - [`kubectl`]: commands for people: how they reach a cluster, words of a shell
//! - [`instance`]: asks the admin port of a running instance
//! - [`record`]: watches only, written to an event log
//! - [`orphans`]: orphaned routes: list, restore
//! - [`replay`]: drives a recorded log through the machine: verify or what-if. A what-if runs on the
//!   clusters in memory of `crates/sim`, as [`demo`] does; nothing else depends on them
//! - [`report`]: a replay as text, JSON or HTML; the story of a live run
//! - [`demo`]: plays a log into served in-memory clusters and runs the controller against them

pub mod admin;
pub mod apply;
pub mod build_info;
pub mod check;
pub mod client;
pub mod clock;
pub mod config;
pub mod demo;
pub mod discovery;
mod engine;
pub mod environment;
pub mod event_log;
pub mod events;
pub mod executor;
mod field_owner;
pub mod fleet;
pub mod instance;
pub mod kubectl;
pub mod leader;
pub mod live_log;
pub mod logging;
pub mod look;
pub mod metrics;
mod nearest;
pub mod observer;
pub mod orphans;
pub mod outside_text;
pub mod problems;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;

pub mod watch;

pub use throughline_core as core;
