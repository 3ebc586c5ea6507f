//! The hash map of the machine's tables.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Without a random seed, because the machine must depend only on its events. The iteration order of
/// a map never reaches an output anyway.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
