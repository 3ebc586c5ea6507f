//! An event log is copied as one stream while it is written and rotated.

use std::sync::atomic::{AtomicBool, Ordering};

use throughline::event_log::export::LogExport;

use super::*;

const EVENTS: u64 = 4_000;

/// The first part that is copied, and the numbers of the events in the copy, which has one header.
fn exported(file: &Path) -> (u64, Vec<u64>) {
    let export = LogExport::open(file).unwrap();
    let first = export.first_part();
    assert_eq!(export.missing_parts(), 0);
    let mut copy = Vec::new();
    export.write_to(&mut copy).unwrap();
    assert!(copy.ends_with(b"\n"), "the copy has whole lines only");
    let text = std::str::from_utf8(&copy).unwrap();
    let headers = text.lines().filter(|line| line.starts_with(r#"{"log":"throughline""#)).count();
    assert_eq!(headers, 1);
    (first, numbers(LogReader::new("copy", &copy[..]).unwrap()))
}

/// Copies again and again while events are written. Returns of each copy its first part and its events.
fn copies_while_written(file: &Path, size: u64) -> Vec<(u64, Vec<u64>)> {
    let done = AtomicBool::new(false);
    let mut log = start(&config(file, size), &header());
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            let mut copies = Vec::new();
            while !done.load(Ordering::Relaxed) || copies.len() < 3 {
                copies.push(exported(file));
            }
            copies
        });
        for number in 0..EVENTS {
            log.event(&event(number, 40));
            if number % 50 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        finish(log);
        done.store(true, Ordering::Relaxed);
        copying.join().unwrap()
    })
}

#[test]
fn rotation_while_a_log_is_copied_neither_loses_nor_doubles_lines() {
    // The parts of the smaller log are deleted from the beginning.
    for (size, is_whole) in [(1_000_000, true), (24_000, false)] {
        let file = temp_folder(&format!("export-{size}")).join("log.jsonl");
        for (part, numbers) in copies_while_written(&file, size) {
            let first = numbers.first().copied().unwrap_or_default();
            assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>());
            assert_eq!(part == 1, first == 0, "part {part}, event {first}");
            assert!(part == 1 || !is_whole, "part {part}");
        }
        let (part, numbers) = exported(&file);
        assert_eq!((part == 1, numbers.last()), (is_whole, Some(&(EVENTS - 1))));
        assert!(numbered(&file, 2).exists(), "it was rotated");
    }
}
