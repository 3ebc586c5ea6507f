//! Texts from outside: messages of API servers and webhooks, names, error messages of libraries. This
//! module keeps deceptive characters from a terminal and secrets inside the process.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

pub mod plain_json;

/// A node id has 64 hexadecimal digits; a shorter run may be one that was cut.
const NODE_ID_DIGITS_MIN: usize = 32;

/// The shortest token. A token also contains a digit, so `token: expired` is a sentence.
const TOKEN_CHARS_MIN: usize = 8;

/// A value whose name contains one of these words is a secret.
const SECRET_NAMES: [&str; 4] = ["secret", "key", "token", "password"];

/// The longest name searched for.
const NAME_BYTES_MAX: usize = 256;

/// The characters of a message that are shown from its beginning and from its end. A name in the middle
/// may have megabytes.
const MESSAGE_CHARS_MAX: (usize, usize) = (600, 300);

/// Characters that are invisible or change how a terminal shows a line: control characters, characters
/// that reverse the text direction, line separators, and characters without width.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text on one line, with each deceptive character as its escape, for example `\u{202e}`.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_deceptive)
}

/// As [`one_line`], but keeps line breaks.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_deceptive(c) && c != '\n')
}

/// A message on one line; a very long one without its middle.
pub fn brief(message: &str) -> Cow<'_, str> {
    let (first, last) = MESSAGE_CHARS_MAX;
    let end = message.char_indices().nth(first).map(|(at, _)| at);
    let start = message.char_indices().rev().nth(last - 1).map(|(at, _)| at);
    match end.zip(start) {
        Some((end, start)) if end < start => {
            Cow::Owned(one_line(&message[..end]).into_owned() + "…" + &one_line(&message[start..]))
        }
        _ => one_line(message),
    }
}

fn escaped(text: &str, escapes: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&escapes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match escapes(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Replaces addresses, node ids and secrets with `<address>` and so on.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    replace_secrets(text, |secret, _| secret.stand_in().to_owned())
}

/// Replaces each secret with the text that `by` returns.
pub fn replace_secrets(text: &str, by: impl Fn(Secret, &str) -> String) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    for (secret, at) in secrets(text) {
        out.push_str(&text[done..at.start]);
        out.push_str(&by(secret, &text[at.clone()]));
        done = at.end;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// A kind of sensitive text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// A URL, an IP address, or a host with its port.
    Address,
    NodeId,
    /// The value of a name that contains secret, key, token or password, or a token with a known
    /// prefix.
    Value,
}

impl Secret {
    /// The placeholder that people see.
    pub fn stand_in(self) -> &'static str {
        match self {
            Secret::Address => "<address>",
            Secret::NodeId => "<node id>",
            Secret::Value => "<secret>",
        }
    }
}

/// The sensitive parts of a text, in order.
fn secrets(text: &str) -> Vec<(Secret, Range<usize>)> {
    let mut found = named_values(text);
    find_words(text, &mut found);
    found.sort_by_key(|(_, at)| at.start);
    found.dedup_by(|(_, later), (_, at)| {
        let overlaps = later.start < at.end;
        if overlaps {
            at.end = at.end.max(later.end);
        }
        overlaps
    });
    found
}

/// The values in `NAME=VALUE`, `NAME: VALUE` and `"NAME":"VALUE"` with a secret's name.
fn named_values(text: &str) -> Vec<(Secret, Range<usize>)> {
    let mut found: Vec<(Secret, Range<usize>)> = Vec::new();
    for (at, separator) in text.match_indices(['=', ':']) {
        let is_within = found.last().is_some_and(|(_, value)| at < value.end);
        if !is_within
            && says_secret(&text[..at])
            && let Some(value) = value_in(&text[at + 1..], separator == "=")
        {
            found.push((Secret::Value, at + 1 + value.start..at + 1 + value.end));
        }
    }
    found
}

/// Whether the name at the end of `text` is that of a secret.
fn says_secret(text: &str) -> bool {
    let text = text.trim_end_matches(['"', '\'', '\\', ' ']).as_bytes();
    let is_name = |b: &&u8| b.is_ascii_alphanumeric() || b"_-.".contains(b);
    let bytes = text.iter().rev().take(NAME_BYTES_MAX).take_while(is_name).count();
    let name = text[text.len() - bytes..].to_ascii_lowercase();
    SECRET_NAMES.iter().any(|word| memchr::memmem::find(&name, word.as_bytes()).is_some())
}

