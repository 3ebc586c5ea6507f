//! Which names are still used. Every table marks those that it holds; the interner drops the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::ids::{ActionId, ClusterId, Kind};
use crate::data::map::Map;
use crate::data::one_or_many::OneOrMany;
use crate::data::time::UnixMillis;

/// The names that some table holds, by symbol.
pub struct UsedNames(Vec<bool>);

impl UsedNames {
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![false; slots])
    }

    pub(super) fn insert(&mut self, at: usize) {
        debug_assert!(at < self.0.len(), "a symbol that was never given away");
        if let Some(used) = self.0.get_mut(at) {
            *used = true;
        }
    }

    pub(super) fn contains(&self, at: usize) -> bool {
        self.0.get(at).copied().unwrap_or_default()
    }

    /// How many symbols at the end are not used.
    pub(super) fn unused_at_end(&self) -> usize {
        self.0.iter().rev().take_while(|used| !**used).count()
    }
}

/// Something that may hold names. A struct takes itself apart field by field, so that a new field does
/// not compile until somebody has decided whether it holds names.
pub trait HoldsNames {
    /// Marks every name that it holds.
    fn mark(&self, used: &mut UsedNames);
}

macro_rules! holds_no_names {
    ($($type:ty),+) => {
        $(impl HoldsNames for $type {
            fn mark(&self, _: &mut UsedNames) {}
        })+
    };
}

holds_no_names!(bool, u32, Box<str>, ActionId, ClusterId, Kind, UnixMillis);

macro_rules! marks_each {
    ($(<$($param:ident),+> $type:ty),+ $(,)?) => {
        $(impl<$($param: HoldsNames),+> HoldsNames for $type {
            fn mark(&self, used: &mut UsedNames) {
                self.iter().for_each(|entry| entry.mark(used));
            }
        })+
    };
}

marks_each!(<T> [T], <T> Vec<T>, <T> Option<T>, <T> BTreeSet<T>);

macro_rules! marks_tuple {
    ($($part:ident)+) => {
        impl<$($part: HoldsNames),+> HoldsNames for ($($part,)+) {
            #[allow(non_snake_case, reason = "the parts are named as their types are")]
            fn mark(&self, used: &mut UsedNames) {
                let ($($part,)+) = self;
                $($part.mark(used);)+
            }
        }
    };
}

marks_tuple!(A B);
marks_tuple!(A B C);
marks_tuple!(A B C D E);

impl<T: HoldsNames> HoldsNames for &T {
    fn mark(&self, used: &mut UsedNames) {
        (**self).mark(used);
    }
}

impl<T: HoldsNames> HoldsNames for OneOrMany<T> {
    fn mark(&self, used: &mut UsedNames) {
        self.as_slice().mark(used);
    }
}

impl<K: HoldsNames, V: HoldsNames> HoldsNames for Map<K, V> {
    fn mark(&self, used: &mut UsedNames) {
        self.iter().for_each(|row| row.mark(used));
    }
}

impl<K: HoldsNames, V: HoldsNames> HoldsNames for BTreeMap<K, V> {
    fn mark(&self, used: &mut UsedNames) {
        self.iter().for_each(|row| row.mark(used));
    }
}
