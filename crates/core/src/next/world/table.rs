//! The objects of one kind in one tier of a cluster. Only this file compares versions and lists.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;

use crate::data::ids::{ResourceVersion, Uid};
use crate::data::map::Map;
use crate::data::name::NamespacedName;
use crate::data::objects::Meta;

/// What the API server says about an object, and which list showed it last.
#[derive(Debug, Default)]
pub(crate) struct Row<T> {
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    listed_in: u32,
    pub(crate) seen: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Listed,
    Watched,
}

/// An object as an event shows it.
#[derive(Debug)]
pub(crate) struct Sighting<T> {
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    pub(crate) shown: Shown,
    /// The number of the list that is going on, or was last.
    pub(crate) list: u32,
    pub(crate) seen: T,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put<T> {
    Older,
    New,
    /// Another object had the name.
    Replaced(T),
    Changed(T),
}

/// Namespaced objects are keyed by [`NamespacedName`], namespaces by their name.
#[derive(Debug)]
pub(crate) struct Table<T, K = NamespacedName> {
    /// Each event looks up several rows, so they are hashed.
    rows: Map<K, Box<Row<T>>>,
    /// For everything that goes through several of them.
    names: BTreeSet<K>,
}

impl<T> Sighting<T> {
    pub(crate) fn new(meta: &Meta, shown: Shown, list: u32, seen: T) -> Self {
        let version = ResourceVersion::new(&meta.resource_version);
        Self { uid: Uid::new(&meta.uid), version, shown, list, seen }
    }

    pub(crate) fn with<U>(self, seen: U) -> Sighting<U> {
        let Self { uid, version, shown, list, .. } = self;
        Sighting { uid, version, shown, list, seen }
    }

