//! Texts from outside: messages of API servers and webhooks, names, error messages of libraries. What
//! in them must not reach a terminal, and what must not leave the process.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

pub mod plain_json;

/// The fewest characters of a key in hexadecimal or base32, and in base64: 128 and 192 bits. Names in
/// Kubernetes that are as long have hyphens, and base64 has capitals, which names have not.
const KEY_CHARS_MIN: usize = 32;

/// The fewest characters of base64 between two slashes that tell it from a path.
const BASE64_PART_MIN: usize = 16;

/// The fewest characters of a token after a word that announces one.
const TOKEN_CHARS_MIN: usize = 8;

/// How many characters of a message are shown, from its beginning and from its end: a name in the middle
/// may have megabytes.
const MESSAGE_CHARS_MAX: (usize, usize) = (600, 300);

/// A token follows these.
const ANNOUNCES_TOKEN: [&str; 4] = ["bearer", "token", "password", "secret"];

/// Characters that show nothing, or change what a terminal shows: control characters; those that
/// reverse the direction of text, so that a line reads as another; separators of lines; and
/// characters without width.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text on one line, with each deceptive character as its escape, for example `\u{202e}`.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_deceptive)
}

/// The same, with its line breaks.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_deceptive(c) && c != '\n')
}

/// A message on one line, without its middle if it is very long.
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

/// The text without addresses, keys and tokens: `<address>` and so on stand for them.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    for (secret, at) in secrets(text) {
        out.push_str(&text[done..at.start]);
        let _ = write!(out, "<{}>", secret.name());
        done = at.end;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// What a part of a text gives away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// A URL, an IP address, or a host with its port.
    Address,
    /// A long number in hexadecimal, base32 or base64: a key, or a node id, which is one.
    Key,
    /// A token or password.
    Token,
}

impl Secret {
    fn name(self) -> &'static str {
        match self {
            Secret::Address => "address",
            Secret::Key => "key",
            Secret::Token => "token",
        }
    }
}

/// The parts of a text that are secrets, in order.
pub fn secrets(text: &str) -> Vec<(Secret, Range<usize>)> {
    let is_delimiter = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
    let ends_outside_urls = |c: char| "(){},;=|".contains(c);
    let mut found = Secrets { text, found: Vec::new(), announced: false };
    let mut start = 0;
    for piece in text.split_inclusive(is_delimiter) {
        if piece.contains("://") {
            found.word(start, piece, is_delimiter);
        } else {
            let mut start = start;
            for piece in piece.split_inclusive(ends_outside_urls) {
                found.word(start, piece, |c| is_delimiter(c) || ends_outside_urls(c));
                start += piece.len();
            }
        }
        start += piece.len();
    }
    found.found
}

struct Secrets<'t> {
    text: &'t str,
    found: Vec<(Secret, Range<usize>)>,
    /// The word before announces a token.
    announced: bool,
}

impl Secrets<'_> {
    /// Judges the word that begins at `start`, with the delimiter after it.
    fn word(&mut self, start: usize, word: &str, is_delimiter: impl Fn(char) -> bool) {
        // Punctuation after a word belongs to the sentence.
        let inner = word.trim_end_matches(|c| is_delimiter(c) || ".:-!?),;".contains(c));
        if inner.is_empty() {
            return;
        }
        let announced = std::mem::replace(&mut self.announced, announces_token(inner));
        let before = self.found.len();
        if let Some(address) = address_in(inner) {
            self.push(Secret::Address, start + address.start..start + address.end);
        } else if is_token(inner) || (announced && is_announced_token(inner)) {
            self.push(Secret::Token, start..start + inner.len());
        } else {
            let keys: Vec<_> = keys_in(inner).collect();
            for key in keys {
                self.push(Secret::Key, start + key.start..start + key.end);
            }
        }
        self.announced &= self.found.len() == before;
    }

    fn push(&mut self, secret: Secret, at: Range<usize>) {
        debug_assert!(self.text.get(at.clone()).is_some(), "{at:?} of {:?}", self.text);
        self.found.push((secret, at));
    }
}

fn announces_token(word: &str) -> bool {
    let word = word.trim_end_matches([':', '=']);
    ANNOUNCES_TOKEN.iter().any(|announcer| word.eq_ignore_ascii_case(announcer))
}

/// `token has expired` announces none.
fn is_announced_token(word: &str) -> bool {
    word.len() >= TOKEN_CHARS_MIN && word.bytes().any(|b| b.is_ascii_digit())
}

/// A JSON Web Token, or a bootstrap token of kubeadm.
fn is_token(word: &str) -> bool {
    let is_part =
        |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let parts: Vec<_> = word.split('.').collect();
    match *parts.as_slice() {
        [head, body, signature] => {
            head.starts_with("eyJ") && [head, body, signature].into_iter().all(is_part)
        }
        [id, secret] => {
            let is_small = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            (id.len(), secret.len()) == (6, 16)
                && [id, secret].iter().all(|part| part.bytes().all(is_small))
                && secret.bytes().any(|b| b.is_ascii_digit())
        }
        _ => false,
    }
}

