//! What one source shows: its offers, and whether it can be trusted to show all of them.
//!
//! Clusters that it does not show any more leave, unless they are too many. A Project that was seen
//! deleted, and about whose very name the root answers 404, is gone: it leaves, however many others
//! are missing, and is not counted with them. The breakers are for what is inferred.

use std::collections::{BTreeMap, BTreeSet};

use crate::circuit_breaker::{BreakerLimit, CircuitBreaker, Share};
use crate::contract::error_cause::RequestFailure;
use crate::contract::membership::{
    DiscoveryProblem, JoinRule, LeaveReason, MemberState, OfferState, SourceName,
};
use crate::contract::note::NoteKind;
use crate::data::ids::{ClusterName, Role};
use crate::data::time::UnixMillis;

/// While more than this share of a source's clusters is missing, the source is more likely wrong
/// than right.
pub(super) const MISSING_SHARE: Share = Share { part: 1, of: 3 };

const MISSING_LIMIT: BreakerLimit = BreakerLimit {
    share: MISSING_SHARE,
    population_min: 0,
    count_min: 2,
    // Clusters that went missing within this time count together.
    window_ms: 60_000,
    guards_all: false,
};

/// How long those that go missing are gathered before any leaves.
const GATHER_MS: u64 = 2_000;

/// How long a problem is gathered before it is reported, and how long a source may be lost.
const REPORT_MS: u64 = 1_000;
const LOST_REPORT_MS: u64 = 10_000;

/// A cluster as its source last showed it.
pub(super) struct Offer {
    pub(super) uid: Box<str>,
    pub(super) roles: Box<[Role]>,
    state: OfferState,
    listed_in: u32,
    /// Why it would leave: its source does not show it any more.
    pub(super) missing: Option<LeaveReason>,
    /// Since then a live GET of its name at its source answered 404.
    pub(super) is_gone: bool,
}

/// What is known of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ListState {
    /// It was never complete.
    #[default]
    Incomplete,
    /// It is complete, and changes follow.
    Live,
    Lost {
        since: UnixMillis,
        error: RequestFailure,
        was_complete: bool,
    },
}

#[derive(Default)]
pub(super) struct Source {
    join: JoinRule,
    /// The number of the list in progress, or of the last one.
    list: u32,
    list_state: ListState,
    /// Also those that are missing and have not left.
    pub(super) offers: BTreeMap<ClusterName, Offer>,
    breakers: MissingBreakers,
    /// The problems that the last note told.
    reported: BTreeSet<DiscoveryProblem>,
    settle_at: Option<UnixMillis>,
    report_at: Option<UnixMillis>,
}

/// Clusters that are missing, or left within the window. Few of many that are offered may be
/// followed, so both are guarded.
#[derive(Default)]
struct MissingBreakers {
    of_offers: CircuitBreaker<ClusterName>,
    of_members: CircuitBreaker<ClusterName>,
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

    /// Whether it can be followed.
    pub(super) fn is_ready(&self) -> bool {
        self.state == OfferState::Ready && self.missing.is_none()
    }

    /// Whether it is proved that the cluster does not exist any more: its deletion was seen, and its
    /// source says so about its very name.
    fn is_proven_gone(&self) -> bool {
        self.missing == Some(LeaveReason::Withdrawn) && self.is_gone
    }

    /// What it is while it is not followed.
    pub(super) fn state(&self) -> MemberState {
        match self.state {
            OfferState::Ready => MemberState::Idle,
            OfferState::NotReady | OfferState::Deleting => MemberState::NotReady,
            OfferState::Broken { .. } => MemberState::Broken,
        }
    }

    fn error(&self) -> Option<&RequestFailure> {
        match &self.state {
            OfferState::Broken { error } => Some(error),
            _ => None,
        }
    }
}

/// What its events say.
impl Source {
    pub(super) fn on_list_started(&mut self, join: JoinRule, now: UnixMillis) {
        self.join = join;
        self.list = self.list.wrapping_add(1);
        self.list_state = ListState::Incomplete;
        self.report_soon(now);
    }

    pub(super) fn on_offered(&mut self, cluster: &ClusterName, offer: Offer, now: UnixMillis) {
        self.breakers.unwant(cluster);
        self.report_soon(now);
        let offer = Offer { listed_in: self.list, ..offer };
        self.offers.insert(cluster.clone(), offer);
    }

    /// The withdrawal may be of an older cluster of that name, which says nothing.
    pub(super) fn on_withdrawn(&mut self, cluster: &ClusterName, uid: &str, now: UnixMillis) {
        let offer = self.offers.get_mut(cluster).filter(|offer| *offer.uid == *uid);
        let Some(offer) = offer else { return };

        offer.missing = Some(LeaveReason::Withdrawn);
        set_no_later(&mut self.settle_at, now.plus(GATHER_MS));
    }

