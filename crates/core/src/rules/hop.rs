//! Hop: how far a change has come on its way upstream → mirrored → carried → announced, and what is
//! wrong on the way. This file has the first two hops; `touch` has the last.
//!
//! A hop is *late* when it takes longer than its limit, counted from the moment at which it could
//! have started. A late hop is a problem, and so is whatever holds a hop. A held, paused or
//! deferred hop is never late. No hop is late while this instance waits for its first Lease.

use crate::contract::cause::{About, Cause, Facts, Hop, Problem};
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::{UPSTREAM_STATUS, karmada_binding};
use crate::data::time::UnixMillis;
use crate::rules::findings::{Findings, Writes};
use crate::rules::mirror::{self, Before, LastChange, Oversize, Place, SyncState, Verdict};
use crate::status::digest::Digest;
use crate::world::World;
use crate::world::cluster::Cluster;

/// What the rule reads of a hub Connector.
pub(crate) struct View<'v> {
    pub(crate) mirror: mirror::View<'v>,
    pub(crate) plan: &'v mirror::Plan,
    /// The mirror waits in `Repeats`, because the Connector keeps changing.
    pub(crate) is_repeat: bool,
    /// Until then this instance waited for its first Lease.
    pub(crate) lease_wait_until: UnixMillis,
}

#[derive(Debug, Default)]
pub(crate) struct HopMemory {
    /// The annotation is out of sync because the watch showed a change upstream, not because of
    /// another writer. Otherwise the hop's latency is unknown.
    is_change_seen: bool,
    /// Edges that are out of sync with the hub and since when, in the order of their ids.
    out_of_sync: Vec<(ClusterId, UnixMillis)>,
    /// Since when no edge has the Connector.
    nowhere_since: Option<UnixMillis>,
    /// The annotation was removed, because the upstream Connector is gone.
    is_removed: bool,
}

/// A hop that the status has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) hop: Hop,
    /// Where the hop ends.
    pub(crate) cluster: ClusterName,
    /// `None` if its start was not observed, or if another writer changed the value.
    pub(crate) after_ms: Option<u64>,
}

/// Finds problems between upstream and the edges. `None`: unknown, so open problems stay as they
/// are.
pub(crate) fn find(view: &View<'_>, memory: &HopMemory) -> Option<Findings> {
    let mut found = Findings::default();
    match view.plan.verdict {
        Verdict::HubNotLive => return None,
        Verdict::AbsenceGrace(_) => found.is_of_edges = true,
        // Reported for the upstream as a whole.
        Verdict::UpstreamNotLive => found.is_of_edges = !is_upstream_live(&view.mirror),
        Verdict::Disabled | Verdict::RemovalHeld(_) | Verdict::RemovalQueued(_) => {}
        Verdict::Paused => found.push(view.problem(Cause::Paused, view.mirror.now)),
        Verdict::UpstreamNotConfigured => found.problems.extend(view.labels_missing()),
        Verdict::Held(cause) => found.problems.extend(view.held(cause)),
        Verdict::OutOfSync { since } | Verdict::RemovalDue { since, .. } => {
            view.find_not_mirrored(since, &mut found);
        }
        Verdict::Deferred { since } => view.find_deferred(since, &mut found),
        Verdict::InSync => view.find_nudges(memory, &mut found),
        Verdict::BothAbsent => {
            if memory.is_removed {
                found.push(view.problem(Cause::AnnotationRemoved, view.mirror.now));
            }
            view.find_nudges(memory, &mut found);
        }
    }
    // Otherwise the edges are not expected to have a value.
    if !matches!(view.plan.verdict, Verdict::Paused | Verdict::Disabled) {
        view.find_not_carried(memory, &mut found);
    }
    if let Some(oversize) = view.plan.oversize {
        let mut problem = view.problem(Cause::StatusTooLarge, view.mirror.now);
        let kept = match oversize {
            Oversize::Reduced => "only Ready and connectionDetails are kept",
            Oversize::NothingFits => "nothing of it fits",
        };
        problem.facts.what = Some(kept.into());
        found.push(problem);
    }
    Some(found)
}

