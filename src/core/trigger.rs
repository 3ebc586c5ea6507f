//! The trigger annotation's value, `<digest>-<n>-<c>`, and what goes into the digest.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A trigger value. Printed as 16 hexadecimal digits, the number of writes, the confirmations:
/// `9f2c41d07be5a630-3-1`. Short, because it ends up in Envoy's route metadata, and without a node
/// id in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// What is announced: every referenced connector's name, online, node id.
    pub digest: u64,
    /// Counts every write to the object up, so that no value is ever used twice on it.
    pub n: u32,
    /// The confirmations done since the announcement.
    pub c: u32,
}

impl Trigger {
    /// Reads a value; `None` when throughline did not write it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (digest, n, c) = (parts.next()?, parts.next()?, parts.next()?);
        let plain = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (parts.next().is_none() && digest.len() == 16 && digest.bytes().all(lower_hex))
            .then_some(())?;
        (plain(n) && plain(c)).then_some(())?;
        Some(Self {
            digest: u64::from_str_radix(digest, 16).ok()?,
            n: n.parse().ok()?,
            c: c.parse().ok()?,
        })
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}-{}", self.digest, self.n, self.c)
    }
}

/// One connector's part of a digest. Parts are combined by wrapping addition, so that a digest
/// over many changes in O(1) when one of them does.
pub fn connector_part(name: &str, online: bool, node_id: &str) -> u64 {
    let mut hash = Xxh3::new();
    for part in [name.as_bytes(), &[0, u8::from(online), 0], node_id.as_bytes()] {
        hash.update(part);
    }
    hash.digest()
}

/// One gateway's part of the digest of its class.
pub fn gateway_part(namespace: &str, name: &str, digest: u64) -> u64 {
    let mut hash = Xxh3::new();
    for part in [namespace.as_bytes(), &[0], name.as_bytes(), &[0], &digest.to_le_bytes()] {
        hash.update(part);
    }
    hash.digest()
}

/// The digest of the connectors of one gateway, in any order.
pub fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    let sum = parts.into_iter().fold(0_u64, u64::wrapping_add);
    xxh3_64(&sum.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_back_and_nothing_else_does() {
        let value = Trigger { digest: 0x00ab, n: 12, c: 3 };
        assert_eq!(value.to_string(), "00000000000000ab-12-3");
        assert_eq!(Trigger::parse(&value.to_string()), Some(value));
        for text in [
            "",
            "true/8c5d",
            "00000000000000ab",
            "00000000000000ab-1",
            "00000000000000ab-1-2-3",
            "00000000000000AB-1-2",
            "0ab-1-2",
            "00000000000000ab--2",
            "00000000000000ab-1-",
            "00000000000000ab-+1-2",
            "00000000000000ab-4294967296-0",
            "00000000000000ag-1-2",
        ] {
            assert_eq!(Trigger::parse(text), None, "{text}");
        }
    }

    /// The digest stays on objects in other people's clusters: it may never change.
    #[test]
    fn the_digest_is_stable() {
        assert_eq!(connector_part("home-lab", true, "8c5d"), 0x74e5_090f_41d2_a373);
        assert_eq!(digest([1, 2]), digest([2, 1]));
        assert_ne!(connector_part("a", true, ""), connector_part("a", false, ""));
        assert_ne!(connector_part("a", true, "b"), connector_part("ab", true, ""));
        assert_ne!(gateway_part("a", "bc", 1), gateway_part("ab", "c", 1));
    }
}
