//! The text report, as far as a pipe does not show it: its colours, and the lines of a live run.
//! `transcripts/reports.transcript` has the reports themselves.

use throughline::event_log::LogReader;
use throughline::replay::{Replay, ReplayOptions, replay};
use throughline::report::{self, ReportOptions, Seen};

fn replayed(name: &str) -> Replay {
    let path = format!("{}/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let mut reader = LogReader::open(&path).unwrap();
    let options = ReplayOptions::default();
    replay(&mut reader, &path, |_| Ok(()), &options, None::<Vec<u8>>, |_| {}).unwrap()
}

fn text(replay: &Replay, color: bool) -> String {
    let options = ReportOptions { color, width: 400, connector: None };
    let mut out = Vec::new();
    report::text(replay, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let replay = replayed("incident-503");
    let plain = text(&replay, false);
    let coloured = text(&replay, true);
    assert!(coloured.contains("\x1b[31m503 in the recording: 52.2 s\x1b[0m"), "{coloured}");
    let mut parts = coloured.split("\x1b[");
    let first = parts.next().unwrap().to_owned();
    let stripped = parts.fold(first, |text, part| text + part.split_once('m').unwrap().1);
    assert_eq!(stripped, plain);
}

#[test]
fn a_live_run_prints_each_entry_once_and_in_the_words_of_its_report() {
    let printed = |replay: &Replay, seen: Seen| {
        let options = ReportOptions { color: false, width: 400, connector: None };
        let mut out = Vec::new();
        report::news(replay, seen, &[], replay.first_at, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let whole = replayed("two-clusters-ready-flips");
    let report = text(&whole, false);
    let all = printed(&whole, Seen::default());
    assert!(all.contains("  +2.000 s  home-lab  is offline upstream\n"), "{all}");
    for line in all.lines() {
        let (_, words) = line.split_once("home-lab  ").unwrap();
        assert!(report.contains(words), "{words:?} is not in:\n{report}");
    }
    assert_eq!(printed(&whole, Seen::all_of(&whole)), "");

    // What was printed before says what the state was.
    let mut before = whole.clone();
    let flips = whole.last_at;
    before.notes.retain(|note| note.at < flips);
    before.actions.retain(|record| record.decision.at < flips);
    let rest = printed(&whole, Seen::all_of(&before));
    assert!(rest.starts_with(" +10.000 s  home-lab  goes online upstream\n"), "{rest}");
    assert_eq!(printed(&before, Seen::default()) + &rest, all);
}
