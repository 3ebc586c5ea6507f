//! The event log of a live run: rotated, restarted, replayed, and on full or slow disks.

mod export;
mod starts;

use std::fs::{self, File};
use std::io::{self, Cursor};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use throughline::config::{EventLogConfig, Size};
use throughline::core::contract::cause::Cause;
use throughline::core::contract::event::{ClusterSpec, Event, EventKind};
use throughline::core::contract::note::NoteKind;
use throughline::core::data::ids::{Kind, Role};
use throughline::core::data::time::UnixMillis;
use throughline::event_log::{Header, LogEntry, LogReader, holds_outcomes};
use throughline::live_log::LiveLog;
use throughline::metrics::Metrics;
use throughline::problems::Outside;
use throughline::replay::{Replay, ReplayMode};

use crate::fixtures;
use crate::read_log::{gzip, replayed};
use crate::reading::START_MS;
use crate::temp_folder::temp_folder;

const GRACE: Duration = Duration::from_secs(60);

/// A log of so many bytes in four parts.
fn config(file: &Path, size: u64) -> EventLogConfig {
    EventLogConfig { file: Some(file.to_owned()), size: Size(size), ..Default::default() }
}

fn start(config: &EventLogConfig, header: &Header) -> LiveLog {
    LiveLog::start(config, header, Arc::default(), Outside::default()).unwrap().unwrap()
}

/// Waits until the log is written.
fn finish(log: LiveLog) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(log.finish(GRACE));
}

fn header() -> Header {
    let cluster = ClusterSpec { name: "edge".into(), roles: vec![Role::Edge] };
    Header { clusters: vec![cluster], ..Header::default() }
}

/// The `number`-th of some events, of about so many bytes.
fn event(number: u64, bytes: usize) -> Event {
    let error = format!("{number} {}", "x".repeat(bytes)).into();
    let kind = EventKind::WatchLost { cluster: "edge".into(), kind: Kind::Gateway, error };
    Event { at: at(number), kind }
}

fn at(number: u64) -> UnixMillis {
    UnixMillis(START_MS + number)
}

/// Writes a log of these events.
fn write(config: &EventLogConfig, numbers: Range<u64>, bytes: usize) {
    let events: Vec<_> = numbers.map(|number| LogEntry::Event(event(number, bytes))).collect();
    write_lines(config, &header(), &events);
}

fn open(file: &Path) -> LogReader<'static> {
    LogReader::open(file.to_str().unwrap()).unwrap()
}

/// The numbers of the events.
fn numbers(log: LogReader<'_>) -> Vec<u64> {
    let number = |line| match line {
        LogEntry::Event(event) => event.at.since(at(0)),
        other => panic!("{other:?}"),
    };
    log.map(|line| number(line.unwrap())).collect()
}

fn times(file: &Path) -> Vec<u64> {
    numbers(open(file))
}

/// The file itself is part 0.
fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 0 { file.into() } else { format!("{}.{number}", file.display()).into() }
}

fn verified(file: &Path) -> Replay {
    replayed(LogReader::open(file.to_str().unwrap()), ReplayMode::Verify, |_| {}).0
}

/// The recorded incident with all actions and outcomes, as a live run would log it.
fn incident_log() -> (Header, Vec<LogEntry>) {
    let (_, log) = fixtures::replayed("incident-503", |_| {});
    let reader = LogReader::new("acted", log.as_bytes()).unwrap();
    (reader.header().clone(), reader.map(Result::unwrap).collect())
}

/// Writes a log of these lines.
fn write_lines(config: &EventLogConfig, header: &Header, lines: &[LogEntry]) {
    let mut log = start(config, header);
    for line in lines {
        match line {
            LogEntry::Event(event) => log.event(event),
            LogEntry::Action(decision) => log.action(decision),
            LogEntry::Retired => panic!("no event of this log is retired"),
        }
    }
    finish(log);
}

