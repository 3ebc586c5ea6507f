//! From what is known at one moment to each hop of one connector. Pure.

use super::remedy;
use super::{Cause, HopTrace, Place, Snapshot, Source, State, Trace, Writer};
use crate::core::action::Hop;
use crate::core::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::time::UnixMillis;
use crate::core::view::{Annotation, ClusterView, ConnectorView, HubView, SaysView, Watch};

/// API servers write the times of writes in whole seconds.
const WHOLE_SECOND_MS: u64 = 1_000;

/// Why a hop is not as it should be, and what to do.
pub(super) struct Problem {
    pub(super) state: State,
    pub(super) cause: Cause,
    pub(super) why: String,
    pub(super) remedies: Vec<String>,
}

/// One connector at one moment.
pub(super) struct Case<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) connector: &'a ConnectorView,
}

/// Each hop of a connector, the first that disagrees, why, and what to do.
pub fn diagnose(snapshot: &Snapshot, connector: &ConnectorView) -> Trace {
    let case = Case { snapshot, connector };
    let mut hops: Vec<_> = case.upstream().into_iter().collect();
    hops.extend(case.mirrored());
    hops.extend(case.arrived());
    hops.extend(case.touched());
    let upstream = connector.upstream.as_ref();
    let mut trace = Trace {
        source: snapshot.source,
        at_ms: snapshot.view.at_ms,
        upstream: upstream.map(|u| Place { cluster: u.cluster.clone(), object: u.object.clone() }),
        replica: connector.place.clone(),
        phase: connector.phase,
        state: State::Ok,
        first: None,
        notes: Vec::new(),
        hops,
    };
    trace.judge();
    trace.notes = case.notes(trace.state);
    trace
}

/// What a status says, in words.
pub(super) fn words(says: Option<&SaysView>) -> String {
    match says {
        Some(SaysView { online: true, node: Some(node) }) => format!("online {node}"),
        Some(SaysView { online: true, node: None }) => "online".to_owned(),
        Some(_) => "offline".to_owned(),
        None => "nothing".to_owned(),
    }
}

