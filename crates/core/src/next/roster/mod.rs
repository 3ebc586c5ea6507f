//! The roster: which of the clusters that discovery offers join the run, and which leave it.
//!
//! A source (a Milo root, Secrets, a directory) lists clusters; its events say what it shows. The
//! rules:
//!
//! - A ready cluster joins; under `join: needed` only while a hub Connector or a hub HTTPRoute names
//!   it. Ten minutes after the last reference is gone it leaves, and never while a watch of a hub is
//!   not live.
//! - Leaving needs proof: the source says that the cluster is gone, its complete list does not
//!   contain it, or the name has another uid. Another uid is another cluster: it leaves, joins, and
//!   starts from nothing. Not ready, being deleted, or a broken kubeconfig prove nothing.
//! - A cluster that the configuration file adds is the file's. An offer of that name is not joined.
//!
//! The shell carries out what [`Roster::pop_membership`] asks for, and says so with `cluster_added`
//! and `cluster_removed`, which are what changes the world. Leaving never reads as absence: hub
//! objects of an upstream that left stay as they are.
//!
//! What one wrong input can do:
//!
//! | input | effect | bound |
//! |---|---|---|
//! | the list is empty, or lacks more than a third (wrong kubeconfig, wrong selector, a restored etcd) | none: who is followed stays | the breakers of [`source`]; a smaller loss makes those few leave, which writes nothing |
//! | withdrawals in series | at most a third of the clusters leaves within a minute | the same breakers |
//! | withdrawals of Projects, and 404 about the name of each | all of them leave, which writes nothing | their routes have a breaker and a live 404 before each delete |
//! | every uid differs (another Milo with the same names) | each cluster is followed again from nothing | hub objects carry namespace uids, so nothing of the other Milo is mirrored to them |
//! | one cluster comes and goes | it is listed again and again | three joins a minute for each name |
//! | the hub shows no Connector (wrong hub kubeconfig) | after ten minutes what is not named leaves | nothing is written because of it; the first reference joins again |
//! | the discovery is lost | none: what was known stays, and can be joined | |
//! | a name is taken | the offer waits | told once |

mod deleted;
mod members;
mod requeued;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::event::EventKind;
use crate::contract::membership::{
    LeaveReason, MemberState, Membership, MembershipCount, SourceName,
};
use crate::contract::note::NoteKind;
use crate::data::ids::{ClusterName, Kind};
use crate::data::time::UnixMillis;
use crate::next::world::World;
use deleted::Departed;
use members::Members;
use requeued::Requeued;
use source::{Offer, Source};

/// How long a cluster that nothing names is still followed.
const UNNEEDED_MS: u64 = 600_000;

/// When to look again whether the watches of the hubs are live.
const HUB_RETRY_MS: u64 = 60_000;

/// The shell dropped a cluster by itself: another one of that name may be about to join.
const REJOIN_MS: u64 = 1_000;

/// What the sources say, and who has joined because of it.
#[derive(Default)]
pub(crate) struct Roster {
    sources: BTreeMap<SourceName, Source>,
    members: Members,
    departed: Departed,
    /// When to decide about a cluster although nothing happens.
    requeued: Requeued,
    notes: Vec<NoteKind>,
}

/// What the roster reads besides its own state.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'w> {
    pub(crate) world: &'w World,
    /// The hub's HTTPRoutes are watched, so they may name a cluster, too.
    pub(crate) has_routes: bool,
    pub(crate) now: UnixMillis,
}

/// What happened.
impl Roster {
    /// An event about what a source shows.
    pub(crate) fn on_event(&mut self, event: &EventKind, facts: &Facts<'_>) {
        let now = facts.now;
        match event {
            EventKind::ClusterOffered { source, cluster, uid, roles, state } => {
                let offer = Offer::new(uid, roles, state);
                self.on_offered(*source, cluster, offer, facts);
            }
            EventKind::ClusterWithdrawn { source, cluster, uid } => {
                self.source(*source).on_withdrawn(cluster, uid, now);
            }
            EventKind::ClusterGone { source, cluster } => self.on_gone(*source, cluster, facts),
            EventKind::DiscoveryStarted { source, join } => {
                self.source(*source).on_list_started(*join, now);
                self.departed.on_evidence_changed();
            }
            EventKind::DiscoveryFinished { source } => {
                self.source(*source).on_list_finished(now);
                self.settle_missing(*source, facts);
                self.find_unneeded(*source, facts);
                self.departed.on_evidence_changed();
            }
            EventKind::DiscoveryLost { source, error } => {
                self.source(*source).on_lost(error, now);
                self.departed.on_evidence_changed();
            }
            EventKind::DiscoveryResumed { source } => {
                self.source(*source).on_resumed(now);
                self.settle_held(*source, facts);
                self.departed.on_evidence_changed();
            }
            _ => debug_assert!(false, "{event:?} is not about a discovery"),
        }
    }

