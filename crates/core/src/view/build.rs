//! Builds the view from the machine's tables.

use super::places::Appearance;
use super::*;
use crate::context::WriteTarget;
use crate::contract::note::{Hop, Stall, StallCause};
use crate::data::cluster::ClusterState;
use crate::data::ids::ClusterId;
use crate::data::interner::Key;
use crate::data::packed::Packed;
use crate::edge::touch_state::TouchState;
use crate::edge::{EdgeConnector, EdgeState};
use crate::flight::Flight;
use crate::hub::HubConnector;
use crate::leadership::LeaseWait;
use crate::machine::Machine;
use crate::status::digest::Digest;
use crate::upstream::UpstreamConnector;

impl Machine {
    /// What the machine knows. Costs O(everything): for people, not for every event.
    pub fn view(&self) -> View {
        let mut connectors: Vec<_> =
            self.appearances().into_iter().map(|at| self.connector(&at)).collect();
        connectors.sort_unstable_by(|a, b| (&a.upstream, &a.place).cmp(&(&b.upstream, &b.place)));
        let phases = phase::count_phases(connectors.iter().map(|connector| connector.phase));
        View {
            at_ms: self.ctx.now,
            leads: self.ctx.leads(),
            holder: None,
            lease_wait: self.lease_wait_view(),
            in_flight: self.in_flight(),
            clusters: self.cluster_views(),
            phases,
            connectors,
            unpaired: self.unpaired(),
            orphans: self.orphans(),
            gone: self.gone_projects(),
        }
    }

    fn lease_wait_view(&self) -> Option<LeaseWaitView> {
        let LeaseWait { until, ms } = self.ctx.lease_wait();
        self.ctx.waits_for_lease().then_some(LeaseWaitView { until_ms: until, wait_ms: ms })
    }

    fn cluster_views(&self) -> Vec<ClusterView> {
        let waiting = self.edges.keys().filter_map(|id| {
            let waiting = self.ctx.touches_waiting(*id)?;
            Some((&self.cluster(*id)?.name, waiting))
        });
        let waiting: BTreeMap<_, _> = waiting.collect();
        let view = |cluster: &ClusterState| ClusterView {
            touches_waiting: waiting.get(&cluster.name).copied(),
            ..cluster_view(cluster)
        };
        self.clusters.iter().map(view).collect()
    }

    fn connector(&self, at: &Appearance) -> ConnectorView {
        let phase = self.phase_of(at);
        let by_name = at.upstream.and_then(|(id, key)| {
            let cluster = self.cluster(id)?;
            let upstream = self.upstreams.get(&cluster.sym)?.connectors.get(&key);
            Some(self.upstream(cluster.name.clone(), key, upstream))
        });
        let Some(key) = at.place else {
            let (stalls, hubs, edges) = (Vec::new(), Vec::new(), Vec::new());
            return ConnectorView { upstream: by_name, place: None, phase, stalls, hubs, edges };
        };
        let upstream = self.hub_connectors_at(key).find_map(|(_, hub_connector)| {
            let (cluster, key, upstream) = self.upstream_of(hub_connector)?;
            Some(self.upstream(self.ctx.names.text(cluster).into(), key, upstream))
        });
        ConnectorView {
            upstream: upstream.or(by_name),
            place: Some(self.ctx.names.object_key(key)),
            phase,
            stalls: self.stalls_at(key).map(|stall| self.stall_view(key, stall)).collect(),
            hubs: self
                .hub_connectors_at(key)
                .filter_map(|(id, r)| self.hub_view(id, key, r))
                .collect(),
            edges: self
                .edge_connectors_at(key)
                .filter_map(|(id, edge, edge_connector)| {
                    self.edge_view(id, edge, key, edge_connector)
                })
                .collect(),
        }
    }

