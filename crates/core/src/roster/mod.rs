//! The roster: decides which of the discovered clusters join the run, and which leave it.
//!
//! A source (a Milo root, Secrets, a directory) lists clusters, and its events show them. The
//! rules:
//!
//! - A ready cluster joins. With `join: needed`, it joins only while a hub Connector or a hub
//!   HTTPRoute names it, and leaves ten minutes after the last reference went. It never leaves
//!   while a watch of a hub is not live.
//! - Leaving needs proof: the source reports that the cluster is gone, its complete list lacks it,
//!   or the name has another uid. Another uid means another cluster: the old one leaves, and the
//!   new one joins without any state. Not ready, being deleted, or a broken kubeconfig prove
//!   nothing.
//! - The configuration file has precedence: an offer with the name of one of its clusters does not
//!   join.
//!
//! The shell carries out the requests of [`Roster::pop_membership`], and confirms them by
//! `cluster_added` and `cluster_removed`. Only these events change the world. A cluster that left
//! is not absence: hub objects of an upstream that left stay as they are.
//!
//! What one wrong input can do:
//!
//! | input | effect | bound |
//! |---|---|---|
//! | the list is empty, or lacks more than a third (wrong kubeconfig, wrong selector, a restored etcd) | none: members stay | the breakers of [`source`]; after a smaller loss the missing clusters leave, which writes nothing |
//! | a series of withdrawals | at most a third of the clusters leaves within a minute | the same breakers |
//! | withdrawals of Projects, and 404 for the name of each | all of them leave, which writes nothing | their routes have a breaker and a live 404 before each delete |
//! | every uid differs (another Milo with the same names) | each cluster joins again without any state | hub objects carry namespace uids, so nothing of the other Milo is mirrored to them |
//! | one cluster joins and leaves repeatedly | it is listed each time | three joins a minute for each name |
//! | the hub shows no Connector (wrong hub kubeconfig) | after ten minutes, clusters without a reference leave | this writes nothing; they join again with the first reference |
//! | the discovery watch is lost | none: known clusters stay and may join | |
//! | a name is taken | the offer waits | reported once |

mod deleted;
mod members;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::cause::Problem;
use crate::contract::event::EventKind;
use crate::contract::membership::{
    LeaveReason, MemberState, Membership, MembershipCount, SourceName,
};
use crate::contract::settings::OrphanMode;
use crate::data::ids::{ClusterName, Kind};
use crate::data::time::UnixMillis;
use crate::rules::orphan::DeletedProject;
use crate::timers::Timers;
use crate::world::World;
use deleted::Departed;
use members::Members;
use source::{MISSING_SHARE, Offer, Source};

/// How long a cluster without references stays.
const UNNEEDED_MS: u64 = 600_000;

/// How soon to check again whether the watches of the hubs are live.
const HUB_RETRY_MS: u64 = 60_000;

/// How long after the shell removed a cluster by itself the roster decides again: another cluster
/// of that name may be about to join.
const REJOIN_MS: u64 = 1_000;

/// The sources' offers, and the clusters that joined because of them.
#[derive(Default)]
pub(crate) struct Roster {
    sources: BTreeMap<SourceName, Source>,
    members: Members,
    departed: Departed,
    /// When to decide about a cluster even without an event.
    requeued: Timers<ClusterName>,
    /// The problems of each source whose findings may have changed.
    found: BTreeMap<SourceName, Vec<Problem>>,
}

/// The facts that the roster reads besides its own state.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'w> {
    pub(crate) world: &'w World,
    pub(crate) now: UnixMillis,
}

/// Handlers.
impl Roster {
    /// An event from a source.
    pub(crate) fn on_event(&mut self, event: &EventKind, facts: &Facts<'_>) {
        let now = facts.now;
        match event {
            EventKind::ClusterOffered { source, cluster, uid, roles, state } => {
                let offer = Offer::new(uid, roles, state);
                return self.on_offered(*source, cluster, offer, facts);
            }
            EventKind::ClusterWithdrawn { source, cluster, uid } => {
                return self.source(*source).on_withdrawn(cluster, uid, now);
            }
            EventKind::ClusterGone { source, cluster } => {
                return self.on_gone(*source, cluster, facts);
            }
            EventKind::DiscoveryStarted { source, join } => {
                self.source(*source).on_list_started(*join, now);
            }
            EventKind::DiscoveryFinished { source } => {
                self.source(*source).on_list_finished(now);
                self.settle_missing(*source, facts);
                self.find_unneeded(*source, facts);
            }
            EventKind::DiscoveryLost { source, error } => self.source(*source).on_lost(error, now),
            EventKind::DiscoveryResumed { source } => {
                self.source(*source).on_resumed(now);
                self.settle_held(*source, facts);
            }
            _ => return debug_assert!(false, "{event:?} is not about a discovery"),
        }
        // Whether a source is live decides whether routes of deleted projects may be deleted.
        self.departed.on_evidence_changed();
    }

