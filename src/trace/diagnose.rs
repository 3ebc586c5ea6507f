//! Turns what is known at one moment into the hops of one connector. Pure.

use super::remedy::{self, Remedy};
use super::{
    ClusterAccess, HopCause, HopState, HopTrace, LastWriter, Snapshot, SnapshotSource, Trace,
    UpstreamRef,
};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::{
    ClusterView, ConnectorView, LivenessView, UpstreamView, WatchState, WritesView,
};

/// `managedFields` hold the time of a write in whole seconds.
const MANAGED_FIELDS_RESOLUTION_MS: u64 = 1_000;

/// Why a hop is not ok, and what to do.
pub(super) struct Diagnosis {
    pub(super) state: HopState,
    pub(super) cause: HopCause,
    pub(super) why: String,
    pub(super) remedies: Vec<Remedy>,
}

/// One connector at one moment.
pub(super) struct Case<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) connector: &'a ConnectorView,
}

/// Each hop of a connector, the first that disagrees, why, and what to do.
pub fn diagnose(snapshot: &Snapshot, connector: &ConnectorView) -> Trace {
    let case = Case { snapshot, connector };
    let mut hops: Vec<_> = case.upstream_hop().into_iter().collect();
    hops.extend(case.mirrored_hops());
    hops.extend(case.carried_hops());
    hops.extend(case.announced_hops());
    let upstream = connector.upstream.as_ref();
    let mut trace = Trace {
        source: snapshot.source,
        at_ms: snapshot.view.at_ms,
        upstream: upstream
            .map(|u| UpstreamRef { cluster: u.cluster.clone(), object: u.object.clone() }),
        hub_key: connector.place.clone(),
        phase: case.phase().phase,
        state: HopState::Ok,
        first: None,
        notes: Vec::new(),
        events: case.events(&hops),
        hops,
    };
    trace.set_first();
    trace.notes = case.notes(trace.state);
    trace
}

/// A liveness in words; `None` means that an object carries no status annotation.
pub(super) fn liveness_text(says: Option<&LivenessView>) -> String {
    match says {
        Some(LivenessView { online: true, node: Some(node) }) => format!("online {node}"),
        Some(LivenessView { online: true, node: None }) => "online".to_owned(),
        Some(_) => "offline".to_owned(),
        None => "no annotation".to_owned(),
    }
}

/// The earlier of two times that may not be known.
fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    a.into_iter().chain(b).min()
}

pub(super) fn upstream_liveness(up: &UpstreamView) -> LivenessView {
    LivenessView { online: up.online, node: up.node.clone() }
}

