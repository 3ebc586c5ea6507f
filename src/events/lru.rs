//! A map of bounded size that evicts the least recently used entry.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Lru<K, V> {
    entries_max: usize,
    entries: HashMap<K, (u64, V)>,
    /// The keys in the order of their last use.
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries_max, entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The key's value; `new` if there is none. Counts as a use.
    pub(super) fn get_or(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let now = self.uses;
        if let Some((used, _)) = self.entries.get(&key) {
            self.by_use.remove(used);
        } else if self.entries.len() >= self.entries_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.by_use.insert(now, key.clone());
        let entry = self.entries.entry(key).or_insert_with(|| (now, new()));
        entry.0 = now;
        &mut entry.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut lru = Lru::new(2);
        *lru.get_or("a", || 0) = 1;
        *lru.get_or("b", || 0) = 2;
        assert_eq!(*lru.get_or("a", || 0), 1);
        *lru.get_or("c", || 0) = 3;
        assert_eq!((lru.entries.len(), lru.by_use.len()), (2, 2));
        assert_eq!(*lru.get_or("a", || 0), 1, "used after b");
        assert_eq!(*lru.get_or("b", || 0), 0, "it was evicted");
    }
}