impl<'a> Case<'a> {
    pub(super) fn clusters(&self, role: Role) -> impl Iterator<Item = &'a ClusterView> {
        self.snapshot.view.clusters.iter().filter(move |c| c.roles.contains(&role))
    }

    fn cluster(&self, name: &ClusterName) -> Option<&'a ClusterView> {
        self.snapshot.view.clusters.iter().find(|c| c.name == *name)
    }

    /// Which of these kinds can't be seen in a cluster, and why.
    pub(super) fn unseen(&self, name: &ClusterName, kinds: &[Kind]) -> Option<Problem> {
        let cluster = self.cluster(name)?;
        let combined = cluster.roles.contains(&Role::Upstream) && cluster.roles.len() > 1;
        let more = combined.then_some(Kind::Namespace);
        let lost = |kind: &Kind| cluster.watches.get(kind) != Some(&Watch::Live);
        let kind = kinds.iter().copied().chain(more).find(lost)?;
        let error = cluster.errors.get(&kind).map(String::as_str);
        let why = match (error, cluster.watches.get(&kind)) {
            (Some(error), _) => format!("{kind} objects of {name} can't be seen: {error}"),
            (None, Some(Watch::Lost)) => format!("the watch of {kind} objects of {name} is lost"),
            _ => format!("{kind} objects of {name} were not listed"),
        };
        let remedies = remedy::unseen(name, kind, error);
        Some(Problem { state: State::Unknown, cause: Cause::Unseen, why, remedies })
    }

    pub(super) fn place(&self) -> Option<&'a ObjectKey> {
        self.connector.place.as_ref()
    }

    pub(super) fn writer(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        object: Option<&ObjectKey>,
    ) -> Option<&'a Writer> {
        self.snapshot.witness.writer(cluster, kind, object?)
    }

    /// Since when something is as it is: as it was seen to change, or as it was written last where that
    /// was before. True: it may have been so for longer.
    pub(super) fn since(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        changed: Option<UnixMillis>,
        writer: Option<&Writer>,
    ) -> (Option<UnixMillis>, bool) {
        let live_since = self.cluster(cluster).and_then(|c| c.live_since_ms.get(&kind));
        let written = writer.map(|writer| writer.at_ms);
        match (changed, written) {
            (Some(at), Some(written)) if written.plus(WHOLE_SECOND_MS) < at => {
                (Some(written), false)
            }
            (Some(at), _) => (Some(at), live_since.is_some_and(|since| at <= *since)),
            (None, written) => (written, false),
        }
    }

    /// Whether a hop that is waited for is late: by a stall, or by the time of the last write.
    pub(super) fn lateness(
        &self,
        hop: Hop,
        cluster: &ClusterName,
        since: Option<UnixMillis>,
    ) -> State {
        // Of several edges the stall names the first.
        let named = |c: &ClusterName| c == cluster || hop == Hop::Arrived;
        if self.connector.stalls.iter().any(|s| s.hop == hop && named(&s.cluster)) {
            return State::Wrong;
        }
        match (self.snapshot.late.is_some(), since) {
            (true, Some(at)) if self.is_late(hop, at) => State::Wrong,
            _ => State::Pending,
        }
    }

    fn is_late(&self, hop: Hop, since: UnixMillis) -> bool {
        let limits = self.snapshot.late.clone().unwrap_or_default();
        let limit_ms = match hop {
            Hop::Upstream | Hop::Mirrored => limits.mirrored_ms,
            Hop::Arrived => limits.arrived_ms,
            Hop::Touched => limits.touched_ms,
        };
        self.snapshot.view.at_ms.since(since) > limit_ms + WHOLE_SECOND_MS
    }

    fn upstream(&self) -> Option<HopTrace> {
        let Some(up) = &self.connector.upstream else {
            let hub = self.connector.hubs.first()?;
            let mut hop = HopTrace::new(Hop::Upstream, &hub.cluster, self.place());
            hop.trouble(Some(remedy::no_labels(&hub.cluster, self.place())));
            return Some(hop);
        };
        let mut hop = HopTrace::new(Hop::Upstream, &up.cluster, Some(&up.object));
        let is_upstream = |c: &ClusterView| c.roles.contains(&Role::Upstream);
        let problem = if self.cluster(&up.cluster).is_some_and(is_upstream) {
            self.unseen(&up.cluster, &[Kind::Connector])
        } else {
            Some(remedy::not_configured(&up.cluster))
        };
        hop.says = up.exists.then(|| SaysView { online: up.online, node: up.node.clone() });
        let writer = self.writer(&up.cluster, Kind::Connector, Some(&up.object));
        (hop.since_ms, hop.at_least) =
            self.since(&up.cluster, Kind::Connector, up.changed_at_ms, writer);
        hop.writer = writer.cloned();
        hop.trouble(problem);
        Some(hop)
    }

    fn mirrored(&self) -> Vec<HopTrace> {
        if !self.connector.hubs.is_empty() {
            return self.connector.hubs.iter().map(|hub| self.mirrored_at(hub)).collect();
        }
        let missing = |cluster: &ClusterView| {
            let mut hop = HopTrace::new(Hop::Mirrored, &cluster.name, self.place());
            hop.expected = self.expected_at_hub();
            let late = self.upstream_since().is_none_or(|at| self.is_late(Hop::Mirrored, at));
            let state = if late { State::Wrong } else { State::Pending };
            let problem = self.unseen(&cluster.name, &[Kind::Connector]);
            let upstream = self.connector.upstream.as_ref().map(|u| &u.object);
            hop.trouble(Some(
                problem.unwrap_or_else(|| remedy::unreplicated(state, &cluster.name, upstream)),
            ));
            hop
        };
        self.clusters(Role::Downstream).map(missing).collect()
    }

    /// Since when upstream says what it says.
    pub(super) fn upstream_since(&self) -> Option<UnixMillis> {
        let up = self.connector.upstream.as_ref()?;
        let writer = self.writer(&up.cluster, Kind::Connector, Some(&up.object));
        self.since(&up.cluster, Kind::Connector, up.changed_at_ms, writer).0
    }

    fn expected_at_hub(&self) -> String {
        match &self.connector.upstream {
            Some(up) if up.exists => {
                words(Some(&SaysView { online: up.online, node: up.node.clone() }))
            }
            _ => "nothing".to_owned(),
        }
    }

    fn mirrored_at(&self, hub: &HubView) -> HopTrace {
        let mut hop = HopTrace::new(Hop::Mirrored, &hub.cluster, self.place());
        let writer = self.writer(&hub.cluster, Kind::Connector, self.place());
        let read = || self.snapshot.witness.says(&hub.cluster, self.place()?).cloned();
        hop.says = hub.annotated.then(|| read().or_else(|| hub.says.clone())).flatten();
        hop.expected = self.expected_at_hub();
        let problem = match hub.annotation {
            Annotation::Right => None,
            Annotation::Off => Some(remedy::off("mirror.enabled")),
            Annotation::Unknown => Some(self.mirror_unknown(hub)),
            Annotation::Wrong => Some(self.mirror_wrong(hub, writer)),
        };
        (hop.since_ms, hop.at_least) =
            self.since(&hub.cluster, Kind::Connector, hub.right_since_ms, writer);
        hop.writer = writer.cloned();
        hop.trouble(problem);
        if hub.annotated && hop.says.is_none() {
            hop.why = format!("{} (what it says is kept as a digest only)", hop.why);
        }
        hop
    }

    fn mirror_unknown(&self, hub: &HubView) -> Problem {
        let unseen = self.unseen(&hub.cluster, &[Kind::Connector]);
        let upstream = || {
            let Some(up) = &self.connector.upstream else {
                return remedy::no_labels(&hub.cluster, self.place());
            };
            if self.cluster(&up.cluster).is_none() {
                return remedy::not_configured(&up.cluster);
            }
            let unseen = self.unseen(&up.cluster, &[Kind::Connector, Kind::Namespace]);
            unseen.unwrap_or_else(|| remedy::identity(&hub.cluster, self.place(), up))
        };
        unseen.unwrap_or_else(upstream)
    }

    fn mirror_wrong(&self, hub: &HubView, writer: Option<&Writer>) -> Problem {
        let source = self.snapshot.source;
        let changed = self.upstream_since();
        let other = writer.filter(|w| !w.is_us());
        let spoiled = other.filter(|w| w.of_field && changed.is_some_and(|at| w.at_ms > at));
        let since = changed.max(spoiled.map(|w| w.at_ms));
        let state = self.lateness(Hop::Mirrored, &hub.cluster, since);
        if let Some(error) = &hub.writes.error {
            return remedy::write_fails(state, &hub.cluster, Kind::Connector, error);
        }
        if hub.spoiled > 0 || spoiled.is_some() {
            let paused = hub.writes.not_before_ms.is_some();
            let state = if paused { State::Wrong } else { state };
            return remedy::contention(state, hub, other);
        }
        let holder = self.snapshot.view.holder.as_deref();
        match source {
            Source::State | Source::Log if !self.snapshot.view.leads => {
                remedy::not_leading(state, &hub.cluster, holder)
            }
            _ if hub.writes.in_flight.is_some() => remedy::under_way(state, &hub.cluster),
            _ => remedy::not_mirrored(state, source, &hub.cluster, holder),
        }
    }

    fn notes(&self, state: State) -> Vec<String> {
        let mut notes = Vec::new();
        let up = self.connector.upstream.as_ref();
        if let Some(up) = up.filter(|up| !up.exists && state != State::Unknown) {
            let Place { cluster, object } =
                Place { cluster: up.cluster.clone(), object: up.object.clone() };
            notes
                .push(format!("there is no Connector {object} in {cluster}: it counts as offline"));
        }
        if let Some(up) = up.filter(|up| up.exists && !up.online && state == State::Ok) {
            let because = up.because.as_ref().map_or(String::new(), |b| format!(": {b}"));
            notes.push(format!(
                "it is offline because {} says so{because}. Look at the tunnel's agent and its Lease \
                 there; nothing is stuck on the way",
                up.cluster
            ));
        }
        if self.clusters(Role::Downstream).next().is_none() {
            notes.push(
                "no hub is configured here: what comes before the edge's copy can't be seen"
                    .to_owned(),
            );
        }
        notes
    }
}

impl HopTrace {
    pub(super) fn new(hop: Hop, cluster: &ClusterName, object: Option<&ObjectKey>) -> Self {
        Self {
            hop,
            cluster: cluster.clone(),
            kind: if hop == Hop::Touched { Kind::Gateway } else { Kind::Connector },
            object: object.cloned(),
            state: State::Ok,
            says: None,
            trigger: None,
            since_ms: None,
            at_least: false,
            writer: None,
            expected: String::new(),
            cause: None,
            why: String::new(),
            remedies: Vec::new(),
        }
    }

    pub(super) fn trouble(&mut self, problem: Option<Problem>) {
        let Some(Problem { state, cause, why, remedies }) = problem else { return };
        (self.state, self.cause, self.why, self.remedies) = (state, Some(cause), why, remedies);
    }
}
