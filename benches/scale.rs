//! The machine's time for an event and memory for a connector, from 1,000 to 100,000 connectors; and the
//! memory after 100,000 clusters that joined and left.
//!
//! `cargo bench --bench scale`; `-- sizes` and `-- churn` run one part. Each size runs in a process of its
//! own, so that its memory can be measured.

#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::cell::{Cell, RefCell};
use std::io::Cursor;
use std::time::Instant;

use throughline::core::contract::event::{ClusterSpec, Event, EventKind, Outcome};
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
        let outcome = Outcome::Applied { resource_version: None };
        let kind = EventKind::ActionFinished { id, outcome };
        machine.handle_event(&Event { at: event.at, kind });
    }
    while machine.poll_note().is_some() {}
    while machine.poll_answers().is_some() {}
    actions
}

/// The events of a fleet: its lists, and then changes as they appear upstream, at the hub and at the
/// edge, in ten rounds. They contain no writes of the machine: the platform mirrors every change, and
/// the machine announces it.
fn lists(connectors: usize) -> impl Iterator<Item = Event> {
    support::settled(connectors, START_MS).flat_map(|line| parse(&line))
}

fn rounds(connectors: usize) -> impl Iterator<Item = Vec<Event>> {
    let a_round = EVENTS / 10 / 3;
    (0..10).map(move |round| {
        let changes = round * a_round..(round + 1) * a_round;
        let at = |i: usize| START_MS + 60_000 + i as u64 * 20;
        let lines = changes.flat_map(|i| support::change(connectors, i, at(i)));
        let mut events: Vec<Event> = lines.flat_map(|line| parse(&line)).collect();
        events.sort_by_key(|e| e.at);
        events
    })
}

fn clusters() -> Vec<ClusterSpec> {
    let header = format!("{}\n", support::HEADER);
    let reader = LogReader::new("fleet", Cursor::new(header)).expect("a header");
    reader.header().clusters.clone()
}

/// Feeds a fleet's lists and changes. Prints the median and the best round and the mean of the lists,
/// in nanoseconds for each event, and the memory after the lists, in megabytes.
fn measure(connectors: usize, mut take: impl FnMut(&Event), mut listed: impl FnMut()) {
    let before = resident_bytes();
    let (mut listed_ns, mut count) = (0, 0);
    for event in lists(connectors) {
        let started = Instant::now();
        take(&event);
        listed_ns += started.elapsed().as_nanos();
        count += 1;
    }
    let state = resident_bytes().saturating_sub(before);
    listed();
    let mut took: Vec<f64> = Vec::new();
    for events in rounds(connectors) {
        let started = Instant::now();
        events.iter().for_each(&mut take);
        took.push(started.elapsed().as_nanos() as f64 / events.len() as f64);
    }
    took.sort_by(f64::total_cmp);
    let (median, best) = (took[took.len() / 2], took[0]);
    let listed = listed_ns as f64 / f64::from(count);
    println!("{median:.0} {best:.0} {listed:.0} {:.1}", state as f64 / 1e6);
}

/// A leader that follows these clusters.
fn machine_with(clusters: Vec<ClusterSpec>) -> Machine {
    let mut machine = Machine::new(Settings::default());
    let at = UnixMillis(START_MS);
    for cluster in clusters {
        machine.handle_event(&Event { at, kind: cluster.added() });
    }
    machine.handle_event(&Event { at, kind: EventKind::LeadershipAcquired });
    machine
}

fn measure_machine(connectors: usize) {
    let machine = RefCell::new(machine_with(clusters()));
    let actions = Cell::new(0);
    measure(
        connectors,
        |event| actions.set(actions.get() + drive(&mut machine.borrow_mut(), event)),
        || assert_eq!(actions.get(), 0, "a settled fleet needs no action"),
    );
    assert!(actions.get() > 0, "changes need actions");
}

fn parse(lines: &str) -> Vec<Event> {
    let text = format!("{}\n{lines}\n", support::HEADER);
    let mut reader = LogReader::new("fleet", Cursor::new(text)).expect("a header");
    let mut events = Vec::new();
    while let Some(line) = reader.next_line().expect("a line") {
        if let LogEntry::Event(event) = line {
            events.push(event);
        }
    }
    events
}

/// An upstream joins, lists show its ten connectors in all tiers and no earlier ones, and it leaves.
fn visit(n: usize) -> Vec<Event> {
    let at = START_MS + n as u64 * 1_000;
    let about = |event: &str, field: &str| {
        format!(r#"{{"at_ms":{at},"event":"{event}","cluster":"project-a"{field}}}"#)
    };
    let mut lines = vec![about("cluster_added", r#","roles":["upstream"]"#)];
    lines.extend(support::settled(10, at));
    lines.push(about("cluster_removed", ""));
    let named = lines.join("\n").replace("project-a", &format!("project-a{n}"));
    parse(&named.replace(&support::uid(0), &support::uid(n)))
}

/// Clusters join and leave, one after the other, each under a name of its own: resident memory after
/// the first thousand and after a hundred thousand.
fn measure_churn() {
    let mut clusters = clusters();
    clusters.retain(|cluster| cluster.name.as_str() != "project-a");
    let mut machine = machine_with(clusters);
    let start = resident_bytes();
    let started = Instant::now();
    println!("joins and leaves  resident MB  against 1,000  against the start MB");
    let mut first = None;
    for n in 1..=100_000 {
        visit(n).iter().for_each(|event| _ = drive(&mut machine, event));
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
    println!("10 connectors each; {:.1} s in all", started.elapsed().as_secs_f64());
}

fn main() {
    if let Ok(connectors) = std::env::var("THROUGHLINE_BENCH_CONNECTORS") {
        let connectors = connectors.parse().expect("a number");
        return measure_machine(connectors);
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

/// What another process of this program measures: median, best, lists, memory.
fn measured(connectors: usize) -> [f64; 4] {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.env("THROUGHLINE_BENCH_CONNECTORS", connectors.to_string());
    let out = command.output().expect("a run");
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let numbers: Vec<f64> = text.split(' ').filter_map(|n| n.parse().ok()).collect();
    numbers.try_into().expect("four numbers")
}

fn measure_sizes() {
    println!(
        "connectors  ns/event (median, best of 10 rounds)  ns/listed object  state MB  against 1,000"
    );
    let mut first = None;
    for connectors in [1_000_usize, 10_000, 100_000] {
        let [median, best, listed, state] = measured(connectors);
        let base = *first.get_or_insert(median);
        println!(
            "{connectors:>10}  {median:>12.0} {best:>8.0} {listed:>34.0} {state:>9.1}  {:>12.2}x",
            median / base
        );
    }
}
