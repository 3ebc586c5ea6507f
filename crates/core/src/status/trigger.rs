//! The value of the trigger annotation, `<digest>-<n>-<c>`, and its digest.

use std::fmt;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

/// A trigger value. Its text has 16 hexadecimal digits, the number of writes and the number of
/// confirmations, e.g. `9f2c41d07be5a630-3-1`. It is short and contains no node id, because it
/// appears in Envoy's route metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The digest of the name, liveness and node id of every announced connector.
    pub digest: u64,
    /// The number of writes to the object, so that no value is used twice on it.
    pub n: u32,
    /// The number of confirmations of this announcement.
    pub c: u32,
}

impl Trigger {
    /// `None` if throughline does not write such values. Each value has one text, because a write's
    /// precondition names the text that it replaces.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let trigger = Self {
            digest: u64::from_str_radix(parts.next()?, 16).ok()?,
            n: parts.next()?.parse().ok()?,
            c: parts.next()?.parse().ok()?,
        };
        (trigger.to_string() == text).then_some(trigger)
    }
}

/// The number of a write to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence(NonZeroU32);

impl Sequence {
    /// `None` for the number 0, which throughline never writes.
    pub(crate) fn of(trigger: Trigger) -> Option<Self> {
        NonZeroU32::new(trigger.n).map(Self)
    }

    pub(crate) fn get(self) -> u32 {
        self.0.get()
    }

    /// The next write after `latest`. The highest number is followed by 1.
    pub(crate) fn after(latest: Option<Self>) -> Self {
        let next = latest.map_or(0, Self::get).wrapping_add(1);
        Self(NonZeroU32::new(next).unwrap_or(NonZeroU32::MIN))
    }

    /// Compares with wrap-around: a number is later if it is less than half the range ahead. Any
    /// writer can set the highest number, and the next number must still count as later.
    pub(crate) fn is_after(self, other: Option<Self>) -> bool {
        other.is_none_or(|other| {
            let ahead = self.get().wrapping_sub(other.get());
            (1..=u32::MAX / 2).contains(&ahead)
        })
    }

    pub(crate) fn latest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        other.filter(|other| other.is_after(one)).or(one)
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}-{}", self.digest, self.n, self.c)
    }
}

/// Where node ids come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeIds {
    /// From clusters. An id that looks like a stand-in is an ordinary one, because the writer of a
    /// status chooses the id.
    #[default]
    Real,
    /// From a redacted event log. A stand-in counts as the node id that it replaces, so the log
    /// replays to the same triggers.
    Redacted,
}

impl NodeIds {
    /// One connector's part of a digest. Parts are added with wrap-around, so a change of one
    /// connector updates the digest of many in O(1).
    pub fn connector_part(self, name: &str, online: bool, node_id: &str) -> u64 {
        let node = (!node_id.is_empty()).then(|| self.hash(node_id).to_le_bytes());
        let node = node.as_ref().map_or(&[][..], |hash| hash);
        let mut hash = Xxh3::new();
        for part in [name.as_bytes(), &[0, u8::from(online), 0], node] {
            hash.update(part);
        }
        hash.digest()
    }

    /// The hash of a node id that goes into a digest.
    pub fn hash(self, node_id: &str) -> u128 {
        let carried = match self {
            Self::Real => None,
            Self::Redacted => carried_hash(node_id),
        };
        carried.unwrap_or_else(|| xxh3_128(node_id.as_bytes()))
    }
}

/// [`NodeIds::connector_part`] of a cluster's Connector.
pub fn connector_part(name: &str, online: bool, node_id: &str) -> u64 {
    NodeIds::Real.connector_part(name, online, node_id)
}

/// The prefix of a stand-in.
const NODE_STAND_IN: &str = "redacted-";

/// Replaces a node id in a redacted event log: `redacted-`, the 32 hexadecimal digits of its
/// [hash](NodeIds::hash), and a padding of `-` up to `bytes`.
pub fn node_stand_in(node_id: &str, bytes: usize) -> String {
    padded(format!("{NODE_STAND_IN}{:032x}", NodeIds::Real.hash(node_id)), '-', bytes)
}

