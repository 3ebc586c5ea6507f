//! Measures how fast a log is read, replayed and reported, compared with serde_json parsing the same
//! lines into typed objects; both alternate in one run.
//!
//! `cargo bench --bench replay`

#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Deserialize;
use throughline::core::contract::action::Action;
use throughline::core::data::objects::{Object, WireObject};
use throughline::event_log::{LogReader, holds_outcomes};
use throughline::replay::{self, ReplayMode, ReplayOptions};
use throughline::report;

const START_MS: u64 = 1_795_252_772_000;
const ROUNDS: usize = 5;

/// A line as serde_json parses it.
#[derive(Deserialize)]
struct Typed<'a> {
    at_ms: u64,
    event: Option<&'a str>,
    cluster: Option<&'a str>,
    object: Option<WireObject>,
    action: Option<Action>,
}

/// Parses every line; returns the number of lines.
fn parse_only(path: &Path) -> usize {
    let mut input = BufReader::with_capacity(256 * 1024, File::open(path).expect("the log"));
    let mut line = String::new();
    input.read_line(&mut line).expect("the header");
    let mut lines = 0;
    loop {
        line.clear();
        if input.read_line(&mut line).expect("a line") == 0 {
            return lines;
        }
        let typed: Typed<'_> = serde_json::from_str(&line).expect("typed");
        assert!(typed.at_ms > 0 && (typed.event.is_some() || typed.action.is_some()));
        let object = typed.object.map(|wire| Object::try_from(wire).expect("an object"));
        std::hint::black_box((typed.cluster, object));
        lines += 1;
    }
}

/// Replays as the command does; returns the number of actions.
fn replay(path: &Path, to: Option<&Path>) -> usize {
    let name = path.to_str().expect("a path");
    let outcomes = holds_outcomes(name).expect("the log").expect("a file");
    let mode = if outcomes { ReplayMode::Verify } else { ReplayMode::WhatIf };
    let mut reader = LogReader::open(name).expect("the log");
    let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
    let mut log = to.map(|path| BufWriter::new(File::create(path).expect("a log")));
    let log = log.as_mut().map(|log| log as &mut dyn Write);
    let replay =
        replay::replay(&mut reader, name, |_| Ok(()), &options, log, |_| {}).expect("a replay");
    assert!(replay.is_good(), "{:?}", replay.problems);
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("/dev/null");
    let options = report::ReportOptions { color: false, width: 100, connector: None };
    report::text(&replay, &options, &mut BufWriter::new(null)).expect("a report");
    replay.actions.len()
}

fn seconds(run: impl FnOnce() -> usize) -> (f64, usize) {
    let started = Instant::now();
    let count = run();
    (started.elapsed().as_secs_f64(), count)
}

fn compare(name: &str, path: &Path) {
    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    let (mut lines, mut actions) = (0, 0);
    for _ in 0..ROUNDS {
        let (parse, count) = seconds(|| parse_only(path));
        let (run, acted) = seconds(|| replay(path, None));
        (lines, actions) = (count, acted);
        alone.push(parse);
        whole.push(run);
    }
    alone.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    let (alone, whole) = (alone[ROUNDS / 2], whole[ROUNDS / 2]);
    let mb = std::fs::metadata(path).expect("the log").len() as f64 / 1e6;
    println!(
        "{name:<42} {lines:>7} {mb:>5.0} {actions:>8} {:>7.0} ms {:>7.0} ms {:>6.2}",
        alone * 1e3,
        whole * 1e3,
        alone / whole
    );
}

fn write_log(connectors: usize, changes: usize) -> PathBuf {
    let path = std::env::temp_dir().join(format!("throughline-bench-{}.jsonl", std::process::id()));
    let at = |i: usize| START_MS + 60_000 + i as u64 * 50;
    let mut lines: Vec<(u64, String)> = (0..changes)
        .flat_map(|i| support::change(connectors, i, at(i)))
        .map(|line| (line[9..22].parse().expect("at_ms"), line))
        .collect();
    lines.sort_by_key(|(at, _)| *at);
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    writeln!(file, "{}", support::HEADER).expect("written");
    for line in support::settled(connectors, START_MS).chain(lines.into_iter().map(|(_, l)| l)) {
        writeln!(file, "{line}").expect("written");
    }
    file.flush().expect("written");
    path
}

fn main() {
    println!(
        "{:<42} {:>7} {:>5} {:>8} {:>10} {:>10} {:>6}",
        "log", "lines", "MB", "actions", "parse only", "replay", "ratio"
    );
    for (connectors, changes) in [(500, 30_000), (20_000, 100)] {
        let path = write_log(connectors, changes);
        let name = format!("{connectors} connectors, {changes} changes");
        compare(&format!("{name}: what-if"), &path);
        let acted = path.with_extension("acted.jsonl");
        replay(&path, Some(&acted));
        compare(&format!("{name}: verify"), &acted);
        for path in [path, acted] {
            let _ = std::fs::remove_file(path);
        }
    }
    println!("ratio: parsing time divided by replay time (medians of {ROUNDS} rounds)");
}