    /// The shell, or the header of a log, added a cluster. What the roster did not ask for is the
    /// file's.
    pub(crate) fn on_cluster_added(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        self.on_shown_again(cluster);
        if !self.members.on_added(cluster) {
            self.on_name_changed_hands(cluster, facts.now);
        }
    }

    /// The shell removed a cluster, or could not let it join. Where the roster did not ask for that,
    /// it decides again.
    pub(crate) fn on_cluster_removed(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        if !self.members.on_removed(cluster) && self.has_sources() {
            self.requeued.insert(cluster, facts.now.plus(REJOIN_MS));
        }
    }

    /// Hub objects may name the cluster now, or none does any more.
    pub(crate) fn on_references_changed(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        if !facts.is_referenced(cluster) {
            self.on_shown_again(cluster);
            self.start_unneeded(cluster, facts.now);
            return;
        }

        if let Some(member) = self.members.get_mut(cluster) {
            member.unneeded_since = None;
        }
        self.join_if_wanted(cluster, facts);
    }

    /// Does what is due.
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

/// What is asked of it.
impl Roster {
    /// When [`Roster::run`] must be called.
    pub(crate) fn next_at(&self) -> Option<UnixMillis> {
        self.sources.values().filter_map(Source::next_at).chain(self.requeued.next_at()).min()
    }

    /// The next cluster to join or to leave, oldest first.
    pub(crate) fn pop_membership(&mut self) -> Option<Membership> {
        self.members.pop()
    }

    pub(crate) fn take_notes(&mut self) -> Vec<NoteKind> {
        std::mem::take(&mut self.notes)
    }

    /// Deleted projects whose routes are to be planned again.
    pub(crate) fn take_affected(&mut self) -> BTreeSet<ClusterName> {
        self.departed.take_affected()
    }

    /// Whether any source was ever listed: who is named may be about to join.
    pub(crate) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether every source shows all its clusters.
    pub(crate) fn are_sources_live(&self) -> bool {
        self.sources.values().all(Source::is_live)
    }

    /// Whether the removal of a cluster says that the shell could not let it join: its source offers
    /// no connection any more.
    pub(crate) fn could_not_join(&self, cluster: &ClusterName, world: &World) -> bool {
        self.members.could_not_join(cluster, world)
    }

    /// How many of the clusters that are offered are in which state.
    pub(crate) fn counts(&self, world: &World) -> Vec<MembershipCount> {
        let mut counts = BTreeMap::<_, usize>::new();
        for (&source, offers) in &self.sources {
            for (cluster, offer) in &offers.offers {
                let state = self.state_of(source, cluster, offer, world);
                *counts.entry((source, state)).or_default() += 1;
            }
        }

        // Only a Milo root can say that a project is gone.
        let deleted = self.deleted_projects().count();
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
        let is_held = self.sources.get(&source).is_some_and(Source::is_held);
        match self.members.of(source, cluster) {
            Some(_) if is_held && offer.missing.is_some() => MemberState::Held,
            Some(_) => MemberState::Joined,
            None if self.members.is_taken(source, cluster, world) && offer.is_ready() => {
                MemberState::NameTaken
            }
            None => offer.state(),
        }
    }

    /// A source shows a cluster: it may join, or be another one than before.
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
        self.on_shown_again(cluster);
        self.join_if_wanted(cluster, facts);
    }

    /// A cluster joins if a source offers it, something needs it, and its name is free.
    fn join_if_wanted(&mut self, cluster: &ClusterName, facts: &Facts<'_>) {
        let is_joined = self.members.get(cluster).is_some();
        if is_joined || self.members.is_of_file(cluster, facts.world) {
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
            Err(next_at) => self.requeued.insert(cluster, next_at),
        }
    }

    fn leave(&mut self, cluster: &ClusterName, reason: LeaveReason, now: UnixMillis) {
        self.on_name_changed_hands(cluster, now);
        self.members.leave(cluster, reason);
    }

    /// Other sources' offers of that name find it taken, or free.
    fn on_name_changed_hands(&mut self, cluster: &ClusterName, now: UnixMillis) {
        let holder = self.members.get(cluster).map(|member| member.source);
        for (name, source) in &mut self.sources {
            if Some(*name) != holder && source.offers.contains_key(cluster) {
                source.report_soon(now);
            }
        }
    }