impl View<'_> {
    fn about(&self) -> About {
        let Place { at, hub, .. } = self.mirror.place;
        About::object(&hub.name, Kind::Connector, at.name.clone())
    }

    fn problem(&self, cause: Cause, since: UnixMillis) -> Problem {
        let Place { hub, .. } = self.mirror.place;
        let facts = Facts {
            upstream: self.mirror.place.named().cloned(),
            hub: Some(hub.name.clone()),
            ..Facts::default()
        };
        Problem { facts, ..Problem::new(cause, self.about(), since) }
    }

    /// An upstream that is named but not in the run is reported as a whole. A cluster with every
    /// role also has Connectors that were not made from an upstream one.
    fn labels_missing(&self) -> Option<Problem> {
        let Place { at, hub, .. } = self.mirror.place;
        let missing = self.mirror.place.row.seen.upstream.as_ref().err();
        let label = missing.filter(|_| hub.is_hub_namespace(at.name.namespace()))?;
        let mut problem = self.problem(Cause::LabelsMissing, self.mirror.now);
        problem.facts.key = Some((*label).into());
        Some(problem)
    }

    /// A restored upstream, an unreadable object and a tripped breaker are reported as a whole.
    fn held(&self, cause: Cause) -> Option<Problem> {
        if !matches!(cause, Cause::NamespaceMissing | Cause::NamespaceMismatch) {
            return None;
        }
        let mut problem = self.problem(cause, self.mirror.now);
        let named = self.mirror.place.row.seen.upstream.as_ref().ok();
        problem.facts.what = named.map(|named| named.name.namespace().into());
        Some(problem)
    }

    fn find_not_mirrored(&self, since: UnixMillis, found: &mut Findings) {
        let since = since.max(self.lease_wait_until);
        let late_at = since.plus(self.mirror.settings().late.mirrored_ms);
        if self.find_writes(Some(since), late_at, found) {
            return;
        }
        let mut problem = self.problem(Cause::NotMirrored, since);
        problem.facts.what = Some(self.last_write().into());
        problem.facts.holder = (!self.mirror.is_leader).then(|| "the leader".into());
        found.push_late(problem, late_at, self.mirror.now);
    }

    fn last_write(&self) -> &str {
        let write = &self.mirror.memory.write;
        if !self.mirror.is_leader {
            "not by this instance"
        } else if write.is_in_flight() {
            "not answered yet"
        } else if let Some(failure) = write.failure() {
            &failure.error
        } else if self.is_repeat {
            "waits for its turn, as it changes again and again"
        } else {
            "none yet"
        }
    }

    fn find_deferred(&self, since: UnixMillis, found: &mut Findings) {
        if !self.find_writes(Some(since), UnixMillis::NEVER, found) {
            let mut problem = self.problem(Cause::Deferred, since);
            problem.facts.limit_ms = Some(self.mirror.settings().mirror.defer_ms);
            found.push(problem);
        }
    }

    fn find_nudges(&self, memory: &HopMemory, found: &mut Findings) {
        let wanted_since = memory.out_of_sync.iter().map(|(_, since)| *since).min();
        self.find_writes(wanted_since, UnixMillis::NEVER, found);
    }

    /// While the annotation itself is not as desired, no such problem begins, and an open one stays.
    fn find_not_carried(&self, memory: &HopMemory, found: &mut Findings) {
        let edges = memory.out_of_sync.iter();
        let not_carried = edges.filter_map(|(id, since)| self.not_carried(*id, *since));
        for problem in not_carried.chain(self.not_placed(memory)) {
            if self.plan.verdict.routes_as_desired() {
                let late_at = problem.since.plus(self.mirror.settings().late.carried_ms);
                found.push_late(problem, late_at, self.mirror.now);
            } else {
                found.not_late.push(problem);
            }
        }
    }

    /// Only an edge with a live watch is known to be out of sync.
    fn not_carried(&self, edge: ClusterId, out_of_sync_since: UnixMillis) -> Option<Problem> {
        let Place { world, at, hub, .. } = self.mirror.place;
        let edge = world.clusters.get(&edge)?;
        let at_edge = edge.edge.connectors.seen(&at.name)?.annotation;
        let live_since = edge.live_since(Kind::Connector)?;
        if at_edge == self.mirror.place.digest() {
            return None;
        }

        let about = About::object(&edge.name, Kind::Connector, at.name.clone());
        let since = self.carried_from(out_of_sync_since.max(live_since));
        let mut problem = Problem::new(Cause::NotCarried, about, since);
        problem.facts.hub = Some(hub.name.clone());
        problem.facts.edge = Some(edge.name.clone());
        let is_karmadas = self.mirror.place.row.seen.is_karmadas;
        problem.facts.what = is_karmadas.then(|| karmada_binding(&at.name).into());
        Some(problem)
    }

    /// No edge has the Connector. Without an annotation it has nothing to tell them.
    fn not_placed(&self, memory: &HopMemory) -> Option<Problem> {
        let Place { world, at, .. } = self.mirror.place;
        self.mirror.place.digest()?;
        let since = memory.nowhere_since?.max(seen_nowhere_since(world, &at.name)?);
        Some(self.problem(Cause::NotPlaced, self.carried_from(since)))
    }

    /// The carrier has nothing to carry before the annotation is as desired.
    fn carried_from(&self, since: UnixMillis) -> UnixMillis {
        let in_sync_since = self.mirror.memory.sync.in_sync_since().unwrap_or_default();
        since.max(in_sync_since).max(self.lease_wait_until)
    }

    /// Whether writes to the hub Connector fail, or are undone. `wanted_since`: when the write
    /// became necessary.
    fn find_writes(
        &self,
        wanted_since: Option<UnixMillis>,
        late_at: UnixMillis,
        found: &mut Findings,
    ) -> bool {
        let mirror::View { memory, now, .. } = self.mirror;
        let state = &memory.write;
        let about = self.about();
        let key = UPSTREAM_STATUS;
        let writes = Writes { state, about, key, wanted_since, late_at };
        found.push_writes(&writes, &self.mirror.settings().mirror, now)
    }
}