    fn is_older_than<U>(&self, row: &Row<U>) -> bool {
        // A restored API server lists older versions.
        self.shown == Shown::Watched && self.version.is_older_than(&row.version)
    }
}

impl<T, K> Default for Table<T, K> {
    fn default() -> Self {
        Self { rows: Map::default(), names: BTreeSet::new() }
    }
}

impl<T, K: Ord + Hash + Clone> Table<T, K> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, name: &Q) -> Option<&Row<T>>
    where
        K: Borrow<Q>,
    {
        self.rows.get(name).map(Box::as_ref)
    }

    /// The key of the table, so that equal names share one text.
    pub(crate) fn key(&self, name: &K) -> Option<&K> {
        self.rows.get_key_value(name).map(|(key, _)| key)
    }

    pub(crate) fn seen_mut(&mut self, name: &K) -> Option<&mut T> {
        self.rows.get_mut(name).map(|row| &mut row.seen)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &Row<T>)> {
        self.names.iter().filter_map(|name| Some((name, self.get(name)?)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.names.iter()
    }

    pub(crate) fn all_seen_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.values_mut().map(|row| &mut row.seen)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// An older version is ignored, unless a list shows it: a restored API server lists older ones.
    pub(crate) fn put(&mut self, name: &K, sighting: Sighting<T>) -> Put<T> {
        let Some(old) = self.rows.get_mut(name) else {
            self.names.insert(name.clone());
            self.rows.insert(name.clone(), Box::new(sighting.into()));
            return Put::New;
        };

        old.listed_in = sighting.list;
        let is_same_object = old.uid == sighting.uid;
        if is_same_object && sighting.is_older_than(old) {
            return Put::Older;
        }

        let old = std::mem::replace(&mut **old, sighting.into()).seen;
        if is_same_object { Put::Changed(old) } else { Put::Replaced(old) }
    }

    /// The row of the object, for the caller to bring up to date; `None` for an older version. The
    /// row goes on where another object has the name.
    pub(crate) fn refresh(&mut self, name: &K, sighting: Sighting<()>) -> Option<&mut T>
    where
        T: Default,
    {
        let row = self.rows.entry(name.clone()).or_insert_with(|| {
            self.names.insert(name.clone());
            Box::default()
        });
        row.listed_in = sighting.list;
        if sighting.is_older_than(row) {
            return None;
        }

        row.uid = sighting.uid;
        row.version = sighting.version;
        Some(&mut row.seen)
    }

    /// Takes over what a write made. Returns false if the watch has shown a later version, or if
    /// nobody knows which of the two is later. `object_changed`: the watch has shown the object
    /// since the write was decided.
    pub(crate) fn on_written(
        &mut self,
        name: &K,
        version: ResourceVersion,
        object_changed: bool,
        update: impl FnOnce(&mut T),
    ) -> bool {
        let Some(row) = self.rows.get_mut(name) else { return false };
        let is_newest = match (&row.version, &version) {
            (ResourceVersion::Number(seen), ResourceVersion::Number(written)) => seen < written,
            _ => !object_changed,
        };
        if !is_newest {
            return false;
        }

        update(&mut row.seen);
        if version != ResourceVersion::Absent {
            row.version = version;
        }
        true
    }

    pub(crate) fn remove<Q: Ord + Hash + ?Sized>(&mut self, name: &Q) -> Option<Row<T>>
    where
        K: Borrow<Q>,
    {
        self.names.remove(name);
        self.rows.remove(name).map(|row| *row)
    }

    /// A list shows an object that cannot be read: it is not missing.
    pub(crate) fn on_listed_unreadable<Q: Eq + Hash + ?Sized>(&mut self, name: &Q, list: u32)
    where
        K: Borrow<Q>,
    {
        if let Some(row) = self.rows.get_mut(name) {
            row.listed_in = list;
        }
    }

    /// What a finished list did not show.
    pub(crate) fn not_listed_in(&self, list: u32) -> Vec<K> {
        let missing = self.iter().filter(|(_, row)| row.listed_in != list);
        missing.map(|(name, _)| name.clone()).collect()
    }
}

impl<T> Table<T> {
    pub(crate) fn in_namespace(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (&NamespacedName, &Row<T>)> {
        let names = self.names.range(NamespacedName::all_in(namespace));
        names.filter_map(|name| Some((name, self.get(name)?)))
    }
}

impl<T> From<Sighting<T>> for Row<T> {
    fn from(sighting: Sighting<T>) -> Self {
        let Sighting { uid, version, list, seen, .. } = sighting;
        Self { uid, version, listed_in: list, seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sighting(version: u64, shown: Shown, list: u32) -> Sighting<u64> {
        let version_of_row = ResourceVersion::Number(version);
        Sighting { uid: Uid::default(), version: version_of_row, shown, list, seen: version }
    }

    #[test]
    fn an_older_version_counts_only_where_a_list_shows_it() {
        let mut table = Table::default();
        let name = NamespacedName::new("ns", "lab");
        assert_eq!(table.put(&name, sighting(5, Shown::Watched, 1)), Put::New);

        assert_eq!(table.put(&name, sighting(4, Shown::Watched, 1)), Put::Older);
        assert_eq!(table.put(&name, sighting(4, Shown::Listed, 2)), Put::Changed(5));
        assert_eq!(table.not_listed_in(2), []);
        assert_eq!(table.not_listed_in(3), [name]);
    }

    #[test]
    fn a_row_is_brought_up_to_date_unless_the_version_is_older() {
        let mut table = Table::<u64>::default();
        let name = NamespacedName::new("ns", "lab");
        let mut refresh = |version, shown| {
            let row = table.refresh(&name, sighting(version, shown, 1).with(()));
            row.map(|seen| std::mem::replace(seen, version))
        };

        assert_eq!(refresh(5, Shown::Watched), Some(0));
        assert_eq!(refresh(4, Shown::Watched), None);
        assert_eq!(refresh(4, Shown::Listed), Some(5));
    }

    #[test]
    fn the_objects_of_a_namespace_are_neighbours() {
        let mut table = Table::default();
        for (namespace, name) in [("b", "x"), ("a", "y"), ("a-b", "x"), ("a", "x")] {
            let name = NamespacedName::new(namespace, name);
            table.put(&name, sighting(1, Shown::Listed, 1));
        }

        let names: Vec<_> = table.in_namespace("a").map(|(name, _)| name.name()).collect();

        assert_eq!(names, ["x", "y"]);
    }

    #[test]
    fn a_write_is_taken_over_unless_the_watch_is_ahead() {
        let mut table = Table::default();
        let name = NamespacedName::new("ns", "lab");
        table.put(&name, sighting(5, Shown::Watched, 1));

        let mut written = |version, object_changed| {
            table.on_written(&name, version, object_changed, |seen| *seen = 0)
        };

        assert!(!written(ResourceVersion::Number(4), false));
        assert!(written(ResourceVersion::Number(6), true));
        assert!(written(ResourceVersion::Absent, false));
        assert!(!written(ResourceVersion::Absent, true), "nobody knows which one is newer");
    }
}
