//! Texts from outside: what of them must not leave the process, and what must not reach a terminal.

use std::borrow::Cow;
use std::time::Duration;

use expect_test::expect_file;
use rustix::time::{ClockId, clock_gettime};
use throughline::event_log::redact::Redactor;
use throughline::outside_text::{brief, lines, one_line, without_secrets};

/// After each message follows what may leave, where that is another text.
#[test]
fn messages_keep_their_words_and_lose_what_must_not_leave() {
    let golden = expect_file!["messages.txt"];
    let text = golden.data();
    let sections = text.split("===\n").map(|section| {
        let lines = section.lines().filter(|line| !line.starts_with("> "));
        let message = lines.collect::<Vec<_>>().join("\n");
        let hidden = without_secrets(&message);
        if hidden != message {
            return format!("{message}\n> {hidden}\n");
        }
        assert_eq!(Redactor::new().error(&message), message);
        format!("{message}\n")
    });
    golden.assert_eq(&sections.collect::<Vec<_>>().join("===\n"));
}

/// The time is that of one pass, whatever the text repeats: of eight times the text it is eight times as
/// long, where one search for each part would take 64 times. It is that of this thread alone, so other
/// work on the machine does not count.
#[test]
fn long_texts_are_judged_in_one_pass() {
    for part in ["key:", "key=", "\"", "key: ", "key\"", "a", "=", "token:x ", "://", "key:\\\""] {
        let time_of = |bytes: usize| {
            let text = part.repeat(bytes / part.len());
            let took = (0..3).map(|_| {
                let started = time_of_thread();
                let _ = without_secrets(&text);
                time_of_thread() - started
            });
            took.min().unwrap()
        };
        let ratio = time_of(200_000).as_secs_f64() / time_of(25_000).as_secs_f64();
        assert!(ratio < 24.0, "{part}: {ratio:.1} times the time for eight times the text");
    }
}

fn time_of_thread() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[test]
fn errors_keep_their_words_and_lose_their_secrets() {
    let redactor = Redactor::new();
    let error = "dial tcp 10.20.0.7:6443: client_secret=hunter2hunter2";
    let hidden = redactor.error(error).into_owned();
    assert!(hidden.starts_with("dial tcp ~") && hidden.len() == error.len(), "{hidden}");
    assert!(hidden.contains(": client_secret=~") && !hidden.contains("hunter2"), "{hidden}");
    assert_eq!(redactor.error(error), hidden, "equal values have equal stand-ins");
    let id = "0123456789abcdef".repeat(4);
    assert!(redactor.error(&format!("node {id}: no")).starts_with("node redacted-"));
}

#[test]
fn deceptive_characters_are_escaped() {
    let text = "a\u{202e}b\x1b[2J\u{2066}c\r\nd\u{feff}größer 日本";
    let expected = "a\\u{202e}b\\u{1b}[2J\\u{2066}c\\r\\nd\\u{feff}größer 日本";
    assert_eq!(one_line(text), expected);
    assert_eq!(lines(text), expected.replace("\\n", "\n"));
    assert!(matches!(one_line("plain größer"), Cow::Borrowed(_)));
    assert_eq!(without_secrets("\u{2028}192.168.7.7!"), "\u{2028}<address>!");
}

#[test]
fn of_a_very_long_message_the_middle_is_left_out() {
    assert_eq!(brief("found \"\x1b\""), "found \"\\u{1b}\"");
    let long = |n: usize| format!("found \"{}\"; say why", "ä".repeat(n));
    assert_eq!(brief(&long(800)), long(800));
    let short = brief(&long(40_000_000)).into_owned();
    assert!(short.starts_with("found \"ää") && short.ends_with("ä\"; say why"), "{short}");
    assert_eq!(short.chars().count(), 600 + 1 + 300);
}
