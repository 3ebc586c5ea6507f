//! How fast a log is read, run and reported, against serde_json alone parsing the same lines into
//! typed objects: same machine, same run, in turn.
//!
//! `cargo bench --bench replay`

#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::time::Instant;

use serde::Deserialize;
use throughline::core::objects::{Object, Wire};
use throughline::event_log::{Reader, holds_outcomes};
use throughline::replay::{self, Mode, Options};
use throughline::report;

const START_MS: u64 = 1_795_252_772_000;
const ROUNDS: usize = 5;

/// A line, for serde_json alone.
#[derive(Deserialize)]
struct Typed<'a> {
    at_ms: u64,
    event: &'a str,
    cluster: &'a str,
    object: Option<Wire>,
}

fn parse_only(path: &std::path::Path) -> usize {
    let mut input =
        BufReader::with_capacity(256 * 1024, std::fs::File::open(path).expect("the log"));
    let mut line = String::new();
    let mut objects = 0;
    input.read_line(&mut line).expect("the header");
    loop {
        line.clear();
        if input.read_line(&mut line).expect("a line") == 0 {
            return objects;
        }
        let typed: Typed<'_> = serde_json::from_str(&line).expect("typed");
        assert!(typed.at_ms > 0 && !typed.event.is_empty() && !typed.cluster.is_empty());
        let object = typed.object.map(|wire| Object::try_from(wire).expect("an object"));
        objects += usize::from(std::hint::black_box(object).is_some());
    }
}

fn replay(path: &std::path::Path, json: bool) -> usize {
    let name = path.to_str().expect("a path");
    let outcomes = holds_outcomes(name).expect("the log").expect("a file");
    let mode = if outcomes { Mode::Verify } else { Mode::WhatIf };
    let mut reader = Reader::open(name).expect("the log");
    let options = Options { mode: Some(mode), ..Options::default() };
    let log: Option<Vec<u8>> = None;
    let replay =
        replay::replay(&mut reader, name, |_| Ok(()), &options, log, |_| {}).expect("a replay");
    assert!(replay.verdict.good, "{:?}", replay.verdict.problems);
    let out = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("/dev/null");
    let mut out = BufWriter::new(out);
    let options = report::Options { color: false, width: 100, connector: None };
    let write = if json { report::json } else { report::text };
    write(&replay, &options, &mut out).expect("a report");
    replay.actions.len()
}

/// Where the time of a replay goes, for whoever wants to make it faster.
fn breakdown(path: &std::path::Path) {
    use throughline::core::event::{Event, Happened};
    use throughline::core::machine::Machine;
    use throughline::core::settings::Settings;
    use throughline::core::time::UnixMillis;
    use throughline::event_log::Line;
    use throughline::outage::Outages;
    let name = path.to_str().expect("a path");
    let open = || Reader::open(name).expect("the log");
    let started = Instant::now();
    let mut reader = open();
    while reader.next_line().expect("a line").is_some() {}
    let read = started.elapsed();
    let mut machine = Machine::new(Settings::default());
    let mut reader = open();
    for c in reader.header().clusters.clone() {
        machine.handle_event(&Event {
            at: UnixMillis(0),
            what: Happened::ClusterAdded { cluster: c.name, roles: c.roles },
        });
    }
    let started = Instant::now();
    while let Some(line) = reader.next_line().expect("a line") {
        if let Line::Event(event) = line {
            machine.handle_event(&event);
            while machine.poll_action().is_some() {}
            while machine.poll_note().is_some() {}
        }
    }
    let machine = started.elapsed();
    let mut reader = open();
    let mut outages = Outages::new(&reader.header().clusters.clone(), &Settings::default(), true);
    let started = Instant::now();
    while let Some(line) = reader.next_line().expect("a line") {
        if let Line::Event(event) = line {
            outages.observe(&event);
        }
    }
    println!("  read {read:?}, read+machine {machine:?}, read+outages {:?}", started.elapsed());
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    println!(
        "log                              lines   MB   parse only   replay+text  ratio   replay+json  ratio"
    );
    for (name, connectors, changes) in [
        ("500 connectors, 30,000 changes", 500, 30_000),
        ("20,000 connectors at rest", 20_000, 100),
    ] {
        let path =
            std::env::temp_dir().join(format!("throughline-bench-{}.jsonl", std::process::id()));
        let mut lines: Vec<String> = Vec::new();
        for i in 0..changes {
            lines.extend(support::change(connectors, i, START_MS + 60_000 + i as u64 * 50));
        }
        lines.sort_by_key(|l| l[9..22].parse::<u64>().expect("at_ms"));
        {
            let mut file = BufWriter::new(std::fs::File::create(&path).expect("a file"));
            writeln!(file, "{}", support::HEADER).expect("written");
            for line in support::settled(connectors, START_MS).chain(lines.iter().cloned()) {
                writeln!(file, "{line}").expect("written");
            }
            file.flush().expect("written");
        }
        let mb = std::fs::metadata(&path).expect("the log").len() as f64 / 1e6;
        let (mut alone, mut text, mut json) = (Vec::new(), Vec::new(), Vec::new());
        let (mut count, mut actions) = (0, 0);
        for _ in 0..ROUNDS {
            let mut timed = |into: &mut Vec<f64>, run: &mut dyn FnMut()| {
                let started = Instant::now();
                run();
                into.push(started.elapsed().as_secs_f64());
            };
            timed(&mut alone, &mut || count = parse_only(&path));
            timed(&mut text, &mut || actions = replay(&path, false));
            timed(&mut json, &mut || actions = replay(&path, true));
        }
        breakdown(&path);
        if std::env::var_os("KEEP").is_some() {
            std::fs::copy(&path, format!("/tmp/bench-{connectors}.jsonl")).expect("copied");
        }
        let _ = std::fs::remove_file(&path);
        let (alone, text, json) = (median(alone), median(text), median(json));
        println!(
            "{name:<32}{count:>6} {mb:>5.0} {:>9.0} ms {:>10.0} ms  {:>4.2} {:>10.0} ms  {:>4.2}   ({actions} actions)",
            alone * 1e3,
            text * 1e3,
            alone / text,
            json * 1e3,
            alone / json
        );
    }
    println!(
        "ratio: speed of the replay (read, run in memory, report) against parsing alone; medians of {ROUNDS}"
    );
}
