//! Who held a Lease at a write. resourceVersions say so: those of the Lease and of Connectors are revisions
//! of the same etcd, in commit order.

use std::collections::BTreeMap;

use crate::cluster::proxy::Write;
use crate::leading::{ElectionTest, Histories, LEASE, version};

/// The shard in an identity, and their number; of a single instance `0` and `1`.
pub(crate) fn shard_of(identity: &str) -> (&str, &str) {
    let shard = identity.rsplit_once('/').and_then(|(_, shard)| shard.split_once("-of-"));
    shard.unwrap_or(("0", "1"))
}

/// The Lease that an instance elects by.
fn lease_of(identity: &str) -> String {
    match shard_of(identity) {
        ("0", _) => LEASE.1.to_owned(),
        (index, of) => format!("{}-{index}-of-{of}", LEASE.1),
    }
}

impl ElectionTest {
    /// The numbers of shards that wrote, each as often as it began to.
    pub(crate) fn numbers_in_turn(&self) -> Vec<String> {
        let changes = self.changes();
        let mut numbers: Vec<_> =
            changes.values().map(|(who, _)| shard_of(who).1.to_owned()).collect();
        numbers.dedup();
        numbers
    }

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
            let lease = lease_of(who);
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
            let other = changes.range(last..at).find(|(_, (other, _))| other != who);
            assert!(other.is_none(), "{what}: and so did {other:?}");
        }
        let mut writers: Vec<_> = changes.values().map(|(who, _)| *who).collect();
        writers.dedup();
        eprintln!("  {} leader-only writes, writers in turn: {}", changes.len(), writers.len());
    }
}
