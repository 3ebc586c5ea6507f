//! A JSON reader that accepts exactly what Go's `encoding/json` accepts.
//!
//! `serde_json` differs in corner cases where all readers of one annotation must agree: Go reads a
//! lone surrogate as U+FFFD (`serde_json` refuses the text), stops at 10,000 levels (`serde_json` at
//! 128, or never), and rounds floats correctly.

use std::borrow::Cow;

/// How many levels Go's scanner descends (`maxNestingDepth` in `encoding/json/scanner.go`).
pub const GO_DEPTH_MAX: usize = 10_000;

/// Reads values one after another. Every method skips white space first. It returns `None` if the
/// text is not JSON or not of the requested type; after that the reader must not be used.
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many more arrays and objects may be opened.
    depth_left: usize,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str, depth_max: usize) -> Self {
        Self { text, at: 0, depth_left: depth_max }
    }

    /// The position in the text, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Succeeds if only white space is left.
    pub fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// `true`, `false` or `null`.
    pub(crate) fn word(&mut self) -> Option<&'static str> {
        self.peek()?;
        let rest = self.text.get(self.at..)?;
        let word = ["null", "true", "false"].into_iter().find(|word| rest.starts_with(word))?;
        self.at += word.len();
        Some(word)
    }

    /// A number, verbatim.
    pub(crate) fn number(&mut self) -> Option<&'a str> {
        let is_negative = self.peek()? == b'-';
        let start = self.at;
        self.at += usize::from(is_negative);
        let whole = self.digits()?;
        if whole > 1 && self.text.as_bytes()[self.at - whole] == b'0' {
            return None;
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.here(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.here(), Some(b'+' | b'-')));
            self.digits()?;
        }
        self.text.get(start..self.at)
    }

    /// A string, without its quotes and escapes.
    pub fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let start = self.at;
        let mut is_escaped = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            self.at += rest.iter().position(|b| matches!(b, b'"' | b'\\' | ..0x20))?;
            match self.here()? {
                b'"' => break,
                b'\\' => {
                    is_escaped = true;
                    self.at += escape_len(self.text.as_bytes().get(self.at..)?)?;
                }
                _ => return None,
            }
        }
        let raw = self.text.get(start..self.at)?;
        self.at += 1;
        Some(if is_escaped { Cow::Owned(unescape(raw)) } else { Cow::Borrowed(raw) })
    }

    /// An object. `each` gets every key and must read its value.
    pub fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Option<()>,
    ) -> Option<()> {
        self.container(b'{', b'}', |reader, _| {
            let key = reader.key()?;
            each(reader, key)
        })
    }

    /// An array. `each` gets every index and must read the value.
    pub fn array(&mut self, each: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.container(b'[', b']', each)
    }

    /// Skips a value of any type and returns it verbatim. Does not recurse.
    pub fn skip(&mut self) -> Option<&'a str> {
        self.peek()?;
        let start = self.at;
        // The bytes that will close the open arrays and objects.
        let mut open = Vec::new();
        loop {
            let ends = match self.peek()? {
                first @ (b'[' | b'{') => {
                    self.at += 1;
                    // In ASCII, the closing bracket comes two after the opening one.
                    open.push(first + 2);
                    if open.len() > self.depth_left {
                        return None;
                    }
                    self.peek()? == first + 2
                }
                _ => self.scalar().map(|()| true)?,
            };
            if ends && self.close(&mut open)? {
                return self.text.get(start..self.at);
            }
            if open.last() == Some(&b'}') {
                self.key()?;
            }
        }
    }

    /// Called after a value: reads closing brackets. `false` when another value must follow.
    fn close(&mut self, open: &mut Vec<u8>) -> Option<bool> {
        while let Some(&last) = open.last() {
            match self.peek()? {
                b',' => {
                    self.at += 1;
                    return Some(false);
                }
                byte if byte == last => self.at += 1,
                _ => return None,
            }
            open.pop();
        }
        Some(true)
    }

    fn scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            _ => self.word().map(drop),
        }
    }

    fn container(
        &mut self,
        first: u8,
        last: u8,
        mut each: impl FnMut(&mut Self, usize) -> Option<()>,
    ) -> Option<()> {
        self.expect(first)?;
        self.depth_left = self.depth_left.checked_sub(1)?;
        if self.peek()? != last {
            for i in 0.. {
                each(self, i)?;
                if self.peek()? != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.depth_left += 1;
        self.expect(last)
    }

    fn key(&mut self) -> Option<Cow<'a, str>> {
        let key = self.string()?;
        self.expect(b':')?;
        Some(key)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        is_next.then_some(())
    }

    /// The next byte, without skipping white space.
    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips one or more digits; returns how many.
    fn digits(&mut self) -> Option<usize> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(count)
    }
}

/// The length of the escape at the beginning of `text`; `None` when it is not a valid one.
fn escape_len(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => text.get(2..6)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// `unquoteBytes` of `encoding/json/decode.go`, for a string that the reader has accepted.
fn unescape(raw: &str) -> String {
    let mut plain_text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        plain_text.push_str(plain);
        let mut chars = escape.chars();
        plain_text.push(match chars.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let (char, len) = unicode_escape(chars.as_str());
                chars = chars.as_str().get(len..).unwrap_or_default().chars();
                char
            }
            Some(itself) => itself,
            None => break,
        });
        rest = chars.as_str();
    }
    plain_text.push_str(rest);
    plain_text
}

/// Reads the rest of an escape, after its `\u`; returns the character and its length in bytes.
fn unicode_escape(text: &str) -> (char, usize) {
    let unit = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, 0) };
    if let Some(char) = char::from_u32(first) {
        return (char, 4);
    }
    let low = text.get(4..).and_then(|text| text.strip_prefix("\\u")).and_then(unit);
    match low.map(|low| char::decode_utf16([first as u16, low as u16]).next()) {
        Some(Some(Ok(pair))) => (pair, 10),
        // A lone surrogate.
        _ => (char::REPLACEMENT_CHARACTER, 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = r#"
        0 -0 10 1.5 1e5 -1.50E-05 1e+5 true false null
        "" "\"\\\/\b\f\n\r\t\u00aF\ud800" [] {} [[[]]] {"a":{"b":[]},"c":1}
    "#;

    const BROKEN: &str = r#"
        01 - -01 1. .5 1e 1e+ +1 0x1 nul True nullx 'a' " "\" "\x" "\u12g4" "\u12"
        [ [1 [1, [1,] [,1] [,] [1} [1]] [[[[]]]] ] } {,} {1:2} {"a"} {"a":} {"a":1,} {"a":1] {"a":[}
    "#;

    /// Whether `skip` accepts a whole text.
    fn skips(text: &str) -> bool {
        let mut reader = Reader::new(text, 3);
        reader.skip().is_some() && reader.end().is_some()
    }

    #[test]
    fn accepts_json_and_nothing_else() {
        let spaced = [" [ 1 , [ ] , { } ] ", "\t\r\n 1 ", "\"\u{7f}é\""];
        for text in VALUES.split_ascii_whitespace().chain(spaced) {
            assert!(skips(text), "{text}");
        }

        let spaced = ["", " ", "1 2", r#"{"a" 1}"#, r#"{"a":1 "b":2}"#];
        let not_space = ["\"\n\"", "\u{feff}1", "\u{a0}1", "1\u{c}"];
        for text in BROKEN.split_ascii_whitespace().chain(spaced).chain(not_space) {
            assert!(!skips(text), "{text}");
        }
    }
}