    /// A live GET of the name answered 404. While the cluster is shown, that says nothing.
    pub(super) fn on_gone(&mut self, cluster: &ClusterName) {
        let missing = self.offers.get_mut(cluster).filter(|offer| offer.missing.is_some());
        if let Some(offer) = missing {
            offer.is_gone = true;
        }
    }

    pub(super) fn on_list_finished(&mut self, now: UnixMillis) {
        self.list_state = ListState::Live;
        self.report_soon(now);
        for offer in self.offers.values_mut() {
            if offer.listed_in != self.list {
                offer.missing.get_or_insert(LeaveReason::NotListed);
            }
        }
    }

    pub(super) fn on_lost(&mut self, error: &RequestFailure, now: UnixMillis) {
        let is_live = self.is_live();
        let (since, was_complete) = match self.list_state {
            ListState::Lost { since, was_complete, .. } => (since, was_complete),
            ListState::Live | ListState::Incomplete => (now, is_live),
        };
        self.list_state = ListState::Lost { since, error: error.clone(), was_complete };
        set_no_later(&mut self.report_at, now.plus(LOST_REPORT_MS));
    }

    /// Nothing was missed.
    pub(super) fn on_resumed(&mut self, now: UnixMillis) {
        self.report_soon(now);
        if let ListState::Lost { was_complete, .. } = self.list_state {
            self.list_state = if was_complete { ListState::Live } else { ListState::Incomplete };
        }
    }

    pub(super) fn report_soon(&mut self, now: UnixMillis) {
        set_no_later(&mut self.report_at, now.plus(REPORT_MS));
    }
}

/// What is asked of it.
impl Source {
    /// Whether it shows every cluster now.
    pub(super) fn is_live(&self) -> bool {
        self.list_state == ListState::Live
    }

    /// Whether so many are missing that none leaves.
    pub(super) fn is_held(&self) -> bool {
        self.breakers.is_tripped()
    }

    /// Whether a cluster of these roles joins only if something needs it: hubs and edges are named
    /// by nothing.
    pub(super) fn joins_only_needed(&self, roles: &[Role]) -> bool {
        self.join == JoinRule::Needed && roles == [Role::Upstream]
    }

    /// The offer by which a cluster may join now.
    pub(super) fn wanted(&self, cluster: &ClusterName, is_referenced: bool) -> Option<&Offer> {
        let offer = self.offers.get(cluster).filter(|offer| offer.is_ready())?;
        (is_referenced || !self.joins_only_needed(&offer.roles)).then_some(offer)
    }

    /// When something of it is due.
    pub(super) fn next_at(&self) -> Option<UnixMillis> {
        self.settle_at.into_iter().chain(self.report_at).min()
    }

    fn missing(&self) -> impl Iterator<Item = &ClusterName> {
        self.offers.iter().filter(|(_, offer)| offer.missing.is_some()).map(|(name, _)| name)
    }

    fn broken(&self) -> impl Iterator<Item = (&ClusterName, &RequestFailure)> {
        self.offers.iter().filter_map(|(name, offer)| Some((name, offer.error()?)))
    }

    /// When it is reported that it is lost, while it is.
    fn lost_report_at(&self) -> Option<UnixMillis> {
        match self.list_state {
            ListState::Lost { since, .. } => Some(since.plus(LOST_REPORT_MS)),
            ListState::Live | ListState::Incomplete => None,
        }
    }
}

