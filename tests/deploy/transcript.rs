//! Compares what a program prints with a shortened transcript of it.

/// A line without what differs from run to run: uids, times, durations, ports, a trigger's counters,
/// and the width of columns. Counts stay.
pub(crate) fn normalized(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = without_uids(&line);
    let mut out = String::new();
    let mut rest = line.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let (number, after) = number.split_at(number_length(number));
        out.push_str(before);
        let is_count = number.chars().all(|c| c.is_ascii_digit()) && !is_duration(after);
        out.push_str(if is_count { number } else { "0" });
        rest = after;
    }
    out.push_str(rest);
    out.replace("0 min 0 s", "0 s").replace("0 ms", "0 s")
}

/// The length of a number, time, address or trigger counter at the beginning.
fn number_length(text: &str) -> usize {
    const JOINTS: [char; 4] = ['.', ':', '-', 'T'];
    let end = text.find(|c: char| !c.is_ascii_digit() && !JOINTS.contains(&c));
    text[..end.unwrap_or(text.len())].trim_end_matches(JOINTS).len()
}

/// Whether a unit of time follows a number. In `objects=2 ms=10` none follows the 2.
fn is_duration(after: &str) -> bool {
    let after = after.trim_start();
    let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
    let (unit, after) = after.split_at(end);
    ["ms", "s", "min"].contains(&unit) && !after.starts_with('=')
}

fn without_uids(line: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |part: &str| {
        let mut characters = part.chars().enumerate();
        characters.all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
    };
    let mut out = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if rest.get(..LENGTH).is_some_and(is_uid) {
            out.push_str("UID");
            rest = &rest[LENGTH..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// The lines, normalized and without the empty ones.
pub(crate) fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(normalized).filter(|line| !line.is_empty()).collect()
}

/// Whether a line fits one in which `…` stands for any text.
pub(crate) fn line_fits(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether all lines fit; a line that is only `…` stands for any number of lines.
pub(crate) fn fits(expected: &[String], lines: &[String]) -> bool {
    match (expected, lines) {
        ([], lines) => lines.is_empty(),
        ([first, rest @ ..], _) if first == "…" => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        ([first, rest @ ..], [line, others @ ..]) => line_fits(first, line) && fits(rest, others),
        (_, []) => false,
    }
}

/// How many lines it takes to find all expected ones, in their order, with any others in between.
pub(crate) fn found_within(expected: &[String], lines: &[String]) -> Option<usize> {
    let mut end = 0;
    for expected in expected.iter().filter(|line| *line != "…") {
        end += 1 + lines[end..].iter().position(|line| line_fits(expected, line))?;
    }
    Some(end)
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    let same = |one: &str, other: &str| assert_eq!(normalized(one), normalized(other));
    same("2026-11-22T04:57:54.407Z INFO  x  ", "2026-12-01T14:00:00.000Z INFO x");
    same("at 2026-11-22 04:57:54 for 156 ms", "at 2027-01-02 14:57:54 for 1 min 22 s");
    same("ns-e9314c0d-fb29-4b37-89f1-f40171e838f9/a", "ns-00000000-0000-0000-0000-000000000000/a");
    same("app  b910ee9d148fb367-3-0", "app b910ee9d148fb367-12-1");
    same("http://127.0.0.1:27702", "http://127.0.0.1:1");
    let differ = |one: &str, other: &str| assert_ne!(normalized(one), normalized(other));
    differ("2 gateways", "3 gateways");
    differ("objects=2 ms=86", "objects=3 ms=86");
    differ("app b910ee9d148fb367-3-0", "app 36ecb93e9d16d785-3-0");
    differ("0/2", "2/2");
}

#[test]
fn an_ellipsis_stands_for_any_text() {
    let fits = |expected: &str, found: &str| fits(&lines_of(expected), &lines_of(found));
    assert!(fits("a\n…\nd", "a\nb\nc\nd") && fits("a … c", "a b c") && fits("…", ""));
    assert!(!fits("a\n…\nd", "a\nb\nc") && !fits("a … c", "a b"));
    assert!(!fits("a\nb", "a") && !fits("a", "a\nb"));
    let within = |expected: &str, found: &str| found_within(&lines_of(expected), &lines_of(found));
    assert_eq!(within("a\nc", "x\na\nb\nc\nd"), Some(4));
    assert_eq!(within("c\na", "a\nb\nc"), None);
}
