//! Who held a Lease at a write. resourceVersions say so: those of the Lease and of Connectors are revisions
//! of the same etcd, in commit order.

use std::collections::BTreeMap;

use throughline::core::data::shard::Shards;

use crate::cluster::proxy::Write;
use crate::leading::{ElectionTest, Histories, LEASE, version};

impl ElectionTest {
    /// The history of each Lease: version to holder, empty for none.
    fn histories(&self) -> Histories {
        let mut histories = self.holders.lock().unwrap().clone();
        for write in self.instances.iter().flat_map(|instance| instance.hub().writes()) {
            if write.target.resource == "leases" && !write.resource_version.is_empty() {
                let holder = write.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
                let created = write.body["metadata"]["name"].as_str().unwrap_or_default();
                let name = if write.target.name.is_empty() { created } else { &write.target.name };
                let history = histories.entry(name.to_owned()).or_default();
                history.insert(version(&write.resource_version), holder.to_owned());
            }
        }
        histories
    }

    /// Who held a Lease, one after the other.
    pub(crate) fn tenures(&self, lease: &str) -> Vec<String> {
        let mut holders: Vec<_> = self.histories()[lease].values().cloned().collect();
        holders.retain(|holder| !holder.is_empty());
        holders.dedup();
        holders
    }

    /// The Lease whose holder may make a write to an object of the hub.
    fn lease_of(&self, write: &Write) -> String {
        let count = self.more["leaderElection"]["shards"].as_u64().unwrap_or(1);
        let shards = Shards::try_from(u16::try_from(count).unwrap()).unwrap();
        let upstream = self.fleet.upstream_behind(&write.target.namespace).unwrap();
        match shards.is_one() {
            true => LEASE.1.to_owned(),
            false => format!("{}-{}", LEASE.1, shards.of(&upstream)),
        }
    }

    /// Leader-only writes that changed something: resulting version to writer and write. Of several
    /// writes that were answered with one version, the earliest.
    fn changes(&self) -> BTreeMap<u64, (&str, Write)> {
        let mut changes = BTreeMap::new();
        for instance in &self.instances {
            for write in instance.leader_writes() {
                if write.resource_version.is_empty() {
                    continue;
                }
                let at = version(&write.resource_version);
                let found =
                    changes.entry(at).or_insert((instance.identity.as_str(), write.clone()));
                if write.at < found.1.at {
                    *found = (&instance.identity, write);
                }
            }
        }
        changes
    }

    /// Checks that every leader-only write came from the holder of the Lease at that moment.
    pub(crate) fn only_holders_wrote(&self) {
        self.check_writers(true);
    }

    /// Checks that every writer held the Lease, or had held it and no other instance wrote since. More
    /// cannot be asked for when somebody deletes or takes the Lease under its holder.
    pub(crate) fn no_writers_overlap(&self) {
        self.check_writers(false);
    }

    fn check_writers(&self, is_strict: bool) {
        let (histories, changes) = (self.histories(), self.changes());
        assert!(!changes.is_empty(), "there are no leader-only writes");
        for (at, (who, write)) in &changes {
            let lease = self.lease_of(write);
            let history = &histories[&lease];
            let held = history.range(..at).next_back();
            let Some((since, holder)) = held else { panic!("{write:?}: no Lease before it") };
            if holder == who {
                continue;
            }
            let what = format!(
                "{who} wrote at {at}, and {holder:?} has held {lease} since {since}: {write:?}\n{history:?}"
            );
            assert!(!is_strict, "{what}");
            let tenure = history.range(..at).rev().find(|(_, holder)| holder == who);
            let (last, _) = tenure.unwrap_or_else(|| panic!("{what}"));
            let same = |write: &Write| self.lease_of(write) == lease;
            let mut between = changes.range(last..at).filter(|(_, (_, write))| same(write));
            let other = between.find(|(_, (other, _))| other != who);
            assert!(other.is_none(), "{what}: and so did {other:?}");
        }
        let mut writers: Vec<_> = changes.values().map(|(who, _)| *who).collect();
        writers.dedup();
        eprintln!("  {} leader-only writes, writers in turn: {}", changes.len(), writers.len());
    }
}
