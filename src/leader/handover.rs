//! A leader that is blind where another instance sees: it says so in the Lease, the other one asks, and
//! it stands down.
//!
//! | | |
//! |---|---|
//! | The holder's renewals name the clusters that it does not see. | [`UNSEEN`] |
//! | A standby that sees more for 30 s writes its identity into the Lease. | [`HAND_OVER_TO`] |
//! | A holder that is asked, and has not seen a cluster for 30 s, stands down for two lease durations. | [`Election::set_standing_down`](super::election::Election::set_standing_down) |
//!
//! Neither side can do harm by it: nobody but the holder itself ends its tenure, and only while it is
//! blind. A neighbour that asks without reason, or whose sight flaps, gets at most one hand-over in
//! five minutes, which costs a lease duration without a leader. A cluster that no instance sees
//! changes nothing, because then no standby sees more.
//!
//! The holder also names the clusters that it follows ([`FOLLOWS`]). A standby that follows others shares
//! the Lease with another installation by mistake: it never asks for leadership, which would take the
//! holder's clusters from it, and warns, because nobody mirrors its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use xxhash_rust::xxh3::xxh3_64;

use super::candidate::Candidate;
use super::lease::LeaseApi;
use crate::core::data::ids::ClusterName;

/// The Lease's annotation in which its holder names the clusters that it does not see.
pub const UNSEEN: &str = "throughline.datumapis.com/unseen";
/// The Lease's annotation in which a standby asks for leadership.
pub const HAND_OVER_TO: &str = "throughline.datumapis.com/hand-over-to";

/// The Lease's annotation in which its holder names the clusters that it follows.
pub const FOLLOWS: &str = "throughline.datumapis.com/follows";

/// How long a standby follows other clusters than the holder before it warns: a configuration that
/// changes, or a project that comes, reaches one instance before the other.
const DIFFERENT_MS: u64 = 300_000;
/// How long a cluster must be unseen here, and seen there.
const BLIND_MS: u64 = 30_000;
/// A standby whose question was not heard asks again after this long.
const ASK_AGAIN_MS: u64 = 30_000;
/// The least time between two hand-overs by one instance.
const HAND_OVER_PAUSE_MS: u64 = 300_000;
/// An annotation names at most so many clusters.
const NAMES_MAX: usize = 20;

/// The clusters that an instance does not see, as the Lease says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    pub count: usize,
    /// The first twenty, by name.
    pub names: Vec<ClusterName>,
}

impl Unseen {
    fn of(clusters: impl ExactSizeIterator<Item = ClusterName>) -> Self {
        Self { count: clusters.len(), names: clusters.take(NAMES_MAX).collect() }
    }
}

/// The clusters that an instance follows, whether it sees them or not, as the Lease says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follows {
    pub count: usize,
    /// The first twenty, by name.
    pub names: Vec<ClusterName>,
    /// Of all names: where it differs, the clusters do.
    pub digest: String,
}

impl Follows {
    pub fn of(clusters: &BTreeSet<ClusterName>) -> Self {
        let all: Vec<_> = clusters.iter().map(ClusterName::as_str).collect();
        Self {
            count: clusters.len(),
            names: clusters.iter().take(NAMES_MAX).cloned().collect(),
            digest: format!("{:016x}", xxh3_64(all.join("\n").as_bytes())),
        }
    }

    /// The named ones that are not among `others`.
    fn except(&self, others: &BTreeSet<ClusterName>) -> Vec<&str> {
        let names = self.names.iter().filter(|&name| !others.contains(name));
        names.map(ClusterName::as_str).collect()
    }
}

/// What this instance sees, and what it asked and was asked.
#[derive(Debug, Default)]
pub(super) struct Sight {
    unseen_since: BTreeMap<ClusterName, u64>,
    sees_more_since: Option<u64>,
    asked_at: Option<u64>,
    stood_down_at: Option<u64>,
    /// Since when the holder follows other clusters.
    differs_since: Option<u64>,
    /// What it followed when that was last warned of.
    warned_of: Option<String>,
}