    /// The shell, or the header of a log, added a cluster. One that the roster did not request
    /// belongs to the configuration file.
    pub(crate) fn on_cluster_added(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        self.departed.forget(cluster);
        if !self.members.on_added(cluster) {
            self.on_name_changed_hands(cluster, facts.now);
        }
    }

    /// The shell removed a cluster, or failed to add it. If the roster did not request the removal,
    /// it decides again.
    pub(crate) fn on_cluster_removed(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        if !self.members.on_removed(cluster) && self.has_sources() {
            self.requeued.set_no_later(cluster.clone(), facts.now.plus(REJOIN_MS));
        }
    }

    /// The first reference to a cluster appeared, or the last one went.
    pub(crate) fn on_references_changed(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        if !facts.is_referenced(cluster) {
            self.departed.forget(cluster);
            self.start_unneeded(cluster, facts.now);
            return;
        }

        if let Some(member) = self.members.get_mut(cluster) {
            member.unneeded_since = None;
        }
        self.join_if_wanted(cluster, facts);
    }

    /// Does everything that is due.
    pub(crate) fn run(&mut self, facts: &Facts<'_>) {
        for source in SourceName::ALL {
            if self.sources.get_mut(&source).is_some_and(|s| s.take_settle(facts.now)) {
                self.settle_missing(source, facts);
            }
        }
        while let Some(cluster) = self.requeued.pop(facts.now) {
            self.leave_if_unneeded(&cluster, facts);
            self.on_name_changed_hands(&cluster, facts.now);
            self.join_if_wanted(&cluster, facts);
        }
        for source in SourceName::ALL {
            if self.sources.get_mut(&source).is_some_and(|s| s.take_report(facts.now)) {
                self.report(source, facts);
            }
        }
    }
}

/// Queries.
impl Roster {
    /// When [`Roster::run`] must be called.
    pub(crate) fn next_at(&self) -> Option<UnixMillis> {
        self.sources.values().filter_map(Source::next_at).chain(self.requeued.next_at()).min()
    }

    /// The next request to add or remove a cluster, oldest first.
    pub(crate) fn pop_membership(&mut self) -> Option<Membership> {
        self.members.pop()
    }

    pub(crate) fn take_found(&mut self) -> BTreeMap<SourceName, Vec<Problem>> {
        std::mem::take(&mut self.found)
    }

    /// Projects that were deleted or exist again, and those whose evidence changed.
    pub(crate) fn take_affected(&mut self) -> BTreeSet<ClusterName> {
        self.departed.take_affected()
    }

    /// Whether any source was ever listed, so that a named cluster may be about to join.
    pub(crate) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether every source shows all its clusters.
    pub(crate) fn are_sources_live(&self) -> bool {
        self.sources.values().all(Source::is_live)
    }

    /// A source that cannot list its clusters, so that a named one may be among them.
    pub(crate) fn lost_source(&self) -> Option<SourceName> {
        let mut sources = self.sources.iter();
        sources.find(|(_, source)| source.is_lost()).map(|(name, _)| *name)
    }

    /// Whether the removal of a cluster means that the shell failed to add it, because its source
    /// no longer offers a connection.
    pub(crate) fn could_not_join(&self, cluster: &ClusterName, world: &World) -> bool {
        self.members.could_not_join(cluster, world)
    }

    /// The number of offered clusters in each state.
    pub(crate) fn counts(&self, world: &World) -> Vec<MembershipCount> {
        let mut counts = BTreeMap::<_, usize>::new();
        for (&source, offers) in &self.sources {
            for (cluster, offer) in &offers.offers {
                let state = self.state_of(source, cluster, offer, world);
                *counts.entry((source, state)).or_default() += 1;
            }
        }

        // Only a Milo root can report that a project is gone.
        let deleted = self.departed.gone().count();
        if deleted > 0 {
            counts.insert((SourceName::Milo, MemberState::Gone), deleted);
        }
        let count = |((source, state), clusters)| MembershipCount { source, state, clusters };
        counts.into_iter().map(count).collect()
    }
}

impl Roster {
    fn source(&mut self, name: SourceName) -> &mut Source {
        self.sources.entry(name).or_default()
    }

    fn is_live(&self, source: SourceName) -> bool {
        self.sources.get(&source).is_some_and(Source::is_live)
    }

    fn is_held(&self, source: SourceName) -> bool {
        self.sources.get(&source).is_some_and(Source::is_held)
    }

    fn is_offered(&self, cluster: &ClusterName) -> bool {
        self.sources.values().any(|source| source.offers.contains_key(cluster))
    }

