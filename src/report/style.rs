//! Text output: colours, indents, line breaks; times and numbers for people.

use std::io::{self, BufWriter, Write};

use super::ReportOptions;
use crate::core::data::time::UnixMillis;
use crate::outside_text::is_deceptive;

/// Lists are cut after this many rows.
pub(super) const ROWS_MAX: usize = 20;

/// Without colour all styles look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

impl Style {
    const RESET: &str = "\x1b[0m";

    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "\x1b[1m",
            Style::Dim => "\x1b[2m",
            Style::Red => "\x1b[31m",
            Style::Green => "\x1b[32m",
            Style::Yellow => "\x1b[33m",
        }
    }
}

/// Writes wrapped paragraphs.
pub(crate) struct TextWriter<'w> {
    out: BufWriter<&'w mut dyn Write>,
    color: bool,
    width: usize,
}

impl<'w> TextWriter<'w> {
    pub(crate) fn new(out: &'w mut dyn Write, options: &ReportOptions) -> Self {
        Self { out: BufWriter::new(out), color: options.color, width: options.width.max(40) }
    }

    /// Writes an empty line.
    pub(crate) fn gap(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// Writes one paragraph, broken between words. Its first line is indented by `indent`, the
    /// others by `hang`.
    pub(crate) fn put(
        &mut self,
        indent: usize,
        hang: usize,
        parts: &[(Style, &str)],
    ) -> io::Result<()> {
        write!(self.out, "{:indent$}", "")?;
        let mut column = indent;
        let mut spaces = 0;
        let mut at_start = true;
        for &(style, text) in parts {
            let code = if self.color { style.code() } else { "" };
            self.out.write_all(code.as_bytes())?;
            for (i, word) in text.split(' ').enumerate() {
                spaces += usize::from(i > 0);
                if word.is_empty() {
                    continue;
                }
                let len = word.chars().count();
                if column + spaces + len > self.width && !at_start {
                    // The line break replaces the spaces.
                    write!(self.out, "\n{:hang$}", "")?;
                    column = hang;
                } else {
                    write!(self.out, "{:spaces$}", "")?;
                    column += spaces;
                }
                spaces = 0;
                at_start = false;
                self.word(word)?;
                column += len;
            }
            if !code.is_empty() {
                self.out.write_all(Style::RESET.as_bytes())?;
            }
        }
        writeln!(self.out)
    }

    /// Writes rows, cut if there are many.
    pub(crate) fn rows(
        &mut self,
        indent: usize,
        rows: impl ExactSizeIterator<Item = Vec<(Style, String)>>,
    ) -> io::Result<()> {
        let more = rows.len().saturating_sub(ROWS_MAX);
        for row in rows.take(ROWS_MAX) {
            self.put(indent, indent + 2, &borrowed(&row))?;
        }
        if more > 0 {
            let text = format!("… {} more (--output json has all)", grouped(more));
            self.put(indent, indent + 2, &[(Style::Dim, &text)])?;
        }
        Ok(())
    }

    /// Names and errors come from the log and must not control the terminal.
    fn word(&mut self, word: &str) -> io::Result<()> {
        let printable = |c: char| match c {
            NBSP => ' ',
            _ if is_deceptive(c) => char::REPLACEMENT_CHARACTER,
            _ => c,
        };
        if word.chars().any(|c| printable(c) != c) {
            let word: String = word.chars().map(printable).collect();
            return self.out.write_all(word.as_bytes());
        }
        self.out.write_all(word.as_bytes())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(crate) fn borrowed(text: &[(Style, String)]) -> Vec<(Style, &str)> {
    text.iter().map(|(style, text)| (*style, text.as_str())).collect()
}

/// Keeps a number and its unit on one line; printed as a space.
const NBSP: char = '\u{a0}';

/// Keeps a text on one line.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// `85 ms`, `2.06 s`, `52.2 s`, `1 min 15 s`, `2 h 5 min`, `3 d 4 h`.
pub fn duration(ms: u64) -> String {
    let two = |n: u64, unit: &str, rest: u64, rest_unit: &str| match rest {
        0 => format!("{n}{NBSP}{unit}"),
        _ => format!("{n}{NBSP}{unit}{NBSP}{rest}{NBSP}{rest_unit}"),
    };
    let hundredths = ms.saturating_add(5) / 10;
    let tenths = ms.saturating_add(50) / 100;
    let seconds = ms.saturating_add(500) / 1000;
    let minutes = ms.saturating_add(30_000) / 60_000;
    let hours = ms.saturating_add(1_800_000) / 3_600_000;
    match () {
        () if ms < 1000 => format!("{ms}{NBSP}ms"),
        () if hundredths < 1000 => format!("{}.{:02}{NBSP}s", hundredths / 100, hundredths % 100),
        () if tenths < 600 => format!("{}.{}{NBSP}s", tenths / 10, tenths % 10),
        () if seconds < 3600 => two(seconds / 60, "min", seconds % 60, "s"),
        () if minutes < 1440 => two(minutes / 60, "h", minutes % 60, "min"),
        () => two(hours / 24, "d", hours % 24, "h"),
    }
}

/// `09:20:13.042`, UTC.
pub(crate) fn clock(at: UnixMillis) -> String {
    let ms = at.0 % 86_400_000;
    let h = ms / 3_600_000;
    let min = ms / 60_000 % 60;
    let s = ms / 1000 % 60;
    format!("{h:02}:{min:02}:{s:02}.{:03}", ms % 1000)
}

/// `2026-11-21 09:20:13.042`, UTC.
pub fn moment(at: UnixMillis) -> String {
    at.to_string().replace('T', " ").trim_end_matches('Z').to_owned()
}

/// `+2.061 s`.
pub(crate) fn offset(ms: u64) -> String {
    format!("+{}.{:03} s", ms / 1000, ms % 1000)
}

/// `1 gateway`, `26 gateways`, `no actions`, `12,345 events`.
pub fn count(n: impl TryInto<usize>, one: &str) -> String {
    let n = n.try_into().unwrap_or(usize::MAX);
    let plural = match one {
        _ if one.ends_with(['s', 'x']) || one.ends_with("ch") => format!("{one}es"),
        _ => format!("{one}s"),
    };
    match n {
        0 => format!("no {plural}"),
        1 => format!("1 {one}"),
        _ => format!("{} {plural}", grouped(n)),
    }
}

/// The first few words: `a, b, c, d, e and 7 more`.
pub(crate) fn join_first<T: std::fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    const SHOWN_MAX: usize = 5;
    let mut words = words.into_iter();
    let shown: Vec<_> = words.by_ref().take(SHOWN_MAX).map(|word| word.to_string()).collect();
    let mut text = shown.join(", ");
    let more = words.count();
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

/// `1,234,567`.
pub(crate) fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_significant_digits() {
        for (ms, text) in [
            (0, "0 ms"),
            (85, "85 ms"),
            (999, "999 ms"),
            (1_000, "1.00 s"),
            (2_061, "2.06 s"),
            (9_994, "9.99 s"),
            (9_996, "10.0 s"),
            (52_240, "52.2 s"),
            (59_960, "1 min"),
            (75_000, "1 min 15 s"),
            (3_599_600, "1 h"),
            (7_500_000, "2 h 5 min"),
            (277_200_000, "3 d 5 h"),
        ] {
            assert_eq!(duration(ms).replace(NBSP, " "), text, "{ms}");
        }
        assert!(duration(u64::MAX).ends_with('h'));
    }

    #[test]
    fn numbers_and_their_nouns_agree() {
        let mirrors = count(1, "mirror");
        let touches = count(2, "touch");
        assert_eq!((mirrors.as_str(), touches.as_str()), ("1 mirror", "2 touches"));
        assert_eq!(count(0, "event"), "no events");
        assert_eq!(count(1_234_567, "event"), "1,234,567 events");
        assert_eq!(grouped(100), "100");
    }

    #[test]
    fn breaks_lines_between_words() {
        let mut out = Vec::new();
        let options = ReportOptions { width: 40, ..ReportOptions::default() };
        let mut writer = TextWriter::new(&mut out, &options);
        let text = "one two three four five six seven eight\x1b[2J ni\u{202e}ne";
        writer.put(2, 6, &[(Style::Red, text), (Style::Plain, ", ten")]).unwrap();
        writer.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "  one two three four five six seven\n      eight\u{fffd}[2J ni\u{fffd}ne, ten\n"
        );
    }
}
