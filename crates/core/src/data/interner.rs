//! The interner: makes a name four bytes, and a namespace and name eight.

use xxhash_rust::xxh3::xxh3_64;

use crate::data::ids::ObjectKey;
use crate::data::map::Map;
use crate::data::used_names::{HoldsNames, UsedNames};

/// Fewer names than this are not worth a sweep.
const SWEEP_NAMES_MIN: usize = 1_024;

/// An interned name. Within one machine, equal names have equal symbols. The symbol of a name that no
/// table holds any longer goes to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(u32);

/// An interned namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub ns: Sym,
    pub name: Sym,
}

/// The interner. Every tier of a fleet uses the same names, so each is stored once and costs four
/// bytes wherever it is used.
#[derive(Default)]
pub struct Names {
    /// By hash. A name whose hash is taken uses the next free number.
    by_hash: Map<u64, Sym>,
    /// All names, concatenated, and where each is.
    texts: String,
    spans: Vec<Span>,
    /// Symbols that stand for no name.
    free: Vec<Sym>,
    /// How many names the last sweep left.
    kept: usize,
}

/// A part of the texts.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// Where a name is, or where it would go.
enum Slot {
    Taken(Sym),
    Free(u64),
}

impl Names {
    pub fn intern(&mut self, text: &str) -> Sym {
        let hash = match self.slot(text) {
            Slot::Taken(sym) => return sym,
            Slot::Free(hash) => hash,
        };
        let span = self.push_text(text);
        let sym = match self.free.pop() {
            Some(sym) => {
                self.spans[sym.0 as usize] = span;
                sym
            }
            None => {
                let sym = Sym(u32::try_from(self.spans.len()).unwrap_or(u32::MAX));
                self.spans.push(span);
                sym
            }
        };
        self.by_hash.insert(hash, sym);
        sym
    }

    fn push_text(&mut self, text: &str) -> Span {
        let start = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push_str(text);
        Span { start, end: u32::try_from(self.texts.len()).unwrap_or(u32::MAX) }
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

    pub fn key(&mut self, namespace: &str, name: &str) -> Key {
        Key { ns: self.intern(namespace), name: self.intern(name) }
    }

    /// `None` unless both names are interned.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Key> {
        let find = |text| match self.slot(text) {
            Slot::Taken(sym) => Some(sym),
            Slot::Free(_) => None,
        };
        Some(Key { ns: find(namespace)?, name: find(name)? })
    }

    pub fn text(&self, sym: Sym) -> &str {
        let Span { start, end } = self.spans.get(sym.0 as usize).copied().unwrap_or_default();
        self.texts.get(start as usize..end as usize).unwrap_or_default()
    }

    pub fn object_key(&self, key: Key) -> ObjectKey {
        ObjectKey::new(self.text(key.ns), self.text(key.name))
    }

    /// How many names there are.
    pub fn count(&self) -> usize {
        self.spans.len() - self.free.len()
    }

    /// Whether there are twice as many names as the last sweep left, so that a sweep costs O(1) for
    /// each name that came since.
    pub fn is_sweep_due(&self) -> bool {
        self.count() >= 2 * self.kept.max(SWEEP_NAMES_MIN)
    }

    /// Nothing is marked as used yet.
    pub fn unused(&self) -> UsedNames {
        UsedNames::new(self.spans.len())
    }

    /// Drops every name that is not used. Its symbol goes to the next new name.
    pub fn sweep(&mut self, used: &UsedNames) {
        let old = std::mem::take(self);
        let slots = old.spans.len() - used.unused_at_end();
        self.spans = vec![Span::default(); slots];
        for at in 0..slots {
            let sym = Sym(u32::try_from(at).unwrap_or(u32::MAX));
            if !used.contains(at) {
                self.free.push(sym);
                continue;
            }
            let text = old.text(sym);
            if let Slot::Free(hash) = self.slot(text) {
                self.by_hash.insert(hash, sym);
            }
            self.spans[at] = self.push_text(text);
        }
        // The lowest first.
        self.free.reverse();
        self.kept = self.count();
    }
}

impl HoldsNames for Sym {
    fn mark(&self, used: &mut UsedNames) {
        used.insert(self.0 as usize);
    }
}

impl HoldsNames for Key {
    fn mark(&self, used: &mut UsedNames) {
        let Self { ns, name } = self;
        ns.mark(used);
        name.mark(used);
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

    #[test]
    fn a_sweep_drops_what_is_not_used_and_keeps_the_symbols_of_what_is() {
        let mut names = Names::default();
        let syms: Vec<_> = (0..100).map(|n| names.intern(&format!("name-{n}"))).collect();
        let mut used = names.unused();
        for sym in syms.iter().step_by(3) {
            sym.mark(&mut used);
        }
        names.sweep(&used);
        assert_eq!(names.count(), 34);
        for (n, sym) in syms.iter().enumerate() {
            let text = format!("name-{n}");
            let is_kept = n % 3 == 0;
            assert_eq!(names.find(&text, &text).is_some(), is_kept, "{text}");
            assert_eq!(names.text(*sym) == text, is_kept, "{text}");
        }
        assert_eq!(
            names.texts.len(),
            (0..100).step_by(3).map(|n| format!("name-{n}").len()).sum::<usize>()
        );
        let slots = names.spans.len();
        let again: Vec<_> = (0..66).map(|n| names.intern(&format!("new-{n}"))).collect();
        assert!(again.iter().enumerate().all(|(n, sym)| names.text(*sym) == format!("new-{n}")));
        assert_eq!((names.count(), names.spans.len()), (100, slots.max(100)));
    }

    #[test]
    fn a_sweep_is_due_when_the_names_have_doubled() {
        let mut names = Names::default();
        let mut sweeps = 0;
        let kept: Vec<_> = (0..2_000).map(|n| names.intern(&format!("kept-{n}"))).collect();
        for n in 0..100_000 {
            names.intern(&format!("gone-{n}"));
            if names.is_sweep_due() {
                let mut used = names.unused();
                kept.mark(&mut used);
                names.sweep(&used);
                sweeps += 1;
            }
            assert!(names.count() <= 4_000 && names.spans.len() <= 4_000);
        }
        assert!(sweeps <= 51, "{sweeps}");
        assert!(kept.iter().enumerate().all(|(n, sym)| names.text(*sym) == format!("kept-{n}")));
    }
}
