//! Compact JSON as Go's `encoding/json` spells a decoded object, and equality by meaning through it.
//!
//! Two writers of one annotation must agree to the byte, so nothing here is approximate: what is
//! kept, dropped, escaped or rounded is what Go 1.26 and `k8s.io/apimachinery` do.

mod reader;

use std::borrow::Cow;
use std::fmt::Write;

pub(crate) use reader::{GO_DEPTH_MAX, Reader};

/// How deep [`spell`] follows: keeps the stack and the work of sorting small. A Connector's status
/// is 6 deep.
pub(crate) const SPELL_DEPTH_MAX: usize = 128;

/// Spells a JSON text as Go's `encoding/json` spells the value that Kubernetes' JSON decoder makes
/// of it, so that texts of equal meaning become equal.
///
/// Compact; object keys sorted by their bytes, the last of a repeated key counts; a number is an
/// integer when it is written as one and fits `i64`, else an `f64`. `None` when the text is not
/// JSON, is nested deeper than 128, or holds a number beyond the range of `f64`.
///
/// Spelling what was spelled changes nothing, but for one value: `-0.0` becomes `-0`, and that `0`.
pub fn spell(json: &str) -> Option<String> {
    let mut reader = Reader::new(json, SPELL_DEPTH_MAX);
    // Escapes may lengthen it; most texts have few.
    let mut speller = Speller { out: String::with_capacity(json.len() + 32), entries: Vec::new() };
    speller.value(&mut reader)?;
    reader.end()?;
    Some(speller.out)
}

/// A Connector's status without what routing does not depend on: its conditions of type `Ready` and
/// its `connectionDetails`, spelled. `None` when it is not a JSON object.
pub fn reduce(status: &str) -> Option<String> {
    let (mut conditions, mut details) = (None, None);
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
    spell(&format!("{{{}}}", kept.join(",")))
}

/// Whether a condition is of type `Ready`.
fn is_ready(condition: &str) -> bool {
    let mut ready = false;
    let read = Reader::new(condition, GO_DEPTH_MAX).object(|r, key| {
        let value = r.skip()?;
        if key == "type" {
            ready = Reader::new(value, 0).string().is_some_and(|t| t.get() == "Ready");
        }
        Some(())
    });
    read.is_some() && ready
}

/// Writes values as it reads them; only an object whose keys come unsorted is put together anew.
struct Speller<'a> {
    out: String,
    /// The entries of all objects that are open, innermost last.
    entries: Vec<Entry<'a>>,
}

/// Where in the output an object's entry stands, without commas.
struct Entry<'a> {
    key: Cow<'a, str>,
    start: usize,
    end: usize,
}

impl<'a> Speller<'a> {
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
                self.string(&text.get());
            }
            b'-' | b'0'..=b'9' => self.number(reader.number()?)?,
            _ => self.out.push_str(reader.word()?),
        }
        Some(())
    }

    fn object(&mut self, reader: &mut Reader<'a>) -> Option<()> {
        self.out.push('{');
        let (body, first) = (self.out.len(), self.entries.len());
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

    /// Puts the entries from `first` on, which stand in the output from `body` on, in order.
    fn sort(&mut self, body: usize, first: usize) -> Option<()> {
        let written = self.out.split_off(body);
        let entries = self.entries.get_mut(first..)?;
        // Stable: of a repeated key the last stays last.
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

    /// `sigs.k8s.io/json` reads an `int64` where it can, else a `float64`, which `floatEncoder` of
    /// `encoding/json/encode.go` writes. `None` when it is out of range.
    fn number(&mut self, text: &str) -> Option<()> {
        if let Ok(integer) = text.parse::<i64>() {
            return write!(self.out, "{integer}").ok();
        }
        let float = text.parse::<f64>().ok().filter(|f| f.is_finite())?;
        let is_plain = float == 0.0 || (1e-6..1e21).contains(&float.abs());
        let mut spelled = if is_plain { format!("{float}") } else { format!("{float:e}") };
        // Of two shortest spellings that are equally near, Go takes the even one, Rust the other:
        // 622464434535252.25 needs 16 digits, and is as near to ….2 as to ….3.
        if let Some((_, rest)) = spelled.split_once('.') {
            let places = rest.bytes().take_while(u8::is_ascii_digit).count();
            let even =
                if is_plain { format!("{float:.places$}") } else { format!("{float:.places$e}") };
            if even.parse() == Ok(float) {
                spelled = even;
            }
        }
        match spelled.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                write!(self.out, "{digits}e+{exponent}").ok()
            }
            _ => {
                self.out.push_str(&spelled);
                Some(())
            }
        }
    }
}

/// Bytes that stand for themselves in what Go writes; 0xe2 may begin U+2028 or U+2029.
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
    fn reduces_to_what_routing_depends_on() {
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
    fn follows_128_levels() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(spell(&nested(128)), Some(nested(128)));
        assert_eq!(spell(&nested(129)), None);
        assert_eq!(spell(&nested(100_000)), None);
        let side_by_side = format!("[{}[]]", "[{}],".repeat(500));
        assert_eq!(spell(&side_by_side).as_ref(), Some(&side_by_side));
    }
}
