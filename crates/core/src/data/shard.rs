//! The part of the fleet that one instance keeps: a set of namespaces. All hub and edge objects of
//! one upstream namespace are in namespaces of the same name, so a shard has everything that
//! belongs together, and shards do not communicate.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shard {
    /// Counted from 0.
    pub index: u16,
    /// The number of shards.
    pub of: u16,
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Shard {
    /// The only shard.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// The shard of the pod with this ordinal. With twice as many pods as shards, each shard has a
    /// standby.
    pub fn of_ordinal(ordinal: u64, of: u16) -> Self {
        let index = u16::try_from(ordinal % u64::from(of.max(1))).unwrap_or_default();
        Self { index, of }
    }

    pub fn is_whole(&self) -> bool {
        self.of <= 1
    }

    /// Whether the shard keeps the namespace, or the edge, of this name.
    pub fn owns(self, name: &str) -> bool {
        self.is_whole() || xxh3_64(name.as_bytes()) % u64::from(self.of) == u64::from(self.index)
    }

    /// The shard's part of a limit for the fleet. 0 stays 0, whether it forbids or lifts the limit.
    pub(crate) fn part_of(self, limit: u32) -> u32 {
        match limit {
            0 => 0,
            _ => (limit / u32::from(self.of.max(1))).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_is_kept_by_exactly_one_shard_and_each_has_its_part() {
        for of in [1, 2, 4, 7, 256] {
            let shards: Vec<_> = (0..of).map(|index| Shard { index, of }).collect();
            let mut kept = vec![0; shards.len()];
            for n in 0..20_000 {
                let namespace = format!("ns-6bcb0b35-37f9-5a5d-b4d4-d24662{n:06x}");
                let owners: Vec<_> = shards.iter().filter(|shard| shard.owns(&namespace)).collect();
                assert_eq!(owners.len(), 1, "{namespace}");
                kept[usize::from(owners[0].index)] += 1;
            }
            let part = 20_000 / usize::from(of);
            assert!(kept.iter().all(|kept| *kept > part / 2 && *kept < part * 2), "{kept:?}");
        }
    }

    #[test]
    fn a_shard_is_the_ordinal_modulo_their_number() {
        let of = |ordinal| Shard::of_ordinal(ordinal, 4).index;
        assert_eq!([0, 3, 4, 7, 1_000_001].map(of), [0, 3, 0, 3, 1]);
    }

    #[test]
    fn limits_are_shared_out_and_0_stays_0() {
        let shard = Shard { index: 1, of: 4 };
        assert_eq!([0, 1, 3, 10, 50].map(|n| shard.part_of(n)), [0, 1, 1, 2, 12]);
        assert_eq!(Shard::WHOLE.part_of(10), 10);
    }
}
