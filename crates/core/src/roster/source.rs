//! One source: its offers, and whether it can be trusted to show all of its clusters.
//!
//! Clusters that it no longer shows leave, unless they are too many. A Project whose deletion was
//! seen, and for whose name the root answers 404, is gone: it leaves however many others are
//! missing, and does not count as missing. The breakers hold only what is inferred.

use std::collections::{BTreeMap, BTreeSet};

use crate::circuit_breaker::{BreakerLimit, CircuitBreaker, Share};
use crate::contract::cause::{About, Cause, Facts, Problem};
use crate::contract::error_cause::RequestFailure;
use crate::contract::membership::{JoinRule, LeaveReason, MemberState, OfferState, SourceName};
use crate::data::ids::{ClusterName, Role};
use crate::data::time::UnixMillis;

/// If more than this share of a source's clusters is missing, the source is probably wrong.
pub(super) const MISSING_SHARE: Share = Share { part: 1, of: 3 };

const MISSING_LIMIT: BreakerLimit = BreakerLimit {
    share: MISSING_SHARE,
    population_min: 0,
    count_min: 2,
    // Clusters that went missing within this time count together.
    window_ms: 60_000,
    guards_all: false,
};

/// How long missing clusters are collected before any leaves.
const GATHER_MS: u64 = 2_000;

/// How long problems are collected before a report, and how long a source may be lost.
const REPORT_MS: u64 = 1_000;
const LOST_REPORT_MS: u64 = 10_000;

/// A cluster as its source last showed it.
pub(super) struct Offer {
    pub(super) uid: Box<str>,
    pub(super) roles: Box<[Role]>,
    state: OfferState,
    listed_in: u32,
    /// Why it would leave, if its source no longer shows it.
    pub(super) missing: Option<LeaveReason>,
    /// A live GET of its name at its source answered 404 since it went missing.
    pub(super) is_gone: bool,
}

#[derive(Default)]
pub(super) struct Source {
    join: JoinRule,
    /// The number of the current or last list.
    list: u32,
    is_list_complete: bool,
    lost: Option<Loss>,
    /// Includes missing clusters that have not left.
    pub(super) offers: BTreeMap<ClusterName, Offer>,
    /// Of all offers, and of the members, as few of many offers may have joined. Both count
    /// clusters that are missing, or left within the window.
    breakers: [CircuitBreaker<ClusterName>; 2],
    settle_at: Option<UnixMillis>,
    report_at: Option<UnixMillis>,
}

struct Loss {
    since: UnixMillis,
    error: RequestFailure,
}

impl Offer {
    pub(super) fn new(uid: &str, roles: &[Role], state: &OfferState) -> Self {
        Self {
            uid: uid.into(),
            roles: roles.into(),
            state: state.clone(),
            listed_in: 0,
            missing: None,
            is_gone: false,
        }
    }

    /// Whether it may join.
    pub(super) fn is_ready(&self) -> bool {
        self.state == OfferState::Ready && self.missing.is_none()
    }

    /// Its state while it is not in the run.
    pub(super) fn state(&self) -> MemberState {
        match self.state {
            OfferState::Ready => MemberState::Idle,
            OfferState::NotReady | OfferState::Deleting => MemberState::NotReady,
            OfferState::Broken { .. } => MemberState::Broken,
        }
    }
}

impl Loss {
    fn reported_at(&self) -> UnixMillis {
        self.since.plus(LOST_REPORT_MS)
    }
}

/// Handlers.
impl Source {
    pub(super) fn on_list_started(&mut self, join: JoinRule, now: UnixMillis) {
        self.join = join;
        self.list = self.list.wrapping_add(1);
        self.is_list_complete = false;
        self.report_soon(now);
    }

    pub(super) fn on_offered(&mut self, cluster: &ClusterName, offer: Offer, now: UnixMillis) {
        for breaker in &mut self.breakers {
            breaker.unwant(cluster);
        }
        let offer = Offer { listed_in: self.list, ..offer };
        self.offers.insert(cluster.clone(), offer);
        if self.is_held() {
            set_no_later(&mut self.settle_at, now.plus(GATHER_MS));
        }
        self.report_soon(now);
    }

