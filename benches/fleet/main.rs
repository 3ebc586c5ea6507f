//! Measures a fleet of project control planes behind one Milo: `make bench-fleet`.
//!
//! The control planes, hub and edge are simulated and served by another process, over TLS and with
//! HTTP/2, 100 streams a connection. throughline is the release binary with a configuration file.
//!
//! `FLEET_PROJECTS=N` sets the number of projects, `QUICK=1` measures briefly. With `FLEET_COLD_MS=N`, each
//! resource of a control plane answers 429 for that long after it was first asked for, as on a real Milo.
//! `-- configured` measures the same projects as configured clusters over HTTP/1.1 instead, for
//! comparison; `-- shards` measures four shards of them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a bench may panic")]
#![allow(clippy::duplicate_mod, reason = "the tests' proxy has a copy of its own")]

#[path = "../../crates/sim/tests/support/certificate.rs"]
mod certificate;
#[path = "../../tests/support/cluster/mod.rs"]
mod cluster;
mod control;
mod objects;
#[path = "../live/proc.rs"]
mod proc;
mod run;
mod server;
mod shards;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "only the statuses are used")]
mod support;

use std::time::Duration;

use control::{FleetSize, Latencies, Order};
use run::{Flips, Join, Run};

const CONNECTORS_EACH: usize = 5;

/// The fleet to compare flips with.
const FEW_PROJECTS: usize = 10;

const FLIPS_PER_SECOND: u32 = 50;

struct Plan {
    projects: usize,
    flip_seconds: u64,
    rest: Duration,
    new_projects: usize,
    /// Milo is away for this long.
    down: Duration,
    /// As [`FleetSize::cold_ms`].
    cold_ms: u64,
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [serve, size] = &*args
        && serve == "serve"
    {
        return server::serve(serde_json::from_str(size).unwrap());
    }
    let quick = std::env::var_os("QUICK").is_some();
    let projects = number_of("FLEET_PROJECTS");
    let plan = Plan {
        projects: projects.unwrap_or(if quick { 200 } else { 2_000 }),
        flip_seconds: if quick { 6 } else { 40 },
        rest: Duration::from_secs(if quick { 5 } else { 30 }),
        new_projects: if quick { 3 } else { 20 },
        down: Duration::from_secs(if quick { 3 } else { 10 }),
        cold_ms: number_of("FLEET_COLD_MS").unwrap_or(0) as u64,
    };
    let is_asked = |what: &str| args.iter().any(|arg| arg == what);
    let (is_configured, is_sharded) = (is_asked("configured"), is_asked("shards"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let n = plan.projects;
        println!("{n} projects, {CONNECTORS_EACH} connectors each; one hub, one edge\n");
        println!("| | aim | measured |\n|---|---|---|");
        if is_sharded {
            return shards::measure(&plan, size_of(&plan, false)).await;
        }
        let many = fleet(&plan, is_configured).await;
        if !is_configured {
            few(&plan, &many).await;
        }
    });
}

fn number_of(variable: &str) -> Option<usize> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}

fn row(what: &str, aim: &str, measured: &str) {
    println!("| {what} | {aim} | {measured} |");
}

fn size_of(plan: &Plan, is_configured: bool) -> FleetSize {
    FleetSize {
        projects: plan.projects,
        connectors_each: CONNECTORS_EACH,
        idle: 0,
        http2: !is_configured,
        cold_ms: plan.cold_ms,
    }
}

