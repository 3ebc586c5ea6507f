//! An event log is copied as one stream while it is written and rotated.

use std::sync::atomic::{AtomicBool, Ordering};

use throughline::event_log::export::LogExport;

use super::*;

const EVENTS: u64 = 4_000;

/// The copy as text.
fn exported(file: &Path) -> (LogExportEnds, Vec<u8>) {
    let export = LogExport::open(file).unwrap();
    let ends = LogExportEnds { first: export.first_part(), missing: export.missing_parts() };
    let mut copy = Vec::new();
    export.write_to(&mut copy).unwrap();
    (ends, copy)
}

#[derive(Debug, PartialEq, Eq)]
struct LogExportEnds {
    first: u64,
    missing: u64,
}

/// The numbers of the events in a copy, which has one header.
fn numbers(copy: &[u8]) -> Vec<u64> {
    assert!(copy.ends_with(b"\n"), "the copy has whole lines only");
    let text = std::str::from_utf8(copy).unwrap();
    let headers = text.lines().filter(|line| line.starts_with(r#"{"log":"throughline""#)).count();
    assert_eq!(headers, 1);
    let reader = LogReader::decompressing("copy", Cursor::new(copy.to_vec())).unwrap();
    let number = |line: Result<LogEntry, _>| match line.unwrap() {
        LogEntry::Event(event) => event.at.since(at(0)),
        LogEntry::Action(_) | LogEntry::Retired => panic!("there are only events"),
    };
    reader.map(number).collect()
}

/// Copies again and again while events are written.
fn copies_while_written(file: &Path, size: u64) -> Vec<(LogExportEnds, Vec<u64>)> {
    let done = AtomicBool::new(false);
    let mut log = start(&config(file, size), &header());
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            let mut copies = Vec::new();
            while !done.load(Ordering::Relaxed) || copies.len() < 3 {
                let (ends, copy) = exported(file);
                copies.push((ends, numbers(&copy)));
            }
            copies
        });
        for number in 0..EVENTS {
            log.event(&event(number, 40));
            if number % 50 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        log.finish(GRACE);
        done.store(true, Ordering::Relaxed);
        copying.join().unwrap()
    })
}

#[test]
fn rotation_while_a_log_is_copied_neither_loses_nor_doubles_lines() {
    let file = folder("export").join("log.jsonl");
    let mut rotated = 0;
    for (ends, numbers) in copies_while_written(&file, 1_000_000) {
        assert_eq!(ends, LogExportEnds { first: 1, missing: 0 });
        let expected: Vec<_> = (0..numbers.len() as u64).collect();
        assert_eq!(numbers, expected);
        rotated = rotated.max(numbers.len());
    }
    let (_, copy) = exported(&file);
    assert_eq!(numbers(&copy).len() as u64, EVENTS);
    assert!(numbered(&file, 2).exists(), "it was rotated");
}

#[test]
fn a_log_whose_beginning_is_deleted_is_copied_from_where_it_begins() {
    let file = folder("export-pruned").join("log.jsonl");
    for (ends, numbers) in copies_while_written(&file, 24_000) {
        assert_eq!(ends.missing, 0);
        let first = numbers.first().copied().unwrap_or_default();
        let expected: Vec<_> = (first..first + numbers.len() as u64).collect();
        assert_eq!(numbers, expected);
        assert_eq!(ends.first == 1, first == 0, "{ends:?} {first}");
    }
    let (ends, copy) = exported(&file);
    assert!(ends.first > 1 && numbers(&copy).last() == Some(&(EVENTS - 1)), "{ends:?}");
}

#[test]
fn a_cut_off_last_line_and_a_missing_part_are_seen() {
    let file = folder("export-damaged").join("log.jsonl");
    let mut log = start(&config(&file, 85_000), &header());
    (0..500).for_each(|number| log.event(&event(number, 40)));
    log.finish(GRACE);
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(br#"{"at_ms":17637156"#);
    fs::write(&file, text).unwrap();
    let (ends, copy) = exported(&file);
    assert_eq!((ends.missing, numbers(&copy).len()), (0, 500));
    fs::remove_file(numbered(&file, 2)).unwrap();
    let (ends, _) = exported(&file);
    assert_eq!(ends, LogExportEnds { first: 1, missing: 1 });
    assert!(LogExport::open(&file.with_extension("none")).is_err());
}
