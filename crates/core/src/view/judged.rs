//! The state of a hop, and its cause.

use super::fleet::{HopView, LivenessView, UpstreamName};
use crate::contract::cause::{About, Cause, Facts, Hop, Kubectl, Problem, State};
use crate::contract::membership::SourceName;
use crate::controller::Finder;
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::world::cluster::Cluster;

#[derive(Clone, Copy, Debug)]
pub(super) struct Judged<'m> {
    pub(super) state: State,
    pub(super) cause: Option<Cause>,
    /// An open problem with this cause.
    pub(super) problem: Option<&'m Problem>,
    /// If the state is unknown because a watch is not live: since when.
    pub(super) unknown_since: Option<UnixMillis>,
}

impl<'m> Judged<'m> {
    pub(super) fn state(state: State) -> Self {
        Self { state, cause: None, problem: None, unknown_since: None }
    }

    pub(super) fn ok() -> Self {
        Self::state(State::Ok)
    }

    pub(super) fn cause(state: State, cause: Cause) -> Self {
        Self { cause: Some(cause), ..Self::state(state) }
    }

    /// The state and cause of an open problem.
    pub(super) fn problem(problem: &'m Problem) -> Self {
        let state = problem.cause.info().state.unwrap_or(State::Ok);
        Self { problem: Some(problem), ..Self::cause(state, problem.cause) }
    }

    /// The first of the problems with the worst state. Ignores problems without a state.
    pub(super) fn worst(problems: impl IntoIterator<Item = &'m Problem>) -> Option<Self> {
        let all = problems.into_iter().filter(|problem| problem.cause.info().state.is_some());
        all.map(Self::problem).reduce(|worst, next| match next.state > worst.state {
            true => next,
            false => worst,
        })
    }

    /// The first of these kinds whose watch is not live, with the cause of the problem.
    pub(super) fn not_live(m: &'m Machine, cluster: &Cluster, kinds: &[Kind]) -> Option<Self> {
        let kind = *kinds.iter().find(|kind| !cluster.is_live(**kind))?;
        // Where tiers share a cluster, a live watch also needs the watch of namespaces.
        let is_own = cluster.watch(kind).live_since().is_none();
        let kind = if is_own { kind } else { Kind::Namespace };

        let problem = m.notes.of(&Finder::Watch(cluster.id, kind)).first();
        let cause = problem.map(|problem| problem.cause);
        let unknown_since = cluster.watch(kind).unknown_since;
        Some(Self { state: State::Unknown, cause, problem, unknown_since })
    }

    /// The cluster has a Connector of this name that cannot be decoded.
    pub(super) fn unreadable(
        m: &'m Machine,
        cluster: &Cluster,
        name: &NamespacedName,
    ) -> Option<Self> {
        let finder = Finder::Object(cluster.object(Kind::Connector, name));
        m.notes.of(&finder).first().map(Self::problem)
    }
}

/// A hop before its texts are added.
pub(super) struct HopAt<'m> {
    pub(super) hop: Hop,
    pub(super) cluster: &'m Cluster,
    pub(super) kind: Kind,
    pub(super) object: Option<NamespacedName>,
    pub(super) judged: Judged<'m>,
    pub(super) says: Option<LivenessView>,
    pub(super) expected: Option<LivenessView>,
    /// The start of the state, unless a problem has it.
    pub(super) since: Option<UnixMillis>,
    pub(super) next_attempt: Option<UnixMillis>,
    pub(super) evidence: Vec<String>,
}

/// The names of a connector for the texts of its hops.
#[derive(Default)]
pub(super) struct Names {
    pub(super) upstream: Option<UpstreamName>,
    /// Its name at hub and edges.
    pub(super) connector: Option<NamespacedName>,
    pub(super) hub: Option<ClusterName>,
    /// A source of clusters that cannot list them.
    pub(super) lost_source: Option<SourceName>,
}

impl<'m> HopAt<'m> {
    pub(super) fn new(
        hop: Hop,
        cluster: &'m Cluster,
        kind: Kind,
        object: Option<NamespacedName>,
        judged: Judged<'m>,
    ) -> Self {
        Self {
            hop,
            cluster,
            kind,
            object,
            judged,
            says: None,
            expected: None,
            since: judged.unknown_since,
            next_attempt: None,
            evidence: Vec::new(),
        }
    }

    pub(super) fn view(self, names: &Names, kubectl: Kubectl<'_>) -> HopView {
        let Judged { state, cause, problem, .. } = self.judged;
        let since = self.since();
        let live_since = self.cluster.live_since(self.kind);
        let is_at_least = |at: UnixMillis| live_since.is_some_and(|live| at <= live);
        let unreported = || cause.map(|cause| self.unreported(cause, names));
        let problem = problem.cloned().or_else(unreported);

        HopView {
            hop: self.hop,
            cluster: self.cluster.name.clone(),
            kind: self.kind,
            object: self.object,
            state,
            says: self.says,
            expected: self.expected,
            since_ms: since,
            at_least: since.is_some_and(is_at_least),
            cause,
            message: problem.as_ref().map(Problem::sentence),
            remedy: problem.and_then(|p| p.cause.remedy(&p.about, &p.facts, kubectl)),
            next_attempt_ms: self.next_attempt,
            evidence: self.evidence,
            writer: None,
        }
    }

    fn since(&self) -> Option<UnixMillis> {
        let Judged { state, problem, .. } = self.judged;
        let began = problem.map(|problem| problem.since);
        match state {
            State::Ok | State::Pending => self.since,
            State::Held | State::Unknown => self.since.or(began),
            State::Stuck => began.or(self.since),
        }
    }

    /// Makes a problem of a cause that is not reported, or not yet.
    fn unreported(&self, cause: Cause, names: &Names) -> Problem {
        let cluster = &self.cluster.name;
        let upstream = names.upstream.as_ref();
        let at_upstream =
            || upstream.map(|of| About::object(&of.cluster, Kind::Connector, of.object.clone()));
        let connector = || names.connector.clone();
        let at_edge = || connector().map(|name| About::object(cluster, Kind::Connector, name));
        let about = match cause {
            Cause::NotReplicated | Cause::ObjectUnreadable => at_upstream(),
            Cause::NoGateway | Cause::NotPlaced => at_edge(),
            _ => None,
        };
        let object = self.object.clone();
        let about =
            about.unwrap_or(About { kind: Some(self.kind), object, ..About::cluster(cluster) });

        let what = match cause {
            Cause::NamespaceMissing | Cause::NamespaceMismatch => {
                upstream.map(|of| of.object.namespace().into())
            }
            Cause::ConnectorMissing => connector().map(|name| name.name().into()),
            _ => None,
        };
        let facts = Facts {
            upstream: upstream.map(|of| of.cluster.clone()),
            hub: names.hub.clone(),
            edge: Some(cluster.clone()).filter(|_| self.hop >= Hop::Carried),
            source: names.lost_source.map(|source| source.as_str().into()),
            what,
            ..Facts::default()
        };
        let since = self.since().unwrap_or_default();
        Problem { facts, ..Problem::new(cause, about, since) }
    }
}