impl Sight {
    /// Takes the clusters whose watch is lost at `now`.
    fn look(&mut self, now: u64, lost: &BTreeSet<ClusterName>) {
        self.unseen_since.retain(|cluster, _| lost.contains(cluster));
        for cluster in lost {
            self.unseen_since.entry(cluster.clone()).or_insert(now);
        }
    }

    fn unseen(&self) -> Unseen {
        Unseen::of(self.unseen_since.keys().cloned())
    }

    /// Whether to ask the holder, which does not see `unseen`, for leadership.
    fn should_ask(
        &mut self,
        now: u64,
        unseen: &Unseen,
        sees: impl Fn(&ClusterName) -> bool,
    ) -> bool {
        let sees_more = self.unseen_since.len() < unseen.count && unseen.names.iter().any(sees);
        if !sees_more {
            self.sees_more_since = None;
            return false;
        }
        let since = *self.sees_more_since.get_or_insert(now);
        let has_asked = self.asked_at.is_some_and(|at| now < at + ASK_AGAIN_MS);
        let should = now >= since + BLIND_MS && !has_asked;
        if should {
            self.asked_at = Some(now);
        }
        should
    }

    /// Whether to warn that the holder follows other clusters than this instance: once for each of its
    /// sets.
    fn should_warn(&mut self, now: u64, ours: &Follows, theirs: &Follows) -> bool {
        if ours.digest == theirs.digest {
            self.differs_since = None;
            return false;
        }
        let since = *self.differs_since.get_or_insert(now);
        if now < since + DIFFERENT_MS || self.warned_of.as_ref() == Some(&theirs.digest) {
            return false;
        }
        self.warned_of = Some(theirs.digest.clone());
        true
    }

    /// Whether to follow a request for leadership.
    fn should_stand_down(&mut self, now: u64) -> bool {
        let is_blind = self.unseen_since.values().any(|since| now >= since + BLIND_MS);
        let was_recent = self.stood_down_at.is_some_and(|at| now < at + HAND_OVER_PAUSE_MS);
        let should = is_blind && !was_recent;
        if should {
            self.stood_down_at = Some(now);
        }
        should
    }
}

impl Candidate {
    /// After an attempt: says what this instance sees, asks for leadership, or stands down.
    pub(super) async fn compare_sight(&mut self, api: &mut impl LeaseApi) {
        let now = self.keeper.now_ms();
        let (lost, followed) = (self.metrics.lost_clusters(), self.metrics.clusters());
        self.sight.look(now, &lost);
        let unseen = self.sight.unseen();
        let follows = Follows::of(&followed);
        api.set_remarks(&unseen, &follows);
        let asked_by = api.take_question();
        if self.election.is_standing_down() {
            self.stand_up(now);
        } else if self.election.owns_lease() {
            self.sight.differs_since = None;
            self.answer(now, asked_by, &unseen);
        } else {
            self.ask(now, api, (&followed, &follows)).await;
        }
    }

    /// As the holder: stands down if another instance asked for it with reason.
    fn answer(&mut self, now: u64, asked_by: Option<String>, unseen: &Unseen) {
        if let Some(other) = asked_by.filter(|other| *other != self.identity)
            && self.sight.should_stand_down(now)
        {
            warn!(
                to = other,
                unseen = unseen.count,
                cluster = unseen.names.first().map(tracing::field::display),
                "handing leadership over: another instance sees clusters that this one does not"
            );
            self.unposted_events.push("stands down: another instance sees more clusters");
            self.election.set_standing_down(true);
            self.publish();
        }
    }

    /// As a standby: asks for leadership if it sees more, unless it follows other clusters.
    async fn ask(
        &mut self,
        now: u64,
        api: &mut impl LeaseApi,
        (followed, follows): (&BTreeSet<ClusterName>, &Follows),
    ) {
        if let Some(theirs) = api.holder_follows().filter(|theirs| theirs.count > 0) {
            self.warn_of_other_clusters(now, (followed, follows), &theirs);
            if follows.count < theirs.count || !theirs.except(followed).is_empty() {
                return;
            }
        }
        if let Some(theirs) = api.holder_unseen()
            && self.sight.should_ask(now, &theirs, |cluster| self.metrics.is_followed(cluster))
        {
            info!(
                holder = self.holder,
                unseen = theirs.count,
                cluster = theirs.names.first().map(tracing::field::display),
                "asking the leader to hand over: this instance sees clusters that it does not"
            );
            api.ask(&self.identity).await;
        }
    }

