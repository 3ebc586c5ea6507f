//! Canonical JSON: the bytes that Go's `encoding/json` writes. Equal JSON values have equal bytes.
//!
//! The platform's replicator writes the same annotation, and both writers must produce the same
//! bytes. So values are kept, dropped, escaped and rounded exactly as in Go 1.26 and
//! `k8s.io/apimachinery`.

mod reader;

use std::borrow::Cow;
use std::fmt::Write;

pub use reader::{GO_DEPTH_MAX, Reader};

/// How many levels [`canonical`] descends, to bound the stack and the cost of sorting. A Connector's
/// status has 6.
pub const CANONICAL_DEPTH_MAX: usize = 128;

/// Writes a JSON text as Go does after decoding it with Kubernetes' JSON decoder.
///
/// The result is compact. Object keys are sorted by their bytes; the last of a repeated key counts. A
/// number is an integer if it is written as one and fits `i64`, else an `f64`. `None` when the text is
/// not JSON, has more than 128 levels, or contains a number beyond the range of `f64`.
///
/// A second pass changes nothing, with one exception: `-0.0` becomes `-0`, and that becomes `0`.
pub fn canonical(json: &str) -> Option<String> {
    let mut reader = Reader::new(json, CANONICAL_DEPTH_MAX);
    // Escapes may make the text longer; most texts have few.
    let mut writer =
        CanonicalWriter { out: String::with_capacity(json.len() + 32), entries: Vec::new() };
    writer.value(&mut reader)?;
    reader.end()?;
    Some(writer.out)
}

/// Reduces a Connector's status to the parts that routing depends on: its conditions of type `Ready`
/// and its `connectionDetails`. `None` when it is not a JSON object.
pub fn reduce(status: &str) -> Option<String> {
    let mut conditions = None;
    let mut details = None;
    let mut reader = Reader::new(status, GO_DEPTH_MAX);
    reader.object(|r, key| {
        let value = r.skip()?;
        match &*key {
            "conditions" => conditions = Some(value),
            "connectionDetails" => details = Some(value),
            _ => {}
        }
        Some(())
    })?;
    reader.end()?;

    let mut kept = Vec::new();
    if let Some(list) = conditions.filter(|list| list.starts_with('[')) {
        let mut ready = Vec::new();
        Reader::new(list, GO_DEPTH_MAX).array(|r, _| {
            let condition = r.skip()?;
            if is_ready(condition) {
                ready.push(condition);
            }
            Some(())
        })?;
        kept.push(format!("\"conditions\":[{}]", ready.join(",")));
    }
    kept.extend(details.map(|details| format!("\"connectionDetails\":{details}")));
    canonical(&format!("{{{}}}", kept.join(",")))
}

fn is_ready(condition: &str) -> bool {
    let mut ready = false;
    let read = Reader::new(condition, GO_DEPTH_MAX).object(|r, key| {
        let value = r.skip()?;
        if key == "type" {
            ready = Reader::new(value, 0).string().is_some_and(|t| t == "Ready");
        }
        Some(())
    });
    read.is_some() && ready
}

/// Writes values while reading them, and sorts the entries of objects where necessary.
struct CanonicalWriter<'a> {
    out: String,
    /// The entries of all objects in progress, innermost last.
    entries: Vec<Entry<'a>>,
}

/// The position of an object's entry in the output, without commas.
struct Entry<'a> {
    key: Cow<'a, str>,
    start: usize,
    end: usize,
}

impl<'a> CanonicalWriter<'a> {
    fn value(&mut self, reader: &mut Reader<'a>) -> Option<()> {
        match reader.peek()? {
            b'{' => self.object(reader)?,
            b'[' => {
                self.out.push('[');
                reader.array(|r, i| {
                    if i > 0 {
                        self.out.push(',');
                    }
                    self.value(r)
                })?;
                self.out.push(']');
            }
            b'"' => {
                let text = reader.string()?;
                self.string(&text);
            }
            b'-' | b'0'..=b'9' => self.number(reader.number()?)?,
            _ => self.out.push_str(reader.word()?),
        }
        Some(())
    }

    fn object(&mut self, reader: &mut Reader<'a>) -> Option<()> {
        self.out.push('{');
        let body = self.out.len();
        let first = self.entries.len();
        let mut sorted = true;
        reader.object(|r, key| {
            if let Some(last) = self.entries.get(first..).and_then(<[_]>::last) {
                sorted &= last.key < key;
                self.out.push(',');
            }
            let start = self.out.len();
            self.string(&key);
            self.out.push(':');
            self.value(r)?;
            self.entries.push(Entry { key, start, end: self.out.len() });
            Some(())
        })?;
        if !sorted {
            self.sort(body, first)?;
        }
        self.entries.truncate(first);
        self.out.push('}');
        Some(())
    }

