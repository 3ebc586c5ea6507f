//! The Leases of several shards. Each shard has its own Lease and its own election. These rules keep
//! instances with different numbers of shards, 1 included, from writing at once.
//!
//! | rule | what would go wrong without it |
//! |---|---|
//! | shard 0 has the Lease of a single instance | a single instance and a shard write at once |
//! | a Lease is taken only while no Lease of another number of shards is live | two instances write for one namespace |
//! | the group is listed again after the Lease is held and before the first write; an instance that sees another number then gives its Lease back | two instances that start together do not see each other before |
//! | a renewal whose success becomes known only after the previous deadline counts as taking the Lease | instances of another number began meanwhile |
//! | a leader lists the group repeatedly, and its gate closes if that fails for a lease duration | its own Lease gives no information about the others |
//! | a shard above 0 leads only beside a Lease that shard 0 of several labelled | it would not see a single instance, which labels nothing |
//! | a Lease is live until it was seen unchanged for its duration | its timestamps are another host's |
//! | a deleted or edited Lease is live for its former duration | its holder has not noticed yet |

use std::collections::BTreeMap;

use super::election::LeaseRecord;
use crate::core::data::shard::Shard;

/// The label of the Leases of several shards. Its value is `leaderElection.leaseName`.
pub const GROUP_LABEL: &str = "throughline.datumapis.com/lease-group";

/// How long a shard may be without a holder before that is reported, in lease durations.
const UNHELD_AFTER: u64 = 2;

/// The Leases of a group, from lists.
#[derive(Clone, Debug)]
pub struct Group {
    /// The Lease of a single instance.
    lease_name: String,
    shard: Shard,
    leases: BTreeMap<String, SeenLease>,
    unheld_since: BTreeMap<u16, u64>,
}

/// A Lease of the group, from lists.
#[derive(Clone, Debug)]
struct SeenLease {
    record: LeaseRecord,
    /// The holder, or a former holder that may still write.
    holder: String,
    /// Its holder no longer leads after this time.
    live_until: u64,
    /// Whether the last list contains it.
    is_listed: bool,
}

impl SeenLease {
    /// A Lease that is new or has another record than in the last list. If its holder did not release
    /// it, it was edited, and stays live for its former duration.
    fn changed(before: Option<&Self>, record: LeaseRecord, now: u64) -> Self {
        let former = before.filter(|former| former.is_live(now));
        let former_ms = former.map_or(0, |former| former.record.lease_ms);
        let is_free = record.is_released() || record.holder.is_empty() && former.is_none();
        let lease_ms = if is_free { 0 } else { record.lease_ms.max(former_ms) };
        let holder = match former {
            Some(former) if record.holder.is_empty() => former.holder.clone(),
            _ => record.holder.clone(),
        };
        let live_until = if is_free { 0 } else { now.saturating_add(lease_ms) };
        Self { record, holder, live_until, is_listed: true }
    }

    fn is_live(&self, now: u64) -> bool {
        !self.holder.is_empty() && now <= self.live_until
    }
}

impl Group {
    pub fn new(lease_name: &str, shard: Shard) -> Self {
        let leases = BTreeMap::new();
        let unheld_since = BTreeMap::new();
        Self { lease_name: lease_name.to_owned(), shard, leases, unheld_since }
    }

    /// The label's value.
    pub fn name(&self) -> &str {
        &self.lease_name
    }

    /// Whether the work is divided among several shards.
    pub fn is_shared(&self) -> bool {
        !self.shard.is_whole()
    }

    /// The Lease of this shard.
    pub fn own_lease(&self) -> String {
        self.lease_of(self.shard.index)
    }

    fn lease_of(&self, index: u16) -> String {
        match index {
            0 => self.lease_name.clone(),
            _ => format!("{}-{index}-of-{}", self.lease_name, self.shard.of),
        }
    }

    /// The name of this holder. It ends in the shard, so that a shard that holds the Lease of shard 0
    /// can be distinguished from a single instance.
    pub fn identity(&self, of_process: String) -> String {
        match self.shard {
            shard if shard.is_whole() => of_process,
            Shard { index, of } => format!("{of_process}/{index}-of-{of}"),
        }
    }

