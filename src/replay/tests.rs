#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{self, Cursor, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

/// A log that panics at its second line.
struct Panics(usize);

impl Write for Panics {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0 += 1;
        assert_eq!(self.0, 1, "the panic of this test");
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A panic within a replay ends it. The reading thread must not wait for room.
#[test]
fn a_panic_ends_the_replay() {
    const LOG: &str = r#"{"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}
{"at_ms":1763715601000,"event":"timed_out"}
"#;
    for mode in [ReplayMode::Verify, ReplayMode::WhatIf] {
        let (ended, end) = channel();
        std::thread::spawn(move || {
            let mut reader = LogReader::new("log", Cursor::new(LOG)).unwrap();
            let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
            let replayed = catch_unwind(AssertUnwindSafe(|| {
                let mut log = Panics(0);
                replay(&mut reader, "log", |_| Ok(()), &options, Some(&mut log), |_| {}).map(drop)
            }));
            let how = match replayed {
                Err(_) => "a panic".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Ok(Ok(())) => "no panic".to_owned(),
            };
            ended.send(how).unwrap();
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok("a panic".to_owned()), "{mode:?}");
    }
}
