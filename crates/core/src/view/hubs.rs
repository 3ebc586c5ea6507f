//! A connector at a hub: its annotation and the writes to it.

use super::fleet::LivenessView;
use super::judged::{HopAt, Judged};
use super::upstream::UpstreamAt;
use crate::circuit_breaker::BreakerKey;
use crate::contract::cause::{Cause, Hop, Problem, State};
use crate::controller::{Finder, HubMemory};
use crate::data::ids::{Kind, NamespacedName};
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::rules::mirror::{self, MirrorMemory, Place, Verdict};
use crate::status::digest::Digest;
use crate::subject::Subject;
use crate::world::cluster::Cluster;
use crate::world::edge::{EdgeConnector, Stamp};
use crate::world::hub::HubConnector;
use crate::write_state::{Contention, WriteState};

/// The uid of a namespace shows which upstream namespace a hub Connector was made from.
const COMPARED: [Kind; 2] = [Kind::Connector, Kind::Namespace];

pub(super) struct HubAt<'m> {
    m: &'m Machine,
    pub(super) cluster: &'m Cluster,
    name: NamespacedName,
    row: &'m HubConnector,
    /// `None` at rest.
    pub(super) memory: Option<&'m HubMemory>,
    /// As its labels name it; `None` without labels.
    pub(super) upstream: Option<UpstreamAt<'m>>,
    /// When upstream's status last changed, or when the Connector became absent.
    changed_at: Option<UnixMillis>,
    verdict: Verdict,
    problems: &'m [Problem],
}

impl<'m> HubAt<'m> {
    /// The hub Connectors of a name, by hub.
    pub(super) fn all(m: &'m Machine, name: &NamespacedName) -> Vec<Self> {
        let hubs = m.world.hubs();
        let hubs = hubs.filter(|hub| hub.is_hub_namespace(name.namespace()));
        hubs.filter_map(|hub| Self::find(m, hub, name)).collect()
    }

    fn find(m: &'m Machine, cluster: &'m Cluster, name: &NamespacedName) -> Option<Self> {
        let Machine { world, memory, breakers, .. } = m;
        let at = cluster.object(Kind::Connector, name);
        let row = &cluster.hub_connectors.get(name)?.seen;
        let upstream = row.upstream.as_ref().ok().map(|named| UpstreamAt::find(m, named));

        let memory = memory.hub.get(&at).map(Box::as_ref);
        let at_rest = MirrorMemory::default();
        let mirror = memory.map_or(&at_rest, |memory| &memory.mirror);
        let place = Place::find(world, &at)?;
        let breaker = breakers.removals_of(place.named());
        let view =
            mirror::View::new(place, mirror, breaker, breakers.removals(), m.is_leader, m.now);
        let verdict = mirror::plan(&view).verdict;

        let changed_at = place.upstream.map(|upstream| place.changed_at(upstream));
        let problems = m.notes.of_subject(&Subject::HubConnector(at));
        let name = name.clone();
        Some(Self { m, cluster, name, row, memory, upstream, changed_at, verdict, problems })
    }

    pub(super) fn digest(&self) -> Option<Digest> {
        self.row.annotation.map(|annotation| annotation.all)
    }

