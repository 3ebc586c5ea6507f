//! What one source shows: its offers, and whether it can be trusted to show all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::LOST_REPORT_MS;
use super::missing::MissingBreakers;
use crate::contract::error_cause::RequestFailure;
use crate::contract::membership::{
    DiscoveryProblem, JoinRule, LeaveReason, MemberState, OfferState, OfferStateName, SourceName,
};
use crate::contract::note::NoteKind;
use crate::data::ids::{ClusterName, Role};
use crate::data::time::UnixMillis;

/// A cluster as its source last showed it.
pub(super) struct Offer {
    pub(super) uid: Box<str>,
    pub(super) roles: Box<[Role]>,
    state: OfferStateName,
    listed_in: u32,
    /// Why it would leave: its source shows it no longer.
    pub(super) missing: Option<LeaveReason>,
    /// A live GET of its name at its source answered 404 since.
    pub(super) is_gone: bool,
}

impl Offer {
    /// Whether it is proved that the cluster does not exist any longer: its deletion was seen, and its
    /// source says so about its very name.
    pub(super) fn is_proven_gone(&self) -> bool {
        self.missing == Some(LeaveReason::Withdrawn) && self.is_gone
    }

    /// Whether it can be followed.
    pub(super) fn is_ready(&self) -> bool {
        self.state == OfferStateName::Ready && self.missing.is_none()
    }
}

/// What is known of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListState {
    /// It was never complete.
    #[default]
    Incomplete,
    /// It is complete, and changes follow.
    Live,
    /// It broke; `true` if it was complete before.
    Lost(bool),
}

#[derive(Default)]
pub(super) struct Source {
    join: JoinRule,
    /// The number of the list in progress, or of the last one.
    list: u32,
    list_state: ListState,
    /// Why it is lost.
    error: Option<RequestFailure>,
    lost_at: UnixMillis,
    /// Also those that are missing and have not left.
    pub(super) offers: BTreeMap<ClusterName, Offer>,
    /// The missing ones among them.
    pub(super) missing: BTreeSet<ClusterName>,
    pub(super) breakers: MissingBreakers,
    /// Why no connection can be made.
    broken: BTreeMap<ClusterName, Box<str>>,
    /// Offers whose name another cluster has.
    pub(super) taken: BTreeSet<ClusterName>,
    /// The problems that the last note told.
    reported: BTreeSet<DiscoveryProblem>,
}

impl Source {
    pub(super) fn list_started(&mut self, join: JoinRule) {
        self.join = join;
        self.list = self.list.wrapping_add(1);
        self.list_state = ListState::Incomplete;
    }

    pub(super) fn offered(
        &mut self,
        cluster: &ClusterName,
        uid: &str,
        roles: &[Role],
        state: &OfferState,
    ) {
        match state {
            OfferState::Broken { error } => {
                self.broken.insert(cluster.clone(), error.text.clone());
            }
            OfferState::Ready | OfferState::NotReady | OfferState::Deleting => {
                self.broken.remove(cluster);
            }
        }
        self.missing.remove(cluster);
        self.breakers.unwant(cluster);
        let offer = Offer {
            uid: uid.into(),
            roles: roles.into(),
            state: state.into(),
            listed_in: self.list,
            missing: None,
            is_gone: false,
        };
        self.offers.insert(cluster.clone(), offer);
    }

    /// Returns whether this is news: the withdrawal may be of an older cluster of that name.
    pub(super) fn withdrawn(&mut self, cluster: &ClusterName, uid: &str) -> bool {
        let offer = self.offers.get_mut(cluster).filter(|offer| *offer.uid == *uid);
        let Some(offer) = offer else { return false };
        offer.missing = Some(LeaveReason::Withdrawn);
        self.missing.insert(cluster.clone());
        true
    }

    pub(super) fn list_finished(&mut self) {
        self.list_state = ListState::Live;
        self.error = None;
        for (cluster, offer) in &mut self.offers {
            if offer.listed_in != self.list && offer.missing.is_none() {
                offer.missing = Some(LeaveReason::NotListed);
                self.missing.insert(cluster.clone());
            }
        }
    }

    pub(super) fn lost(&mut self, error: &RequestFailure, now: UnixMillis) {
        let was_complete = match self.list_state {
            ListState::Live | ListState::Incomplete => {
                self.lost_at = now;
                self.list_state == ListState::Live
            }
            ListState::Lost(was_complete) => was_complete,
        };
        self.list_state = ListState::Lost(was_complete);
        self.error = Some(error.clone());
    }

