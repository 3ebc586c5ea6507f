//! Members: the clusters that joined because a source offers them, and those about to join or
//! leave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::Offer;
use crate::contract::membership::{LeaveReason, Membership, SourceName};
use crate::data::ids::{ClusterName, Role};
use crate::data::time::UnixMillis;
use crate::world::World;

/// How often a cluster of one name may join in any minute. Each join costs its API server a list of
/// every kind.
const JOINS_PER_MINUTE: usize = 3;
const MINUTE_MS: u64 = 60_000;

/// A cluster that joined at the roster's request.
pub(super) struct Member {
    pub(super) source: SourceName,
    uid: Box<str>,
    pub(super) roles: Box<[Role]>,
    /// The shell has added it.
    is_added: bool,
    /// Since when no hub object has named it (`join: needed`).
    pub(super) unneeded_since: Option<UnixMillis>,
}

#[derive(Default)]
pub(super) struct Members {
    members: BTreeMap<ClusterName, Member>,
    /// Asked to leave; the shell has not removed them yet.
    leaving: BTreeSet<ClusterName>,
    recent_joins: RecentJoins,
    /// Requests to the shell, oldest first.
    outbox: VecDeque<Membership>,
}

impl Member {
    /// Why it leaves, if it differs from the current offer of its name.
    pub(super) fn differs_from(&self, offer: &Offer) -> Option<LeaveReason> {
        if self.uid != offer.uid {
            return Some(LeaveReason::Replaced);
        }
        (self.roles != offer.roles && offer.is_ready()).then_some(LeaveReason::RolesChanged)
    }
}

impl Members {
    pub(super) fn get(&self, cluster: &ClusterName) -> Option<&Member> {
        self.members.get(cluster)
    }

    pub(super) fn get_mut(&mut self, cluster: &ClusterName) -> Option<&mut Member> {
        self.members.get_mut(cluster)
    }

    pub(super) fn of(&self, source: SourceName, cluster: &ClusterName) -> Option<&Member> {
        self.get(cluster).filter(|member| member.source == source)
    }

    pub(super) fn names_of(&self, source: SourceName) -> BTreeSet<ClusterName> {
        let members = self.members.iter().filter(|(_, member)| member.source == source);
        members.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a cluster has the name: a member, or one of the configuration file. One that was
    /// asked to leave does not.
    pub(super) fn is_taken(&self, cluster: &ClusterName, world: &World) -> bool {
        let stays = world.ids.contains_key(cluster) && !self.leaving.contains(cluster);
        stays || self.members.contains_key(cluster)
    }

    /// Whether the shell failed to add it because its source no longer offers a connection.
    pub(super) fn could_not_join(&self, cluster: &ClusterName, world: &World) -> bool {
        let is_asked = self.get(cluster).is_some_and(|member| !member.is_added);
        !world.ids.contains_key(cluster) && (is_asked || self.leaving.contains(cluster))
    }

    /// The next request to add or remove a cluster, oldest first.
    pub(super) fn pop(&mut self) -> Option<Membership> {
        self.outbox.pop_front()
    }

    /// The error is when to try again.
    pub(super) fn join(
        &mut self,
        source: SourceName,
        cluster: &ClusterName,
        offer: &Offer,
        now: UnixMillis,
    ) -> Result<(), UnixMillis> {
        self.recent_joins.take(cluster, now)?;

        let roles = offer.roles.to_vec();
        let member = Member {
            source,
            uid: offer.uid.clone(),
            roles: offer.roles.clone(),
            is_added: false,
            unneeded_since: None,
        };
        self.members.insert(cluster.clone(), member);
        self.outbox.push_back(Membership::Join { source, cluster: cluster.clone(), roles });
        Ok(())
    }

    /// Requests the removal. The shell may not have added the cluster yet; it handles requests in
    /// order.
    pub(super) fn leave(&mut self, cluster: &ClusterName, reason: LeaveReason) {
        if self.members.remove(cluster).is_some() {
            self.leaving.insert(cluster.clone());
            self.outbox.push_back(Membership::Leave { cluster: cluster.clone(), reason });
        }
    }

    /// Returns whether the roster had requested it.
    pub(super) fn on_added(&mut self, cluster: &ClusterName) -> bool {
        match self.members.get_mut(cluster) {
            Some(member) if !member.is_added => {
                member.is_added = true;
                true
            }
            _ if self.leaving.contains(cluster) => true,
            _ => {
                self.members.remove(cluster);
                false
            }
        }
    }

    /// Returns whether the roster had requested it.
    pub(super) fn on_removed(&mut self, cluster: &ClusterName) -> bool {
        let is_asked = self.leaving.remove(cluster);
        if !is_asked {
            self.members.remove(cluster);
        }
        is_asked
    }
}

#[derive(Default)]
struct RecentJoins {
    times: BTreeMap<ClusterName, Vec<UnixMillis>>,
    swept_at: UnixMillis,
}

impl RecentJoins {
    /// Counts a join. The error is when to try again: a minute after the latest join, though an
    /// earlier attempt may succeed.
    fn take(&mut self, cluster: &ClusterName, now: UnixMillis) -> Result<(), UnixMillis> {
        self.sweep(now);

        let times = self.times.entry(cluster.clone()).or_default();
        times.retain(|at| now.since(*at) < MINUTE_MS);
        match times.last() {
            Some(latest) if times.len() >= JOINS_PER_MINUTE => Err(latest.plus(MINUTE_MS)),
            _ => {
                times.push(now);
                Ok(())
            }
        }
    }

    /// Once a minute, drops names without recent joins.
    fn sweep(&mut self, now: UnixMillis) {
        if now.since(self.swept_at) < MINUTE_MS {
            return;
        }

        self.swept_at = now;
        let is_recent = |at: &UnixMillis| now.since(*at) < MINUTE_MS;
        self.times.retain(|_, times| times.last().is_some_and(is_recent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_joins_three_times_a_minute() {
        let mut joins = RecentJoins::default();
        let mut take = |at| joins.take(&"a".into(), UnixMillis(at));

        assert_eq!([0, 10, 20].map(&mut take), [Ok(()); 3]);
        assert_eq!(take(30), Err(UnixMillis(20 + MINUTE_MS)));
        assert_eq!(take(10 + MINUTE_MS), Ok(()), "only the join at 20 counts");
    }
}