    fn warn_of_other_clusters(
        &mut self,
        now: u64,
        (followed, ours): (&BTreeSet<ClusterName>, &Follows),
        theirs: &Follows,
    ) {
        if self.election.record().is_none_or(|record| record.holder.is_empty())
            || !self.sight.should_warn(now, ours, theirs)
        {
            return;
        }
        let only_there = theirs.except(followed).join(", ");
        let only_here = ours.except(&theirs.names.iter().cloned().collect()).join(", ");
        warn!(
            holder = self.holder,
            follows = theirs.count,
            only_there,
            only_here,
            "the Lease's holder follows other clusters than this instance, and nobody mirrors those that \
             only this one follows; if another installation uses this Lease, give each its own \
             leaderElection.leaseName, else compare their configurations"
        );
    }

    /// Takes part again once another instance holds the Lease, or nobody took it in time.
    fn stand_up(&mut self, now: u64) {
        let is_over =
            self.sight.stood_down_at.is_none_or(|at| now >= at + 2 * self.timings.lease_ms);
        if is_over || !self.election.owns_lease() {
            self.election.set_standing_down(false);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<ClusterName> {
        names.iter().map(|name| ClusterName::from(*name)).collect()
    }

    fn unseen(of: &[&str]) -> Unseen {
        Unseen::of(names(of).into_iter())
    }

    #[test]
    fn a_standby_asks_after_it_saw_more_for_thirty_seconds_and_again_after_as_long() {
        let mut sight = Sight::default();
        let mut asks = |now, theirs: &Unseen| sight.should_ask(now, theirs, |_| true);
        assert!(!asks(0, &unseen(&["a"])) && !asks(29_999, &unseen(&["a"])));
        assert!(asks(30_000, &unseen(&["a"])));
        assert!(!asks(59_999, &unseen(&["a"])) && asks(60_000, &unseen(&["a"])));
        assert!(!asks(200_000, &unseen(&[])), "the holder sees everything again");
        assert!(!asks(201_000, &unseen(&["a"])), "thirty seconds begin again");
    }

    #[test]
    fn a_standby_that_sees_as_little_does_not_ask() {
        let mut sight = Sight::default();
        sight.look(0, &names(&["b"]));
        for now in [0, 60_000] {
            assert!(!sight.should_ask(now, &unseen(&["a"]), |_| true), "it does not see b");
            assert!(
                !sight.should_ask(now, &unseen(&["a", "c"]), |_| false),
                "nor does it see a or c"
            );
        }
    }

    #[test]
    fn only_a_holder_that_is_blind_stands_down_and_not_again_within_five_minutes() {
        let mut sight = Sight::default();
        assert!(!sight.should_stand_down(1_000_000), "it sees everything");
        sight.look(1_000_000, &names(&["a"]));
        assert!(!sight.should_stand_down(1_029_999));
        assert!(sight.should_stand_down(1_030_000));
        assert!(!sight.should_stand_down(1_329_999) && sight.should_stand_down(1_330_000));
        sight.look(1_700_000, &names(&[]));
        sight.look(1_700_001, &names(&["a"]));
        assert!(!sight.should_stand_down(1_700_002), "it saw the cluster in between");
    }

    #[test]
    fn the_lease_names_at_most_twenty_clusters_and_counts_all() {
        let many: BTreeSet<_> =
            (0..2_000).map(|n| ClusterName::from(format!("p{n}").as_str())).collect();
        let unseen = Unseen::of(many.into_iter());
        assert_eq!((unseen.count, unseen.names.len()), (2_000, 20));
    }
}