    fn stall_view(&self, key: Key, stall: &Stall) -> StallView {
        let limits = &self.ctx.settings.stall;
        let limit_ms = match (stall.hop, &stall.cause) {
            (_, StallCause::Deferred { .. }) => limits.deferred_ms,
            (Hop::Upstream | Hop::Mirrored, _) => limits.mirrored_ms,
            (Hop::Arrived, _) => limits.arrived_ms,
            (Hop::Touched, _) => limits.touched_ms,
        };
        // What was the cause when the stall began may have been an effect of silence.
        let reason = match self.clusters.id_of(&stall.cluster).and_then(|id| self.cluster(id)) {
            Some(cluster) if !self.is_seen(key, stall) => not_seen(cluster),
            _ => stall.reason.clone(),
        };
        StallView {
            hop: stall.hop,
            cluster: stall.cluster.clone(),
            since_ms: stall.since,
            late_since_ms: Some(stall.since.plus(limit_ms)),
            reason,
        }
    }

    fn upstream(
        &self,
        cluster: ClusterName,
        key: Key,
        upstream: Option<&UpstreamConnector>,
    ) -> UpstreamView {
        let upstream = upstream.filter(|s| s.exists());
        let text = upstream.and_then(|s| s.text.as_ref()).map(Packed::text);
        let LivenessView { online, node } = LivenessView::of(text.as_deref());
        UpstreamView {
            gone: self.roster.is_gone(cluster.as_str()),
            cluster,
            object: self.ctx.names.object_key(key),
            exists: upstream.is_some(),
            online,
            node,
            because: text.as_deref().filter(|_| !online).and_then(why_not_ready),
            changed_at_ms: upstream.map(|s| s.changed_at),
        }
    }

    fn hub_view(&self, id: ClusterId, key: Key, hub_connector: &HubConnector) -> Option<HubView> {
        let annotation = self.annotation(id, key, hub_connector);
        let repair = hub_connector.repair.as_deref();
        Some(HubView {
            cluster: self.cluster(id)?.name.clone(),
            annotation,
            hold: self.hold(id, key, hub_connector),
            annotated: hub_connector.digest != Digest::ABSENT,
            says: self.hub_says(key, hub_connector, annotation),
            wrong_since_ms: (annotation == AnnotationState::Wrong)
                .then(|| self.wrong_since(hub_connector))
                .flatten(),
            right_since_ms: (annotation == AnnotationState::Right)
                .then_some(hub_connector.mirrored_at)
                .flatten(),
            deferred_since_ms: (annotation == AnnotationState::Deferred)
                .then(|| hub_connector.deferred_since())
                .flatten(),
            writes: repair.map(|t| self.writes(&t.flight)).unwrap_or_default(),
            overwrites: repair.map_or(0, |r| r.contention.overwrites()),
            nudges: repair.map_or(0, |t| t.nudges),
        })
    }

    /// Since upstream changed, or since another writer changed the annotation later.
    fn wrong_since(&self, hub_connector: &HubConnector) -> Option<UnixMillis> {
        let (.., upstream) = self.upstream_of(hub_connector)?;
        let overwritten_at = hub_connector.repair.as_ref().and_then(|r| r.contention.last_at());
        upstream.map(|upstream| upstream.changed_at).max(overwritten_at)
    }

    fn hold(&self, id: ClusterId, key: Key, hub_connector: &HubConnector) -> Option<HoldView> {
        if self.annotation(id, key, hub_connector) != AnnotationState::Held {
            return None;
        }
        let reason = hub_connector.held?;
        Some(HoldView { reason, message: reason.text().to_owned() })
    }

    /// What the hub's annotation says. The machine keeps only its digest, so this is known when
    /// upstream or an edge says the same.
    fn hub_says(
        &self,
        key: Key,
        hub_connector: &HubConnector,
        annotation: AnnotationState,
    ) -> Option<LivenessView> {
        (hub_connector.digest != Digest::ABSENT).then_some(())?;
        if matches!(annotation, AnnotationState::Right | AnnotationState::Deferred) {
            let (.., upstream) = self.upstream_of(hub_connector)?;
            return Some(LivenessView::of(upstream?.text.as_ref().map(Packed::text).as_deref()));
        }
        let mut copies = self.edge_connectors_at(key).map(|(.., edge_connector)| edge_connector);
        let same = copies.find(|edge_connector| edge_connector.digest == hub_connector.digest)?;
        Some(LivenessView { online: same.online, node: node(same.online, same.stamp) })
    }