fn is_upstream_live(view: &mirror::View<'_>) -> bool {
    let kinds = [Kind::Connector, Kind::Namespace];
    view.place.upstream.is_some_and(|upstream| upstream.cluster.all_live_since(&kinds).is_some())
}

impl HopMemory {
    /// Takes the plan of the mirror. Returns the hops that are now complete.
    pub(crate) fn on_planned(&mut self, view: &View<'_>, before: Before) -> Vec<Passed> {
        let verdict = view.plan.verdict;
        // The removal is over once upstream has a status again, or is unknown.
        self.is_removed &= matches!(verdict, Verdict::BothAbsent | Verdict::HubNotLive);
        let Some(change) = view.plan.change else { return Vec::new() };
        if !matches!(verdict, Verdict::InSync | Verdict::BothAbsent) {
            self.on_difference(change, before.sync, view.mirror.now);
        }
        self.on_places(&view.mirror);
        if !verdict.routes_as_desired() {
            return Vec::new();
        }

        let mut passed = Vec::new();
        if before.is_mirrored(verdict) {
            passed.extend(self.mirrored(&view.mirror, change, before.was_deferred(verdict)));
        }
        passed.extend(self.on_edges(&view.mirror));
        passed
    }

    /// The annotation is out of sync. Records whether upstream changed or another writer did it.
    fn on_difference(&mut self, change: LastChange, before: SyncState, now: UnixMillis) {
        let changes_now = change.at == now;
        let is_since_mirrored = match before {
            SyncState::InSync { since } => {
                changes_now || since.is_some_and(|since| change.at > since)
            }
            SyncState::NotSeen | SyncState::OutOfSync if changes_now => true,
            SyncState::NotSeen | SyncState::OutOfSync => return,
        };
        self.is_change_seen = change.is_observed && is_since_mirrored;
    }

