//! JSON and YAML without deceptive characters.

use std::io;

use serde::Serialize;

use super::is_deceptive;

/// Writes JSON with each deceptive character of a string as a JSON escape; a reader gets the same
/// strings. Each call must pass whole characters, as a JSON serializer does.
#[derive(Debug)]
pub struct PlainJson<W> {
    out: W,
    /// Readers get the escape of [`one_line`](super::one_line) in place of the character.
    for_people: bool,
}

impl<W> PlainJson<W> {
    /// Readers get the original strings.
    pub fn new(out: W) -> Self {
        Self { out, for_people: false }
    }

    /// For a reader that shows the strings to people unchanged.
    pub fn for_people(out: W) -> Self {
        Self { out, for_people: true }
    }
}

impl<W: io::Write> io::Write for PlainJson<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only DEL and bytes outside ASCII need work. JSON has line breaks and tabs only between
        // strings.
        let is_plain = bytes.iter().all(|byte| *byte < 0x7f);
        let Some(text) = std::str::from_utf8(bytes).ok().filter(|_| !is_plain) else {
            return self.out.write_all(bytes).map(|()| bytes.len());
        };
        let mut done = 0;
        for (at, c) in text.match_indices(|c| is_deceptive(c) && !c.is_ascii_whitespace()) {
            self.out.write_all(&bytes[done..at])?;
            for c in c.chars() {
                if self.for_people {
                    write!(self.out, "\\{}", c.escape_default())?;
                    continue;
                }
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(self.out, "\\u{unit:04x}")?;
                }
            }
            done = at + c.len();
        }
        self.out.write_all(&bytes[done..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A value as YAML, or, if it has deceptive characters, as JSON, which is valid YAML.
///
/// # Errors
/// The value cannot be serialized.
pub fn plain_yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let yaml = serde_saphyr::to_string(value)?;
    if !yaml.contains(|c| is_deceptive(c) && c != '\n') {
        return Ok(yaml);
    }
    plain_json(value)
}

/// A value as indented JSON without deceptive characters.
///
/// # Errors
/// The value cannot be serialized.
pub fn plain_json(value: &impl Serialize) -> anyhow::Result<String> {
    let mut json = Vec::new();
    serde_json::to_writer_pretty(PlainJson::new(&mut json), value)?;
    json.push(b'\n');
    Ok(String::from_utf8(json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_say_the_same_without_deceptive_characters() {
        let value = serde_json::json!({
            "a\u{202e}b": ["größer 日本\n", "\u{7f}\u{85}\u{e0041}", "\u{feff}"],
        });
        let is_plain = |text: &str| !text.contains(|c| is_deceptive(c) && c != '\n');
        let json = plain_json(&value).unwrap();
        assert!(is_plain(&json) && json.contains(r"\u202e"), "{json}");
        assert!(json.contains("größer 日本"), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
        assert_eq!(plain_yaml(&value).unwrap(), json);
        assert_eq!(plain_yaml(&serde_json::json!({"a": "größer"})).unwrap(), "a: größer\n");
        let mut shown = Vec::new();
        serde_json::to_writer(PlainJson::for_people(&mut shown), &value).unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown[r"a\u{202e}b"][2], r"\u{feff}");
    }
}