/// An ASCII text, padded to `bytes`. Format padding panics beyond 65,535 bytes, and the texts come
/// from others.
pub fn padded(mut text: String, filler: char, bytes: usize) -> String {
    text.extend(std::iter::repeat_n(filler, bytes.saturating_sub(text.len())));
    text
}

fn carried_hash(node_id: &str) -> Option<u128> {
    let (digits, filler) = node_id.strip_prefix(NODE_STAND_IN)?.split_at_checked(32)?;
    let hash = u128::from_str_radix(digits, 16).ok()?;
    let is_ours = format!("{hash:032x}") == digits && filler.bytes().all(|b| b == b'-');
    is_ours.then_some(hash)
}

/// One gateway's part of the digest of its class.
pub fn gateway_part(namespace: &str, name: &str, digest: u64) -> u64 {
    let mut hash = Xxh3::new();
    for part in [namespace.as_bytes(), &[0], name.as_bytes(), &[0], &digest.to_le_bytes()] {
        hash.update(part);
    }
    hash.digest()
}

/// The digest of the connectors of one gateway; their order does not matter.
pub fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    let sum = parts.into_iter().fold(0_u64, u64::wrapping_add);
    xxh3_64(&sum.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_of_ours_can_be_parsed() {
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

    #[test]
    fn numbers_count_around_a_circle_that_leaves_out_zero() {
        let sequence = |n| Sequence::of(Trigger { digest: 1, n, c: 0 });
        let next = |n| Sequence::after(sequence(n)).get();
        assert_eq!([next(0), next(7), next(u32::MAX)], [1, 8, 1]);

        for (earlier, later) in [(0, 1), (0, u32::MAX), (7, 8), (7, 9_000), (u32::MAX, 1)] {
            let [earlier, later] = [sequence(earlier), sequence(later)];
            assert!(later.unwrap().is_after(earlier), "{later:?} {earlier:?}");
            assert!(!earlier.is_some_and(|earlier| earlier.is_after(later)));
            assert_eq!(Sequence::latest(earlier, later), later);
            assert_eq!(Sequence::latest(later, earlier), later);
        }
        assert!(!sequence(7).unwrap().is_after(sequence(7)));
    }

    /// Digests stay on objects in users' clusters, so they must never change.
    #[test]
    fn the_digest_is_stable() {
        assert_eq!(connector_part("home-lab", true, "8c5d"), 0xbe9f_cde7_0680_5965);
        assert_eq!(digest([1, 2]), digest([2, 1]));
        assert_ne!(connector_part("a", true, ""), connector_part("a", false, ""));
        assert_ne!(connector_part("a", true, "b"), connector_part("ab", true, ""));
        assert_ne!(gateway_part("a", "bc", 1), gateway_part("ab", "c", 1));
    }

    #[test]
    fn a_stand_in_has_the_hash_of_its_node_id_in_a_redacted_log_alone() {
        let real = NodeIds::Real;
        let redacted = NodeIds::Redacted;
        for (id, bytes) in [("8c5d", 0), ("8c5d", 41), ("8c5d", 42), ("8c5d", 64), ("é<", 13)] {
            let stand_in = node_stand_in(id, bytes);
            assert_eq!(stand_in.len(), bytes.max(41));
            assert_eq!(redacted.hash(&stand_in), real.hash(id));
            let part = redacted.connector_part("a", true, &stand_in);
            assert_eq!(part, connector_part("a", true, id));
            assert_ne!(connector_part("a", true, &stand_in), part);
            // A node id that looks like it is another one.
            let second = node_stand_in(&stand_in, bytes);
            assert_eq!(redacted.hash(&second), real.hash(&stand_in));
            assert_ne!(second, stand_in);
        }
        assert_eq!(node_stand_in(&"x".repeat(200_000), 200_000).len(), 200_000);
        let taken = node_stand_in("8c5d", 0);
        for other in [
            taken.replace('-', "_"),
            taken[..40].to_owned(),
            format!("{taken}a"),
            format!("{}A", &taken[..40]),
            format!("{}é", &taken[..40]),
        ] {
            assert_eq!(redacted.hash(&other), real.hash(&other), "{other}");
        }
    }
}