    /// Updates the group from a list.
    pub fn observe(&mut self, list: Vec<(String, LeaseRecord)>, now: u64) {
        let mut before = std::mem::take(&mut self.leases);
        for (name, record) in list {
            let known = before.remove(&name);
            let same = known.clone().filter(|known| known.is_listed && known.record == record);
            let seen = same.unwrap_or_else(|| SeenLease::changed(known.as_ref(), record, now));
            self.leases.insert(name, seen);
        }
        // A Lease that is no longer listed was deleted, or lost its label.
        for (name, mut gone) in before {
            if gone.is_listed && gone.is_live(now) {
                gone.live_until = now.saturating_add(gone.record.lease_ms);
            }
            gone.is_listed = false;
            if gone.is_live(now) {
                self.leases.insert(name, gone);
            }
        }

        let held: Vec<_> = (0..self.shard.of).filter(|i| self.is_held(*i, now)).collect();
        self.unheld_since.retain(|index, _| !held.contains(index));
        for index in (0..self.shard.of).filter(|index| !held.contains(index)) {
            self.unheld_since.entry(index).or_insert(now);
        }
    }

    /// The reason why this instance must not lead now: a live Lease of another number of shards, or no
    /// Lease of shard 0.
    pub fn obstacle(&self, now: u64) -> Option<Obstacle> {
        let own = self.own_lease();
        let others = self.leases.iter().filter(|(name, _)| **name != own);
        let other = others.into_iter().find(|(name, seen)| {
            let of = self.number_of(name, &seen.holder);
            of.is_some_and(|of| of != self.shard.of) && seen.is_live(now)
        });
        if let Some((name, seen)) = other {
            return Some(Obstacle::Other { lease: name.clone(), holder: seen.holder.clone() });
        }
        let has_first = self.leases.get(&self.lease_name).is_some_and(|first| first.is_listed);
        let lacks_first = self.shard.index > 0 && !has_first;
        lacks_first.then(|| Obstacle::NoFirst { lease: self.lease_name.clone() })
    }

    /// The shards without a holder for `UNHELD_AFTER` lease durations.
    pub fn unheld(&self, lease_ms: u64, now: u64) -> Vec<u16> {
        let after = UNHELD_AFTER * lease_ms;
        let shards = self.unheld_since.iter();
        shards.filter(|(_, since)| now >= **since + after).map(|(index, _)| *index).collect()
    }

    fn is_held(&self, index: u16, now: u64) -> bool {
        let lease = self.leases.get(&self.lease_of(index));
        lease.is_some_and(|seen| seen.is_listed && seen.is_live(now))
    }

    /// The number of shards that the holder of a Lease assumes; `None` for a Lease outside the group.
    fn number_of(&self, lease: &str, holder: &str) -> Option<u16> {
        let rest = lease.strip_prefix(&*self.lease_name)?;
        let number = |text: &str| text.rsplit_once("-of-")?.1.parse().ok();
        match rest.strip_prefix('-') {
            Some(shard) => number(shard),
            None if rest.is_empty() => {
                let of_shard = holder.rsplit_once('/').and_then(|(_, shard)| number(shard));
                Some(of_shard.unwrap_or(1))
            }
            None => None,
        }
    }
}