    fn state_of(
        &self,
        source: SourceName,
        cluster: &ClusterName,
        offer: &Offer,
        world: &World,
    ) -> MemberState {
        match self.members.of(source, cluster) {
            Some(_) if self.is_held(source) && offer.missing.is_some() => MemberState::Held,
            Some(_) => MemberState::Joined,
            None if offer.is_ready() && self.members.is_taken(cluster, world) => {
                MemberState::NameTaken
            }
            None => offer.state(),
        }
    }

    /// A source shows a cluster. It may join, or replace another one of its name.
    fn on_offered(
        &mut self,
        source: SourceName,
        cluster: &ClusterName,
        offer: Offer,
        facts: &Facts<'_>,
    ) {
        if let Some(reason) = self.members.of(source, cluster).and_then(|m| m.differs_from(&offer))
        {
            self.leave(cluster, reason, facts.now);
        }

        self.source(source).on_offered(cluster, offer, facts.now);
        self.departed.forget(cluster);
        self.join_if_wanted(cluster, facts);
    }

    /// Joins a cluster if a source offers it, it is needed, and its name is free.
    fn join_if_wanted(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        if self.members.is_taken(cluster, facts.world) {
            return;
        }
        let is_referenced = facts.is_referenced(cluster);
        let wanted = self
            .sources
            .iter()
            .find_map(|(name, source)| Some((*name, source.wanted(cluster, is_referenced)?)));
        let Some((source, offer)) = wanted else { return };

        match self.members.join(source, cluster, offer, facts.now) {
            Ok(()) => self.on_name_changed_hands(cluster, facts.now),
            Err(next_at) => self.requeued.set_no_later(cluster.clone(), next_at),
        }
    }

    fn leave(&mut self, cluster: &ClusterName, reason: LeaveReason, now: UnixMillis) {
        self.on_name_changed_hands(cluster, now);
        self.members.leave(cluster, reason);
    }

    /// The name is now taken, or free, for the offers of other sources.
    fn on_name_changed_hands(&mut self, cluster: &ClusterName, now: UnixMillis) {
        let holder = self.members.get(cluster).map(|member| member.source);
        for (name, source) in &mut self.sources {
            if Some(*name) != holder && source.offers.contains_key(cluster) {
                source.report_soon(now);
            }
        }
    }

    /// Missing clusters of a source leave, unless they are too many. Then those not proven to be
    /// gone stay until the source shows them, or enough of the others, again.
    fn settle_missing(&mut self, source: SourceName, facts: &Facts<'_>) {
        for (cluster, offer) in self.source(source).take_proven(facts.now) {
            self.leave_source(source, &cluster, &offer, facts);
        }

        let members = self.members.names_of(source);
        for (cluster, offer) in self.source(source).take_missing(&members, facts.now) {
            self.leave_source(source, &cluster, &offer, facts);
        }
    }

    /// The missing clusters of a source may now be few enough, or proven to be gone.
    fn settle_held(&mut self, source: SourceName, facts: &Facts<'_>) {
        if self.is_held(source) {
            self.settle_missing(source, facts);
        }
    }

    /// A cluster leaves because its source no longer shows it.
    fn leave_source(
        &mut self,
        source: SourceName,
        cluster: &ClusterName,
        offer: &Offer,
        facts: &Facts<'_>,
    ) {
        let is_member = self.members.of(source, cluster).is_some();
        if let Some(reason) = offer.missing.filter(|_| is_member) {
            self.leave(cluster, reason, facts.now);
        }

        // Hub objects may still name it.
        if facts.is_referenced(cluster) {
            let is_deletion_seen = offer.missing == Some(LeaveReason::Withdrawn);
            self.departed.on_left(source, cluster, is_deletion_seen);
            if offer.is_gone {
                self.record_gone(source, cluster, facts);
            }
        }
        // Another source may offer a cluster of that name.
        self.join_if_wanted(cluster, facts);
    }

    /// The list of a source is complete, and its join rule may have changed.
    fn find_unneeded(&mut self, source: SourceName, facts: &Facts<'_>) {
        for cluster in self.members.names_of(source) {
            if !facts.is_referenced(&cluster) {
                self.start_unneeded(&cluster, facts.now);
            }
        }
    }

    /// The last reference went: if the cluster is only needed for references, it leaves later.
    fn start_unneeded(&mut self, cluster: &ClusterName, now: UnixMillis) {
        let Some(member) = self.members.get_mut(cluster) else { return };
        let source = self.sources.get(&member.source);

        if source.is_some_and(|source| source.joins_only_needed(&member.roles))
            && member.unneeded_since.is_none()
        {
            member.unneeded_since = Some(now);
            self.requeued.set_no_later(cluster.clone(), now.plus(UNNEEDED_MS));
        }
    }