/// The long numbers in a word.
fn keys_in(word: &str) -> impl Iterator<Item = Range<usize>> {
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/_-".contains(&b);
    runs(word, is_base64).flat_map(|run| {
        let whole = &word[run.clone()];
        let plain = |b: u8| b.is_ascii_alphanumeric();
        let parts: Vec<_> = if is_base64_key(whole) {
            vec![run]
        } else {
            let parts = runs(whole, plain).filter(|part| is_plain_key(&whole[part.clone()]));
            parts.map(|part| run.start + part.start..run.start + part.end).collect()
        };
        parts
    })
}

/// The longest parts of a text that consist of these bytes.
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

/// Hexadecimal or base32, without a hyphen.
fn is_plain_key(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.bytes().any(|b| is(&b));
    word.len() >= KEY_CHARS_MIN && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

fn is_base64_key(word: &str) -> bool {
    let is_mixed = |part: &str| {
        let has = |is: fn(&u8) -> bool| part.bytes().any(|b| is(&b));
        part.len() >= BASE64_PART_MIN
            && has(u8::is_ascii_digit)
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
    };
    word.len() >= KEY_CHARS_MIN && word.split('/').any(is_mixed)
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
        || (host.contains(['.', '-']) && host.contains(|c: char| c.is_ascii_alphanumeric()))
        || host.starts_with('[');
    (word.parse::<SocketAddr>().is_ok() || (is_port && is_host)).then_some(0..word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lose_what_must_not_leave() {
        let hex = "0123456789abcdef".repeat(4);
        let base32 = "ae58ff8833241ac82d6ff7611046ed67b5072d142c588d0063e942d9a75502b6";
        let base64 = "kPqX0/bYz+3mWlV9sT1uRg5hJc7nDfE2oAi8LwQxK4U=";
        let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
        for (message, expected) in [
            (
                "dial tcp 10.20.0.7:6443: connect: connection refused".to_owned(),
                "dial tcp <address>: connect: connection refused",
            ),
            ("Get \"https://api.example.test/apis?x=1\": EOF".to_owned(), "Get \"<address>\": EOF"),
            (format!("node {hex} is unknown"), "node <key> is unknown"),
            (format!("node_id={base32}, gone"), "node_id=<key>, gone"),
            (format!("key {base64}."), "key <key>=."),
            (format!("Authorization: Bearer {jwt}"), "Authorization: Bearer <token>"),
            (
                "the bearer token=hunter2-hunter2 is wrong".to_owned(),
                "the bearer token=<token> is wrong",
            ),
            ("token abcdef.0123456789abcdef".to_owned(), "token <token>"),
        ] {
            assert_eq!(without_secrets(&message), expected);
        }
    }

    #[test]
    fn messages_keep_their_words() {
        for kept in [
            "",
            "the token has expired; token: expired; Token review failed",
            "connectors.networking.datumapis.com \"home-lab\" is forbidden: User \
             \"system:serviceaccount:throughline-system:throughline\" cannot list resource \"connectors\" \
             in API group \"networking.datumapis.com\" at the cluster scope",
            "uid 7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c of ns-7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c",
            "/apis/gateway.networking.k8s.io/v1/namespaces/project-a-1234/httproutes/a-very-long-name-1",
            "HTTPRoute/project-a-1234/some-route-with-a-very-long-name-1 is gone",
            "mutatingwebhookconfigurationsandevenmorelongerwords größer",
            "00000000000000ab-12-3 410 Gone\n\"too old\": expired",
        ] {
            assert_eq!(without_secrets(kept), kept);
        }
    }

    #[test]
    fn deceptive_characters_are_escaped() {
        let text = "a\u{202e}b\x1b[2J\u{2066}c\r\nd\u{feff}größer 日本";
        let expected = "a\\u{202e}b\\u{1b}[2J\\u{2066}c\\r\\nd\\u{feff}größer 日本";
        assert_eq!(one_line(text), expected);
        assert_eq!(lines(text), expected.replace("\\n", "\n"));
        assert!(matches!(one_line("plain größer"), Cow::Borrowed(_)));
    }

    #[test]
    fn of_a_very_long_message_the_middle_is_left_out() {
        assert_eq!(brief("found \"\x1b\""), "found \"\\u{1b}\"");
        let long = |n: usize| format!("found \"{}\"; say why", "ä".repeat(n));
        assert_eq!(brief(&long(800)), long(800));
        let short = brief(&long(40_000_000)).into_owned();
        assert!(short.starts_with("found \"ää") && short.ends_with("ä\"; say why"), "{short}");
        assert_eq!(short.chars().count(), 600 + 1 + 300);
    }
}