    pub(super) fn writes<W>(&self, flight: &Flight<W>) -> WritesView {
        WritesView {
            in_flight: flight.action(),
            not_before_ms: Some(flight.not_before()).filter(|at| *at > self.ctx.now),
            error: flight.error().cloned(),
        }
    }

    fn edge_view(
        &self,
        id: ClusterId,
        edge: &EdgeState,
        key: Key,
        edge_connector: &EdgeConnector,
    ) -> Option<EdgeView> {
        let mut gateways: Vec<_> =
            edge.gateways_of(key).map(|gateway| self.gateway_view(id, edge, gateway)).collect();
        gateways.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Some(EdgeView {
            cluster: self.cluster(id)?.name.clone(),
            online: edge_connector.online,
            node: node(edge_connector.online, edge_connector.stamp),
            changed_at_ms: edge_connector.changed_at.get(),
            behind_since_ms: edge_connector.missing_since.get(),
            as_hub: self
                .hub_connectors_at(key)
                .next()
                .map(|(_, r)| r.digest == edge_connector.digest),
            gateways,
        })
    }

    fn gateway_view(&self, id: ClusterId, edge: &EdgeState, gateway: Key) -> GatewayView {
        let target = edge.target_of(gateway);
        let object = target.and_then(|target| edge.object_of(target));
        let touch = target.and_then(|target| edge.open_touch(target));
        let value = object.and_then(|object| edge.gateways.get(&object)?.observed.trigger);
        GatewayView {
            name: self.ctx.names.text(gateway.name).to_owned(),
            announcement: self.announcement(id, edge, gateway),
            trigger: value.map(|value| value.to_string()),
            announced_on: object
                .filter(|object| *object != gateway)
                .map(|object| self.ctx.names.object_key(object)),
            paused: edge.gateways.get(&gateway).is_some_and(|found| found.observed.is_paused)
                || target.is_some_and(|target| edge.is_paused(target)),
            announced_at_ms: touch.and_then(TouchState::announced_at),
            due_at_ms: target
                .and_then(|target| self.ctx.queues.due_of(WriteTarget::Touch(id, target)))
                .map(|due| due.at),
            writes: touch.map(|touch| self.writes(&touch.flight)).unwrap_or_default(),
        }
    }
}

/// Why a stall is no longer seen: the watch that showed it is lost.
fn not_seen(cluster: &ClusterState) -> String {
    let name = &cluster.name;
    let kinds = Kind::ALL.into_iter();
    match kinds.filter_map(|kind| cluster.unknown_since(kind)).min() {
        Some(since) => format!("unknown since {since}: the watch of {name} is lost"),
        None => format!("unknown: a watch that it needs is not live ({name})"),
    }
}

fn cluster_view(cluster: &ClusterState) -> ClusterView {
    let is_live = |kind: &Kind| cluster.watch(*kind) == WatchState::Live;
    let since = |kind: Kind| (kind, cluster.live_since(kind));
    ClusterView {
        name: cluster.name.clone(),
        roles: Role::ALL.into_iter().filter(|role| cluster.has(*role)).collect(),
        watches: Kind::ALL.into_iter().map(|kind| (kind, cluster.watch(kind))).collect(),
        live_since_ms: Kind::ALL.into_iter().filter(is_live).map(since).collect(),
        unknown_since_ms: Kind::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, cluster.unknown_since(kind)?)))
            .collect(),
        received_at_ms: BTreeMap::new(),
        unreadable: Kind::ALL
            .into_iter()
            .map(|kind| (kind, cluster.unreadable(kind)))
            .filter(|(_, objects)| *objects > 0)
            .collect(),
        errors: BTreeMap::new(),
        touches_waiting: None,
        causes: BTreeMap::new(),
    }
}

/// The reason that upstream gives for not being online.
fn why_not_ready(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = words.join(": ");
    Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty())
}