/// What is due.
impl Source {
    pub(super) fn take_settle(&mut self, now: UnixMillis) -> bool {
        self.settle_at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn take_report(&mut self, now: UnixMillis) -> bool {
        self.report_at.take_if(|at| *at <= now).is_some()
    }

    /// The missing clusters that are proved to be gone. They are counted no more.
    pub(super) fn take_proven(&mut self, now: UnixMillis) -> Vec<ClusterName> {
        let proven = self.offers.iter().filter(|(_, offer)| offer.is_proven_gone());
        let proven: Vec<_> = proven.map(|(name, _)| name.clone()).collect();

        for cluster in &proven {
            self.breakers.forget(cluster);
            self.report_soon(now);
        }
        proven
    }

    /// Which of the missing clusters leave: all, unless they are too many.
    pub(super) fn settle(
        &mut self,
        members: &BTreeSet<ClusterName>,
        now: UnixMillis,
    ) -> Vec<ClusterName> {
        let missing: Vec<_> = self.missing().cloned().collect();
        if missing.is_empty() && !self.is_held() {
            return Vec::new();
        }

        self.count_missing(&missing, members, now);
        self.report_soon(now);
        if self.is_held() {
            if let Some(at) = self.breakers.next_expiry() {
                set_no_later(&mut self.settle_at, at);
            }
            return Vec::new();
        }
        for cluster in &missing {
            self.breakers.expire(cluster, now);
        }
        missing
    }

    /// What is tripped resets only while the source shows every cluster.
    fn count_missing(
        &mut self,
        missing: &[ClusterName],
        members: &BTreeSet<ClusterName>,
        now: UnixMillis,
    ) {
        let may_reset = self.is_live();
        let MissingBreakers { of_offers, of_members } = &mut self.breakers;
        for cluster in missing {
            of_offers.want(cluster.clone(), false);
            of_members.set_wanted(cluster.clone(), members.contains(cluster));
        }

        // Those that left within the window are part of the population.
        let left = of_offers.entries().filter(|name| !self.offers.contains_key(*name)).count();
        let offers = (self.offers.len() + left) as u64;
        of_offers.update(offers, MISSING_LIMIT, may_reset, now);

        let left = of_members.entries().filter(|name| !members.contains(*name)).count();
        of_members.update((members.len() + left) as u64, MISSING_LIMIT, may_reset, now);
    }

    /// The problems that began or ended since the last report. `taken`: the offers whose name
    /// another cluster has.
    pub(super) fn news(
        &mut self,
        name: SourceName,
        taken: &[ClusterName],
        now: UnixMillis,
    ) -> Vec<NoteKind> {
        if let Some(at) = self.lost_report_at().filter(|at| *at > now) {
            set_no_later(&mut self.report_at, at);
        }

        let mut notes = Vec::new();
        for problem in DiscoveryProblem::ALL {
            let extent = self.extent(problem, taken, now);
            let is_news = match extent.clusters {
                0 => self.reported.remove(&problem),
                _ => self.reported.insert(problem),
            };
            if is_news {
                notes.push(extent.note(name, problem, self.offers.len()));
            }
        }
        notes
    }

    fn extent(&self, problem: DiscoveryProblem, taken: &[ClusterName], now: UnixMillis) -> Extent {
        match problem {
            DiscoveryProblem::Lost => match &self.list_state {
                ListState::Lost { since, error, .. } if since.plus(LOST_REPORT_MS) <= now => {
                    let clusters = self.offers.len().max(1);
                    Extent { clusters, text: error.text.to_string() }
                }
                _ => Extent::default(),
            },
            DiscoveryProblem::TooManyMissing if !self.is_held() => Extent::default(),
            DiscoveryProblem::TooManyMissing => Extent::of(self.missing()),
            DiscoveryProblem::Broken => {
                let text = |(name, error): (_, &RequestFailure)| format!("{name}: {}", error.text);
                Extent::of(self.broken().map(text))
            }
            DiscoveryProblem::NameTaken => Extent::of(taken.iter()),
        }
    }
}

/// How many clusters a problem concerns, and the first of them, or why.
#[derive(Default)]
struct Extent {
    clusters: usize,
    text: String,
}

impl Extent {
    fn of(mut clusters: impl Iterator<Item = impl ToString>) -> Self {
        let first = clusters.next();
        Self {
            clusters: clusters.count() + usize::from(first.is_some()),
            text: first.map_or_else(String::new, |first| first.to_string()),
        }
    }

    fn note(self, source: SourceName, problem: DiscoveryProblem, of: usize) -> NoteKind {
        let Self { clusters, text } = self;
        let detail = match (clusters, problem) {
            (0 | 1, _) | (_, DiscoveryProblem::Lost) => text,
            (n, _) => format!("{text} and {} more", n - 1),
        };
        NoteKind::Discovery { source, problem, clusters: clusters as u64, of: of as u64, detail }
    }
}

impl MissingBreakers {
    fn is_tripped(&self) -> bool {
        self.of_offers.state().is_tripped || self.of_members.state().is_tripped
    }

    /// The source shows the cluster again.
    fn unwant(&mut self, cluster: &ClusterName) {
        self.of_offers.unwant(cluster);
        self.of_members.unwant(cluster);
    }

    /// The cluster leaves because it is missing.
    fn expire(&mut self, cluster: &ClusterName, now: UnixMillis) {
        self.of_offers.expire(cluster, now);
        self.of_members.expire(cluster, now);
    }

    /// The cluster is proved to be gone.
    fn forget(&mut self, cluster: &ClusterName) {
        self.of_offers.forget(cluster);
        self.of_members.forget(cluster);
    }

    fn next_expiry(&self) -> Option<UnixMillis> {
        let breakers = [&self.of_offers, &self.of_members];
        breakers.into_iter().filter_map(|breaker| breaker.next_expiry(MISSING_LIMIT)).min()
    }
}

fn set_no_later(time: &mut Option<UnixMillis>, at: UnixMillis) {
    *time = Some(time.map_or(at, |before| before.min(at)));
}