    /// Sorts the entries from `first` on. Their text starts at `body` in the output.
    fn sort(&mut self, body: usize, first: usize) -> Option<()> {
        let written = self.out.split_off(body);
        let entries = self.entries.get_mut(first..)?;
        // A stable sort: the last of a repeated key stays last.
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        let mut entries = entries.iter().peekable();
        while let Some(entry) = entries.next() {
            if entries.peek().is_some_and(|next| next.key == entry.key) {
                continue;
            }
            if self.out.len() > body {
                self.out.push(',');
            }
            self.out.push_str(written.get(entry.start - body..entry.end - body)?);
        }
        Some(())
    }

    /// `appendString` of `encoding/json/encode.go`, with HTML escapes.
    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut plain = 0;
        for (i, byte) in text.bytes().enumerate() {
            if IS_PLAIN[usize::from(byte)] {
                continue;
            }
            let separator = match text.as_bytes().get(i..i + 3) {
                Some([0xe2, 0x80, 0xa8]) => Some("\\u2028"),
                Some([0xe2, 0x80, 0xa9]) => Some("\\u2029"),
                _ if byte == 0xe2 => continue,
                _ => None,
            };
            self.out.push_str(&text[plain..i]);
            plain = i + separator.map_or(1, |_| 3);
            match (separator, byte) {
                (Some(separator), _) => self.out.push_str(separator),
                (_, b'"') => self.out.push_str("\\\""),
                (_, b'\\') => self.out.push_str("\\\\"),
                (_, 0x08) => self.out.push_str("\\b"),
                (_, 0x0c) => self.out.push_str("\\f"),
                (_, b'\n') => self.out.push_str("\\n"),
                (_, b'\r') => self.out.push_str("\\r"),
                (_, b'\t') => self.out.push_str("\\t"),
                // Writing to a String cannot fail.
                _ => drop(write!(self.out, "\\u{byte:04x}")),
            }
        }
        self.out.push_str(&text[plain..]);
        self.out.push('"');
    }

    /// `sigs.k8s.io/json` reads an `int64` if it can, else a `float64`, which `floatEncoder` of
    /// `encoding/json/encode.go` writes. `None` when the number is out of range.
    fn number(&mut self, text: &str) -> Option<()> {
        if let Ok(integer) = text.parse::<i64>() {
            return write!(self.out, "{integer}").ok();
        }
        let float = text.parse::<f64>().ok().filter(|f| f.is_finite())?;
        let is_plain = float == 0.0 || (1e-6..1e21).contains(&float.abs());
        let mut digits = if is_plain { format!("{float}") } else { format!("{float:e}") };
        // Where two shortest forms are equally near, Go takes the even one and Rust the other:
        // 622464434535252.25 needs 16 digits, and ….2 is as near as ….3.
        if let Some((_, rest)) = digits.split_once('.') {
            let places = rest.bytes().take_while(u8::is_ascii_digit).count();
            let even =
                if is_plain { format!("{float:.places$}") } else { format!("{float:.places$e}") };
            if even.parse() == Ok(float) {
                digits = even;
            }
        }
        match digits.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => {
                write!(self.out, "{mantissa}e+{exponent}").ok()
            }
            _ => {
                self.out.push_str(&digits);
                Some(())
            }
        }
    }
}

/// Bytes that Go writes without an escape. 0xe2 is not among them: it may begin U+2028 or U+2029.
const IS_PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    let special = b"\"\\<>&\xe2";
    let mut i = 0;
    while i < special.len() {
        plain[special[i] as usize] = false;
        i += 1;
    }
    plain
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_parts_that_routing_depends_on() {
        for (status, reduced) in [
            ("{}", Some("{}")),
            ("null", None),
            ("[]", None),
            ("{} {}", None),
            (r#"{"conditions":[}"#, None),
            (r#"{"leaseRef":{"name":"l"},"conditions":null}"#, Some("{}")),
            (r#"{"conditions":[]}"#, Some(r#"{"conditions":[]}"#)),
            (
                r#"{"conditions":[{"type":"Accepted"},{"type":"Ready","status":"True"},7,{"type":7},{"status":"type"}],"x":1}"#,
                Some(r#"{"conditions":[{"status":"True","type":"Ready"}]}"#),
            ),
            (
                r#"{"conditions":[{"type":"Ready","status":"a"},{"type":"Ready"},{"type":"Ready","type":"x"}]}"#,
                Some(r#"{"conditions":[{"status":"a","type":"Ready"},{"type":"Ready"}]}"#),
            ),
            (
                r#"{"connectionDetails":{"type":"P<"},"conditions":5,"connectionDetails":{"b":1,"a":[ 2 ]}}"#,
                Some(r#"{"connectionDetails":{"a":[2],"b":1}}"#),
            ),
        ] {
            assert_eq!(reduce(status).as_deref(), reduced, "{status}");
        }
    }

    #[test]
    fn descends_128_levels() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(canonical(&nested(128)), Some(nested(128)));
        assert_eq!(canonical(&nested(129)), None);
        assert_eq!(canonical(&nested(100_000)), None);
        let side_by_side = format!("[{}[]]", "[{}],".repeat(500));
        assert_eq!(canonical(&side_by_side).as_ref(), Some(&side_by_side));
    }
}
