//! How often a cluster of one name joins: each time costs its API server a list of every kind.

use std::collections::{BTreeMap, VecDeque};

use super::{JOINS_PER_MINUTE, WINDOW_MS};
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;

/// The joins of the last minute.
#[derive(Default)]
pub(super) struct RecentJoins {
    times: VecDeque<(UnixMillis, ClusterName)>,
    counts: BTreeMap<ClusterName, (u32, UnixMillis)>,
}

impl RecentJoins {
    /// Counts a join. The error is when the next one may be.
    pub(super) fn take_turn(
        &mut self,
        cluster: &ClusterName,
        now: UnixMillis,
    ) -> Result<(), UnixMillis> {
        while let Some((at, _)) = self.times.front()
            && at.plus(WINDOW_MS) <= now
            && let Some((_, name)) = self.times.pop_front()
            && let Some((count, _)) = self.counts.get_mut(&name)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&name);
            }
        }
        let (count, latest) = self.counts.entry(cluster.clone()).or_insert((0, now));
        if *count >= JOINS_PER_MINUTE {
            return Err(latest.plus(WINDOW_MS));
        }
        (*count, *latest) = (*count + 1, now);
        self.times.push_back((now, cluster.clone()));
        Ok(())
    }
}
