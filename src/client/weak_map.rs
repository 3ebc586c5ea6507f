//! Values that several clusters share, each while one of them holds it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[derive(Debug)]
pub(super) struct WeakMap<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> WeakMap<K, V> {
    /// The value of `key`; a new one if nobody holds it.
    pub(super) fn get(&self, key: K, new: impl FnOnce() -> V) -> Arc<V> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        if values.len() == values.capacity() {
            values.retain(|_, value| value.strong_count() > 0);
        }
        let value = Arc::new(new());
        values.insert(key, Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_nobody_holds_are_forgotten() {
        let values = WeakMap::default();
        let held = values.get(0, || 0);
        for key in 1..1_000 {
            values.get(key, || key);
        }
        assert!(values.0.lock().unwrap().len() < 8);
        assert!(Arc::ptr_eq(&held, &values.get(0, || 1)));
    }
}
