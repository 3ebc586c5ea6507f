//! Checks who holds the shards, where several instances share a fleet.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::CheckedCluster;
use super::election::{LeaseLocation, ObservedLease};
use super::finding::{FindingGroup, join_first};
use crate::client::CallError;
use crate::core::data::shard::{Shard, Shards};
use crate::core::data::time::UnixMillis;
use crate::report::{count, duration};

/// Who holds the shards, by the Leases of the namespace.
pub(super) async fn report(
    group: &mut FindingGroup,
    cluster: &CheckedCluster,
    location: &LeaseLocation,
    shards: Shards,
    now: UnixMillis,
) {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Value>,
    }
    match cluster.client.get::<List>(&location.collection_path()).await {
        Ok(list) => judge(group, location, &list.items, shards, now),
        Err(error) => cannot_list(group, &error),
    }
}

fn cannot_list(group: &mut FindingGroup, error: &CallError) {
    group.failed(
        "shards",
        "the Leases cannot be listed: no shard is taken, and nothing is mirrored",
        error.to_string(),
        "grant list and delete on leases in the Lease's namespace, as in deploy/rbac/lease-shards",
    );
}

fn judge(
    group: &mut FindingGroup,
    location: &LeaseLocation,
    leases: &[Value],
    shards: Shards,
    now: UnixMillis,
) {
    let held = |name: &str| {
        let object = leases.iter().find(|object| object["metadata"]["name"] == name)?;
        let lease = ObservedLease::of(object);
        let age = now.since(lease.renewed?);
        (!lease.holder.is_empty() && age <= lease.duration_ms).then_some((lease.holder, age))
    };
    let claimant = format!("{} shards", shards.count());
    match held(&location.name) {
        Some((holder, age)) if holder.starts_with(&claimant) => {
            group.passed("holder", format!("the fleet has {claimant} (renewed {} ago)", duration(age)));
        }
        Some((holder, age)) => group.warned(
            "holder",
            format!("{holder} holds it: an instance with {claimant} takes none of them"),
            format!("{location}: renewed {} ago", duration(age)),
            "give all instances of a fleet the same leaderElection.shards, and stop them all before it \
             changes",
        ),
        None => group.passed("holder", "nobody holds it: no instance runs, or the first has just come"),
    }
    let (mut holders, mut free) = (BTreeSet::new(), Vec::new());
    for shard in shards.all() {
        match held(&format!("{}-{shard}", location.name)) {
            Some((holder, _)) => drop(holders.insert(holder)),
            None => free.push(shard),
        }
    }
    let (of, by) = (shards.count(), count(holders.len(), "instance"));
    if free.is_empty() {
        group.passed("shards", format!("all {of} shards are held, by {by}"));
    } else if holders.is_empty() {
        group.passed("shards", "no shard is held: no instance runs, or the first has just come");
    } else {
        let numbers: Vec<_> = free.iter().map(Shard::to_string).collect();
        group.warned(
            "shards",
            format!("nobody holds {} of {of} shards: their upstreams are not mirrored", free.len()),
            format!("{}; the others are held by {by}", join_first(&numbers)),
            "wait for a lease duration and a retry period; then look at the logs of the instances for \
             why none takes them",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::finding::Level;

    const NOW: UnixMillis = UnixMillis(1_795_252_772_000);

    fn lease(name: &str, holder: &str, age_ms: u64) -> Value {
        json!({
            "metadata": { "name": name },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15,
                      "renewTime": UnixMillis(NOW.0 - age_ms).to_string() },
        })
    }

    fn found(leases: &[Value]) -> Vec<(Level, String)> {
        let mut group = FindingGroup::new("g");
        let location = LeaseLocation { namespace: "a".into(), name: "t".into() };
        judge(&mut group, &location, leases, Shards::try_from(2).unwrap(), NOW);
        group.into_findings().into_iter().map(|finding| (finding.level, finding.what)).collect()
    }

    #[test]
    fn held_shards_are_counted_and_free_ones_named() {
        let claim = lease("t", "2 shards", 4_000);
        let all = [claim.clone(), lease("t-0", "a", 1_000), lease("t-1", "b", 1_000)];
        assert_eq!(
            found(&all),
            [
                (Level::Passed, "the fleet has 2 shards (renewed 4.00 s ago)".to_owned()),
                (Level::Passed, "all 2 shards are held, by 2 instances".to_owned()),
            ]
        );
        for other in [lease("t-1", "b", 16_000), lease("t-1", "", 1_000), lease("u-1", "b", 1_000)]
        {
            let (level, what) = found(&[claim.clone(), all[1].clone(), other]).remove(1);
            assert_eq!(level, Level::Warning);
            assert_eq!(what, "nobody holds 1 of 2 shards: their upstreams are not mirrored");
        }
        assert!(found(&[]).iter().all(|(level, _)| *level == Level::Passed));
    }

    #[test]
    fn another_number_of_shards_is_a_warning() {
        for other in ["pod-1", "8 shards"] {
            let (level, what) = found(&[lease("t", other, 1_000)]).remove(0);
            assert_eq!(level, Level::Warning);
            assert_eq!(
                what,
                format!("{other} holds it: an instance with 2 shards takes none of them")
            );
        }
    }
}
