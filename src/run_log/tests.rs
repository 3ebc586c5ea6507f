//! What a person reads in the log of a run.

use std::io;
use std::sync::{Arc, Mutex};

use super::*;
use crate::core::contract::note::{Hop, StallCause};

const START: UnixMillis = UnixMillis(1_795_252_772_000);

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that a run log writes for these notes, as the loop wakes it.
fn lines(notes: &[Note]) -> Vec<String> {
    let written = Written::default();
    let to = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || to.clone())
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let mut log = RunLog::new(&Settings::default());
        let pass_to = |log: &mut RunLog, at: UnixMillis| {
            while let Some(due) = log.due().filter(|due| *due <= at) {
                log.on_due(due);
            }
        };
        for note in notes {
            pass_to(&mut log, note.at);
            log.on_note(note);
        }
        pass_to(&mut log, START.plus(3_600_000));
    });
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn stall(s: u64, n: usize, ended: bool) -> Note {
    let stall = Stall {
        cluster: "edge".into(),
        connector: ObjectKey::new("ns", format!("c-{n}")),
        hop: Hop::Arrived,
        since: START,
        cause: StallCause::NotCarried { cluster: "edge".into() },
        reason: "the carrier is behind".to_owned(),
    };
    let kind = if ended { NoteKind::StallEnded(stall) } else { NoteKind::Stalled(stall) };
    Note { at: START.plus(s * 1_000), kind }
}

#[test]
fn a_stall_of_one_connector_names_it() {
    assert_eq!(
        lines(&[stall(10, 1, false), stall(40, 1, true)]),
        [
            "WARN stalled cluster=edge connector=ns/c-1 hop=\"arrived\" since_ms=10000 \
             reason=\"the carrier is behind\"",
            "INFO no longer stalled cluster=edge connector=ns/c-1 hop=\"arrived\" after_ms=40000",
        ]
    );
}

#[test]
fn a_stall_of_many_has_their_number_when_it_begins_changes_and_ends() {
    let mut notes: Vec<_> = (0..1_000).map(|n| stall(10, n, false)).collect();
    notes.extend((0..400).map(|n| stall(30, n, true)));
    notes.extend((400..1_000).map(|n| stall(100, n, true)));
    let lines = lines(&notes);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    let starts = [
        "WARN stalled: 1,000 connectors cause=\"not_carried\" cluster=edge \
         connectors=\"ns/c-0, ns/c-1, ns/c-10, …\" hop=\"arrived\" since_ms=11000",
        "WARN still stalled: 600 connectors cause=\"not_carried\"",
        "INFO no longer stalled: 1,000 connectors cause=\"not_carried\" cluster=edge \
         hop=\"arrived\" after_ms=100000",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }
}
