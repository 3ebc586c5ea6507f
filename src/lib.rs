//! throughline: carries tunnel-connector liveness from project control planes to the edge.
//!
//! The code map, in the order data flows:
//!
//! - [`config`]: what a live run is told: clusters, roles, timings
//! - [`logging`]: the log for people, as text or JSON
//! - [`run`]: the whole program, live: the loop, start-up, shutdown
//! - `engine`: the machine, the executor and the event log, as a run and a single look share them
//! - [`client`]: clusters as they are reached: requests with time-outs, errors sorted
//! - [`watch`]: one watch of one kind in one cluster → events
//! - [`clock`]: the shell's clock, which only goes forward
//! - [`core`]: the pure machine: events in, actions out; no clock, no I/O
//! - [`executor`]: the only writer: queue, per-object order, retries, fates
//! - [`leader`]: who mirrors and deletes: election on a Lease
//! - [`gate`]: asked before leader-only work
//! - [`apply`]: one action → one API request; what came back → one outcome
//! - [`orphans`]: orphaned routes, looked for and deleted once by hand; and brought back
//! - [`trace`]: where a connector is stuck, and why; from the clusters, an instance or a log
//! - [`check`]: whether throughline can work here: rights, kinds, Lease, Envoy Gateway, carrier
//! - [`record`]: the watches alone, written to an event log
//! - [`narrate`]: the log lines that people read
//! - [`events`]: Kubernetes Events on the objects concerned, deduplicated as client-go does
//! - [`live_log`]: the event log of a live run, written beside the loop: rotated, redacted
//! - [`metrics`]: what is counted, for Prometheus and the probes
//! - [`admin`]: probes, metrics and state over HTTP
//! - [`event_log`]: events from, and to, a file: the versioned JSON-lines format
//! - [`world`]: clusters in memory that behave as API servers do where it matters
//! - [`front`]: the world's clusters over HTTP, by the API server's protocol
//! - [`replay`]: a recorded log, driven through the machine: verify or what-if
//! - [`outage`]: what users saw: when an edge answered 503 for a connector that was up
//! - [`report`]: text, JSON and HTML pictures of a replay; the story of a live run
//! - [`demo`]: a log played into served clusters, with the real run pointed at them

pub mod admin;
pub mod apply;
pub mod check;
pub mod client;
pub mod clock;
pub mod config;
pub mod core;
pub mod demo;
mod engine;
pub mod event_log;
pub mod events;
pub mod executor;
pub mod front;
pub mod gate;
pub mod leader;
pub mod live_log;
pub mod logging;
pub mod metrics;
pub mod narrate;
pub mod orphans;
pub mod outage;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod trace;
pub mod watch;
pub mod world;
