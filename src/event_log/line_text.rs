//! The text of a line, written and read, and the excerpts of it in errors.

use serde::de::IgnoredAny;

use super::LineError;

/// The most characters of a bad line in an error.
const EXCERPT_CHARS_MAX: usize = 60;

/// A line without its line break and surrounding blanks; the first also without a byte order mark.
pub(super) fn content(line: &[u8], line_number: u64) -> &[u8] {
    let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
        Some(rest) if line_number == 1 => rest,
        _ => line,
    };
    line.trim_ascii()
}

pub(super) fn text(line: &[u8]) -> Result<&str, LineError> {
    std::str::from_utf8(line).map_err(|error| {
        let column = error.valid_up_to() + 1;
        LineError::NotUtf8 { column, excerpt: excerpt(line, column) }
    })
}

pub(super) fn not_an_object(line: &str) -> LineError {
    match serde_json::from_str::<IgnoredAny>(line) {
        Ok(_) => LineError::NotAnObject { excerpt: excerpt(line.as_bytes(), 1) },
        Err(error) => LineError::json(line, &error),
    }
}

/// The text around a column (in bytes, from 1), short and printable.
pub(super) fn excerpt(line: &[u8], column: usize) -> String {
    let mut start = 0;
    if line.len() > EXCERPT_CHARS_MAX {
        start = column.min(line.len()).saturating_sub(EXCERPT_CHARS_MAX / 2);
        // A UTF-8 character has at most four bytes; do not start in the middle of one.
        let is_inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        start -= (0..4.min(start + 1)).find(|back| !is_inside(start - back)).unwrap_or(0);
    }
    let end = line.len().min(start + 4 * EXCERPT_CHARS_MAX);
    String::from_utf8_lossy(&line[start..end])
        .chars()
        .take(EXCERPT_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Makes JSON text one line. An object that is copied verbatim may contain line breaks. Inside a JSON
/// string they are always escaped, so an unescaped one is only formatting and may become a space.
pub(crate) fn one_line(json: &mut Vec<u8>) {
    for byte in json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    json.push(b'\n');
}
