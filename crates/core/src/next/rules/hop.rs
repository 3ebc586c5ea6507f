//! Hop: how far a change has come on its way upstream → mirrored → carried → announced, and what is
//! late. This file has the first two hops and the words for why one is late; `touch` has the last.
//!
//! A hop is open from the moment in which it could have started. When it takes longer than its limit
//! it is *late*: a stall begins, which ends when the hop is passed, or when nothing is expected any
//! more. What is held, paused or deferred is never late, and nothing is while no instance may lead.

use crate::contract::note::{Hop, NoteKind, Stall, StallCause};
use crate::contract::settings::StallSettings;
use crate::data::ids::{ClusterName, Kind};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::next::rules::mirror::{self, Before, REPEAT_MS, StatusChange, SyncState, Verdict};
use crate::next::world::World;
use crate::next::world::cluster::Cluster;
use crate::status::digest::Digest;

/// What throughline remembers of the way of a hub Connector's status.
#[derive(Debug, Default)]
pub(crate) struct HopMemory {
    /// The annotation is out of sync because upstream was seen to change, not because of another
    /// writer. Only then is it known how long the hop took.
    is_change_seen: bool,
    /// Edges that do not say what the hub says, in the order of their ids, and since when.
    behind: Vec<(ClusterId, UnixMillis)>,
    pub(crate) stall: Option<Box<Stall>>,
}

/// An edge that has the Connector. Where the hub is the edge itself, both are one object.
#[derive(Clone, Copy)]
pub(crate) struct Edge<'w> {
    pub(crate) cluster: &'w Cluster,
    says: Option<Digest>,
}

/// A hop that the status has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) hop: Hop,
    /// Where it ends.
    pub(crate) cluster: ClusterName,
    /// `None` where nobody saw it begin, or another writer made the value wrong.
    pub(crate) after_ms: Option<u64>,
}

/// The hop that is expected next.
#[derive(Clone, Copy)]
pub(crate) enum Expected<'w> {
    /// What was late may be as late as before.
    NotKnown,
    Nothing,
    Open(Open<'w>),
}

#[derive(Clone, Copy)]
pub(crate) struct Open<'w> {
    pub(crate) hop: Hop,
    /// When it could have started.
    pub(crate) since: UnixMillis,
    /// Where it ends.
    pub(crate) cluster: &'w Cluster,
    pub(crate) limit_ms: u64,
}

/// What becomes of the stall.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Stays,
    Ends,
    /// The hop becomes late then. A stall of another hop ends.
    LateAt(UnixMillis, Hop),
    /// In place of the one before, if there is one.
    Begins(Stall),
}

/// The edges that have the Connector, apart from the hub.
pub(crate) fn edges<'w>(world: &'w World, at: &ObjectRef) -> Vec<Edge<'w>> {
    let others = world.edges().filter(|cluster| cluster.id != at.cluster);
    let has_it = |cluster: &'w Cluster| {
        let row = cluster.edge.connectors.get(&at.name)?;
        Some(Edge { cluster, says: row.seen.annotation })
    };
    others.filter_map(has_it).collect()
}

/// What is expected next of a hub Connector, by the verdict of its mirror.
pub(crate) fn expected<'w>(
    view: &mirror::View<'w>,
    verdict: Verdict,
    memory: &HopMemory,
    world: &'w World,
    settings: &StallSettings,
    now: UnixMillis,
) -> Expected<'w> {
    let mirrored = |since, limit_ms| {
        Expected::Open(Open { hop: Hop::Mirrored, since, cluster: view.hub, limit_ms })
    };
    let carried = memory.first_behind(world).map(|(cluster, behind_since)| {
        let since = behind_since.max(view.memory.sync.right_since().unwrap_or_default());
        let limit_ms = settings.arrived_ms;
        Expected::Open(Open { hop: Hop::Arrived, since, cluster, limit_ms })
    });

    match verdict {
        Verdict::HubNotLive | Verdict::AbsenceGrace(_) => Expected::NotKnown,
        Verdict::UpstreamNotLive if !is_upstream_live(view) => Expected::NotKnown,
        Verdict::UpstreamNotLive
        | Verdict::Disabled
        | Verdict::Paused
        | Verdict::UpstreamNotConfigured
        | Verdict::Held(_)
        | Verdict::RemovalHeld(..) => Expected::Nothing,
        Verdict::OutOfSync { since } | Verdict::RemovalDue { since, .. } => {
            mirrored(since, settings.mirrored_ms)
        }
        Verdict::InSync | Verdict::BothAbsent => carried.unwrap_or(Expected::Nothing),
        Verdict::Deferred { since } => carried
            .unwrap_or_else(|| mirrored(view.unblocked_from(since, now), settings.deferred_ms)),
    }
}