    /// Ignores the withdrawal of an older cluster of that name.
    pub(super) fn on_withdrawn(&mut self, cluster: &ClusterName, uid: &str, now: UnixMillis) {
        let offer = self.offers.get_mut(cluster).filter(|offer| *offer.uid == *uid);
        if let Some(offer) = offer {
            offer.missing = Some(LeaveReason::Withdrawn);
            set_no_later(&mut self.settle_at, now.plus(GATHER_MS));
        }
    }

    /// A live GET of the name answered 404. Ignored while the source shows the cluster.
    pub(super) fn on_gone(&mut self, cluster: &ClusterName) {
        let missing = self.offers.get_mut(cluster).filter(|offer| offer.missing.is_some());
        if let Some(offer) = missing {
            offer.is_gone = true;
        }
    }

    pub(super) fn on_list_finished(&mut self, now: UnixMillis) {
        self.is_list_complete = true;
        self.lost = None;
        self.report_soon(now);
        for offer in self.offers.values_mut().filter(|offer| offer.listed_in != self.list) {
            offer.missing.get_or_insert(LeaveReason::NotListed);
        }
    }

    pub(super) fn on_lost(&mut self, error: &RequestFailure, now: UnixMillis) {
        let since = self.lost.as_ref().map_or(now, |lost| lost.since);
        self.lost = Some(Loss { since, error: error.clone() });
        set_no_later(&mut self.report_at, now.plus(LOST_REPORT_MS));
    }

    /// No event was missed.
    pub(super) fn on_resumed(&mut self, now: UnixMillis) {
        self.lost = None;
        self.report_soon(now);
    }

    pub(super) fn report_soon(&mut self, now: UnixMillis) {
        set_no_later(&mut self.report_at, now.plus(REPORT_MS));
    }
}

