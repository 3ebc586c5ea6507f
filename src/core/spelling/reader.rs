//! A JSON text, read from its beginning to its end the way Go's `encoding/json` reads it.
//!
//! By hand, because `serde_json` is another reader at the corners where all readers of one
//! annotation must agree: Go reads a lone surrogate as U+FFFD (`serde_json` refuses the text), gives
//! up 10,000 levels deep (`serde_json` after 128, or never), and rounds floats correctly.

use std::borrow::Cow;

/// How deep Go's scanner follows (`maxNestingDepth` in `encoding/json/scanner.go`).
pub(crate) const GO_DEPTH_MAX: usize = 10_000;

/// Reads one value after the other. Every method passes over white space first, and returns `None`
/// for what is not JSON or not what was asked for; the reader is of no more use then.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many more arrays and objects may be opened.
    depth_left: usize,
}

/// A string as it stands in the text, without its quotes.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    raw: &'a str,
    is_escaped: bool,
}

impl<'a> Text<'a> {
    /// What the string says.
    pub(crate) fn get(self) -> Cow<'a, str> {
        if self.is_escaped { Cow::Owned(unescape(self.raw)) } else { Cow::Borrowed(self.raw) }
    }
}

impl<'a> Reader<'a> {
    /// At the beginning of `text`.
    pub(crate) fn new(text: &'a str, depth_max: usize) -> Self {
        Self { text, at: 0, depth_left: depth_max }
    }

    /// How many bytes of the text were passed over.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Nothing but white space is left.
    pub(crate) fn end(&mut self) -> Option<()> {
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

    /// A number, as it is written.
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

    /// A string.
    pub(crate) fn string(&mut self) -> Option<Text<'a>> {
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
        Some(Text { raw, is_escaped })
    }

    /// An object: `each` is called with the key where the reader stands before the value, which it
    /// reads.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Option<()>,
    ) -> Option<()> {
        self.container(b'{', b'}', |reader, _| {
            let key = reader.key()?;
            each(reader, key.get())
        })
    }

    /// An array: `each` is called with the index where the reader stands before the value, which it
    /// reads.
    pub(crate) fn array(&mut self, each: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.container(b'[', b']', each)
    }

    /// Passes over a value of any kind, and returns it as it is written. Needs no stack.
    pub(crate) fn skip(&mut self) -> Option<&'a str> {
        self.peek()?;
        let start = self.at;
        // What will close the arrays and objects that are open.
        let mut open = Vec::new();
        loop {
            let ends = match self.peek()? {
                first @ (b'[' | b'{') => {
                    self.at += 1;
                    // In ASCII, two after the bracket that opens.
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

    /// After a value: closes what ends here. `false` when another value must follow.
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

    fn key(&mut self) -> Option<Text<'a>> {
        let key = self.string()?;
        self.expect(b':')?;
        Some(key)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        is_next.then_some(())
    }

    /// The byte at which the reader stands.
    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over one digit or more; returns how many.
    fn digits(&mut self) -> Option<usize> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(count)
    }
}

/// How many bytes the escape takes with which `text` begins; `None` when there is no such escape.
fn escape_len(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => text.get(2..6)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// `unquoteBytes` of `encoding/json/decode.go`, for the inside of a string that was passed over.
fn unescape(raw: &str) -> String {
    let mut said = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        said.push_str(plain);
        let mut chars = escape.chars();
        said.push(match chars.next() {
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
    said.push_str(rest);
    said
}

/// What an escape says whose `\u` stands before `text`, and how many bytes of `text` belong to it.
fn unicode_escape(text: &str) -> (char, usize) {
    let unit = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, 0) };
    if let Some(char) = char::from_u32(first) {
        return (char, 4);
    }
    let low = text.get(4..).and_then(|text| text.strip_prefix("\\u")).and_then(unit);
    match low.map(|low| char::decode_utf16([first as u16, low as u16]).next()) {
        Some(Some(Ok(pair))) => (pair, 10),
        // A surrogate without its other half.
        _ => (char::REPLACEMENT_CHARACTER, 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `skip` makes of a whole text.
    fn skips(text: &str) -> bool {
        let mut reader = Reader::new(text, 3);
        reader.skip().is_some() && reader.end().is_some()
    }

    #[test]
    fn passes_over_json_and_nothing_else() {
        for text in [
            "0",
            "-0",
            "10",
            "1.5",
            "1e5",
            "-1.50E-05",
            "1e+5",
            "true",
            "false",
            "null",
            "\"\"",
            r#""\"\\\/\b\f\n\r\t\u00aF\ud800""#,
            "[]",
            "{}",
            " [ 1 , [ ] , { } ] ",
            "[[[]]]",
            r#"{"a":{"b":[]},"c":1}"#,
            "\"\u{7f}é\"",
            "\t\r\n 1 ",
        ] {
            assert!(skips(text), "{text}");
        }
        for text in [
            "",
            " ",
            "01",
            "-",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "1 2",
            "nul",
            "True",
            "\"",
            "\"\\\"",
            r#""\x""#,
            r#""\u12g4""#,
            r#""\u12""#,
            "\"\n\"",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[,]",
            "{,}",
            "[1}",
            "{1:2}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{"a":1]"#,
            r#"{"a":1 "b":2}"#,
            "]",
            "}",
            "[[[[]]]]",
            "\u{feff}1",
            "\u{a0}1",
            "1\u{c}",
            "'a'",
            "nullx",
            "[1]]",
            "{\"a\":[}",
        ] {
            assert!(!skips(text), "{text}");
        }
    }

    #[test]
    fn unescapes_as_go_does() {
        for (raw, said) in [
            (r"a\n\/\\\u0041b", "a\n/\\Ab"),
            (r"\ud83d\ude00\uD83D\uDE00", "😀😀"),
            (r"\ud83d", "\u{fffd}"),
            (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
            (r"\ud83d\u0041", "\u{fffd}A"),
            (r"\ud83d\n\ud83dé", "\u{fffd}\n\u{fffd}é"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        ] {
            assert_eq!(unescape(raw), said, "{raw}");
        }
    }
}
