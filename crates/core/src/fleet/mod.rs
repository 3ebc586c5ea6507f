//! The roster: which of the clusters that discovery offers join the run, and which leave it.
//!
//! A source (a Milo root, Secrets, a directory) lists clusters; its events say what it shows. The rules:
//!
//! - A ready cluster joins; under `join: needed` only while a hub Connector or a hub HTTPRoute
//!   names it, which the hub's own tables say. The first reference joins. Ten minutes after the last
//!   one is gone it leaves, and never while a hub's watch is not live.
//! - Leaving needs proof: the source says that the cluster is gone, its complete list does not contain
//!   it, or the name has another uid. Another uid is another cluster, whatever its name: it leaves,
//!   joins, and starts from nothing. Not ready, being deleted, or a broken kubeconfig prove nothing.
//! - A cluster that the configuration file adds is the file's. An offer of that name is not joined.
//!
//! The shell carries out what [`Machine::poll_membership`] asks for, and says so with `cluster_added`
//! and `cluster_removed`, which are what changes the tables. Leaving never reads as absence: hub
//! objects of an upstream that left stay as they are.
//!
//! What one wrong input can do:
//!
//! | input | effect | bound |
//! |---|---|---|
//! | the list is empty, or shows less than two thirds (wrong kubeconfig, wrong selector, a restored etcd) | none: who is followed stays | [`MISSING_SHARE`]; a smaller loss makes those few leave, which writes nothing |
//! | withdrawals in series | at most a third of the clusters leaves within a minute | the same share, over [`WINDOW_MS`] |
//! | withdrawals of Projects, and 404 about the name of each | all of them leave, which writes nothing | their routes have [a breaker](gone) and a live 404 before each delete |
//! | every uid differs (another Milo with the same names) | each cluster is followed again from nothing | hub objects carry namespace uids, so nothing of the other Milo is mirrored to them |
//! | one cluster comes and goes | it is listed again and again | [`JOINS_PER_MINUTE`] for each name |
//! | the hub shows no Connector (wrong hub kubeconfig) | after ten minutes what is not named leaves | nothing is written because of it; the first reference joins again |
//! | the discovery is lost | none: what was known stays, and can be joined | |
//! | a name is taken | the offer waits | told once |

mod gone;
mod joins;
mod looks;
mod missing;
mod source;
mod unneeded;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::circuit_breaker::Share;
use super::contract::event::EventKind;
use super::contract::membership::{
    LeaveReason, MemberState, Membership, MembershipCount, SourceName,
};
use super::data::ids::{ClusterName, Role};
use super::data::time::UnixMillis;
use super::machine::Machine;
use super::timers::Due;
pub(crate) use gone::{GoneFacts, GoneProject};
use joins::RecentJoins;
use looks::{Look, Looks};
use source::Source;

/// After the shell dropped a cluster by itself: another one of that name may be about to join.
const REJOIN_MS: u64 = 1_000;
/// Clusters that went missing within this time count together.
const WINDOW_MS: u64 = 60_000;
/// While more than this share of a source's clusters went missing, none leaves that is not proved to be
/// gone.
const MISSING_SHARE: Share = Share { part: 1, of: 3 };
/// How long those that go missing are gathered before any leaves.
const GATHER_MS: u64 = 2_000;
/// How long a problem is gathered before it is reported, and how long a source may be lost.
const REPORT_MS: u64 = 1_000;
const LOST_REPORT_MS: u64 = 10_000;
/// How often a cluster of one name joins in any minute.
const JOINS_PER_MINUTE: u32 = 3;

/// A cluster that the roster had joined.
struct Member {
    source: SourceName,
    uid: Box<str>,
    roles: Box<[Role]>,
    /// The shell has carried it out.
    is_added: bool,
    /// Since when nothing has named it (`join: needed`).
    unneeded_since: Option<UnixMillis>,
}

/// What the sources say, and who has joined because of it.
#[derive(Default)]
pub(crate) struct Roster {
    sources: BTreeMap<SourceName, Source>,
    members: BTreeMap<ClusterName, Member>,
    /// Told to leave; the shell has not carried it out yet.
    leaving: BTreeSet<ClusterName>,
    joins: RecentJoins,
    looks: Looks,
    /// Projects that were deleted, and that hub objects name.
    gone: BTreeMap<ClusterName, GoneProject>,
    output: VecDeque<Membership>,
}