/// Queries.
impl Source {
    /// Whether the source currently shows every cluster.
    pub(super) fn is_live(&self) -> bool {
        self.is_list_complete && !self.is_lost()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Whether too many clusters are missing, so that none leaves.
    pub(super) fn is_held(&self) -> bool {
        self.breakers.iter().any(|breaker| breaker.state().is_tripped)
    }

    /// Whether a cluster of these roles joins only if it is needed. This excludes hubs and edges,
    /// which no object names.
    pub(super) fn joins_only_needed(&self, roles: &[Role]) -> bool {
        self.join == JoinRule::Needed && roles == [Role::Upstream]
    }

    /// The offer by which a cluster may join now.
    pub(super) fn wanted(&self, cluster: &ClusterName, is_referenced: bool) -> Option<&Offer> {
        let offer = self.offers.get(cluster).filter(|offer| offer.is_ready())?;
        (is_referenced || !self.joins_only_needed(&offer.roles)).then_some(offer)
    }

    /// When the next work is due.
    pub(super) fn next_at(&self) -> Option<UnixMillis> {
        self.settle_at.into_iter().chain(self.report_at).min()
    }

    fn missing(&self) -> impl Iterator<Item = &ClusterName> {
        self.offers.iter().filter(|(_, offer)| offer.missing.is_some()).map(|(name, _)| name)
    }
}

/// Due work.
impl Source {
    pub(super) fn take_settle(&mut self, now: UnixMillis) -> bool {
        self.settle_at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn take_report(&mut self, now: UnixMillis) -> bool {
        self.report_at.take_if(|at| *at <= now).is_some()
    }

    /// Takes the missing clusters that are proven to be gone: their deletion was seen, and their
    /// source answers 404 for their names. They no longer count as missing.
    pub(super) fn take_proven(&mut self, now: UnixMillis) -> Vec<(ClusterName, Offer)> {
        let is_proven = |_: &ClusterName, offer: &mut Offer| {
            offer.is_gone && offer.missing == Some(LeaveReason::Withdrawn)
        };
        let proven: Vec<_> = self.offers.extract_if(.., is_proven).collect();

        for (cluster, _) in &proven {
            for breaker in &mut self.breakers {
                breaker.forget(cluster);
            }
            self.report_soon(now);
        }
        proven
    }

    /// Takes the missing clusters that leave: all, unless they are too many.
    pub(super) fn take_missing(
        &mut self,
        members: &BTreeSet<ClusterName>,
        now: UnixMillis,
    ) -> Vec<(ClusterName, Offer)> {
        let missing: Vec<_> = self.missing().cloned().collect();
        if missing.is_empty() && !self.is_held() {
            return Vec::new();
        }

        self.count_missing(&missing, members, now);
        self.report_soon(now);
        if self.is_held() {
            let expiries = self.breakers.iter().filter_map(|b| b.next_expiry(MISSING_LIMIT));
            if let Some(at) = expiries.min() {
                set_no_later(&mut self.settle_at, at);
            }
            return Vec::new();
        }

        for breaker in &mut self.breakers {
            for cluster in &missing {
                breaker.expire(cluster, now);
            }
        }
        self.offers.extract_if(.., |_, offer| offer.missing.is_some()).collect()
    }

    /// A tripped breaker resets only while the source shows every cluster.
    fn count_missing(
        &mut self,
        missing: &[ClusterName],
        members: &BTreeSet<ClusterName>,
        now: UnixMillis,
    ) {
        let may_reset = self.is_live();
        for breaker in &mut self.breakers {
            breaker.drop_expired(MISSING_LIMIT, now);
        }
        let [of_offers, of_members] = &mut self.breakers;
        for cluster in missing {
            of_offers.want(cluster.clone(), false);
            if members.contains(cluster) {
                of_members.want(cluster.clone(), false);
            } else {
                of_members.unwant(cluster);
            }
        }

        // Clusters that left within the window are part of the population.
        let left = of_offers.entries().filter(|name| !self.offers.contains_key(*name)).count();
        let offers = (self.offers.len() + left) as u64;
        of_offers.update(offers, MISSING_LIMIT, may_reset, now);

        let left = of_members.entries().filter(|name| !members.contains(*name)).count();
        of_members.update((members.len() + left) as u64, MISSING_LIMIT, may_reset, now);
    }

    /// Finds the problems of the source. `taken`: offers whose name another cluster has.
    pub(super) fn find(
        &mut self,
        name: SourceName,
        taken: &[ClusterName],
        now: UnixMillis,
    ) -> Vec<Problem> {
        let source = ClusterName::from(name.as_str());
        let facts = Facts { source: Some(name.as_str().into()), ..Facts::default() };
        let problem = |cause, cluster: &ClusterName, error: Option<&RequestFailure>| {
            let facts = Facts { error: error.cloned(), ..facts.clone() };
            Problem { facts, ..Problem::new(cause, About::cluster(cluster), now) }
        };
        let mut found = Vec::new();
        match &self.lost {
            Some(lost) if now < lost.reported_at() => {
                set_no_later(&mut self.report_at, lost.reported_at());
            }
            Some(lost) => found.push(problem(Cause::DiscoveryFailing, &source, Some(&lost.error))),
            None => {}
        }

        let missing = self.missing().count();
        if self.is_held() && missing > 0 {
            let mut held = problem(Cause::ClustersMissing, &source, None);
            held.facts.part = missing;
            held.facts.whole = self.offers.len();
            found.push(held);
        }
        let broken = self.offers.iter().filter_map(|(name, offer)| match &offer.state {
            OfferState::Broken { error } => Some((name, error)),
            _ => None,
        });
        found.extend(broken.map(|(of, error)| problem(Cause::KubeconfigInvalid, of, Some(error))));
        found.extend(taken.iter().map(|of| problem(Cause::ClusterNameTaken, of, None)));
        found
    }
}

fn set_no_later(time: &mut Option<UnixMillis>, at: UnixMillis) {
    *time = Some(time.map_or(at, |before| before.min(at)));
}