    /// Missing clusters of a source leave, unless they are too many: then those that are not proved
    /// to be gone stay, until the source shows them again, or so many others that they are few.
    fn settle_missing(&mut self, source: SourceName, facts: &Facts<'_>) {
        for cluster in self.source(source).take_proven(facts.now) {
            self.leave_source(source, &cluster, facts);
        }

        let members = self.members.names_of(source);
        for cluster in self.source(source).settle(&members, facts.now) {
            self.leave_source(source, &cluster, facts);
        }
    }

    /// The missing clusters of a source may be few by now, or proved to be gone.
    fn settle_held(&mut self, source: SourceName, facts: &Facts<'_>) {
        if self.sources.get(&source).is_some_and(Source::is_held) {
            self.settle_missing(source, facts);
        }
    }

    /// A cluster leaves because its source does not show it any more.
    fn leave_source(&mut self, source: SourceName, cluster: &ClusterName, facts: &Facts<'_>) {
        let Some(offer) = self.source(source).offers.remove(cluster) else { return };

        if let (Some(reason), Some(_)) = (offer.missing, self.members.of(source, cluster)) {
            self.leave(cluster, reason, facts.now);
        }
        self.on_departed(source, cluster, &offer, facts);
        // Another source may offer one of that name.
        self.join_if_wanted(cluster, facts);
    }

    /// The list of a source is complete: its rule may be another one than before.
    fn find_unneeded(&mut self, source: SourceName, facts: &Facts<'_>) {
        for cluster in self.members.names_of(source) {
            if !facts.is_referenced(&cluster) {
                self.start_unneeded(&cluster, facts.now);
            }
        }
    }

    /// Nothing names the cluster: if it had to be needed, it leaves in a while.
    fn start_unneeded(&mut self, cluster: &ClusterName, now: UnixMillis) {
        let Some(member) = self.members.get_mut(cluster) else { return };
        let source = self.sources.get(&member.source);

        if source.is_some_and(|source| source.joins_only_needed(&member.roles))
            && member.unneeded_since.is_none()
        {
            member.unneeded_since = Some(now);
            self.requeued.insert(cluster, now.plus(UNNEEDED_MS));
        }
    }

    /// A cluster leaves that nothing has named for long enough, in sight of the hubs.
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
            self.requeued.insert(cluster, leaves_at);
        }
    }

    fn report(&mut self, name: SourceName, facts: &Facts<'_>) {
        let Some(source) = self.sources.get(&name) else { return };
        let is_taken = |(cluster, offer): &(&ClusterName, &Offer)| {
            offer.is_ready() && self.members.is_taken(name, cluster, facts.world)
        };
        let taken = source.offers.iter().filter(is_taken).map(|(cluster, _)| cluster);
        let taken: Vec<_> = taken.cloned().collect();

        let news = self.source(name).news(name, &taken, facts.now);
        self.notes.extend(news);
    }
}

