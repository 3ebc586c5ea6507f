#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

/// A panic within a replay ends it. The thread that searches for outages must not wait for more.
#[test]
fn a_panic_ends_the_replay() {
    let settings = serde_json::to_string(&Settings::default()).unwrap();
    let log = format!(
        r#"{{"log":"throughline","version":1,"clusters":[{{"name":"up","roles":["upstream"]}}]}}
{{"at_ms":1763715601000,"event":"settings_changed","settings":{settings}}}
"#
    );
    for mode in [ReplayMode::Verify, ReplayMode::WhatIf] {
        let (ended, end) = channel();
        let log = log.clone();
        std::thread::spawn(move || {
            let mut reader = LogReader::new("log", Cursor::new(log)).unwrap();
            let edits = Cell::new(0);
            let edit = |_: &mut Settings| {
                edits.set(edits.get() + 1);
                assert_eq!(edits.get(), 1, "the panic of this test");
                Ok(())
            };
            let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
            let none = None::<std::io::Sink>;
            let replayed = catch_unwind(AssertUnwindSafe(|| {
                replay(&mut reader, "log", edit, &options, none, |_| {}).map(drop)
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
