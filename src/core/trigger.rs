//! The trigger annotation's value, `<digest>-<n>-<c>`, and what goes into the digest.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

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
    let node = (!node_id.is_empty()).then(|| node_hash(node_id).to_le_bytes());
    let node = node.as_ref().map_or(&[][..], |hash| hash);
    let mut hash = Xxh3::new();
    for part in [name.as_bytes(), &[0, u8::from(online), 0], node] {
        hash.update(part);
    }
    hash.digest()
}

/// Begins the stand-in of a node id in a redacted event log.
const NODE_STAND_IN: &str = "redacted-";

/// What a digest knows of a node id. The stand-in of a node id carries this very hash, which is
/// taken from it: so a redacted log leads to the same triggers as what it was made of.
pub fn node_hash(node_id: &str) -> u128 {
    carried_hash(node_id).unwrap_or_else(|| xxh3_128(node_id.as_bytes()))
}

/// What stands for a node id in a redacted event log: `redacted-`, the 32 hexadecimal digits of its
/// [`node_hash`], and as many `-` as make it `bytes` long, if it is not longer. What is a
/// stand-in already stays as it is.
pub fn node_stand_in(node_id: &str, bytes: usize) -> String {
    match carried_hash(node_id) {
        Some(_) => node_id.to_owned(),
        None => format!("{:-<bytes$}", format!("{NODE_STAND_IN}{:032x}", node_hash(node_id))),
    }
}

fn carried_hash(node_id: &str) -> Option<u128> {
    let (digits, filler) = node_id.strip_prefix(NODE_STAND_IN)?.split_at_checked(32)?;
    let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (digits.bytes().all(lower_hex) && filler.bytes().all(|b| b == b'-')).then_some(())?;
    u128::from_str_radix(digits, 16).ok()
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
        assert_eq!(connector_part("home-lab", true, "8c5d"), 0xbe9f_cde7_0680_5965);
        assert_eq!(digest([1, 2]), digest([2, 1]));
        assert_ne!(connector_part("a", true, ""), connector_part("a", false, ""));
        assert_ne!(connector_part("a", true, "b"), connector_part("ab", true, ""));
        assert_ne!(gateway_part("a", "bc", 1), gateway_part("ab", "c", 1));
    }

    #[test]
    fn a_stand_in_announces_what_its_node_id_does() {
        for (id, bytes) in [("8c5d", 0), ("8c5d", 41), ("8c5d", 42), ("8c5d", 64), ("é<", 13)] {
            let stand_in = node_stand_in(id, bytes);
            assert_eq!(stand_in.len(), bytes.max(41));
            assert_eq!(node_hash(&stand_in), node_hash(id));
            assert_eq!(node_stand_in(&stand_in, 99), stand_in);
            assert_eq!(connector_part("a", true, &stand_in), connector_part("a", true, id));
        }
        let taken = node_stand_in("8c5d", 0);
        for other in [
            taken.replace('-', "_"),
            taken[..40].to_owned(),
            format!("{taken}a"),
            format!("{}A", &taken[..40]),
            format!("{}é", &taken[..40]),
        ] {
            assert_eq!(node_hash(&other), xxh3_128(other.as_bytes()), "{other}");
        }
    }
}
