//! Under `join: needed`: which clusters hub objects name, and the end of those that none names any longer.

use super::looks::Look;
use super::{Machine, Roster};
use crate::contract::membership::{LeaveReason, SourceName};
use crate::contract::settings::OrphanMode;
use crate::data::ids::{ClusterName, Kind};
use crate::data::time::UnixMillis;

/// How long a cluster that nothing names any longer is still followed.
const UNNEEDED_MS: u64 = 600_000;
/// When to look again whether the hubs' watches are live.
const HUB_RETRY_MS: u64 = 60_000;

impl Machine {
    /// Whether a hub object names the cluster.
    pub(super) fn is_referenced(&self, cluster: &ClusterName) -> bool {
        self.upstream_named(cluster).is_some_and(|(_, upstream)| upstream.is_referenced())
    }

    /// The first hub object names these clusters now, or none does any longer.
    pub(crate) fn references_changed(&mut self) {
        for cluster in std::mem::take(&mut self.ctx.references_changed) {
            if self.is_referenced(&cluster) {
                if let Some(member) = self.roster.members.get_mut(&cluster) {
                    member.unneeded_since = None;
                }
                self.join_if_wanted(&cluster);
            } else {
                self.not_gone(&cluster);
                self.is_unneeded(&cluster);
            }
        }
    }

    /// Nothing names the cluster: if it had to be needed, it leaves in a while.
    fn is_unneeded(&mut self, cluster: &ClusterName) {
        let now = self.ctx.now;
        let Roster { sources, members, looks, .. } = &mut self.roster;
        let Some(member) = members.get_mut(cluster) else { return };
        let source = sources.get(&member.source);
        let is_due = source.is_some_and(|s| s.joins_only_needed(&member.roles));
        if is_due && member.unneeded_since.is_none() {
            member.unneeded_since = Some(now);
            looks.no_later(Look::Cluster(cluster.clone()), now.plus(UNNEEDED_MS));
        }
    }

    /// The list of a source is complete: its rule may be another one than before.
    pub(super) fn look_for_unneeded(&mut self, source: SourceName) {
        let members: Vec<_> =
            self.roster.members_of(source).map(|(name, _)| name.clone()).collect();
        for cluster in members {
            if !self.is_referenced(&cluster) {
                self.is_unneeded(&cluster);
            }
        }
    }

    /// Since when every hub has shown all that may name a cluster; `None` while one does not.
    fn hubs_live_since(&self) -> Option<UnixMillis> {
        let orphans = self.ctx.settings.orphans.mode != OrphanMode::Off;
        let kinds = [Some(Kind::Connector), orphans.then_some(Kind::HttpRoute)];
        let kinds = || kinds.into_iter().flatten();
        let mut since = None;
        for id in self.hubs.keys() {
            let hub = self.cluster(*id)?;
            if !kinds().all(|kind| hub.is_live(kind)) {
                return None;
            }
            since = since.max(kinds().map(|kind| hub.live_since(kind)).max());
        }
        since
    }

    /// Has a cluster leave that nothing has named for long enough.
    pub(super) fn leave_if_unneeded(&mut self, cluster: &ClusterName) {
        let member = self.roster.members.get(cluster);
        let Some(since) = member.and_then(|member| member.unneeded_since) else { return };
        let now = self.ctx.now;
        let look_at = match self.hubs_live_since() {
            None => now.plus(HUB_RETRY_MS),
            Some(live_since) => since.max(live_since).plus(UNNEEDED_MS),
        };
        if look_at > now {
            return self.roster.looks.no_later(Look::Cluster(cluster.clone()), look_at);
        }
        self.roster.leave(cluster, LeaveReason::NotNeeded);
    }
}