#[test]
fn a_rotated_log_replays_as_one() {
    let file = temp_folder("replays").join("run.7");
    let (header, lines) = incident_log();
    write_lines(&config(&file, 1 << 30), &header, &lines);
    let bytes = size(&file);
    fs::remove_file(&file).unwrap();
    write_lines(&config(&file, bytes + bytes / 4), &header, &lines);

    let parts = rotated(&file).0 + 1;
    for number in 0..parts {
        assert!(size(&numbered(&file, number)) <= (bytes + bytes / 4) / 4, "{number}");
    }
    assert_eq!(parts, 4);
    let (mut reader, mut count) = (open(&file), 0);
    assert_eq!(reader.header(), &Header { redacted: Some(true), ..header.clone() });
    assert_eq!(reader.files().count(), parts as usize);
    let mut progress = 0.0;
    while reader.next_line().unwrap().is_some() {
        count += 1;
        let now = reader.progress().unwrap();
        assert!(now >= progress, "{now} after {progress}");
        progress = now;
    }
    assert_eq!((count, progress), (lines.len(), 1.0));
    assert_eq!(reader.warnings(), []);
    let whole = verified(&file);
    assert_eq!(whole.problems, Vec::<String>::new());
    let actions = lines.iter().filter(|line| matches!(line, LogEntry::Action(_))).count();
    assert_eq!(whole.actions.len(), actions);

    // Reading an older part leaves out the later ones.
    assert_eq!(open(&numbered(&file, 2)).files().count(), parts as usize - 2);
    // The latest part alone may hold no outcome.
    let begin = fs::read_to_string(&file).unwrap().lines().next().unwrap().to_owned();
    fs::write(&file, &begin).unwrap();
    assert_eq!(holds_outcomes(file.to_str().unwrap()).unwrap(), Some(true));
    // It may be cut off right after its header.
    let cut = gzip(&begin);
    fs::write(&file, &cut[..cut.len() - 4]).unwrap();
    let warnings = verified(&file).warnings;
    assert!(warnings[0].contains("run.7:1: warning: the compressed stream is cut off"));

    fs::remove_file(numbered(&file, 3)).unwrap();
    let cut = verified(&file);
    assert!(!cut.is_good());
    let part = parts - 2;
    let place = format!("{}:1: this is part {part} of a rotated log", numbered(&file, 2).display());
    assert!(cut.problems[0].starts_with(&place), "{}", cut.problems[0]);
    assert!(cut.warnings[0].contains("run.7.3: "), "{}", cut.warnings[0]);
    assert!(cut.first_at >= whole.first_at, "a part may begin with an action");
    // A file of another log in its place is not part of it.
    fs::copy(numbered(&file, 1), numbered(&file, 3)).unwrap();
    assert!(verified(&file).problems[0].contains("belongs to another log"));
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// How many rotated files there are, and their size.
fn rotated(file: &Path) -> (u32, u64) {
    let files = (1..1_000).take_while(|n| numbered(file, *n).exists());
    files.fold((0, 0), |(n, bytes), number| (n + 1, bytes + size(&numbered(file, number))))
}

#[test]
fn the_oldest_parts_go_when_all_are_too_large_and_each_is_readable_by_its_owner_alone() {
    for (limit, expected) in [(4, 0), (20_000, 3), (40_000, 3), (100_000, 1)] {
        let file = temp_folder(&format!("kept-{limit}")).join("log");
        write(&config(&file, limit), 0..100, 300);
        let (files, bytes) = rotated(&file);
        assert!(bytes <= limit / 4 * 3 && size(&file) <= (limit / 4).max(1_000), "{bytes}");
        assert_eq!(files, expected);
        for number in 1..=files {
            let mode = fs::metadata(numbered(&file, number)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // The rest is the end of the log, without a gap.
        let times = times(&file);
        assert_eq!(times, (100 - times.len() as u64..100).collect::<Vec<_>>());
        let gaps = open(&file).warnings();
        if limit == 100_000 {
            assert_eq!((times.len(), gaps), (100, vec![]));
        } else {
            assert!(gaps[0].text.contains("reading starts here"));
        }
    }
}

#[test]
fn the_next_files_header_names_clusters_that_were_added_later() {
    let file = temp_folder("clusters").join("log");
    let mut log = start(&config(&file, 32_000), &header());
    let added = EventKind::ClusterAdded { cluster: "late".into(), roles: vec![Role::Upstream] };
    log.event(&Event { at: at(0), kind: added });
    (0..20).for_each(|number| log.event(&event(number, 500)));
    log.event(&Event { at: at(20), kind: EventKind::ClusterRemoved { cluster: "edge".into() } });
    for number in 21..30 {
        let error = "x".repeat(500).into();
        let kind = EventKind::WatchLost { cluster: "late".into(), kind: Kind::Gateway, error };
        log.event(&Event { at: at(number), kind });
    }
    finish(log);
    assert_eq!(open(&file).count(), 31);
    let whole = fs::read_to_string(&file).unwrap();
    let alone = LogReader::new("alone", Cursor::new(whole)).unwrap();
    let names: Vec<_> = alone.header().clusters.iter().map(|c| c.name.to_string()).collect();
    assert_eq!(names, ["late"]);
    assert!(alone.map(Result::unwrap).count() > 0);
}

#[test]
fn a_line_is_written_without_waiting_for_the_next() {
    let file = temp_folder("follow").join("log");
    let mut log = start(&config(&file, 1 << 20), &header());
    log.event(&event(7, 0));
    let line = format!("\"at_ms\":{},", at(7).0);
    // On failure this never ends, and the test's time limit does.
    while !fs::read_to_string(&file).unwrap_or_default().contains(&line) {
        std::thread::yield_now();
    }
    finish(log);
}

#[test]
fn the_log_is_redacted_by_default() {
    let (header, lines) = incident_log();
    for redact in [true, false] {
        let file = temp_folder(&format!("redact-{redact}")).join("log");
        write_lines(&EventLogConfig { redact, ..config(&file, 1 << 30) }, &header, &lines);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.contains("redacted-"), redact);
        assert_eq!(verified(&file).problems, Vec::<String>::new());
    }
}

/// One test, because it captures the log of the whole process.
#[test]
fn a_full_and_a_slow_disk_cost_lines_and_nothing_else() {
    let said = temp_folder("said").join("lines");
    tracing_subscriber::fmt().with_ansi(false).with_writer(File::create(&said).unwrap()).init();
    let lines = |word: &str| fs::read_to_string(&said).unwrap().matches(word).count();

    let full = Path::new("/dev/full");
    let (problems, mut reported) = Outside::channel();
    let metrics = Arc::new(Metrics::new());
    let log = LiveLog::start(&config(full, 4_000), &header(), metrics, problems);
    let mut log = log.unwrap().unwrap();
    for number in 0..10_000 {
        log.event(&event(number, 100));
    }
    finish(log);
    assert!(fs::metadata(full).unwrap().file_type().is_char_device());
    assert!(!Path::new("/dev/full.1").exists());
    let NoteKind::Began(problem) = reported.try_recv().unwrap() else { panic!("nothing began") };
    assert_eq!(problem.cause, Cause::EventLogFailing);
    assert!(problem.sentence().starts_with("Lines of /dev/full cannot be written: No space left"));
    assert!(reported.try_recv().is_err(), "it fails once");

    // A pipe that nobody reads acts as a disk that takes 64 KiB and then nothing.
    let pipe = temp_folder("slow").join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let both_ends = File::options().read(true).write(true).open(&pipe).unwrap();
    let plain = EventLogConfig { redact: false, ..config(&pipe, 4_000) };
    let mut log = start(&plain, &header());
    for number in 0..1_000 {
        log.event(&event(number, 64 * 1024));
    }
    assert_eq!((lines("too slow"), lines("has caught up lines_lost")), (1, 0));
    let reading = File::open(&pipe).unwrap();
    drop(both_ends);
    let read = std::thread::spawn(|| io::read_to_string(reading).unwrap());
    finish(log);
    let mut reader = LogReader::new("pipe", Cursor::new(read.join().unwrap())).unwrap();
    let count = reader.by_ref().map(Result::unwrap).count();
    let mut gaps = reader.warnings();
    gaps.retain(|warning| warning.is_gap);
    assert_eq!(gaps.len(), 1);
    let lacks = format!("{} lines are missing here", 1_000 - count);
    assert!(gaps[0].text.starts_with(&lacks), "{} and {count} lines", gaps[0].text);
    assert!((100..900).contains(&count), "{count} lines");
    assert_eq!((lines("too slow"), lines("has caught up lines_lost")), (1, 1));
}