    /// The upstream cluster, if it is in the run.
    fn followed(&self) -> Option<&'m Cluster> {
        self.upstream?.cluster
    }

    pub(super) fn judged(&self) -> Judged<'m> {
        let is_configured = self.upstream.is_none() || self.followed().is_some();
        match self.verdict {
            Verdict::Disabled => return Judged::cause(State::Ok, Cause::RuleOff),
            Verdict::HubNotLive => return self.not_live(self.cluster),
            _ if !is_configured => return self.not_configured(),
            Verdict::Held(reason) => return self.held(reason),
            Verdict::RemovalHeld(_) => return self.held(Cause::RemovalsHeld),
            Verdict::UpstreamNotLive => {
                let unknown = Judged::state(State::Unknown);
                return self.followed().map_or(unknown, |upstream| self.not_live(upstream));
            }
            _ => {}
        }

        let here = self
            .problems
            .iter()
            .filter(|problem| problem.cause.info().hop != Some(Hop::Carried))
            .filter(|problem| !self.delays_carrying(problem));
        // Whatever holds the annotation is a problem with a state.
        let remark = || here.clone().find(|problem| problem.cause.info().state.is_none());
        Judged::worst(here.clone()).unwrap_or_else(|| match self.verdict.routes_as_desired() {
            true => remark().map_or(Judged::ok(), |remark| self.remarked(remark)),
            false => Judged::state(State::Pending),
        })
    }

    /// If no part of a status fits, nothing is mirrored until the status is shorter.
    fn remarked(&self, problem: &'m Problem) -> Judged<'m> {
        let is_too_large = problem.cause == Cause::StatusTooLarge && self.digest().is_none();
        let judged = Judged::problem(problem);
        if is_too_large { Judged { state: State::Held, ..judged } } else { judged }
    }

    fn is_to_be_written(&self) -> bool {
        use Verdict::{Deferred, OutOfSync, RemovalDue};
        matches!(self.verdict, OutOfSync { .. } | RemovalDue { .. } | Deferred { .. })
    }

    /// The annotation is in sync. Any write is then a nudge, which belongs to the next hop.
    fn is_mirrored(&self) -> bool {
        matches!(self.verdict, Verdict::InSync | Verdict::BothAbsent)
    }

    fn delays_carrying(&self, problem: &Problem) -> bool {
        let is_failure = problem.facts.error.is_some() && problem.cause.info().hop.is_none();
        is_failure && self.is_mirrored()
    }

    fn not_live(&self, cluster: &'m Cluster) -> Judged<'m> {
        let not_live = Judged::not_live(self.m, cluster, &COMPARED);
        not_live.unwrap_or(Judged::state(State::Unknown))
    }

    fn not_configured(&self) -> Judged<'m> {
        let causes = [Cause::ProjectMissing, Cause::UpstreamUnknown];
        let named = self.upstream.map(|upstream| upstream.cluster_name);
        let whole = named.and_then(|named| self.m.notes.of_whole(named, &causes));
        whole.map_or(Judged::cause(State::Held, Cause::UpstreamUnknown), Judged::problem)
    }

    fn held(&self, cause: Cause) -> Judged<'m> {
        let named = self.upstream.map(|upstream| upstream.cluster_name);
        let problem = match cause {
            Cause::ObjectUnreadable => self.unreadable(),
            Cause::UpstreamRestored => named.and_then(|name| self.m.notes.of_whole(name, &[cause])),
            Cause::RemovalsHeld => {
                let keys = named.map(|name| BreakerKey::Removals(name.clone()));
                let keys = keys.into_iter().chain([BreakerKey::FleetRemovals]);
                let mut found = keys.map(|key| self.m.notes.of(&Finder::Breaker(key)).first());
                found.find_map(|problem| problem)
            }
            cause => self.problems.iter().find(|problem| problem.cause == cause),
        };
        let state = cause.info().state.unwrap_or(State::Held);
        Judged { problem, ..Judged::cause(state, cause) }
    }

    /// The problem of an unreadable object. If a list lacks the Connector, any unreadable object
    /// may be it.
    fn unreadable(&self) -> Option<&'m Problem> {
        let upstream = self.followed()?;
        let own = self.upstream.map(|upstream| upstream.name);
        let any = upstream.watch(Kind::Connector).unreadable.first();
        let mut names = own.into_iter().chain(any);
        names.find_map(|name| Judged::unreadable(self.m, upstream, name)?.problem)
    }

    pub(super) fn hop(&self, at_edges: &[&EdgeConnector]) -> HopAt<'m> {
        let judged = self.judged();
        let upstream = self.followed().map(|_| self.upstream_says());
        let is_known = judged.state != State::Unknown && !matches!(self.verdict, Verdict::Held(_));
        let expected = upstream.filter(|_| is_known);
        let object = Some(self.name.clone());
        HopAt {
            says: self.says(at_edges),
            expected,
            since: self.since(judged),
            next_attempt: self.next_attempt().filter(|_| self.is_to_be_written()),
            evidence: self.evidence(),
            ..HopAt::new(Hop::Mirrored, self.cluster, Kind::Connector, object, judged)
        }
    }

    fn since(&self, judged: Judged<'_>) -> Option<UnixMillis> {
        match (judged.state, self.verdict) {
            (_, Verdict::Deferred { since }) => Some(since),
            (State::Ok, _) => self.in_sync_since(),
            (State::Pending | State::Stuck, _) => self.out_of_sync_since(),
            (State::Unknown, _) => judged.unknown_since,
            (State::Held, _) => None,
        }
    }

    fn upstream_says(&self) -> LivenessView {
        let says = self.upstream.and_then(UpstreamAt::says);
        says.unwrap_or_else(|| LivenessView::new(Stamp::default()))
    }

    fn write(&self) -> Option<&'m WriteState> {
        Some(&self.memory?.mirror.write)
    }

    /// `None` unless this instance leads; only the leader writes.
    pub(super) fn next_attempt(&self) -> Option<UnixMillis> {
        let write = self.write().filter(|_| self.m.is_leader)?;
        next_attempt(write, self.m.now)
    }

    fn evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        let overwrites = self.contention().map_or(0, |last| last.overwrites);
        if overwrites > 0 {
            evidence.push(format!("overwritten {} lately", times(overwrites)));
        }
        let write = self.write().filter(|_| !self.is_mirrored());
        evidence.extend(write.and_then(|write| write_evidence(write, self.problems)));
        evidence
    }

    /// Evidence about the hop to the edges.
    pub(super) fn carried_evidence(&self) -> Vec<String> {
        let settings = &self.m.world.settings.mirror;
        let nudges = self.memory.map_or(0, |memory| memory.nudge.nudges(settings, self.m.now));
        let nudged = (nudges > 0).then(|| format!("nudged {} lately", times(nudges)));
        let write = self.write().filter(|_| self.is_mirrored());
        let write = write.and_then(|write| write_evidence(write, &[]));
        nudged.into_iter().chain(write).collect()
    }

    /// The problem between the hub and an edge that is out of sync with it.
    pub(super) fn not_carried(&self, edge: &Cluster) -> Option<Judged<'m>> {
        let of_edge = |problem: &&Problem| {
            problem.cause == Cause::NotCarried && problem.about.cluster == edge.name
        };
        let not_carried = self.problems.iter().find(of_edge).map(Judged::problem);
        let nudges = self.problems.iter().filter(|problem| self.delays_carrying(problem));
        not_carried.or_else(|| Judged::worst(nudges))
    }

    /// The problem that no edge has it.
    pub(super) fn not_placed(&self) -> Option<Judged<'m>> {
        let not_placed = self.problems.iter().find(|problem| problem.cause == Cause::NotPlaced);
        not_placed.map(Judged::problem)
    }

    fn contention(&self) -> Option<&'m Contention> {
        self.memory?.mirror.write.contention()
    }

    /// When upstream last changed, or when another writer changed the annotation after that.
    fn out_of_sync_since(&self) -> Option<UnixMillis> {
        self.changed_at.max(self.contention().map(|last| last.last_at))
    }

    /// An object at rest has no memory. It has been right at least since everything was listed and
    /// upstream last changed.
    fn in_sync_since(&self) -> Option<UnixMillis> {
        let seen = self.memory.and_then(|memory| memory.mirror.sync.in_sync_since());
        seen.or_else(|| {
            let live_since =
                [self.cluster, self.followed()?].map(|cluster| cluster.live_since(Kind::Connector));
            live_since.into_iter().chain([self.changed_at]).flatten().max()
        })
    }

    /// The liveness that the annotation has. Only its digest is kept, so it is known only if
    /// upstream or an edge has the same value.
    pub(super) fn says(&self, at_edges: &[&EdgeConnector]) -> Option<LivenessView> {
        let digest = self.digest()?;
        if self.verdict.routes_as_desired() {
            return Some(self.upstream_says());
        }

        let same = at_edges.iter().find(|row| row.annotation == Some(digest))?;
        Some(LivenessView::new(same.stamp))
    }
}

/// When a failed write is next attempted.
pub(super) fn next_attempt(write: &WriteState, now: UnixMillis) -> Option<UnixMillis> {
    write.failure()?;
    write.not_before().filter(|at| *at > now)
}

/// Evidence about a write that no problem contains.
pub(super) fn write_evidence(write: &WriteState, problems: &[Problem]) -> Option<String> {
    if write.is_in_flight() {
        return Some("a write is under way".to_owned());
    }
    let is_said = problems.iter().any(|problem| problem.facts.error.is_some());
    let failure = write.failure().filter(|_| !is_said)?;
    Some(format!("the last write failed: {}", failure.error))
}

fn times(n: u32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}