/// All projects with their connectors.
async fn fleet(plan: &Plan, is_configured: bool) -> Flips {
    let size = size_of(plan, is_configured);
    let join = if is_configured { Join::Configured } else { Join::Needed };
    let mut run = Run::start(size, join).await;
    let started = run.until_followed(plan.projects).await;
    let rest = run.rest(plan.rest).await;
    let load = run.serving.load();
    row(
        "start until every project is followed; writes from then on, at rest",
        "< 15 s; 0",
        &format!("{:.1} s; {}", started.as_secs_f64(), rest.writes),
    );
    row("resident memory at rest", "< 150 MB", &format!("{:.1} MB", rest.resident_mb));
    row(
        "connections to Milo's host; at most",
        "≤ 70",
        &format!("{}; {}", load.connections, load.connections_max),
    );
    row("requests to Milo at a time, at most", "", &load.requests_max.to_string());
    row("CPU at rest", "< 1 %", &format!("{:.1} %", rest.cpu_percent));
    let flips = run.flips(FLIPS_PER_SECOND, plan.flip_seconds);
    row(
        "flips of 50/s: median, p99, not arrived; CPU, that of the server",
        "",
        &flip_times(&flips),
    );
    row("resident memory after the flips", "", &format!("{:.1} MB", run.resident_mb()));
    if !is_configured {
        let new: Latencies = run.serving.order(&Order::NewProjects(plan.new_projects));
        row("a new project → its first mirror: median, most", "< 1 s", &new_times(&new));
    }
    let followed = plan.projects + if is_configured { 0 } else { plan.new_projects };
    let back = run.restart_milo(plan.down, followed).await;
    row(
        "Milo restarted: until all watches are followed; time-outs",
        "< 20 s; 0",
        &format!("{:.1} s; {}", back.took.as_secs_f64(), back.timeouts),
    );
    let load = run.serving.load();
    row("requests to projects that do not exist", "0", &load.unknown.to_string());
    row("resident memory at the end", "", &format!("{:.1} MB", run.resident_mb()));
    run.stop().await;
    flips
}

/// The same connectors in a few projects, alone and beside idle projects.
async fn few(plan: &Plan, many: &Flips) {
    let connectors_each = plan.projects * CONNECTORS_EACH / FEW_PROJECTS;
    let cold_ms = plan.cold_ms;
    let alone =
        FleetSize { projects: FEW_PROJECTS, connectors_each, idle: 0, http2: true, cold_ms };
    let idle = plan.projects - FEW_PROJECTS;
    let mut memory = Vec::new();
    for (size, join) in [
        (alone, Join::All),
        (FleetSize { idle, ..alone }, Join::All),
        (FleetSize { idle, ..alone }, Join::Needed),
    ] {
        let mut run = Run::start(size, join).await;
        let followed = size.projects + if join == Join::All { size.idle } else { 0 };
        run.until_followed(followed).await;
        let rest = run.rest(plan.rest).await;
        memory.push(rest.resident_mb);
        if size.idle == 0 {
            let flips = run.flips(FLIPS_PER_SECOND, plan.flip_seconds);
            row("flips of 50/s in 10 projects with as many connectors", "", &flip_times(&flips));
            let ratio = |q| many.latencies.quantile_ms(q) / flips.latencies.quantile_ms(q);
            let ratios = format!("{:.2}×, {:.2}×", ratio(0.5), ratio(0.99));
            row("all projects against 10: median, p99", "≤ 1.3×", &ratios);
        }
        run.stop().await;
    }
    let each = |mb: f64| format!("{:.1} kB", (mb - memory[0]) * 1e3 / idle as f64);
    row("resident memory with 10 projects", "", &format!("{:.1} MB", memory[0]));
    row("of it per idle project that is joined", "< 40 kB", &each(memory[1]));
    row("of it per idle project that is not joined", "", &each(memory[2]));
}

fn flip_times(flips: &Flips) -> String {
    let Flips { latencies, cpu_percent, server_cpu_percent } = flips;
    let (median, p99) = (latencies.quantile_ms(0.5), latencies.quantile_ms(0.99));
    let missing = latencies.missing;
    format!("{median:.1} ms, {p99:.1} ms, {missing}; {cpu_percent:.1} %, {server_cpu_percent:.1} %")
}

fn new_times(new: &Latencies) -> String {
    let missing = match new.missing {
        0 => String::new(),
        missing => format!("; {missing} never"),
    };
    format!("{:.0} ms, {:.0} ms{missing}", new.quantile_ms(0.5), new.quantile_ms(1.0))
}
