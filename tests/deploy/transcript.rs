//! Compares what a program prints with a shortened transcript of it.

use regex::{Regex, escape};

/// What differs from run to run: uids; durations such as `1 min 22 s`, which `2 ms=10` is not; times, addresses
/// and a trigger's counters. Counts stay.
const VARYING: [(&str, &str); 3] = [
    (r"[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}", "UID"),
    (r"\d[\d.]*( ?(min|s) \d[\d.]*)* ?(min|ms|s)([^\w=]|$)", "DURATION$4"),
    (r"\d+([.:T-]+\d+)+", "NUMBER"),
];

/// The lines, without what varies, the width of columns, and the empty ones.
pub(crate) fn normalized(text: &str) -> String {
    let varying = VARYING.map(|(pattern, name)| (Regex::new(pattern).unwrap(), name));
    let line = |line: &str| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        varying.iter().fold(line, |line, (varies, name)| varies.replace_all(&line, *name).into())
    };
    let lines = text.lines().map(line).filter(|line| !line.is_empty());
    lines.map(|line| line + "\n").collect()
}

/// A pattern for each line; `…` is any text, and a line that is only `…` any number of lines.
fn patterns(expected: &str) -> Vec<String> {
    let pattern = |line: &str| match line {
        "…" => "(.*\n)*?".to_owned(),
        _ => escape(line).split('…').map(str::trim).collect::<Vec<_>>().join(".*") + "\n",
    };
    normalized(expected).lines().map(pattern).collect()
}

/// Whether all lines fit.
pub(crate) fn fits(expected: &str, printed: &str) -> bool {
    let whole = format!(r"\A{}\z", patterns(expected).concat());
    Regex::new(&whole).unwrap().is_match(&normalized(printed))
}

/// Finds all expected lines, in their order, with any others in between; returns where the last one ends in
/// the normalized text.
pub(crate) fn found_within(expected: &str, printed: &str) -> Option<usize> {
    let lines = patterns(expected).into_iter().map(|line| format!("(.*\n)*?{line}"));
    let begin = format!(r"\A{}", lines.collect::<String>());
    Some(Regex::new(&begin).unwrap().find(&normalized(printed))?.end())
}

/// A comparison that lets too much pass would pass silently.
#[test]
fn counts_and_names_and_missing_lines_are_differences() {
    for (one, other, is_same) in [
        ("2026-11-22T04:57:54.407Z INFO  x  ", "2026-12-01T14:00:00.000Z INFO x", true),
        ("at 2026-11-22 04:57:54 for 156 ms", "at 2027-01-02 14:57:54 for 1 min 22 s", true),
        ("for 2 min, 5.5 s later", "for 13.25 s, 90 ms later", true),
        ("app  b910ee9d148fb367-3-0", "app b910ee9d148fb367-12-1", true),
        ("2 gateways", "3 gateways", false),
        ("objects=2 ms=86", "objects=3 ms=86", false),
        ("app b910ee9d148fb367-3-0", "app 36ecb93e9d16d785-3-0", false),
        ("0/2", "2/2", false),
    ] {
        assert_eq!(normalized(one) == normalized(other), is_same, "{one} and {other}");
    }
    assert!(fits("a\n…\nd", "a\nb\nc\nd") && fits("a … c", "a b c") && fits("…", ""));
    assert!(!fits("a\n…\nd", "a\nb\nc") && !fits("a … c", "a b"));
    assert!(!fits("a\nb", "a") && !fits("a", "a\nb"));
    assert_eq!(found_within("a\nc", "x\na\nb\nc\nd"), Some("x\na\nb\nc\n".len()));
    assert_eq!(found_within("c\na", "a\nb\nc"), None);
}