    /// A cluster leaves once it has had no references for long enough while the hubs were live.
    fn leave_if_unneeded(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        let member = self.members.get(cluster);
        let Some(since) = member.and_then(|member| member.unneeded_since) else { return };

        let leaves_at = match facts.hubs_live_since() {
            None => facts.now.plus(HUB_RETRY_MS),
            Some(live_since) => since.max(live_since).plus(UNNEEDED_MS),
        };
        if leaves_at <= facts.now {
            self.leave(cluster, LeaveReason::NotNeeded, facts.now);
        } else {
            self.requeued.set_no_later(cluster.clone(), leaves_at);
        }
    }

    fn report(&mut self, name: SourceName, facts: &Facts<'_>) {
        let offers = self.sources.get(&name).into_iter().flat_map(|source| &source.offers);
        let is_taken = |(cluster, offer): &(&ClusterName, &Offer)| {
            self.state_of(name, cluster, offer, facts.world) == MemberState::NameTaken
        };
        let taken = offers.filter(is_taken).map(|(cluster, _)| cluster);
        let taken: Vec<_> = taken.cloned().collect();

        let found = self.source(name).find(name, &taken, facts.now);
        self.found.insert(name, found);
    }
}

/// Deleted projects.
impl Roster {
    /// The orphan rule's facts about an upstream; `None` unless it is a deleted project.
    pub(crate) fn deleted_project(&self, upstream: &ClusterName) -> Option<DeletedProject> {
        let departure = self.departed.get(upstream)?;
        Some(DeletedProject {
            source: departure.source,
            at: departure.gone_at?,
            is_deletion_seen: departure.is_deletion_seen,
            is_source_live: self.is_live(departure.source),
        })
    }

    /// Upstreams that hub objects name, but that are neither offered by a source nor in the
    /// configuration file. They may be projects that were deleted before this instance started. A
    /// live GET must show it ([`EventKind::ClusterGone`]). This only leads to reports, because the
    /// deletion was not seen. Sorted.
    ///
    /// Empty unless every source shows all its clusters and one of them is a Milo root. Also empty
    /// if they are more than one and more than a third of the upstreams that hub objects name:
    /// another root is more likely than that many deletions.
    pub(crate) fn unknown_upstreams(&self, world: &World) -> Vec<ClusterName> {
        if !self.sources.contains_key(&SourceName::Milo) || !self.are_sources_live() {
            return Vec::new();
        }

        let named = world.links.counts.iter().filter(|(_, counts)| counts.is_referenced());
        let named: Vec<_> = named.map(|(name, _)| name).collect();
        let mut unknown = named.clone();
        unknown.retain(|name| !world.ids.contains_key(*name) && !self.is_offered(name));
        let is_unseen = |name: &&&ClusterName| {
            self.departed.get(name).is_none_or(|departure| !departure.is_deletion_seen)
        };
        let unseen = unknown.iter().filter(is_unseen).count() as u64;
        if unseen > 1 && MISSING_SHARE.is_exceeded(unseen, named.len() as u64) {
            return Vec::new();
        }
        unknown.retain(|name| self.deleted_project(name).is_none());
        unknown.into_iter().cloned().collect()
    }

    /// A live GET of a name answered 404. This counts for names that no source shows.
    fn on_gone(&mut self, source: SourceName, cluster: &ClusterName, facts: &Facts<'_>) {
        if let Some(source) = self.sources.get_mut(&source) {
            source.on_gone(cluster);
        }
        self.settle_held(source, facts);
        self.record_gone(source, cluster, facts);
    }

    /// The name answers 404. This means nothing if a source shows it or it is in the run.
    fn record_gone(&mut self, source: SourceName, cluster: &ClusterName, facts: &Facts<'_>) {
        let is_there = self.is_offered(cluster) || self.members.is_taken(cluster, facts.world);
        let counts = facts.world.links.counts_of(cluster);
        if !self.is_live(source) || is_there || !counts.is_referenced() {
            return;
        }

        self.departed.on_gone(source, cluster, facts.now);
    }
}

impl Facts<'_> {
    /// Whether a hub object names the cluster.
    fn is_referenced(&self, cluster: &ClusterName) -> bool {
        self.world.links.counts_of(cluster).is_referenced()
    }

    /// Since when every hub shows all objects that may name a cluster; `None` while one does not.
    fn hubs_live_since(&self) -> Option<UnixMillis> {
        let kinds: &[Kind] = match self.world.settings.orphans.mode {
            OrphanMode::Off => &[Kind::Connector],
            OrphanMode::Report | OrphanMode::Delete => &[Kind::Connector, Kind::HttpRoute],
        };
        let since: Option<Vec<_>> =
            self.world.hubs().map(|hub| hub.all_live_since(kinds)).collect();
        since?.into_iter().max()
    }
}