/// The value after the separator.
fn value_in(text: &str, is_assigned: bool) -> Option<Range<usize>> {
    let value = text.trim_start_matches([' ', '=', ':']);
    let start = text.len() - value.len();
    for quote in ["\\\"", "\"", "'"] {
        if let Some(quoted) = value.strip_prefix(quote) {
            let end = quoted.find(quote).unwrap_or(quoted.len());
            return (end > 0).then_some(start + quote.len()..start + quote.len() + end);
        }
    }
    let ends =
        |c: char| c.is_whitespace() || "\"'`<>(){},;&|\\".contains(c) || (c == ':' && !is_assigned);
    let mut end = value.find(ends).unwrap_or(value.len());
    if ["Bearer", "Basic"].iter().any(|scheme| value[..end].eq_ignore_ascii_case(scheme)) {
        let rest = value[end..].trim_start_matches(' ');
        end = value.len() - rest.len() + rest.find(ends).unwrap_or(rest.len());
    }
    let is_value = match is_assigned {
        true => end > 0,
        false => !value.starts_with("//") && is_token(&value[..end]),
    };
    is_value.then_some(start..start + end)
}

fn is_token(word: &str) -> bool {
    word.len() >= TOKEN_CHARS_MIN && word.bytes().any(|b| b.is_ascii_digit())
}

/// Finds words that are secrets without a name.
fn find_words(text: &str, found: &mut Vec<(Secret, Range<usize>)>) {
    let is_delimiter = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
    let ends_outside_urls = |c: char| "(){},;=|".contains(c);
    let mut start = 0;
    let mut after_bearer = false;
    for piece in text.split_inclusive(is_delimiter) {
        let is_url = piece.contains("://");
        for word in piece.split_inclusive(|c| !is_url && ends_outside_urls(c)) {
            // Punctuation after a word belongs to the sentence.
            let inner = word.trim_end_matches(|c| {
                is_delimiter(c) || ".:-!?),;".contains(c) || (!is_url && ends_outside_urls(c))
            });
            let found_here = address_in(inner)
                .map(|at| (Secret::Address, at))
                .or_else(|| known_token_in(inner).map(|at| (Secret::Value, at)))
                .or_else(|| {
                    (after_bearer && is_token(inner)).then_some((Secret::Value, 0..inner.len()))
                });
            match found_here {
                Some((secret, at)) => found.push((secret, start + at.start..start + at.end)),
                None => found.extend(
                    runs(inner, |b| b.is_ascii_hexdigit())
                        .filter(|run| run.len() >= NODE_ID_DIGITS_MIN)
                        .map(|run| (Secret::NodeId, start + run.start..start + run.end)),
                ),
            }
            if !inner.is_empty() {
                after_bearer = inner.eq_ignore_ascii_case("bearer");
            }
            start += word.len();
        }
    }
}

/// A token with a known prefix: of AWS or Slack, or a JSON Web Token.
fn known_token_in(word: &str) -> Option<Range<usize>> {
    runs(word, |b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)).find(|run| {
        let part = &word[run.clone()];
        let is_aws = ["AKIA", "ASIA"].iter().any(|prefix| part.starts_with(prefix));
        let is_slack = part.starts_with("xox") && part.as_bytes().get(4) == Some(&b'-');
        let is_web_token = part.starts_with("eyJ") && part.matches('.').count() == 2;
        (is_aws && part.len() >= 16) || is_slack || is_web_token
    })
}

/// The longest ranges whose bytes all match.
fn runs(text: &str, is_part: impl Fn(u8) -> bool) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + bytes[at..].iter().position(|b| is_part(*b))?;
        let rest = bytes[start..].iter().position(|b| !is_part(*b));
        at = rest.map_or(bytes.len(), |n| start + n);
        Some(start..at)
    })
}

/// The URL, IP address or host with port in a word.
fn address_in(word: &str) -> Option<Range<usize>> {
    if let Some(at) = word.find("://") {
        let scheme = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        let scheme = word.as_bytes().get(..at)?.iter().rev().take_while(|b| scheme(b)).count();
        return Some(at - scheme..word.len());
    }
    let bare = word.trim_matches(['[', ']', '-']);
    let is_ip = |text: &str| {
        let ip = text.split(['/', '%']).next().unwrap_or_default();
        ip.parse::<IpAddr>().is_ok()
    };
    if is_ip(bare) {
        let start = word.find(bare)?;
        return Some(start..start + bare.len());
    }
    let (host, port) = word.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_host = host == "localhost"
        // A host with a colon is a time of day.
        || (host.contains(['.', '-'])
            && host.contains(|c: char| c.is_ascii_alphanumeric())
            && !host.contains(':'))
        || host.starts_with('[');
    (word.parse::<SocketAddr>().is_ok() || (is_port && is_host)).then_some(0..word.len())
}