impl Facts<'_> {
    /// Whether a hub object names it.
    fn is_referenced(&self, cluster: &ClusterName) -> bool {
        self.world.counts_of(cluster).is_referenced()
    }

    /// Since when every hub has shown all that may name a cluster; `None` while one does not.
    fn hubs_live_since(&self) -> Option<UnixMillis> {
        let kinds: &[Kind] = match self.has_routes {
            true => &[Kind::Connector, Kind::HttpRoute],
            false => &[Kind::Connector],
        };
        let since: Option<Vec<_>> =
            self.world.hubs().map(|hub| hub.all_live_since(kinds)).collect();
        since?.into_iter().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::membership::{JoinRule, OfferState};
    use crate::contract::settings::Settings;
    use crate::data::ids::Role;
    use crate::next::world::fixture::{self, connector};

    const MILO: SourceName = SourceName::Milo;
    const SECOND_MS: u64 = 1_000;
    const MINUTE_MS: u64 = 60_000;

    /// A hub, a Milo root, and a shell that carries out who joins and leaves.
    struct Stage {
        fixture: fixture::Stage,
        roster: Roster,
        now: UnixMillis,
    }

    impl Stage {
        fn new(join: JoinRule) -> Self {
            let mut fixture = fixture::Stage::new(&Settings::default());
            fixture.add("hub", &[Role::Hub]);
            let now = UnixMillis(2_000_000);
            let mut stage = Self { fixture, roster: Roster::default(), now };
            stage.event(EventKind::DiscoveryStarted { source: MILO, join });
            stage
        }

        /// These projects are followed.
        fn joined(names: &[&str]) -> Self {
            let mut stage = Self::new(JoinRule::All);
            names.iter().for_each(|name| stage.offer(name, "1"));
            stage.event(EventKind::DiscoveryFinished { source: MILO });
            stage.carry_out();
            stage
        }

        fn with<T>(&mut self, f: impl FnOnce(&mut Roster, &Facts<'_>) -> T) -> T {
            let facts = Facts { world: &self.fixture.world, has_routes: true, now: self.now };
            f(&mut self.roster, &facts)
        }

        fn event(&mut self, event: EventKind) {
            self.with(|roster, facts| roster.on_event(&event, facts));
        }

        fn offer(&mut self, name: &str, uid: &str) {
            self.offer_as(name, uid, OfferState::Ready);
        }

        fn offer_as(&mut self, name: &str, uid: &str, state: OfferState) {
            let (cluster, roles) = (name.into(), vec![Role::Upstream]);
            let uid = uid.to_owned();
            self.event(EventKind::ClusterOffered { source: MILO, cluster, uid, roles, state });
        }

        fn withdraw(&mut self, name: &str) {
            let (cluster, uid) = (name.into(), "1".to_owned());
            self.event(EventKind::ClusterWithdrawn { source: MILO, cluster, uid });
        }

        fn answers_404(&mut self, name: &str) {
            self.event(EventKind::ClusterGone { source: MILO, cluster: name.into() });
        }

        /// A hub Connector names the project, or does not any more.
        fn name(&mut self, project: &str, is_named: bool) {
            let object = connector(&format!("ns-{project}"), "lab", self.now.0);
            let object = object.of(project, "default", "lab");
            match is_named {
                true => self.fixture.shows("hub", object),
                false => self.fixture.deletes("hub", object),
            };
            self.with(|roster, facts| roster.on_references_changed(&project.into(), facts));
        }

        fn pass(&mut self, ms: u64) {
            let end = self.now.plus(ms);
            while let Some(at) = self.roster.next_at().filter(|at| *at <= end) {
                self.now = at;
                self.with(Roster::run);
            }
            self.now = end;
        }

        fn carry_out(&mut self) -> Vec<String> {
            let asked: Vec<_> = std::iter::from_fn(|| self.roster.pop_membership()).collect();
            for membership in &asked {
                match membership.clone() {
                    Membership::Join { cluster, roles, .. } => self.add(cluster, roles),
                    Membership::Leave { cluster, .. } => self.remove(cluster),
                }
            }
            asked.iter().map(shown).collect()
        }

        fn add(&mut self, cluster: ClusterName, roles: Vec<Role>) {
            self.fixture.tell(EventKind::ClusterAdded { cluster: cluster.clone(), roles });
            self.with(|roster, facts| roster.on_cluster_added(&cluster, facts));
        }

        fn remove(&mut self, cluster: ClusterName) {
            self.fixture.tell(EventKind::ClusterRemoved { cluster: cluster.clone() });
            self.with(|roster, facts| roster.on_cluster_removed(&cluster, facts));
        }

        /// Which problems were reported since the last call, and how many clusters each concerns.
        fn told(&mut self) -> Vec<(&'static str, u64)> {
            let notes = self.roster.take_notes().into_iter();
            let told = notes.map(|note| match note {
                NoteKind::Discovery { problem, clusters, .. } => (problem.as_str(), clusters),
                NoteKind::ClusterGone { connectors, routes, .. } => ("gone", connectors + routes),
                note => panic!("{note:?}"),
            });
            told.collect()
        }
    }

    fn shown(membership: &Membership) -> String {
        match membership {
            Membership::Join { cluster, .. } => format!("join {cluster}"),
            Membership::Leave { cluster, reason } => format!("leave {cluster} {}", reason.as_str()),
        }
    }

    fn nothing() -> [&'static str; 0] {
        []
    }

    #[test]
    fn only_a_ready_cluster_joins_and_only_where_it_is_needed() {
        for (join, is_named, state, expected) in [
            (JoinRule::All, false, OfferState::Ready, &["join a"][..]),
            (JoinRule::Needed, true, OfferState::Ready, &["join a"]),
            (JoinRule::Needed, false, OfferState::Ready, &[]),
            (JoinRule::All, true, OfferState::NotReady, &[]),
            (JoinRule::All, true, OfferState::Broken { error: "exec".into() }, &[]),
        ] {
            let mut stage = Stage::new(join);
            if is_named {
                stage.name("a", true);
            }
            stage.offer_as("a", "1", state);
            assert_eq!(stage.carry_out(), expected);
        }
    }

    #[test]
    fn another_uid_is_another_cluster_and_joins_are_limited() {
        let mut stage = Stage::joined(&["a"]);
        stage.offer("a", "2");
        assert_eq!(stage.carry_out(), ["leave a replaced", "join a"]);
        stage.offer("a", "3");
        assert_eq!(stage.carry_out(), ["leave a replaced", "join a"]);

        stage.offer("a", "4");
        assert_eq!(stage.carry_out(), ["leave a replaced"], "three within a minute");
        stage.pass(MINUTE_MS);
        assert_eq!(stage.carry_out(), ["join a"]);
    }

    #[test]
    fn nobody_leaves_while_more_than_a_third_is_missing_but_who_is_proved_to_be_gone() {
        let mut stage = Stage::joined(&["a", "b", "c", "d", "e", "f"]);
        for name in ["a", "b", "c"] {
            stage.withdraw(name);
        }
        stage.pass(MINUTE_MS);
        assert_eq!(stage.carry_out(), nothing());
        assert_eq!(stage.told(), [("too_many_missing", 3)]);

        stage.answers_404("a");
        assert_eq!(stage.carry_out(), ["leave a withdrawn"], "two of five are still too many");
        stage.offer("b", "1");
        stage.pass(MINUTE_MS);
        stage.event(EventKind::DiscoveryFinished { source: MILO });
        assert_eq!(stage.carry_out(), ["leave c withdrawn"]);
    }

    #[test]
    fn ten_minutes_after_the_last_reference_it_leaves_unless_a_hub_is_out_of_sight() {
        let mut stage = Stage::new(JoinRule::Needed);
        stage.offer("a", "1");
        stage.name("a", true);
        assert_eq!(stage.carry_out(), ["join a"]);
        stage.name("a", false);

        let (cluster, kind) = (|| ClusterName::from("hub"), Kind::HttpRoute);
        let error = "cut".into();
        stage.fixture.tell(EventKind::WatchLost { cluster: cluster(), kind, error });
        stage.pass(2 * UNNEEDED_MS);
        assert_eq!(stage.carry_out(), nothing());

        stage.fixture.now = stage.now;
        stage.fixture.tell(EventKind::WatchResumed { cluster: cluster(), kind });
        stage.pass(UNNEEDED_MS + HUB_RETRY_MS);
        assert_eq!(stage.carry_out(), ["leave a not_needed"]);
    }

    #[test]
    fn a_cluster_of_the_configuration_file_has_its_name() {
        let mut stage = Stage::joined(&[]);
        stage.add("a".into(), vec![Role::Edge]);
        stage.offer("a", "1");
        stage.pass(MINUTE_MS);
        assert_eq!(stage.carry_out(), nothing());
        assert_eq!(stage.told(), [("name_taken", 1)]);

        stage.remove("a".into());
        stage.pass(2 * SECOND_MS);
        assert_eq!(stage.carry_out(), ["join a"]);
        assert_eq!(stage.told(), [("name_taken", 0)]);
    }

    #[test]
    fn a_source_that_is_lost_for_ten_seconds_is_told_and_changes_nothing() {
        let mut stage = Stage::joined(&["a"]);
        stage.event(EventKind::DiscoveryLost { source: MILO, error: "403".into() });
        stage.pass(10 * SECOND_MS - 1);
        assert_eq!(stage.told(), []);
        stage.pass(1);
        assert_eq!(stage.told(), [("lost", 1)]);

        stage.event(EventKind::DiscoveryResumed { source: MILO });
        stage.pass(SECOND_MS);
        assert_eq!(stage.told(), [("lost", 0)]);
        assert_eq!(stage.carry_out(), nothing());
    }

    #[test]
    fn a_project_is_deleted_where_a_404_follows_and_until_it_is_shown_again() {
        let mut stage = Stage::joined(&["a", "b", "c", "d"]);
        let name = ClusterName::from("a");
        stage.name("a", true);
        stage.withdraw("a");
        stage.pass(2 * SECOND_MS);
        stage.carry_out();
        assert!(stage.roster.deleted_project(&name).is_none());
        assert_eq!(
            stage.roster.unknown_upstreams(&stage.fixture.world),
            std::slice::from_ref(&name)
        );

        stage.answers_404("a");
        assert!(stage.roster.deleted_project(&name).unwrap().is_deletion_seen);
        assert_eq!(stage.told(), [("gone", 1)]);
        assert_eq!(stage.roster.take_affected(), [name.clone()].into());
        assert_eq!(stage.roster.unknown_upstreams(&stage.fixture.world), []);

        stage.offer("a", "2");
        assert!(stage.roster.deleted_project(&name).is_none());
        assert_eq!(stage.told(), [("gone", 0)]);
    }
}
