//! Event logs through two cores: today's and the new one must make the same of every line.
//!
//! It is a part of each test program that has logs or worlds for it, rather than a program: the
//! fixtures, the generated worlds and the simulation each need their own drivers. `crates/core` has
//! none of these, but its rule tests drive a [`Twin`], too.
//!
//! `TWO_CORES=actions` in the environment compares the cores wherever a property or a rule test
//! drives one; `TWO_CORES=delete` compares deletes alone.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::BufRead;
use std::path::PathBuf;
use std::thread;

use throughline::core::contract::event::{ClusterSpec, Event, EventKind};
use throughline::core::contract::settings::Settings;
use throughline::core::data::time::UnixMillis;
use throughline::core::status::trigger::NodeIds;
use throughline::event_log::{Header, LogEntry, LogReader, LogWriter};

#[path = "../../crates/core/tests/support/twin.rs"]
mod twin;

pub(crate) use twin::*;

/// After the last line of a log, as far as something is due.
const RUN_ON_MS: u64 = 20 * 60 * 1_000;

/// What two cores made of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) logs: usize,
    pub(crate) events: usize,
    pub(crate) actions: usize,
    /// Deadlines of the new core at which today's had none.
    pub(crate) wakeups: usize,
}

impl std::ops::AddAssign for Compared {
    fn add_assign(&mut self, other: Self) {
        self.logs += other.logs;
        self.events += other.events;
        self.actions += other.actions;
        self.wakeups += other.wakeups;
    }
}

/// Feeds a log to two cores, and returns what differs: its first difference, in words.
pub(crate) fn compare<R: BufRead>(
    name: &str,
    reader: &mut LogReader<R>,
    change: impl Fn(&mut Settings),
    (start, scope): (Start, Scope),
) -> Result<Compared, Differs> {
    let header = reader.header().clone();
    let mut settings = header.settings.clone().unwrap_or_default();
    change(&mut settings);
    let mut twin = Twin::following(settings, header.node_ids(), start, Some(scope));

    let (mut is_first, mut now) = (true, UnixMillis(0));
    let mut feed = |twin: &mut Twin, event: &Event| {
        if std::mem::take(&mut is_first) {
            for cluster in &header.clusters {
                twin.try_event(&Event { at: event.at, kind: cluster.added() })?;
            }
        }
        now = event.at;
        twin.try_event(event)
    };
    let mut fed = || -> Result<(), Box<Difference>> {
        while let Some(entry) = reader.next_line().unwrap() {
            if let LogEntry::Event(event) = entry {
                feed(&mut twin, &event)?;
            }
        }
        Ok(())
    };
    let found = fed();
    let found = found.and_then(|()| twin.run_on(now, RUN_ON_MS));
    let follower = twin.follower().unwrap();
    let compared = Compared {
        logs: 1,
        events: twin.history().events.len(),
        actions: follower.compared,
        wakeups: follower.wakeups,
    };
    found.map(|()| compared).map_err(|difference| {
        let text = format!("{name}: {difference}{}", keep_as(name, twin.history()));
        Differs { topic: difference.found.topic(), text }
    })
}

/// How a log differs.
pub(crate) struct Differs {
    /// Without names and times, to count them.
    pub(crate) topic: String,
    pub(crate) text: String,
}

/// Writes what happened into an event log, and says where.
pub(crate) fn keep(history: &History) -> String {
    // Proptest looks for smaller cases: the last of them is the smallest.
    keep_as(thread::current().name().unwrap_or("world"), history)
}

fn keep_as(name: &str, history: &History) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("two-cores");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.jsonl", name.replace(['/', ' ', ':'], "-")));
    let (log, last) = log_of(history);
    fs::write(&path, &log).unwrap();
    let (path, line) = (path.display(), String::from_utf8_lossy(&last));
    let again = format!("TWO_CORES_LOG={path} cargo test --test logs two_cores");
    format!("  the event: {line}  the log: {path}\n  to repeat it: {again}\n")
}

/// The events, and the actions that today's core makes of them; and the line of the last event.
fn log_of(history: &History) -> (Vec<u8>, Vec<u8>) {
    let History { settings, node_ids, events } = history;
    let added = events.iter().map_while(|event| match &event.kind {
        EventKind::ClusterAdded { cluster, roles } => {
            Some(ClusterSpec { name: cluster.clone(), roles: roles.clone() })
        }
        _ => None,
    });
    let header = Header {
        clusters: added.collect(),
        settings: Some(settings.clone()),
        redacted: Some(*node_ids == NodeIds::Redacted),
        ..Header::default()
    };
    let mut log = LogWriter::new(Vec::new(), &header).unwrap();
    let mut core = todays_core(settings, *node_ids);
    let mut last = Vec::new();
    let first = events.iter().take(header.clusters.len());
    first.for_each(|event| core.handle_event(event));
    for event in events.iter().skip(header.clusters.len()) {
        let before = log.sink_mut().len();
        log.event(event).unwrap();
        log.flush().unwrap();
        last = log.sink_mut()[before..].to_vec();
        core.handle_event(event);
        while let Some(decision) = core.poll_action() {
            log.action(&decision).unwrap();
        }
    }
    (log.into_inner(), last)
}

/// Prints all that differs: of each kind how many logs, and the first of them.
pub(crate) fn assert_none(compared: Compared, differences: &[Differs]) {
    println!("{compared:?}");
    let mut topics = std::collections::BTreeMap::<&str, Vec<&Differs>>::new();
    for differs in differences {
        topics.entry(&differs.topic).or_default().push(differs);
    }
    for (topic, of_it) in &topics {
        println!("\n{} × {topic}\n{}", of_it.len(), of_it[0].text);
    }
    assert!(differences.is_empty(), "{} logs differ", differences.len());
}