fn is_upstream_live(view: &mirror::View<'_>) -> bool {
    let kinds = [Kind::Connector, Kind::Namespace];
    view.upstream.is_some_and(|upstream| upstream.cluster.all_live_since(&kinds).is_some())
}

/// A stall begins when the expected hop is late, and ends when another one is expected.
pub(crate) fn plan(
    expected: Expected<'_>,
    view: &mirror::View<'_>,
    memory: &HopMemory,
    circumstances: Circumstances,
    now: UnixMillis,
) -> Update {
    let open = match expected {
        Expected::NotKnown => return Update::Stays,
        Expected::Nothing => return Update::Ends,
        Expected::Open(open) => open,
    };

    let since = open.since.max(circumstances.lease_wait_until);
    let late_at = since.plus(open.limit_ms);
    if now < late_at {
        return Update::LateAt(late_at, open.hop);
    }
    if memory.stall.as_ref().is_some_and(|stall| stall.hop == open.hop) {
        return Update::Stays;
    }

    let (cause, reason) = cause_of(&open, view, circumstances);
    let cluster = open.cluster.name.clone();
    let connector = view.at.name.key();
    Update::Begins(Stall { cluster, connector, hop: open.hop, since, cause, reason })
}

/// What the cause of a stall follows from, beside what its rule sees.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances {
    pub(crate) nudges: u32,
    /// The limit of the queue in which the mirror waits, because the Connector changes again and again.
    pub(crate) repeats_per_second: Option<u32>,
    /// Until then this instance waited for its first Lease.
    pub(crate) lease_wait_until: UnixMillis,
}

/// The cause of a stall, as far as this instance can see it, and the same in words.
fn cause_of(
    open: &Open<'_>,
    view: &mirror::View<'_>,
    circumstances: Circumstances,
) -> (StallCause, String) {
    let edge = open.cluster.name.clone();
    let hub = view.hub.name.clone();
    if !open.cluster.is_live(Kind::Connector) {
        let reason = format!("the watch of {edge} is lost");
        return (StallCause::WatchLost { cluster: edge }, reason);
    }
    if let Some(failure) = view.memory.write.failure() {
        let reason = format!("writes to the hub fail: {}", failure.error);
        return (StallCause::WritesFail { cluster: hub, error: failure.error.cause }, reason);
    }
    if !view.is_leader {
        let reason = "this instance is not the leader; the leader should write it";
        return (StallCause::NotLeading, reason.to_owned());
    }
    if open.hop == Hop::Mirrored {
        return not_mirrored(hub, view, circumstances.repeats_per_second);
    }

    let nudges = circumstances.nudges;
    let times = if nudges == 1 { "time" } else { "times" };
    let reason =
        format!("the Connector at {edge} does not say what the hub says; nudged {nudges} {times}");
    (StallCause::NotCarried { cluster: edge }, reason)
}

fn not_mirrored(
    hub: ClusterName,
    view: &mirror::View<'_>,
    repeats_per_second: Option<u32>,
) -> (StallCause, String) {
    let memory = view.memory;
    if let Some(per_second) = repeats_per_second {
        let reason = format!(
            "it changed again within {} s of its last mirror, and waits for the other Connectors of its \
             upstream that did: {per_second} of them are mirrored a second",
            REPEAT_MS / 1_000
        );
        return (StallCause::NotMirrored { cluster: hub }, reason);
    }

    let (cause, reason) = if memory.write.is_in_flight() {
        let reason = "a write to the hub has not been answered yet";
        (StallCause::WriteInFlight { cluster: hub }, reason)
    } else if let Some(contention) = memory.write.contention() {
        let reason = "another writer keeps changing the hub's annotation";
        (StallCause::Overwritten { cluster: hub, manager: contention.manager.clone() }, reason)
    } else if memory.deferred_since.is_some() {
        let reason = "what routes is mirrored; the rest of the status waits for its turn by \
                      mirror.deferrablePerSecond";
        (StallCause::Deferred { cluster: hub }, reason)
    } else {
        let reason = "the hub's annotation does not say what upstream says";
        (StallCause::NotMirrored { cluster: hub }, reason)
    };
    (cause, reason.to_owned())
}

