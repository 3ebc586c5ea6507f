//! throughline on three real API servers: a small fleet, a connector that goes down and comes back,
//! one that moves to another node; its log shows each hop as it happens. `make demo` runs it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a demo may panic, and tells")]

#[path = "../tests/support/cluster/mod.rs"]
mod cluster;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use cluster::fleet::{Fleet, Mirrored, Spec};
use cluster::oracle;
use cluster::throughline::{Setup, Throughline, binary};
use cluster::world::{Topology, World};
use cluster::{SOON, ensure, eventually};
use serde_json::{Value, json};

/// Between two acts, for those who read along.
const PAUSE: Duration = Duration::from_millis(1_500);

#[tokio::main]
async fn main() -> ExitCode {
    tokio::select! {
        () = show() => ExitCode::SUCCESS,
        // What was started ends as it is dropped.
        _ = tokio::signal::ctrl_c() => {
            println!("\nstopped; the API servers go down");
            ExitCode::from(130)
        }
    }
}

fn say(text: &str) {
    println!("\n== {text}");
}

async fn show() {
    let began = Instant::now();
    say("three API servers with an etcd each: up (a project), hub, edge; annotations are carried \
         from hub to edge");
    let world = World::start(Topology::Three).await;
    let spec = Spec { per_namespace: 3, gateways: 2, mirrored: Mirrored::Fresh, ..Spec::of(6) };
    let fleet = Fleet::seed(&world, spec).await;
    say(&format!(
        "after {:.1} s they run; in them 6 connectors online, each behind 2 gateways at the edge \
         that announce nothing yet",
        began.elapsed().as_secs_f64()
    ));
    let late = json!({ "stall": { "arrivedMs": 2_000 }, "mirror": { "nudgeAfterMs": 4_000 } });
    let setup = Setup::of(&world).set(&late).shown();
    say("throughline run: what is right is left alone, what is missing is written");
    let throughline = setup.ready().await;
    oracle::converges(&world).await;
    tokio::time::sleep(PAUSE).await;

    let connector = |i: usize| format!("{}/{}", fleet.key(i).0, fleet.key(i).1);
    let acts = [
        (0, format!("{} goes offline", connector(0))),
        (0, format!("{} comes back", connector(0))),
        (1, format!("{} moves to another node", connector(1))),
    ];
    for (number, (i, text)) in acts.into_iter().enumerate() {
        say(&text);
        act(&world, async || match number {
            2 => fleet.move_node(i).await.unwrap(),
            _ => fleet.flip(i).await.unwrap(),
        })
        .await;
    }
    stuck(&world, &fleet, &throughline).await;
    end(&world, throughline, began).await;
}

/// The carrier stops, a connector goes offline, and the two questions of whoever is on call are
/// asked: which one is stuck, and where.
async fn stuck(world: &World, fleet: &Fleet, throughline: &Throughline) {
    let (namespace, name) = fleet.key(2);
    let connector = format!("{namespace}/{name}");
    say(&format!(
        "the carrier stops, and {connector} goes offline: what does the person on call see?"
    ));
    world.carrier().stuck(true);
    fleet.flip(2).await.unwrap();
    eventually("it is told as stuck", SOON, async || {
        let stuck = |phase: &Value| phase["stalled"] == 1;
        let state = throughline.state().await;
        ensure(stuck(&state["phases"]), || state["phases"].to_string())
    })
    .await;
    let state = format!("http://{}", throughline.admin());
    ask(&["status", "--state", &state]);
    ask(&["trace", "connector", &connector, "--state", &state]);
    say("the carrier goes on");
    world.carrier().stuck(false);
    oracle::converges(world).await;
    tokio::time::sleep(PAUSE).await;
    ask(&["trace", "connector", &connector, "--state", &state]);
    say("and the morning after, from the event log");
    ask(&["replay", "--connector", &connector, &throughline.event_log().display().to_string()]);
}

/// Runs throughline once more, as a person would, and shows what it prints.
fn ask(args: &[&str]) {
    println!("\n$ throughline {}", args.join(" "));
    Command::new(binary()).args(args).status().unwrap();
}

/// Lets something happen upstream, and waits until every gateway says so.
async fn act(world: &World, change: impl AsyncFnOnce()) {
    let (began, before) = (Instant::now(), world.writes().len());
    change().await;
    oracle::converges(world).await;
    let took = began.elapsed().as_millis();
    // The last lines of the log may still be on their way.
    tokio::time::sleep(PAUSE).await;
    let writes = world.writes().len() - before;
    println!("   every gateway announces it, {took} ms after upstream was told; {writes} writes");
}

async fn end(world: &World, throughline: Throughline, began: Instant) {
    oracle::converged(world).await.unwrap();
    oracle::no_needless_write(world).unwrap();
    let writes = world.writes().len();
    say("SIGTERM");
    throughline.stop().await;
    say(&format!(
        "it ended with exit code 0; {writes} writes, none of them needless; its event log verifies: \
         decided again, every action is the same ({:.0} s in all)",
        began.elapsed().as_secs_f64()
    ));
}
