//! Compares what a program prints with a shortened transcript of it.

/// A line without what differs from run to run: uids, times, durations, ports, a trigger's counters,
/// and the width of columns. Counts stay.
pub(crate) fn normalized(line: &str) -> String {
    const UID: usize = 36;
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        let number = number_length(rest);
        let is_count = rest[..number].chars().all(|c| c.is_ascii_digit());
        let (shown, length) = if rest.get(..UID).is_some_and(is_uid) {
            ("UID", UID)
        } else if let Some(length) = duration_length(rest) {
            ("DURATION", length)
        } else if is_count {
            let length = number.max(first.len_utf8());
            (&rest[..length], length)
        } else {
            ("NUMBER", number)
        };
        out.push_str(shown);
        rest = &rest[length..];
    }
    out
}

/// The length of a number, time, address or trigger counter at the beginning.
fn number_length(text: &str) -> usize {
    const JOINTS: [char; 4] = ['.', ':', '-', 'T'];
    let digits = text.find(|c: char| !c.is_ascii_digit() && !JOINTS.contains(&c));
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    if is_number { text[..digits.unwrap_or(text.len())].trim_end_matches(JOINTS).len() } else { 0 }
}

/// The length of a duration at the beginning, such as `1 min 22 s`. In `2 ms=10` there is none.
fn duration_length(text: &str) -> Option<usize> {
    let number = number_length(text);
    let unit = text[number..].trim_start();
    let after = unit.trim_start_matches(char::is_alphabetic);
    let name = &unit[..unit.len() - after.len()];
    if number == 0 || after.starts_with('=') || !["ms", "s", "min"].contains(&name) {
        return None;
    }
    let next = after.trim_start();
    let end = duration_length(next).map_or(after, |length| &next[length..]);
    Some(text.len() - end.len())
}

fn is_uid(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
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
    let fits = |expected: &str, found: &str| fits(&lines_of(expected), &lines_of(found));
    assert!(fits("a\n…\nd", "a\nb\nc\nd") && fits("a … c", "a b c") && fits("…", ""));
    assert!(!fits("a\n…\nd", "a\nb\nc") && !fits("a … c", "a b"));
    assert!(!fits("a\nb", "a") && !fits("a", "a\nb"));
    let within = |expected: &str, found: &str| found_within(&lines_of(expected), &lines_of(found));
    assert_eq!(within("a\nc", "x\na\nb\nc\nd"), Some(4));
    assert_eq!(within("c\na", "a\nb\nc"), None);
}
