//! The objects of one kind in one tier of a cluster. Only this file compares versions.

use std::collections::BTreeSet;

use crate::contract::action::Precondition;
use crate::data::ids::{NamespacedName, ResourceVersion, Uid};
use crate::data::map::Map;
use crate::data::objects::Meta;

/// An object as the API server last showed it.
#[derive(Debug, Default)]
pub(crate) struct Row<T> {
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    pub(crate) seen: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Listed,
    Watched,
}

/// Which version of which object an event shows.
#[derive(Debug)]
pub(crate) struct Sighting {
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    pub(crate) shown: Shown,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Put<T> {
    pub(crate) before: Option<T>,
    /// False if the name is new, or if another object had it.
    pub(crate) is_same_object: bool,
}

#[derive(Debug)]
pub(crate) struct Table<T> {
    /// A hash map: each event looks up several rows.
    rows: Map<NamespacedName, Box<Row<T>>>,
    /// The names in order, if the table is queried by namespace.
    sorted: Option<BTreeSet<NamespacedName>>,
}

impl<T> Row<T> {
    /// The precondition that the object is still as the watch shows it.
    pub(crate) fn unchanged(&self) -> Precondition {
        Precondition {
            uid: self.uid.text(),
            resource_version: self.version.text(),
            ..Precondition::default()
        }
    }
}

impl Sighting {
    pub(crate) fn new(meta: &Meta, shown: Shown) -> Self {
        let version = ResourceVersion::new(&meta.resource_version);
        Self { uid: Uid::new(&meta.uid), version, shown }
    }

    fn is_older_than<T>(&self, row: &Row<T>) -> bool {
        // A restored API server lists older versions.
        self.shown == Shown::Watched && self.version.is_older_than(&row.version)
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: Map::default(), sorted: None }
    }
}

impl<T> Table<T> {
    /// A table that supports [`Table::in_namespace`].
    pub(crate) fn sorted() -> Self {
        Self { rows: Map::default(), sorted: Some(BTreeSet::new()) }
    }

    pub(crate) fn get(&self, name: &NamespacedName) -> Option<&Row<T>> {
        self.rows.get(name).map(Box::as_ref)
    }

    pub(crate) fn seen(&self, name: &NamespacedName) -> Option<&T> {
        self.rows.get(name).map(|row| &row.seen)
    }

    pub(crate) fn seen_mut(&mut self, name: &NamespacedName) -> Option<&mut T> {
        self.rows.get_mut(name).map(|row| &mut row.seen)
    }

    /// The key of the table, so that equal names share one text.
    pub(crate) fn key(&self, name: &NamespacedName) -> Option<&NamespacedName> {
        self.rows.get_key_value(name).map(|(key, _)| key)
    }

    /// In the order of names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NamespacedName, &Row<T>)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(name, row)| (name, &**row)).collect();
        rows.sort_unstable_by_key(|(name, _)| *name);
        rows.into_iter()
    }

    /// The names in order, to change the table while going through them.
    pub(crate) fn names(&self) -> Vec<NamespacedName> {
        self.iter().map(|(name, _)| name.clone()).collect()
    }

    /// In no defined order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &NamespacedName> {
        self.rows.keys()
    }

    pub(crate) fn all_seen_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.values_mut().map(|row| &mut row.seen)
    }

    /// Empty unless the table was created by [`Table::sorted`].
    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &NamespacedName> {
        let names = self.sorted.iter();
        names.flat_map(|names| names.range(NamespacedName::all_in(namespace)))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns `None` and ignores an older version, unless a list shows it: a restored API server
    /// lists older versions.
    pub(crate) fn put(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting,
        seen: T,
    ) -> Option<Put<T>> {
        let Some(row) = self.rows.get_mut(name) else {
            let Sighting { uid, version, .. } = sighting;
            self.rows.insert(name.clone(), Box::new(Row { uid, version, seen }));
            if let Some(sorted) = &mut self.sorted {
                sorted.insert(name.clone());
            }
            return Some(Put { before: None, is_same_object: false });
        };

        let is_same_object = row.uid == sighting.uid;
        if is_same_object && sighting.is_older_than(row) {
            return None;
        }

        row.uid = sighting.uid;
        row.version = sighting.version;
        let before = Some(std::mem::replace(&mut row.seen, seen));
        Some(Put { before, is_same_object })
    }

    /// The row of the object, for the caller to update; `None` for an older version. An object that
    /// takes over the name keeps the row.
    pub(crate) fn refresh(&mut self, name: &NamespacedName, sighting: Sighting) -> Option<&mut T>
    where
        T: Default,
    {
        let row = self.row(name);
        if sighting.is_older_than(row) {
            return None;
        }

        row.uid = sighting.uid;
        row.version = sighting.version;
        Some(&mut row.seen)
    }

    /// The row of an object that exists. It is created empty if nothing is known of the object.
    pub(crate) fn row(&mut self, name: &NamespacedName) -> &mut Row<T>
    where
        T: Default,
    {
        self.rows.entry(name.clone()).or_default()
    }

    /// Takes over what a write changed. Returns false if the watch has shown a later version, or if
    /// it is unknown which one is later. `object_changed`: the watch has shown the object since the
    /// write was decided.
    pub(crate) fn on_written(
        &mut self,
        name: &NamespacedName,
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

    pub(crate) fn remove(&mut self, name: &NamespacedName) -> Option<Row<T>> {
        if let Some(sorted) = &mut self.sorted {
            sorted.remove(name);
        }
        self.rows.remove(name).map(|row| *row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::fixture::{watched, with_uid};

    fn lab() -> NamespacedName {
        NamespacedName::new("ns", "lab")
    }

    #[test]
    fn a_removed_object_is_no_longer_in_its_namespace() {
        let mut table = Table::sorted();
        table.put(&lab(), watched(1), ());

        table.remove(&lab());

        assert_eq!(table.in_namespace("ns").count(), 0);
    }

    #[test]
    fn an_older_version_counts_only_where_a_list_shows_it() {
        let listed = |version| Sighting { shown: Shown::Listed, ..watched(version) };
        let mut table = Table::default();

        let new = Put { before: None, is_same_object: false };
        assert_eq!(table.put(&lab(), watched(5), 5), Some(new));
        assert_eq!(table.put(&lab(), watched(4), 4), None);
        let changed = Put { before: Some(5), is_same_object: true };
        assert_eq!(table.put(&lab(), listed(4), 4), Some(changed));

        assert_eq!(table.refresh(&lab(), watched(3)), None);
        assert_eq!(table.refresh(&lab(), listed(3)), Some(&mut 4));
        table.refresh(&lab(), with_uid("another", listed(3)));
        assert_eq!(table.row(&lab()).uid, Uid::new("another"));
    }
}