impl<'a> Case<'a> {
    pub(super) fn clusters_with(&self, role: Role) -> impl Iterator<Item = &'a ClusterView> {
        self.snapshot.view.clusters.iter().filter(move |c| c.roles.contains(&role))
    }

    pub(super) fn cluster(&self, name: &ClusterName) -> Option<&'a ClusterView> {
        self.snapshot.view.clusters.iter().find(|c| c.name == *name)
    }

    /// The first of these kinds whose watch in the cluster is not live, as a diagnosis.
    pub(super) fn watch_not_live(&self, name: &ClusterName, kinds: &[Kind]) -> Option<Diagnosis> {
        let cluster = self.cluster(name)?;
        let combined = cluster.roles.contains(&Role::Upstream) && cluster.roles.len() > 1;
        // There the labels of namespaces tell hub Connectors from upstream ones.
        let namespaces = combined.then_some(Kind::Namespace);
        let not_live = |kind: &Kind| cluster.watches.get(kind) != Some(&WatchState::Live);
        let kind = kinds.iter().copied().chain(namespaces).find(not_live)?;
        let failure = cluster.failure(kind);
        let was_lost = cluster.watches.get(&kind) == Some(&WatchState::Lost);
        let since = cluster.unknown_since_ms.get(&kind).copied();
        Some(remedy::watch_not_live(name, kind, failure.as_ref(), was_lost, since))
    }

    /// The connector's namespace and name at the hub and the edges.
    pub(super) fn hub_key(&self) -> Option<&'a ObjectKey> {
        self.connector.place.as_ref()
    }

    pub(super) fn writer(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        object: Option<&ObjectKey>,
    ) -> Option<&'a LastWriter> {
        self.snapshot.managed_fields.writer(cluster, kind, object?)
    }

    /// Since when an object is as it is: since it was seen to change, or since its last write where
    /// that was earlier. True: it may have been so for longer.
    pub(super) fn since(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        changed: Option<UnixMillis>,
        writer: Option<&LastWriter>,
    ) -> (Option<UnixMillis>, bool) {
        let live_since = self.cluster(cluster).and_then(|c| c.live_since_ms.get(&kind));
        let written = writer.map(|writer| writer.at_ms);
        if self.is_nudged(cluster, kind) {
            // The last write may have been the nudge, which is later than the annotation's.
            let observed = changed.filter(|at| live_since.is_some_and(|since| at > since));
            return (observed.or(earlier(written, changed)), observed.is_none());
        }
        match (changed, written) {
            (Some(at), Some(written)) if written.plus(MANAGED_FIELDS_RESOLUTION_MS) < at => {
                (Some(written), false)
            }
            (Some(at), _) => (Some(at), live_since.is_some_and(|since| at <= *since)),
            (None, written) => (written, false),
        }
    }

    /// Whether the hub Connector carries a nudge.
    pub(super) fn is_nudged(&self, cluster: &ClusterName, kind: Kind) -> bool {
        let is_hub = || self.cluster(cluster).is_some_and(|c| c.roles.contains(&Role::Hub));
        let nudged = |key| self.snapshot.managed_fields.is_nudged(cluster, key);
        kind == Kind::Connector && is_hub() && self.hub_key().is_some_and(nudged)
    }

    /// Whether a hop that has not come is late: by a stall, or by the time of the last write.
    pub(super) fn lateness(
        &self,
        hop: Hop,
        cluster: &ClusterName,
        since: Option<UnixMillis>,
    ) -> HopState {
        // A stall of several edges names only the first.
        let names = |c: &ClusterName| c == cluster || hop == Hop::Arrived;
        if self.connector.stalls.iter().any(|s| s.hop == hop && names(&s.cluster)) {
            return HopState::Wrong;
        }
        match (self.snapshot.stall_limits.is_some(), since) {
            (true, Some(at)) if self.is_late(hop, at) => HopState::Wrong,
            _ => HopState::Pending,
        }
    }

    pub(super) fn is_late(&self, hop: Hop, since: UnixMillis) -> bool {
        self.snapshot.view.at_ms > self.late_at(hop, since)
    }

    /// Until when a hop that is open since a moment is not late, by the time of the last write.
    pub(super) fn late_at(&self, hop: Hop, since: UnixMillis) -> UnixMillis {
        let limits = self.snapshot.stall_limits.clone().unwrap_or_default();
        let limit_ms = match hop {
            Hop::Upstream | Hop::Mirrored => limits.mirrored_ms,
            Hop::Arrived => limits.arrived_ms,
            Hop::Touched => limits.touched_ms,
        };
        since.plus(limit_ms + MANAGED_FIELDS_RESOLUTION_MS)
    }

    pub(super) fn upstream_hop(&self) -> Option<HopTrace> {
        let Some(up) = &self.connector.upstream else {
            let hub = self.connector.hubs.first()?;
            let mut hop = HopTrace::new(Hop::Upstream, &hub.cluster, self.hub_key());
            hop.set_diagnosis(
                &self.snapshot.access,
                Some(remedy::no_labels(&hub.cluster, self.hub_key())),
            );
            return Some(hop);
        };
        let mut hop = HopTrace::new(Hop::Upstream, &up.cluster, Some(&up.object));
        let is_upstream = |c: &ClusterView| c.roles.contains(&Role::Upstream);
        let diagnosis = if self.cluster(&up.cluster).is_some_and(is_upstream) {
            self.watch_not_live(&up.cluster, &[Kind::Connector])
        } else {
            Some(remedy::upstream_not_configured(&up.cluster))
        };
        hop.says = up.exists.then(|| upstream_liveness(up));
        let writer = self.writer(&up.cluster, Kind::Connector, Some(&up.object));
        (hop.since_ms, hop.at_least) =
            self.since(&up.cluster, Kind::Connector, up.changed_at_ms, writer);
        hop.writer = writer.cloned();
        hop.set_diagnosis(&self.snapshot.access, diagnosis);
        Some(hop)
    }

    pub(super) fn upstream_since(&self) -> Option<UnixMillis> {
        let up = self.connector.upstream.as_ref()?;
        let writer = self.writer(&up.cluster, Kind::Connector, Some(&up.object));
        self.since(&up.cluster, Kind::Connector, up.changed_at_ms, writer).0
    }

    /// In a tier of several clusters, those of the cluster whose hop is the worst. None for a log: API
    /// servers have forgotten those Events.
    fn events(&self, hops: &[HopTrace]) -> Vec<String> {
        let mut commands = Vec::new();
        if matches!(self.snapshot.source, SnapshotSource::Log | SnapshotSource::Recording) {
            return commands;
        }
        for tier in [Hop::Upstream, Hop::Mirrored, Hop::Arrived] {
            let of_tier = hops.iter().filter(|hop| hop.hop == tier);
            let Some(hop) = of_tier.min_by_key(|hop| hop.order()) else { continue };
            let Some(key) = hop.object.as_ref().or(self.hub_key()) else { continue };
            let ObjectKey { namespace, name } = key;
            let arguments = format!("-n {namespace} events --for {}/{name}", hop.kind.plural());
            let remedy = Remedy::kubectl(&hop.cluster, format!("at {}", hop.cluster), arguments);
            let command = self.snapshot.access.spell(&remedy);
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        commands
    }

    fn notes(&self, state: HopState) -> Vec<String> {
        let mut notes = Vec::new();
        let up = self.connector.upstream.as_ref();
        if let Some(up) = up.filter(|up| !up.exists && state != HopState::Unknown) {
            notes.push(format!(
                "{} has no Connector {}, so it counts as offline",
                up.cluster, up.object
            ));
        }
        if let Some(up) = up.filter(|up| up.exists && !up.online && state.is_right()) {
            let because = up.because.as_ref().map_or(String::new(), |b| format!(" ({b})"));
            notes.push(format!(
                "nothing is stuck: {} itself reports the connector offline{because}; check the \
                 tunnel's agent and its Lease there",
                up.cluster
            ));
        }
        if self.clusters_with(Role::Hub).next().is_none() {
            notes.push(
                "no hub is configured here, so the hops before the edge Connector are not checked"
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
            state: HopState::Ok,
            says: None,
            trigger: None,
            since_ms: None,
            at_least: false,
            writer: None,
            writer_at_least: false,
            expected: String::new(),
            cause: None,
            why: String::new(),
            next_attempt_ms: None,
            remedies: Vec::new(),
        }
    }

    /// After the diagnosis: where that is a failed write, the next attempt belongs to it.
    pub(super) fn set_next_attempt(&mut self, writes: &WritesView) {
        if matches!(self.cause, Some(HopCause::Refused | HopCause::Failing)) {
            self.next_attempt_ms = writes.not_before_ms;
        }
    }

    pub(super) fn set_diagnosis(&mut self, access: &ClusterAccess, diagnosis: Option<Diagnosis>) {
        let Some(Diagnosis { state, cause, why, remedies }) = diagnosis else { return };
        let remedies = remedies.iter().map(|remedy| access.spell(remedy)).collect();
        (self.state, self.cause, self.why, self.remedies) = (state, Some(cause), why, remedies);
    }
}
