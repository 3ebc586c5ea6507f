//! Shards: the parts into which a fleet's upstreams are shared out among instances.

use std::fmt;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// One of the parts into which a fleet's upstreams are shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shard(pub u16);

impl Shard {
    /// The only one of a run with one shard. Its holder also owns what has no upstream.
    pub const FIRST: Self = Self(0);

    /// Where it is left out: a run with one shard has no other.
    pub fn is_first(&self) -> bool {
        *self == Self::FIRST
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many shards there are: 1 to [`Shards::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Shards(NonZeroU16);

impl Shards {
    pub const MAX: u16 = 256;
    pub const ONE: Self = Self(NonZeroU16::MIN);

    /// The shard of an upstream cluster, or of an edge, by its name. Every instance computes the same.
    pub fn of(&self, name: &str) -> Shard {
        if self.is_one() {
            return Shard::FIRST;
        }
        let number = xxh3_64(name.as_bytes()) % u64::from(self.0.get());
        // Less than the number of shards, so the cast cannot truncate.
        Shard(number as u16)
    }

    pub fn count(&self) -> usize {
        usize::from(self.0.get())
    }

    pub fn is_one(&self) -> bool {
        *self == Self::ONE
    }

    pub fn all(&self) -> impl Iterator<Item = Shard> + use<> {
        (0..self.0.get()).map(Shard)
    }
}

impl Default for Shards {
    fn default() -> Self {
        Self::ONE
    }
}

impl From<Shards> for u16 {
    fn from(shards: Shards) -> u16 {
        shards.0.get()
    }
}

/// A number of shards that is not from 1 to [`Shards::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a number of shards: from 1 to 256")]
pub struct InvalidShards(u16);

impl TryFrom<u16> for Shards {
    type Error = InvalidShards;

    fn try_from(count: u16) -> Result<Self, InvalidShards> {
        let count_valid = NonZeroU16::new(count).filter(|count| count.get() <= Self::MAX);
        count_valid.map(Self).ok_or(InvalidShards(count))
    }
}

const WORD_BITS: u16 = 64;
const WORDS: usize = (Shards::MAX / WORD_BITS) as usize;

/// A set of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardSet([u64; WORDS]);

impl ShardSet {
    /// Where the bit of a shard is; `None` for a shard that cannot be.
    fn bit(shard: Shard) -> Option<(usize, u64)> {
        (shard.0 < Shards::MAX)
            .then(|| (usize::from(shard.0 / WORD_BITS), 1 << (shard.0 % WORD_BITS)))
    }

    /// Returns whether it was not in the set.
    pub fn insert(&mut self, shard: Shard) -> bool {
        let Some((word, bit)) = Self::bit(shard) else { return false };
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// Returns whether it was in the set.
    pub fn remove(&mut self, shard: Shard) -> bool {
        let was_in = self.contains(shard);
        if let Some((word, bit)) = Self::bit(shard) {
            self.0[word] &= !bit;
        }
        was_in
    }

    pub fn contains(&self, shard: Shard) -> bool {
        Self::bit(shard).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Shard> {
        (0..Shards::MAX).map(Shard).filter(|shard| self.contains(*shard))
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl FromIterator<Shard> for ShardSet {
    fn from_iter<I: IntoIterator<Item = Shard>>(shards: I) -> Self {
        let mut set = Self::default();
        for shard in shards {
            set.insert(shard);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_finds_the_same_shard_of_a_name() {
        // Other instances, and later versions, must compute the same: these never change.
        let eight = Shards::try_from(8).unwrap();
        let of = |name| u64::from(eight.of(name).0);
        for name in ["", "us-east", "project-42"] {
            assert_eq!(of(name), xxh3_64(name.as_bytes()) % 8);
            assert_eq!(Shards::ONE.of(name), Shard::FIRST);
        }
        // The digest of nothing, from the definition of XXH3.
        assert_eq!(eight.of(""), Shard((0x2d06_8005_38d3_94c2_u64 % 8) as u16));
        let met: ShardSet = (0..200).map(|i| eight.of(&format!("project-{i}"))).collect();
        assert_eq!(met, eight.all().collect());
    }

    #[test]
    fn there_are_one_to_256_shards() {
        assert!(Shards::try_from(0).is_err() && Shards::try_from(257).is_err());
        assert_eq!(Shards::try_from(256).unwrap().count(), 256);
        assert!(Shards::try_from(1).unwrap().is_one() && Shards::default().is_one());
        assert!(serde_json::from_str::<Shards>("0").is_err());
        assert_eq!(serde_json::to_string(&Shards::try_from(16).unwrap()).unwrap(), "16");
    }

    #[test]
    fn a_set_holds_what_was_inserted_and_not_removed() {
        let mut set = ShardSet::default();
        assert!(set.is_empty() && !set.contains(Shard(0)));
        for shard in [255, 0, 64, 63] {
            assert!(set.insert(Shard(shard)) && !set.insert(Shard(shard)));
        }
        assert!(set.remove(Shard(64)) && !set.remove(Shard(64)));
        assert_eq!(set.iter().map(|shard| shard.0).collect::<Vec<_>>(), [0, 63, 255]);
        assert_eq!(set.len(), 3);
        // No shard has such a number.
        assert!(!set.insert(Shard(256)) && !set.contains(Shard(256)) && !set.remove(Shard(256)));
    }
}
