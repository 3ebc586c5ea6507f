//! Addresses, keys and tokens in the texts of errors.

use super::{Redactor, node_id};
use crate::outside_text::{Secret, secrets};

impl Redactor {
    /// A text for people that may hold URLs, IP addresses, hosts with ports, node ids and tokens.
    pub fn error(&self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut done = 0;
        for (secret, at) in secrets(text) {
            redacted.push_str(&text[done..at.start]);
            let part = &text[at.clone()];
            redacted.push_str(&match secret {
                // As everywhere in a log, so that a node can be followed through it.
                Secret::Key => node_id(part),
                Secret::Address | Secret::Token => self.stand_in(part, part.len()),
            });
            done = at.end;
        }
        redacted.push_str(&text[done..]);
        redacted
    }
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
        let (id, token) = ("0123456789abcdef".repeat(4), "abcdef.0123456789abcdef");
        assert_eq!(redactor.error(&format!("node {id}: no")), format!("node {}: no", node_id(&id)));
        let stand_in = redactor.stand_in(token, token.len());
        assert_eq!(redactor.error(&format!("Bearer {token}")), format!("Bearer {stand_in}"));
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
