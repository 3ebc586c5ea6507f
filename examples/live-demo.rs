//! throughline on three real API servers with a small fleet: one connector goes offline and comes
//! back, another moves to a different node, a third gets stuck. The log shows each hop as it
//! happens. `make demo` runs it; with `--linger` it stays up at the end, until Ctrl-C.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a demo may panic, and prints")]

#[path = "../tests/support/cluster/mod.rs"]
mod cluster;

use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use cluster::fleet::{Fleet, Mirrored, Spec};
use cluster::oracle;
use cluster::testbed::{Testbed, Topology};
use cluster::throughline::{Setup, Throughline, binary};
use cluster::{SOON, ensure, eventually};
use serde_json::json;
use throughline::core::contract::cause::Cause;

/// Between two steps, so that a person can read along.
const PAUSE: Duration = Duration::from_millis(1_500);

#[tokio::main]
async fn main() -> ExitCode {
    tokio::select! {
        () = run_demo() => ExitCode::SUCCESS,
        // Dropping the demo stops everything that it started.
        _ = tokio::signal::ctrl_c() => {
            println!("\ninterrupted: stopping the API servers");
            ExitCode::from(130)
        }
    }
}

fn say(text: &str) {
    println!("\n== {text}");
}

async fn run_demo() {
    let started = Instant::now();
    say("starting three API servers with an etcd each: up (a project), hub and edge; a carrier \
         copies annotations from hub to edge");
    let testbed = Testbed::start(Topology::Three).await;
    let spec = Spec { per_namespace: 3, gateways: 2, mirrored: Mirrored::Fresh, ..Spec::of(6) };
    let fleet = Fleet::seed(&testbed, spec).await;
    say(&format!(
        "running after {:.1} s; all 6 connectors are online, each used by 2 gateways at the edge \
         that have not been touched yet",
        started.elapsed().as_secs_f64()
    ));
    let late = json!({ "stall": { "arrivedMs": 2_000 }, "mirror": { "nudgeAfterMs": 4_000 } });
    let setup = Setup::of(&testbed).set(&late).provokes(&[Cause::NotCarried]).text_log();
    say("starting throughline: it writes what is missing and leaves the rest alone");
    let throughline = setup.start().await;
    let mut printing = print_log(&throughline);
    throughline.wait_ready().await;
    say(&format!("the live page: http://{}/", throughline.admin()));
    oracle::converges(&testbed).await;
    tokio::time::sleep(PAUSE).await;

    let connector = |i: usize| format!("{}/{}", fleet.upstream_key(i).0, fleet.upstream_key(i).1);
    let steps = [
        (0, format!("{} goes offline", connector(0))),
        (0, format!("{} comes back online", connector(0))),
        (1, format!("{} moves to another node", connector(1))),
    ];
    for (number, (i, text)) in steps.into_iter().enumerate() {
        say(&text);
        step(&testbed, async || match number {
            2 => fleet.move_node(i).await.unwrap(),
            _ => fleet.flip(i).await.unwrap(),
        })
        .await;
    }
    stuck_connector(&testbed, &fleet, &throughline).await;
    if std::env::args().any(|argument| argument == "--linger") {
        say(&format!("all keeps running: http://{}/; Ctrl-C ends it", throughline.admin()));
        std::future::pending::<()>().await;
    }
    stop(&testbed, throughline, started).await;
    printing.wait().unwrap();
}

/// The carrier stops and a connector goes offline. The person on call asks which connector is stuck,
/// and where.
async fn stuck_connector(testbed: &Testbed, fleet: &Fleet, throughline: &Throughline) {
    let (namespace, name) = fleet.upstream_key(2);
    let connector = format!("{namespace}/{name}");
    say(&format!(
        "the carrier stops and {connector} goes offline: what does the person on call see?"
    ));
    testbed.carrier().set_stuck(true);
    fleet.flip(2).await.unwrap();
    eventually("the connector is reported as stuck", SOON, async || {
        let state = throughline.state().await;
        ensure(state["counts"]["stuck"] == 1, || state["counts"].to_string())
    })
    .await;
    let state = format!("http://{}", throughline.admin());
    throughline_command(&["status", "--state", &state]);
    throughline_command(&["trace", "connector", &connector, "--state", &state]);
    say("the carrier runs again");
    testbed.carrier().set_stuck(false);
    oracle::converges(testbed).await;
    tokio::time::sleep(PAUSE).await;
    throughline_command(&["trace", "connector", &connector, "--state", &state]);
    say("the next morning: what does the event log show?");
    throughline_command(&[
        "replay",
        "--connector",
        &connector,
        &throughline.event_log().display().to_string(),
    ]);
}

/// Prints the log as it comes, until throughline has ended.
fn print_log(throughline: &Throughline) -> Child {
    let mut tail = Command::new("tail");
    tail.args(["--follow", "--lines=+1", "--pid", &throughline.pid().to_string()]);
    tail.arg(throughline.folder().join("throughline.log")).spawn().unwrap()
}

/// Runs a throughline command as a person would.
fn throughline_command(args: &[&str]) {
    println!("\n$ throughline {}", args.join(" "));
    Command::new(binary()).args(args).status().unwrap();
}

/// Changes something upstream and waits until every gateway announces it.
async fn step(testbed: &Testbed, change: impl AsyncFnOnce()) {
    let (started, before) = (Instant::now(), testbed.writes().len());
    change().await;
    oracle::converges(testbed).await;
    let took = started.elapsed().as_millis();
    // Give the last log lines time to arrive.
    tokio::time::sleep(PAUSE).await;
    let writes = testbed.writes().len() - before;
    println!("   all gateways announce it {took} ms after the change upstream; {writes} writes");
}

async fn stop(testbed: &Testbed, throughline: Throughline, started: Instant) {
    oracle::converged(testbed).await.unwrap();
    oracle::no_needless_write(testbed).unwrap();
    let writes = testbed.writes().len();
    say("SIGTERM");
    throughline.stop().await;
    say(&format!(
        "exit code 0; {writes} writes, none of them needless; the event log verifies: a replay \
         decides the same actions ({:.0} s in total)",
        started.elapsed().as_secs_f64()
    ));
}
