//! Compressed, cut-off and damaged event logs: nothing is lost that is readable.

use std::fs;
use std::path::Path;

use throughline::event_log::{LogReader, holds_outcomes};

use crate::reading::*;

#[test]
fn a_log_that_is_read_and_written_again_is_the_same_also_if_it_was_compressed() {
    let (first, second) = SAMPLE.split_at(700);
    for bytes in [SAMPLE.into(), gzip(SAMPLE), [gzip(first), gzip(second)].concat()] {
        let result = read(bytes);
        check_silent(&result, LINES.len());
        assert_eq!(result.written, SAMPLE);
    }
}

#[test]
fn a_cut_off_compressed_log_is_read_up_to_the_cut() {
    let bytes = gzip(SAMPLE);
    for cut in 5..bytes.len() {
        let result = read(&bytes[..cut]);
        // The cut may be in the header.
        if let Some(error) = result.error {
            assert!(error.starts_with("x.jsonl:1: can't read further: "), "{error}");
            continue;
        }
        let at = [result.lines + 1, result.lines + 2].map(|line| {
            format!("x.jsonl:{line}: warning: the compressed stream is cut off in this line")
        });
        assert_eq!(result.warnings.len(), 1, "{result:?}");
        assert!(at.iter().any(|at| result.warnings[0].starts_with(at)), "{result:?}");
        assert!(SAMPLE.starts_with(&result.written));
    }
    assert!(read(gzip("")).error.unwrap().starts_with("x.jsonl:1: the log is empty"));
    // Only the end of the stream is missing.
    let result = read(&bytes[..bytes.len() - 4]);
    assert_eq!((result.lines, result.error, result.warnings.len()), (LINES.len(), None, 1));
    assert_eq!(result.written, SAMPLE);
    // Of two gzip members, the first is whole.
    let second = gzip(LINES[0]);
    let result = read([&bytes, &second[..second.len() / 2]].concat());
    assert_eq!((result.lines >= LINES.len(), result.error, result.warnings.len()), (true, None, 1));
}

#[test]
fn a_file_has_a_progress_and_its_outcomes_are_found() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("progress");
    let name = path.to_str().unwrap();
    for bytes in [SAMPLE.into(), gzip(SAMPLE)] {
        fs::write(&path, bytes).unwrap();
        let mut reader = LogReader::open(name).unwrap();
        assert_eq!((reader.line_number(), reader.bytes_read()), (1, HEADER.len() as u64 + 1));
        assert!(reader.progress().is_some_and(|p| (0.0..=1.0).contains(&p)));
        while reader.next_line().unwrap().is_some() {}
        assert_eq!(reader.line_number(), LINES.len() as u64 + 1);
        assert_eq!((reader.bytes_read(), reader.progress()), (SAMPLE.len() as u64, Some(1.0)));
        assert_eq!(holds_outcomes(name).unwrap(), Some(true));
    }
    // They are found in a file that can be read again, but not in a text.
    let outcome = r#"{"at_ms":1763715601000,"event":"action_finished","id":1,"outcome":"dropped"}"#;
    let text = r#"{"at_ms":1763715601000,"event":"timed_out","m":"\"action_finished\""}"#;
    for (lines, expected) in [(text.to_owned(), false), (format!("{text}\n{outcome}"), true)] {
        fs::write(&path, format!("{HEADER}\n{lines}\n")).unwrap();
        assert_eq!(holds_outcomes(name).unwrap(), Some(expected));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(holds_outcomes("-").unwrap(), None);
    assert!(holds_outcomes(name).is_err());
}