    /// The annotation is in sync again. Where the hub is also the edge, the value is carried as
    /// well.
    fn mirrored(
        &self,
        view: &mirror::View<'_>,
        change: LastChange,
        was_deferred: bool,
    ) -> impl Iterator<Item = Passed> {
        let now = view.now;
        let hub = view.place.hub;
        // A change that came with a list happened at an unknown time before it.
        let is_observed = hub.live_since(Kind::Connector).is_some_and(|since| now > since);
        // Deferred mirrors report no latency.
        let is_timed = self.is_change_seen && is_observed && !was_deferred;

        let is_at_edge = hub.edge.connectors.get(&view.place.at.name).is_some();
        let mirrored = (Hop::Mirrored, now.since(change.at));
        let carried = is_at_edge.then_some((Hop::Carried, 0));
        [Some(mirrored), carried].into_iter().flatten().map(move |(hop, after_ms)| Passed {
            hop,
            cluster: hub.name.clone(),
            after_ms: is_timed.then_some(after_ms),
        })
    }

    /// Updates which edges are out of sync, and returns those that are in sync again.
    fn on_edges(&mut self, view: &mirror::View<'_>) -> Vec<Passed> {
        let live_since = view.place.hub.live_since(Kind::Connector);
        let in_sync_since = view.memory.sync.in_sync_since();
        let mirrored_at = in_sync_since.filter(|since| Some(*since) > live_since);

        let mut carried = Vec::new();
        let mut out_of_sync = Vec::new();
        for (edge, annotation) in edges(view.place.world, view.place.at) {
            let since = self.out_of_sync_since(edge.id);
            if annotation != view.place.digest() {
                if edge.listed_since(Kind::Connector).is_some() {
                    out_of_sync.push((edge.id, since.unwrap_or(view.now)));
                }
            } else if let Some(since) = since {
                // An edge Connector that went out of sync after the mirror was changed by another
                // writer.
                let is_carried = |at: &UnixMillis| *at >= since && edge.is_live(Kind::Connector);
                let after_ms = mirrored_at.filter(is_carried).map(|at| view.now.since(at));
                let cluster = edge.name.clone();
                carried.push(Passed { hop: Hop::Carried, cluster, after_ms });
            }
        }
        self.out_of_sync = out_of_sync;
        carried
    }

    /// Without an annotation, no edge needs the Connector.
    fn on_places(&mut self, view: &mirror::View<'_>) {
        let Place { world, at, .. } = view.place;
        let is_missing =
            view.place.digest().is_some() && seen_nowhere_since(world, &at.name).is_some();
        self.nowhere_since = is_missing.then(|| self.nowhere_since.unwrap_or(view.now));
    }

    pub(crate) fn on_removed(&mut self) {
        self.is_removed = true;
    }

    /// The edges are not expected to have a value.
    pub(crate) fn forget_edges(&mut self) {
        self.out_of_sync.clear();
        self.nowhere_since = None;
    }

    /// The upstream cluster left the run. The edges count as out of sync again once it is back.
    pub(crate) fn on_upstream_left(&mut self) {
        self.is_change_seen = false;
        self.forget_edges();
    }

    pub(crate) fn is_any_edge_out_of_sync(&self) -> bool {
        !self.out_of_sync.is_empty()
    }

    pub(crate) fn out_of_sync_since(&self, edge: ClusterId) -> Option<UnixMillis> {
        self.out_of_sync.iter().find(|(id, _)| *id == edge).map(|(_, since)| *since)
    }

    /// Since when an edge with a live watch is out of sync.
    pub(crate) fn seen_out_of_sync_since(&self, world: &World) -> Option<UnixMillis> {
        let seen_since = |(id, since): &(ClusterId, UnixMillis)| {
            let live_since = world.clusters.get(id)?.live_since(Kind::Connector)?;
            Some(live_since.max(*since))
        };
        self.out_of_sync.iter().filter_map(seen_since).min()
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.out_of_sync.is_empty() && self.nowhere_since.is_none() && !self.is_removed
    }
}

/// The edges that have the Connector, with their status annotation. A hub that is also the edge is
/// left out: both have the same object.
fn edges<'w>(
    world: &'w World,
    at: &ObjectRef,
) -> impl Iterator<Item = (&'w Cluster, Option<Digest>)> {
    let others = world.edges().filter(|cluster| cluster.id != at.cluster);
    others.filter_map(|cluster| {
        let row = cluster.edge.connectors.get(&at.name)?;
        Some((cluster, row.seen.annotation))
    })
}