    pub(super) fn resumed(&mut self) {
        if let ListState::Lost(was_complete) = self.list_state {
            self.list_state = if was_complete { ListState::Live } else { ListState::Incomplete };
        }
        self.error = None;
    }

    /// When it is reported that it is lost, while it is.
    pub(super) fn lost_report_at(&self) -> Option<UnixMillis> {
        matches!(self.list_state, ListState::Lost(_)).then(|| self.lost_at.plus(LOST_REPORT_MS))
    }

    /// Whether so many are missing that none leaves.
    pub(super) fn is_held(&self) -> bool {
        self.breakers.is_tripped()
    }

    /// The missing clusters that are proved to be gone.
    pub(super) fn proven_gone(&self) -> impl Iterator<Item = &ClusterName> {
        let is_proven =
            |cluster: &&ClusterName| self.offers.get(*cluster).is_some_and(Offer::is_proven_gone);
        self.missing.iter().filter(is_proven)
    }

    /// Whether it shows every cluster now.
    pub(super) fn is_live(&self) -> bool {
        self.list_state == ListState::Live
    }

    /// Whether a cluster of these roles joins only if something needs it: hubs and edges are named
    /// by nothing.
    pub(super) fn joins_only_needed(&self, roles: &[Role]) -> bool {
        self.join == JoinRule::Needed && roles == [Role::Upstream]
    }

    pub(super) fn joins_needed(&self, offer: &Offer) -> bool {
        self.joins_only_needed(&offer.roles)
    }

    /// Forgets a cluster that is gone.
    pub(super) fn drop_offer(&mut self, cluster: &ClusterName) -> Option<Offer> {
        self.missing.remove(cluster);
        self.broken.remove(cluster);
        self.taken.remove(cluster);
        self.offers.remove(cluster)
    }

    pub(super) fn state_of(
        &self,
        cluster: &ClusterName,
        offer: &Offer,
        is_member: bool,
    ) -> MemberState {
        match offer.state {
            _ if is_member && self.is_held() && offer.missing.is_some() => MemberState::Held,
            _ if is_member => MemberState::Joined,
            _ if self.taken.contains(cluster) => MemberState::NameTaken,
            OfferStateName::Ready => MemberState::Idle,
            OfferStateName::NotReady | OfferStateName::Deleting => MemberState::NotReady,
            OfferStateName::Broken => MemberState::Broken,
        }
    }

    /// How many clusters a problem concerns, and which.
    fn extent(&self, problem: DiscoveryProblem, now: UnixMillis) -> (usize, String) {
        let first = |name: Option<&ClusterName>| name.map_or_else(String::new, ToString::to_string);
        match problem {
            DiscoveryProblem::Lost => match (&self.error, self.list_state) {
                (Some(error), ListState::Lost(_)) if self.lost_at.plus(LOST_REPORT_MS) <= now => {
                    (self.offers.len().max(1), error.text.to_string())
                }
                _ => (0, String::new()),
            },
            DiscoveryProblem::TooManyMissing if !self.is_held() => (0, String::new()),
            DiscoveryProblem::TooManyMissing => (self.missing.len(), first(self.missing.first())),
            DiscoveryProblem::Broken => {
                let first = self.broken.first_key_value();
                let text = first.map(|(cluster, error)| format!("{cluster}: {error}"));
                (self.broken.len(), text.unwrap_or_default())
            }
            DiscoveryProblem::NameTaken => (self.taken.len(), first(self.taken.first())),
        }
    }

    /// The problems that began or ended since the last call.
    pub(super) fn news(&mut self, source: SourceName, now: UnixMillis) -> Vec<NoteKind> {
        let mut notes = Vec::new();
        for problem in DiscoveryProblem::ALL {
            let (clusters, text) = self.extent(problem, now);
            let is_news = match clusters {
                0 => self.reported.remove(&problem),
                _ => self.reported.insert(problem),
            };
            if is_news {
                let [clusters, of] =
                    [clusters, self.offers.len()].map(|n| u64::try_from(n).unwrap_or(u64::MAX));
                let detail = match (clusters, problem) {
                    (0, _) => String::new(),
                    (1, _) | (_, DiscoveryProblem::Lost) => text,
                    (n, _) => format!("{text} and {} more", n - 1),
                };
                notes.push(NoteKind::Discovery { source, problem, clusters, of, detail });
            }
        }
        notes
    }
}