impl HopMemory {
    /// Takes over what the plan of the mirror says. Returns the hops that have been passed.
    pub(crate) fn on_planned(
        &mut self,
        view: &mirror::View<'_>,
        verdict: Verdict,
        change: StatusChange,
        before: Before,
        edges: &[Edge<'_>],
        now: UnixMillis,
    ) -> Vec<Passed> {
        if !matches!(verdict, Verdict::InSync | Verdict::BothAbsent) {
            self.on_difference(change, before.sync, now);
        }
        if !verdict.is_right() {
            return Vec::new();
        }

        let mut passed = Vec::new();
        if before.is_mirrored(verdict) {
            passed.extend(self.mirrored(view, change, before.was_deferred(verdict), now));
        }
        passed.extend(self.on_edges(view, edges, now));
        passed
    }

    /// The annotation differs from what upstream says: because upstream changed, or another writer
    /// did it?
    fn on_difference(&mut self, change: StatusChange, before: SyncState, now: UnixMillis) {
        let changes_now = change.at == now;
        let is_since_mirrored = match before {
            SyncState::Right { since } => {
                changes_now || since.is_some_and(|since| change.at > since)
            }
            SyncState::NotSeen | SyncState::Behind if changes_now => true,
            SyncState::NotSeen | SyncState::Behind => return,
        };
        self.is_change_seen = change.is_observed && is_since_mirrored;
    }

    /// The annotation came to say what upstream says. Where the hub is the edge itself, that is
    /// carried, too.
    fn mirrored(
        &self,
        view: &mirror::View<'_>,
        change: StatusChange,
        was_deferred: bool,
        now: UnixMillis,
    ) -> Vec<Passed> {
        let hub = view.hub;
        // A change that came with a list happened at an unknown time before.
        let is_observed = hub.live_since(Kind::Connector).is_some_and(|since| now > since);
        // What was deferred was late by intention.
        let is_timed = self.is_change_seen && is_observed && !was_deferred;
        let after_ms = is_timed.then(|| now.since(change.at));
        let mirrored = Passed { hop: Hop::Mirrored, cluster: hub.name.clone(), after_ms };

        let is_at_edge = hub.edge.connectors.get(&view.at.name).is_some();
        let after_ms = is_timed.then_some(0);
        let arrived = Passed { hop: Hop::Arrived, cluster: hub.name.clone(), after_ms };
        std::iter::once(mirrored).chain(is_at_edge.then_some(arrived)).collect()
    }

    /// Finds the edges that are behind, and returns those that have caught up.
    fn on_edges(
        &mut self,
        view: &mirror::View<'_>,
        edges: &[Edge<'_>],
        now: UnixMillis,
    ) -> Vec<Passed> {
        let live_since = view.hub.live_since(Kind::Connector);
        let right_since = view.memory.sync.right_since();
        let mirrored_at = right_since.filter(|since| Some(*since) > live_since);
        let hub_says = view.digest();

        let mut arrivals = Vec::new();
        let mut behind = Vec::new();
        for edge in edges {
            let since = self.behind_since(edge.cluster.id);
            if edge.says == hub_says {
                arrivals.extend(since.map(|since| edge.arrival(since, mirrored_at, now)));
            } else if edge.cluster.listed_since(Kind::Connector).is_some() {
                behind.push((edge.cluster.id, since.unwrap_or(now)));
            }
        }
        self.behind = behind;
        arrivals
    }

    /// Nothing is expected of the edges.
    pub(crate) fn forget_edges(&mut self) {
        self.behind.clear();
    }

    /// The cluster left that said what is desired. Edges are behind again once it is back.
    pub(crate) fn on_upstream_left(&mut self) {
        self.is_change_seen = false;
        self.behind.clear();
    }

    pub(crate) fn is_any_edge_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    pub(crate) fn behind_since(&self, edge: ClusterId) -> Option<UnixMillis> {
        self.behind.iter().find(|(id, _)| *id == edge).map(|(_, since)| *since)
    }

    /// Since when an edge whose watch is live is seen to be behind.
    pub(crate) fn seen_behind_since(&self, world: &World) -> Option<UnixMillis> {
        let seen_since = |(id, since): &(ClusterId, UnixMillis)| {
            let live_since = world.clusters.get(id)?.live_since(Kind::Connector)?;
            Some(live_since.max(*since))
        };
        self.behind.iter().filter_map(seen_since).min()
    }

    fn first_behind<'w>(&self, world: &'w World) -> Option<(&'w Cluster, UnixMillis)> {
        let (id, since) = self.behind.first()?;
        Some((world.clusters.get(id)?, *since))
    }

    /// Returns what is to be reported.
    pub(crate) fn on_update(&mut self, update: Update) -> Vec<NoteKind> {
        let ended = match update {
            Update::Stays => None,
            Update::Ends | Update::Begins(_) => self.end(|_| true),
            Update::LateAt(_, hop) => self.end(|stall| stall.hop != hop),
        };
        let mut notes: Vec<_> = ended.into_iter().map(NoteKind::StallEnded).collect();
        if let Update::Begins(stall) = update {
            self.stall = Some(Box::new(stall.clone()));
            notes.push(NoteKind::Stalled(stall));
        }
        notes
    }

    /// Ends the stall if it is such a one.
    pub(crate) fn end(&mut self, is_over: impl FnOnce(&Stall) -> bool) -> Option<Stall> {
        self.stall.take_if(|stall| is_over(stall)).map(|stall| *stall)
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.behind.is_empty() && self.stall.is_none()
    }
}

impl Update {
    pub(crate) fn late_at(&self) -> Option<UnixMillis> {
        match self {
            Self::LateAt(at, _) => Some(*at),
            Self::Stays | Self::Ends | Self::Begins(_) => None,
        }
    }
}

impl Edge<'_> {
    fn arrival(
        &self,
        behind_since: UnixMillis,
        mirrored_at: Option<UnixMillis>,
        now: UnixMillis,
    ) -> Passed {
        // An edge Connector that went wrong later was somebody else's doing.
        let is_carried = |at: &UnixMillis| *at >= behind_since;
        let is_live = self.cluster.is_live(Kind::Connector);
        let carried = mirrored_at.filter(is_carried).filter(|_| is_live);
        let after_ms = carried.map(|at| now.since(at));
        Passed { hop: Hop::Arrived, cluster: self.cluster.name.clone(), after_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::settings::Settings;
    use crate::data::ids::Role;
    use crate::data::name::NamespacedName;
    use crate::data::objects::UPSTREAM_STATUS;
    use crate::next::world::fixture::{self, connector};

    const CHANGED: u64 = 1_000_000;

    /// A hub Connector, and its copy at one edge.
    struct Stage {
        stage: fixture::Stage,
        at: ObjectRef,
        mirror: mirror::MirrorMemory,
        memory: HopMemory,
        version: u64,
    }

    impl Stage {
        fn new() -> Self {
            let mut stage = fixture::Stage::new(&Settings::default());
            let hub = stage.add("hub", &[Role::Hub]);
            stage.add("edge", &[Role::Edge]);
            let name = NamespacedName::new("ns", "lab");
            let at = ObjectRef { cluster: hub, kind: Kind::Connector, name };
            let (mirror, memory) = Default::default();
            Self { stage, at, mirror, memory, version: 100 }
        }

        fn shows(&mut self, cluster: &str, annotation: &str) {
            self.version += 1;
            let copy = connector("ns", "lab", self.version).annotation(UPSTREAM_STATUS, annotation);
            self.stage.shows(cluster, copy);
        }

        fn view(&self) -> mirror::View<'_> {
            mirror::Place::find(&self.stage.world, &self.at).unwrap().view(&self.mirror, true)
        }

        /// The annotation came to say what upstream says, or says so already.
        fn mirrored(&mut self, before: SyncState, now: UnixMillis) -> Vec<(Hop, Option<u64>)> {
            let change =
                StatusChange { at: UnixMillis(CHANGED), is_observed: true, is_online: true };
            let before = Before { sync: before, held: None, is_deferred: false };
            let mut memory = std::mem::take(&mut self.memory);
            let edges = edges(&self.stage.world, &self.at);
            let passed =
                memory.on_planned(&self.view(), Verdict::InSync, change, before, &edges, now);
            self.memory = memory;
            passed.into_iter().map(|passed| (passed.hop, passed.after_ms)).collect()
        }

        fn update(&self, verdict: Verdict, now: UnixMillis) -> Update {
            let stall = &Settings::default().stall;
            let view = self.view();
            let expected = expected(&view, verdict, &self.memory, &self.stage.world, stall, now);
            let circumstances = Circumstances {
                nudges: 1,
                repeats_per_second: None,
                lease_wait_until: UnixMillis(0),
            };
            plan(expected, &view, &self.memory, circumstances, now)
        }
    }

    #[test]
    fn each_hop_is_measured_from_the_one_before() {
        let mut stage = Stage::new();
        stage.shows("hub", "{}");
        stage.shows("edge", "[]");
        stage.memory.is_change_seen = true;
        let mirrored_at = UnixMillis(CHANGED + 40);
        stage.mirror.sync = SyncState::Right { since: Some(mirrored_at) };
        assert_eq!(stage.mirrored(SyncState::Behind, mirrored_at), [(Hop::Mirrored, Some(40))]);

        stage.shows("edge", "{}");
        let sync = stage.mirror.sync;
        assert_eq!(stage.mirrored(sync, mirrored_at.plus(70)), [(Hop::Arrived, Some(70))]);
    }

    #[test]
    fn an_edge_that_went_wrong_later_was_somebody_elses_doing() {
        let mut stage = Stage::new();
        stage.shows("hub", "{}");
        stage.shows("edge", "[]");
        stage.mirror.sync = SyncState::Right { since: None };
        let sync = stage.mirror.sync;
        assert_eq!(stage.mirrored(sync, stage.stage.now), []);
        assert!(stage.memory.is_any_edge_behind());

        stage.shows("edge", "{}");
        assert_eq!(stage.mirrored(sync, stage.stage.now), [(Hop::Arrived, None)]);
    }

    #[test]
    fn a_hop_is_late_after_its_limit_and_says_why() {
        let mut stage = Stage::new();
        stage.shows("hub", "{}");
        let since = stage.stage.now;
        let late = Verdict::OutOfSync { since };
        let late_at = since.plus(5_000);
        assert_eq!(stage.update(late, since), Update::LateAt(late_at, Hop::Mirrored));

        let Update::Begins(stall) = stage.update(late, late_at) else { panic!("it is late") };
        assert_eq!(stall.cause, StallCause::NotMirrored { cluster: "hub".into() });
        stage.memory.on_update(Update::Begins(stall));
        assert_eq!(stage.update(late, late_at), Update::Stays);
        assert_eq!(stage.update(Verdict::Paused, late_at), Update::Ends);
        assert_eq!(stage.update(Verdict::HubNotLive, late_at), Update::Stays);
    }

    #[test]
    fn an_edge_that_is_behind_is_named() {
        let mut stage = Stage::new();
        stage.shows("hub", "{}");
        stage.shows("edge", "[]");
        stage.mirror.sync = SyncState::Right { since: None };
        stage.mirrored(stage.mirror.sync, stage.stage.now);

        let late_at = stage.stage.now.plus(10_000);
        let Update::Begins(stall) = stage.update(Verdict::InSync, late_at) else {
            panic!("it is late")
        };
        assert_eq!(stall.hop, Hop::Arrived);
        let reason = "the Connector at edge does not say what the hub says; nudged 1 time";
        assert_eq!(stall.reason, reason);
    }
}