/// Since when the watches of all edges show that none of them has the Connector; `None` if one has
/// it, or may have it.
fn seen_nowhere_since(world: &World, name: &NamespacedName) -> Option<UnixMillis> {
    let seen_without = |edge: &Cluster| {
        let is_there = edge.edge.connectors.get(name).is_some()
            || edge.watch(Kind::Connector).unreadable.contains(name);
        edge.live_since(Kind::Connector).filter(|_| !is_there)
    };
    let since: Option<Vec<_>> = world.edges().map(seen_without).collect();
    since?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit_breaker::BreakerState;
    use crate::contract::settings::Settings;
    use crate::data::ids::Role;
    use crate::data::objects::UPSTREAM_STATUS;
    use crate::world::fixture::{self, connector};

    /// A hub Connector and its edge Connector at one edge.
    struct Stage {
        stage: fixture::Stage,
        at: ObjectRef,
        mirror: mirror::MirrorMemory,
        memory: HopMemory,
    }

    impl Stage {
        /// The edge Connector is out of sync.
        fn out_of_sync() -> Self {
            let mut stage = fixture::Stage::new(&Settings::default());
            let hub = stage.add("hub", &[Role::Hub]);
            stage.add("edge", &[Role::Edge]);
            let name = NamespacedName::new("ns", "lab");
            let at = ObjectRef { cluster: hub, kind: Kind::Connector, name };
            let (mirror, memory) = Default::default();
            let mut stage = Self { stage, at, mirror, memory };
            stage.mirror.sync = SyncState::InSync { since: None };
            stage.shows("hub", "{}", 1);
            stage.shows("edge", "[]", 1);
            assert_eq!(stage.carried_after(stage.stage.now), []);
            stage
        }

        fn shows(&mut self, cluster: &str, annotation: &str, version: u64) {
            let copy = connector("ns", "lab", version).annotation(UPSTREAM_STATUS, annotation);
            self.stage.shows(cluster, copy);
        }

        fn view<'v>(&'v self, plan: &'v mirror::Plan, now: UnixMillis) -> View<'v> {
            let place = mirror::Place::find(&self.stage.world, &self.at).unwrap();
            let breaker = BreakerState::default();
            View {
                mirror: mirror::View::new(place, &self.mirror, breaker, 0, true, now),
                plan,
                is_repeat: false,
                lease_wait_until: UnixMillis(0),
            }
        }

        /// How long the hop to each edge took.
        fn carried_after(&mut self, now: UnixMillis) -> Vec<Option<u64>> {
            let mut memory = std::mem::take(&mut self.memory);
            let plan = mirror::Plan::from(Verdict::InSync);
            let passed = memory.on_edges(&self.view(&plan, now).mirror);
            self.memory = memory;
            passed.into_iter().map(|passed| passed.after_ms).collect()
        }
    }

    #[test]
    fn an_edge_that_went_wrong_later_was_somebody_elses_doing() {
        for (mirrored_ms, after_ms) in [(0, Some(70)), (-1, None)] {
            let mut stage = Stage::out_of_sync();
            let out_of_sync_since = stage.stage.now;
            let since = UnixMillis(out_of_sync_since.0.saturating_add_signed(mirrored_ms));
            stage.mirror.sync = SyncState::InSync { since: Some(since) };

            stage.shows("edge", "{}", 2);
            assert_eq!(stage.carried_after(out_of_sync_since.plus(70)), [after_ms]);
        }
    }

    #[test]
    fn what_karmada_carries_is_looked_for_in_its_binding() {
        let mut stage = Stage::out_of_sync();
        let late_at = stage.stage.now.plus(60_000);
        let remedy = |stage: &Stage| {
            let plan = mirror::Plan::from(Verdict::InSync);
            let found = find(&stage.view(&plan, late_at), &stage.memory).unwrap();
            let problem = &found.problems[0];
            problem.cause.remedy(&problem.about, &problem.facts, &|_| None).unwrap()
        };
        assert!(remedy(&stage).starts_with("Check that the carrier"));
        let policy = "propagationpolicy.karmada.io/name";
        stage.stage.shows("hub", connector("ns", "lab", 2).annotation(policy, "p"));
        assert_eq!(
            remedy(&stage),
            "`at hub: kubectl -n ns describe resourcebinding lab-connector`"
        );
    }
}