/// A reason that prevents an instance from leading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A live Lease of another number of shards.
    Other { lease: String, holder: String },
    /// Shard 0 has not labelled its Lease yet.
    NoFirst { lease: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_MS: u64 = 15_000;

    fn held(holder: &str) -> LeaseRecord {
        LeaseRecord { holder: holder.into(), lease_ms: LEASE_MS, ..LeaseRecord::default() }
    }

    fn group(index: u16, of: u16, leases: &[(&str, &str)]) -> Group {
        let mut group = Group::new("tl", Shard { index, of });
        let list = leases.iter().map(|(name, holder)| ((*name).to_owned(), held(holder)));
        group.observe(list.collect(), 0);
        group
    }

    fn other(lease: &str, holder: &str) -> Option<Obstacle> {
        Some(Obstacle::Other { lease: lease.into(), holder: holder.into() })
    }

    #[test]
    fn each_shard_has_a_lease_and_a_single_instance_that_of_shard_0() {
        let lease = |index, of| Group::new("tl", Shard { index, of }).own_lease();
        assert_eq!([lease(0, 1), lease(0, 4), lease(3, 4)], ["tl", "tl", "tl-3-of-4"]);
        let identity = |of| Group::new("tl", Shard { index: 0, of }).identity("pod_1".into());
        assert_eq!([identity(1), identity(4)], ["pod_1", "pod_1/0-of-4"]);
    }

    #[test]
    fn a_live_lease_of_another_number_is_waited_for_whoever_asks() {
        let of_two = [("tl", "a/0-of-2"), ("tl-1-of-2", "b/1-of-2")];
        // The election handles its own Lease.
        assert_eq!(group(0, 2, &of_two).obstacle(0), None);
        assert_eq!(group(1, 2, &of_two).obstacle(0), None);
        assert_eq!(group(0, 4, &of_two).obstacle(0), other("tl-1-of-2", "b/1-of-2"));
        assert_eq!(group(1, 4, &of_two).obstacle(0), other("tl", "a/0-of-2"));
        assert_eq!(group(0, 1, &of_two).obstacle(0), other("tl-1-of-2", "b/1-of-2"));

        let single = [("tl", "a")];
        assert_eq!(group(1, 2, &single).obstacle(0), other("tl", "a"));
        assert_eq!(group(0, 1, &single).obstacle(0), None);
        // A label on a Lease outside the group.
        assert_eq!(group(0, 1, &[("tlx", "a"), ("other", "b")]).obstacle(0), None);
    }

    #[test]
    fn a_lease_is_live_until_it_was_seen_unchanged_for_its_duration_and_free_without_a_holder() {
        let mut group = group(0, 1, &[("tl-1-of-2", "b/1-of-2")]);
        assert!(group.obstacle(LEASE_MS).is_some() && group.obstacle(LEASE_MS + 1).is_none());
        let renewed = LeaseRecord { renew_time: "later".into(), ..held("b/1-of-2") };
        group.observe(vec![("tl-1-of-2".into(), renewed.clone())], 10_000);
        group.observe(vec![("tl-1-of-2".into(), renewed)], 20_000);
        assert!(group.obstacle(25_000).is_some() && group.obstacle(25_001).is_none());
        let released = LeaseRecord { lease_ms: 1_000, ..held("") };
        group.observe(vec![("tl-1-of-2".into(), released)], 20_000);
        assert_eq!(group.obstacle(20_000), None);
    }

    /// Its holder has not noticed yet, and may still write.
    #[test]
    fn a_lease_that_is_deleted_or_edited_is_live_for_its_former_duration() {
        let edited = LeaseRecord { lease_ms: 1_000, ..held("somebody") };
        for after in [None, Some(held("")), Some(edited)] {
            let mut group = group(0, 1, &[("tl-1-of-2", "b/1-of-2")]);
            let list = || after.iter().map(|record| ("tl-1-of-2".to_owned(), record.clone()));
            group.observe(list().collect(), 10_000);
            group.observe(list().collect(), 20_000);
            assert!(group.obstacle(25_000).is_some(), "{after:?}");
            assert_eq!(group.obstacle(25_001), None, "{after:?}");
        }
    }

    #[test]
    fn a_shard_above_0_leads_only_beside_the_lease_that_shard_0_labelled() {
        let lacks = Some(Obstacle::NoFirst { lease: "tl".into() });
        assert_eq!(group(1, 2, &[("tl-1-of-2", "b/1-of-2")]).obstacle(0), lacks);
        assert_eq!(
            group(1, 2, &[("tl", "")]).obstacle(0),
            None,
            "shard 0 is down, and that is all"
        );
        assert_eq!(group(0, 2, &[]).obstacle(0), None);
    }

    #[test]
    fn a_shard_that_nobody_holds_for_two_durations_is_told_also_one_that_never_had_a_lease() {
        let mut group = group(0, 3, &[("tl", "a/0-of-3"), ("tl-1-of-3", "")]);
        let list = |n: u64| {
            let renew_time = n.to_string();
            let own = LeaseRecord { renew_time, ..held("a/0-of-3") };
            vec![("tl".to_owned(), own)]
        };
        for n in 0..4 {
            group.observe(list(n), n * 10_000);
            let unheld: &[u16] = if n == 3 { &[1, 2] } else { &[] };
            assert_eq!(group.unheld(LEASE_MS, n * 10_000), unheld);
        }
    }
}
