//! The time for an event and the memory for a connector, from 1,000 to 100,000 connectors; and the memory
//! after 100,000 clusters that joined and left.
//!
//! `cargo bench --bench scale`; `-- sizes` and `-- churn` run one part. Each size runs in a process of its
//! own, so that its memory can be measured.

#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "support/churn.rs"]
mod churn;
mod support;

use std::io::Cursor;
use std::time::Instant;

use churn::CONNECTORS;
use throughline::core::contract::event::{Event, EventKind, Outcome};
use throughline::core::contract::settings::Settings;
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;
use throughline::event_log::{LogEntry, LogReader};

const START_MS: u64 = 1_795_252_772_000;
const EVENTS: usize = 30_000;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Feeds one event to the machine and answers its actions at once; returns their number.
fn drive(machine: &mut Machine, event: &Event) -> usize {
    machine.handle_event(event);
    let mut actions = 0;
    while let Some(decision) = machine.poll_action() {
        actions += 1;
        let id = decision.action.id;
        let outcome = Outcome::Applied { resource_version: None, deleted: None };
        let kind = EventKind::ActionFinished { id, outcome };
        machine.handle_event(&Event { at: event.at, kind });
    }
    while machine.poll_note().is_some() {}
    actions
}

fn measure(connectors: usize) {
    let mut machine = Machine::new(Settings::default());
    let at = UnixMillis(START_MS);
    let before = resident_bytes();
    let mut listed_ns = 0;
    let mut listed = 0;
    let reader =
        LogReader::new("fleet", Cursor::new(format!("{}\n", support::HEADER))).expect("a header");
    for cluster in reader.header().clusters.clone() {
        let kind = EventKind::ClusterAdded { cluster: cluster.name, roles: cluster.roles };
        machine.handle_event(&Event { at, kind });
    }
    machine.handle_event(&Event { at, kind: EventKind::LeadershipAcquired });
    for line in support::settled(connectors, START_MS) {
        for event in parse(&line) {
            let started = Instant::now();
            machine.handle_event(&event);
            listed_ns += started.elapsed().as_nanos();
            listed += 1;
        }
    }
    let state = resident_bytes().saturating_sub(before);
    assert!(machine.poll_action().is_none(), "a settled fleet needs no action");
    while machine.poll_note().is_some() {}
    // The events contain no writes of the machine: the platform mirrors every change, and the machine
    // announces it.
    let mut rounds: Vec<f64> = Vec::new();
    let mut actions = 0;
    let chunk = EVENTS / 10;
    let mut i = 0;
    for _ in 0..10 {
        let mut events = Vec::new();
        for _ in 0..chunk / 3 {
            for line in support::change(connectors, i, START_MS + 60_000 + i as u64 * 20) {
                events.extend(parse(&line));
            }
            i += 1;
        }
        events.sort_by_key(|e| e.at);
        let started = Instant::now();
        for event in &events {
            actions += drive(&mut machine, event);
        }
        rounds.push(started.elapsed().as_nanos() as f64 / events.len() as f64);
    }
    rounds.sort_by(f64::total_cmp);
    println!(
        "{connectors} {:.0} {:.0} {:.0} {:.1} {actions}",
        rounds[rounds.len() / 2],
        rounds[0],
        listed_ns as f64 / f64::from(listed),
        state as f64 / 1e6
    );
}

fn parse(line: &str) -> Vec<Event> {
    let text = format!("{}\n{line}\n", support::HEADER);
    let mut reader = LogReader::new("fleet", Cursor::new(text)).expect("a header");
    let mut events = Vec::new();
    while let Some(line) = reader.next_line().expect("a line") {
        if let LogEntry::Event(event) = line {
            events.push(event);
        }
    }
    events
}

/// Clusters join and leave, one after the other, each under a name of its own: resident memory after
/// the first thousand and after a hundred thousand.
fn measure_churn() {
    let mut fleet = churn::Churn::new(Machine::new(Settings::default()));
    let start = resident_bytes();
    let started = Instant::now();
    println!("joins and leaves  resident MB  against 1,000  against the start MB");
    let mut first = None;
    for n in 1..=100_000_u32 {
        fleet.join_and_leave();
        if matches!(n, 1_000 | 10_000 | 100_000) {
            let resident = resident_bytes();
            let first = *first.get_or_insert(resident);
            println!(
                "{n:>16}  {:>11.2}  {:>12.3}x  {:>20.2}",
                resident as f64 / 1e6,
                resident as f64 / first as f64,
                (resident as f64 - start as f64) / 1e6
            );
        }
    }
    println!("{CONNECTORS} Connectors each; {:.1} s in all", started.elapsed().as_secs_f64());
}

fn main() {
    if let Ok(connectors) = std::env::var("THROUGHLINE_BENCH_CONNECTORS") {
        measure(connectors.parse().expect("a number"));
        return;
    }
    let part = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let runs = |name: &str| part.as_ref().is_none_or(|part| part == name);
    // Before this process holds anything else.
    if runs("churn") {
        measure_churn();
    }
    if runs("sizes") {
        measure_sizes();
    }
}

fn measure_sizes() {
    println!(
        "connectors  ns/event (median, best of 10 rounds)  ns/listed object  state MB  against 1,000"
    );
    let mut first = None;
    for connectors in [1_000_usize, 10_000, 100_000] {
        let out = std::process::Command::new(std::env::current_exe().expect("this program"))
            .env("THROUGHLINE_BENCH_CONNECTORS", connectors.to_string())
            .output()
            .expect("a run");
        let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let numbers: Vec<f64> = text.split(' ').filter_map(|n| n.parse().ok()).collect();
        let base = *first.get_or_insert(numbers[1]);
        println!(
            "{connectors:>10}  {:>12.0} {:>8.0} {:>34.0} {:>9.1}  {:>12.2}x",
            numbers[1],
            numbers[2],
            numbers[3],
            numbers[4],
            numbers[1] / base
        );
    }
}
