//! The clusters of a run, by id and by name.

use std::collections::{BTreeMap, BTreeSet};

use super::data::cluster::ClusterState;
use super::data::ids::{ClusterId, ClusterName, Role};
use super::data::interner::{Key, Sym};
use super::data::used_names::{HoldsNames, UsedNames};

/// Where an object is: its cluster, and its namespace and name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) cluster: ClusterId,
    pub(crate) key: Key,
}

impl HoldsNames for Place {
    fn mark(&self, used: &mut UsedNames) {
        let Self { cluster: _, key } = self;
        key.mark(used);
    }
}

/// The clusters of a run. The id of a removed cluster goes to the next one that is added, so the
/// table stays as large as the fleet ever was at one time.
#[derive(Default)]
pub(crate) struct Clusters {
    slots: Vec<Option<ClusterState>>,
    free: BTreeSet<ClusterId>,
    ids: BTreeMap<ClusterName, ClusterId>,
}

impl HoldsNames for Clusters {
    fn mark(&self, used: &mut UsedNames) {
        let Self { slots, free: _, ids: _ } = self;
        slots.mark(used);
    }
}

impl Clusters {
    /// Adds a cluster whose name is not in the table. Returns `None` when every id is taken.
    pub(crate) fn add(
        &mut self,
        name: &ClusterName,
        sym: Sym,
        roles: &[Role],
    ) -> Option<ClusterId> {
        debug_assert!(!self.ids.contains_key(name), "{name} is added twice");
        let cluster = Some(ClusterState::new(name.clone(), sym, roles));
        let id = match self.free.pop_first() {
            Some(id) => {
                self.slots[usize::from(id.0)] = cluster;
                id
            }
            None => {
                let id = ClusterId(u16::try_from(self.slots.len()).ok()?);
                self.slots.push(cluster);
                id
            }
        };
        self.ids.insert(name.clone(), id);
        Some(id)
    }

    pub(crate) fn remove(&mut self, id: ClusterId) -> Option<ClusterState> {
        let cluster = self.slots.get_mut(usize::from(id.0))?.take()?;
        self.ids.remove(&cluster.name);
        self.free.insert(id);
        Some(cluster)
    }

    pub(crate) fn get(&self, id: ClusterId) -> Option<&ClusterState> {
        self.slots.get(usize::from(id.0))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ClusterId) -> Option<&mut ClusterState> {
        self.slots.get_mut(usize::from(id.0))?.as_mut()
    }

    pub(crate) fn id_of(&self, name: &ClusterName) -> Option<ClusterId> {
        self.ids.get(name).copied()
    }

    /// Every cluster, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClusterState> {
        self.ids.values().filter_map(|id| self.get(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::interner::Names;

    #[test]
    fn the_id_of_a_removed_cluster_is_used_again() {
        let (mut clusters, mut names) = (Clusters::default(), Names::default());
        let mut add = |clusters: &mut Clusters, name: &str| {
            clusters.add(&name.into(), names.intern(name), &[Role::Edge])
        };
        let a = add(&mut clusters, "a").unwrap();
        let b = add(&mut clusters, "b").unwrap();
        assert_ne!(a, b);
        assert_eq!(clusters.remove(a).map(|c| c.name), Some("a".into()));
        assert!(clusters.get(a).is_none() && clusters.id_of(&"a".into()).is_none());
        assert_eq!(add(&mut clusters, "c"), Some(a));
        assert_eq!(clusters.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn a_cluster_beyond_the_last_id_is_refused() {
        let (mut clusters, mut names) = (Clusters::default(), Names::default());
        for number in 0..=u32::from(u16::MAX) {
            let name = number.to_string();
            assert!(clusters.add(&name.as_str().into(), names.intern(&name), &[]).is_some());
        }
        assert_eq!(clusters.add(&"more".into(), names.intern("more"), &[]), None);
    }
}