impl Roster {
    pub(crate) fn pop(&mut self) -> Option<Membership> {
        self.output.pop_front()
    }

    fn members_of(&self, source: SourceName) -> impl Iterator<Item = (&ClusterName, &Member)> {
        self.members.iter().filter(move |(_, member)| member.source == source)
    }

    fn is_member_of(&self, source: SourceName, cluster: &ClusterName) -> bool {
        self.members.get(cluster).is_some_and(|member| member.source == source)
    }

    /// Has it leave. The shell may not have added it yet, and carries out both in order.
    fn leave(&mut self, cluster: &ClusterName, reason: LeaveReason) {
        if self.members.remove(cluster).is_some() {
            self.leaving.insert(cluster.clone());
            self.output.push_back(Membership::Leave { cluster: cluster.clone(), reason });
        }
    }

    /// How many of the clusters that are offered are in which state.
    pub(crate) fn counts(&self) -> Vec<MembershipCount> {
        let mut counts = BTreeMap::<_, usize>::new();
        for (&source, offers) in &self.sources {
            for (cluster, offer) in &offers.offers {
                let is_member = self.is_member_of(source, cluster);
                let state = offers.state_of(cluster, offer, is_member);
                *counts.entry((source, state)).or_default() += 1;
            }
        }
        // Only a Milo root can say that a project is gone.
        let gone = self.gone_count();
        if gone > 0 {
            counts.insert((SourceName::Milo, MemberState::Gone), gone);
        }
        let count = |((source, state), clusters)| MembershipCount { source, state, clusters };
        counts.into_iter().map(count).collect()
    }
}

