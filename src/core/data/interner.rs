//! The interner: makes a name four bytes, and a namespace and name eight.

use xxhash_rust::xxh3::xxh3_64;

use crate::core::data::ids::ObjectKey;
use crate::core::data::map::Map;

/// An interned name. Within one machine, equal names have equal symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sym(u32);

/// An interned namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) ns: Sym,
    pub(crate) name: Sym,
}

/// The interner. Every tier of a fleet uses the same names, so each is stored once and costs four
/// bytes wherever it is used.
#[derive(Default)]
pub(crate) struct Names {
    /// By hash. A name whose hash is taken uses the next free number.
    by_hash: Map<u64, Sym>,
    /// All names, concatenated, and where each ends.
    texts: String,
    ends: Vec<u32>,
}

/// Where a name is, or where it would go.
enum Slot {
    Taken(Sym),
    Free(u64),
}

impl Names {
    pub(crate) fn intern(&mut self, text: &str) -> Sym {
        let hash = match self.slot(text) {
            Slot::Taken(sym) => return sym,
            Slot::Free(hash) => hash,
        };
        let sym = Sym(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        self.texts.push_str(text);
        self.ends.push(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.by_hash.insert(hash, sym);
        sym
    }

    fn slot(&self, text: &str) -> Slot {
        let mut hash = xxh3_64(text.as_bytes());
        while let Some(&sym) = self.by_hash.get(&hash) {
            if self.text(sym) == text {
                return Slot::Taken(sym);
            }
            hash = hash.wrapping_add(1);
        }
        Slot::Free(hash)
    }

    pub(crate) fn key(&mut self, namespace: &str, name: &str) -> Key {
        Key { ns: self.intern(namespace), name: self.intern(name) }
    }

    /// `None` unless both names were interned before.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Key> {
        let find = |text| match self.slot(text) {
            Slot::Taken(sym) => Some(sym),
            Slot::Free(_) => None,
        };
        Some(Key { ns: find(namespace)?, name: find(name)? })
    }

    pub(crate) fn text(&self, sym: Sym) -> &str {
        let at = sym.0 as usize;
        let start =
            at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |e| *e as usize);
        let end = self.ends.get(at).map_or(start, |e| *e as usize);
        self.texts.get(start..end).unwrap_or_default()
    }

    pub(crate) fn object_key(&self, key: Key) -> ObjectKey {
        ObjectKey::new(self.text(key.ns), self.text(key.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_interned_once() {
        let mut names = Names::default();
        let a = names.key("ns", "x");
        assert_eq!(a, names.key("ns", "x"));
        assert_ne!(a, names.key("x", "ns"));
        assert_eq!(names.object_key(a).to_string(), "ns/x");
    }
}
