//! Addresses in the texts of errors: URLs, IP addresses, and hosts with their ports.

use std::net::{IpAddr, SocketAddr};

use super::Redactor;

impl Redactor {
    /// A text for people that may hold URLs, IP addresses and hosts with ports.
    pub fn error(&self, text: &str) -> String {
        let is_delimiter = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
        let ends_outside_urls = |c: char| "(){},;=|".contains(c);
        let mut redacted = String::with_capacity(text.len());
        for piece in text.split_inclusive(is_delimiter) {
            if piece.contains("://") {
                self.word(piece, is_delimiter, &mut redacted);
            } else {
                for piece in piece.split_inclusive(ends_outside_urls) {
                    let is_end = |c| is_delimiter(c) || ends_outside_urls(c);
                    self.word(piece, is_end, &mut redacted);
                }
            }
        }
        redacted
    }

    fn word(&self, word: &str, is_delimiter: impl Fn(char) -> bool, redacted: &mut String) {
        // Punctuation after an address belongs to the sentence.
        let inner = word.trim_end_matches(|c| is_delimiter(c) || ".:-!?),;".contains(c));
        match address_in(inner).and_then(|address| Some((address, word.split_once(address)?))) {
            Some((address, (before, after))) => {
                redacted.push_str(before);
                redacted.push_str(&self.stand_in(address, address.len()));
                redacted.push_str(after);
            }
            None => redacted.push_str(word),
        }
    }
}

/// The URL, IP address or host with port in a word.
fn address_in(word: &str) -> Option<&str> {
    if let Some(at) = word.find("://") {
        let scheme = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        let scheme = word.as_bytes().get(..at)?.iter().rev().take_while(|b| scheme(b)).count();
        return word.get(at - scheme..);
    }
    let bare = word.trim_matches(['[', ']', '-']);
    let is_ip = |text: &str| {
        let ip = text.split(['/', '%']).next().unwrap_or_default();
        ip.parse::<IpAddr>().is_ok()
    };
    if is_ip(bare) {
        return Some(bare);
    }
    let (host, port) = word.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_host = host == "localhost"
        || (host.contains(['.', '-']) && host.contains(|c: char| c.is_ascii_alphanumeric()))
        || host.starts_with('[');
    (word.parse::<SocketAddr>().is_ok() || (is_port && is_host)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_words_and_lose_their_addresses() {
        let redactor = Redactor::new();
        for (error, addresses) in [
            ("dial tcp 10.20.0.7:6443: connect: connection refused", &["10.20.0.7:6443"][..]),
            (
                "read tcp 10.0.0.1:52344->10.96.0.1:443: i/o timeout",
                &["10.0.0.1:52344", "10.96.0.1:443"],
            ),
            (
                "Get \"https://api.example.test/apis?x=1\": EOF",
                &["https://api.example.test/apis?x=1"],
            ),
            (
                "lookup of etcd-0.etcd:2379 failed, localhost:80, [::1]:443.",
                &["etcd-0.etcd:2379", "localhost:80", "[::1]:443"],
            ),
            (
                "no route to fe80::1%eth0 (2001:db8::7), 10.0.0.0/8",
                &["fe80::1%eth0", "2001:db8::7", "10.0.0.0/8"],
            ),
            (
                "tried (https://[2001:db8::1]:6443/x), ip=10.0.0.9",
                &["https://[2001:db8::1]:6443/x", "10.0.0.9"],
            ),
            ("größer: \u{2028}192.168.7.7!", &["192.168.7.7"]),
        ] {
            let mut expected = error.to_owned();
            for address in addresses {
                expected = expected.replace(address, &redactor.stand_in(address, address.len()));
            }
            assert_eq!(redactor.error(error), expected);
        }
        for kept in [
            "",
            "410 Gone\n\"too old\": expired",
            "connectors.networking.datumapis.com \"home-lab\" is forbidden: User \"system:x\" at 10:30:00, line:7",
            "https is off; a:b, :80, -:, [",
        ] {
            assert_eq!(redactor.error(kept), kept);
        }
    }
}
