//! throughline: carries the liveness of tunnel connectors from project control planes to the edge.
//!
//! The code map, in the order data flows.
//!
//! A live run:
//!
//! - [`config`]: the configuration, from a YAML file and flags
//! - [`logging`]: the log for people, as text or JSON
//! - `nearest`: suggestions for misspelled names
//! - [`outside_text`]: cleans texts from outside of secrets and of characters that affect a terminal
//! - [`run`]: the whole program: start, loop, shutdown
//! - `engine`: machine, executor and event log together, shared by a live run and one-shot commands
//! - `discovery`: finds clusters: Milo's projects, kubeconfig Secrets, a directory
//! - [`fleet`]: the clusters of a run and their watches; clusters join and leave
//! - [`client`]: connections to clusters: requests, time-outs, classified errors
//! - [`watch`]: one watch of one kind in one cluster → events
//! - [`clock`]: monotonic wall-clock time for events
//! - [`environment`]: the computer of a run, which a simulation replaces
//! - `file_stamp`: whether a file changed, without reading it
//! - [`core`]: the pure machine, events → actions; no clock, no I/O: the package `crates/core`. In it
//!   `contract` (events and actions), `data`, `status` (JSON, liveness, digest), `world` (observed
//!   objects), `rules` (one file each), `controller` (carries plans out), and `view` (the fleet at one
//!   moment)
//! - [`leader`]: leader election on a Lease: selects the instance that mirrors and deletes
//! - [`executor`]: the only writer: a queue for each cluster, order per object, outcomes
//! - [`apply`]: one action → one API request → one outcome
//!
//! What a live run reports:
//!
//! - [`observer`]: receives the events, decisions and notes of a live run
//! - [`problems`]: open problems, each reported once: in the log, as Events, in `/state`
//! - [`events`]: Kubernetes Events on the objects concerned
//! - [`metrics`]: counters and gauges for Prometheus
//! - [`admin`]: probes, metrics and state over HTTP
//! - [`event_log`]: the versioned JSON-lines format: reading, writing, redaction
//! - [`live_log`]: the event log of a live run: written in its own thread, rotated
//!
//! - [`build_info`]: version and commit of the program
//!
//! Other commands:
//!
//! - [`check`]: whether throughline can run here: permissions, kinds, Lease, Envoy Gateway, carrier
//! - [`inspect`]: the fleet from clusters or an event log, and as `status` and `trace` print it
//! - `field_owner`: the owner of a field, by `managedFields`
//! - `kubectl`: the kubectl commands that reach a cluster
//! - [`instance`]: the fleet from the admin port of a running instance
//! - [`record`]: writes watches alone to an event log
//! - [`orphans`]: orphaned routes: list, restore
//! - [`replay`]: runs a recorded log through the machine: verify or what-if. A what-if and [`demo`] use
//!   the in-memory clusters of `crates/sim`; nothing else depends on them
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
mod discovery;
mod engine;
pub mod environment;
pub mod event_log;
pub mod events;
pub mod executor;
mod field_owner;
mod file_stamp;
pub mod fleet;
pub mod inspect;
pub mod instance;
mod kubectl;
pub mod leader;
pub mod live_log;
pub mod logging;
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