impl Machine {
    /// Takes an event about what a source shows.
    pub(super) fn discovery_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::DiscoveryStarted { source, join } => {
                if !std::mem::replace(&mut self.ctx.follows_references, true) {
                    self.ctx.await_discovered_names();
                }
                self.roster.sources.entry(*source).or_default().list_started(*join);
                self.source_changed(*source);
            }
            EventKind::ClusterOffered { source, cluster, uid, roles, state } => {
                let offers = self.roster.sources.entry(*source).or_default();
                offers.offered(cluster, uid, roles, state);
                self.not_gone(cluster);
                self.offer_changed(*source, cluster);
                self.report_soon(*source, REPORT_MS);
            }
            EventKind::ClusterWithdrawn { source, cluster, uid } => {
                let offers = self.roster.sources.entry(*source).or_default();
                if offers.withdrawn(cluster, uid) {
                    let at = self.ctx.now.plus(GATHER_MS);
                    self.roster.looks.no_later(Look::Missing(*source), at);
                }
            }
            EventKind::DiscoveryFinished { source } => {
                self.roster.sources.entry(*source).or_default().list_finished();
                self.settle_missing(*source);
                self.look_for_unneeded(*source);
                self.source_changed(*source);
            }
            EventKind::DiscoveryLost { source, error } => {
                self.roster.sources.entry(*source).or_default().lost(error, self.ctx.now);
                self.evaluate_gone_routes();
                self.report_soon(*source, LOST_REPORT_MS);
            }
            EventKind::DiscoveryResumed { source } => {
                self.roster.sources.entry(*source).or_default().resumed();
                self.settle_held(*source);
                self.source_changed(*source);
            }
            EventKind::ClusterGone { source, cluster } => self.project_gone(*source, cluster),
            _ => debug_assert!(false, "{kind:?} is not about a discovery"),
        }
    }

    /// The list of a source began, is complete, broke or goes on.
    fn source_changed(&mut self, source: SourceName) {
        self.evaluate_gone_routes();
        self.report_soon(source, REPORT_MS);
    }

    /// A source shows a cluster: it may join, or be another one than before.
    fn offer_changed(&mut self, source: SourceName, cluster: &ClusterName) {
        let offer = self.roster.sources.get(&source).and_then(|s| s.offers.get(cluster));
        let member = self.roster.members.get(cluster).filter(|member| member.source == source);
        if let (Some(offer), Some(member)) = (offer, member) {
            if offer.uid != member.uid {
                self.roster.leave(cluster, LeaveReason::Replaced);
            } else if offer.roles != member.roles && offer.is_ready() {
                self.roster.leave(cluster, LeaveReason::RolesChanged);
            }
        }
        self.join_if_wanted(cluster);
    }

    /// Has a cluster join, if a source offers it, something needs it, and its name is free.
    fn join_if_wanted(&mut self, cluster: &ClusterName) {
        // Its name is that of a cluster which is not the roster's.
        let is_files = !self.roster.members.contains_key(cluster)
            && !self.roster.leaving.contains(cluster)
            && self.clusters.id_of(cluster).is_some();
        let is_referenced = self.is_referenced(cluster);
        let Self { ctx, roster, .. } = self;
        for (&name, source) in &mut roster.sources {
            let Some(offer) = source.offers.get(cluster).filter(|offer| offer.is_ready()) else {
                continue;
            };
            let member = roster.members.get(cluster);
            let is_taken = is_files || member.is_some_and(|member| member.source != name);
            let is_news = match is_taken {
                true => source.taken.insert(cluster.clone()),
                false => source.taken.remove(cluster),
            };
            if is_news {
                roster.looks.no_later(Look::Report(name), ctx.now.plus(REPORT_MS));
            }
            let is_needed = is_referenced || !source.joins_needed(offer);
            if is_taken || member.is_some() || !is_needed {
                continue;
            }
            if let Err(next_at) = roster.joins.take_turn(cluster, ctx.now) {
                roster.looks.no_later(Look::Cluster(cluster.clone()), next_at);
                continue;
            }
            let member = Member {
                source: name,
                uid: offer.uid.clone(),
                roles: offer.roles.clone(),
                is_added: false,
                unneeded_since: None,
            };
            roster.output.push_back(Membership::Join {
                source: name,
                cluster: cluster.clone(),
                roles: offer.roles.to_vec(),
            });
            roster.members.insert(cluster.clone(), member);
        }
    }

    /// The shell, or a log's header, added a cluster. What the roster did not ask for is the file's.
    pub(super) fn roster_cluster_added(&mut self, cluster: &ClusterName) {
        self.not_gone(cluster);
        match self.roster.members.get_mut(cluster) {
            Some(member) if !member.is_added => member.is_added = true,
            _ if self.roster.leaving.contains(cluster) => {}
            _ => {
                self.roster.members.remove(cluster);
                self.join_if_wanted(cluster);
            }
        }
    }

    /// Whether the removal of a cluster says that the shell could not let it join: its source offers
    /// no connection any longer.
    pub(super) fn could_not_join(&self, cluster: &ClusterName) -> bool {
        let Roster { members, leaving, .. } = &self.roster;
        let is_asked = members.get(cluster).is_some_and(|member| !member.is_added);
        self.clusters.id_of(cluster).is_none() && (is_asked || leaving.contains(cluster))
    }

    /// The shell removed a cluster, or could not let it join. Where the roster did not ask for that,
    /// it decides again.
    pub(super) fn roster_cluster_removed(&mut self, cluster: &ClusterName) {
        if self.roster.leaving.remove(cluster) || self.roster.sources.is_empty() {
            return;
        }
        self.roster.members.remove(cluster);
        let at = self.ctx.now.plus(REJOIN_MS);
        self.roster.looks.no_later(Look::Cluster(cluster.clone()), at);
    }

    /// Sets the timer of what the roster waits for.
    pub(super) fn schedule_roster(&mut self) {
        self.ctx.timers.clear(Due::Roster);
        if let Some(at) = self.roster.looks.first_at() {
            self.ctx.timers.no_later(Due::Roster, at);
        }
    }

    /// Does what is due.
    pub(super) fn look_at_roster(&mut self) {
        while let Some(look) = self.roster.looks.pop(self.ctx.now) {
            match look {
                Look::Cluster(cluster) => {
                    self.leave_if_unneeded(&cluster);
                    self.join_if_wanted(&cluster);
                }
                Look::Missing(source) => self.settle_missing(source),
                Look::Report(source) => self.report_discovery(source),
            }
        }
        self.schedule_roster();
    }

    fn report_soon(&mut self, source: SourceName, ms: u64) {
        self.roster.looks.no_later(Look::Report(source), self.ctx.now.plus(ms));
    }

    fn report_discovery(&mut self, name: SourceName) {
        let Self { ctx, roster, .. } = self;
        let Some(source) = roster.sources.get_mut(&name) else { return };
        for note in source.news(name, ctx.now) {
            ctx.note(note);
        }
        // Another problem may have been looked at first.
        if let Some(at) = source.lost_report_at().filter(|at| *at > ctx.now) {
            roster.looks.no_later(Look::Report(name), at);
        }
    }
}
