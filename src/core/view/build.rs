//! How the view is made of what the machine knows.

use super::*;
use crate::core::edge::{Edge, EdgeConnector};
use crate::core::ids::{ClusterId, Key};
use crate::core::machine::Machine;
use crate::core::packed::Packed;
use crate::core::replica::Replica;
use crate::core::source::{Digest, Source};

impl Machine {
    /// What the machine believes. Costs O(all that it knows): for people, not for every event.
    pub fn view(&self) -> View {
        let mut connectors: Vec<_> = self.places().into_iter().map(|k| self.connector(k)).collect();
        connectors.extend(self.lone_sources().map(|(id, key, source)| ConnectorView {
            upstream: self.cluster(id).map(|c| self.upstream(c.name.clone(), key, Some(source))),
            place: None,
            phase: self.phase_of_lone(id),
            stalls: Vec::new(),
            hubs: Vec::new(),
            edges: Vec::new(),
        }));
        connectors.sort_unstable_by(|a, b| (&a.upstream, &a.place).cmp(&(&b.upstream, &b.place)));
        let mut phases: Phases = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
        for connector in &connectors {
            *phases.entry(connector.phase).or_default() += 1;
        }
        View {
            at_ms: self.desk.now,
            leads: self.desk.leader,
            holder: None,
            in_flight: self.in_flight(),
            clusters: self.cluster_ids.values().filter_map(|id| self.cluster_view(*id)).collect(),
            phases,
            connectors,
            loose: self.loose(),
            orphans: self.orphans(),
        }
    }

    fn cluster_view(&self, id: ClusterId) -> Option<ClusterView> {
        let cluster = self.cluster(id)?;
        let roles = [Role::Upstream, Role::Downstream, Role::Edge];
        let live = |kind: &Kind| cluster.watch(*kind) == Watch::Live;
        let since = |kind: Kind| (kind, cluster.live_since(kind));
        Some(ClusterView {
            name: cluster.name.clone(),
            roles: roles.into_iter().filter(|role| cluster.has(*role)).collect(),
            watches: Kind::ALL.into_iter().map(|kind| (kind, cluster.watch(kind))).collect(),
            live_since_ms: Kind::ALL.into_iter().filter(live).map(since).collect(),
            errors: BTreeMap::new(),
        })
    }

    fn connector(&self, key: Key) -> ConnectorView {
        let upstream = self.replicas_at(key).find_map(|(_, replica)| {
            let (cluster, key, source) = self.source_of(replica)?;
            Some(self.upstream(self.desk.names.text(cluster).into(), key, source))
        });
        ConnectorView {
            upstream,
            place: Some(self.desk.names.object_key(key)),
            phase: self.phase_at(key),
            stalls: self
                .stalls_at(key)
                .map(|stall| StallView {
                    hop: stall.hop,
                    cluster: stall.cluster.clone(),
                    since_ms: stall.since,
                    reason: stall.reason.clone(),
                })
                .collect(),
            hubs: self.replicas_at(key).filter_map(|(id, r)| self.hub_view(id, key, r)).collect(),
            edges: self
                .copies_at(key)
                .filter_map(|(id, edge, copy)| self.edge_view(id, edge, key, copy))
                .collect(),
        }
    }

    fn upstream(&self, cluster: ClusterName, key: Key, source: Option<&Source>) -> UpstreamView {
        let source = source.filter(|s| s.exists);
        let text = source.and_then(|s| s.text.as_ref()).map(Packed::text);
        let SaysView { online, node } = SaysView::of(text.as_deref());
        UpstreamView {
            cluster,
            object: self.desk.names.object_key(key),
            exists: source.is_some(),
            online,
            node,
            because: text.as_deref().filter(|_| !online).and_then(why_not_ready),
            changed_at_ms: source.map(|s| s.changed_at),
        }
    }

    fn hub_view(&self, id: ClusterId, key: Key, replica: &Replica) -> Option<HubView> {
        let annotation = self.annotation(id, key, replica);
        let trouble = replica.trouble.as_deref();
        Some(HubView {
            cluster: self.cluster(id)?.name.clone(),
            annotation,
            annotated: replica.meaning != Digest::ABSENT,
            says: self.hub_says(key, replica, annotation),
            right_since_ms: (annotation == Annotation::Right).then_some(replica.settled_at),
            writes: trouble.map(|t| self.writes(&t.flight)).unwrap_or_default(),
            spoiled: trouble.map_or(0, |t| t.spoils),
            nudged: trouble.map_or(0, |t| t.nudges),
        })
    }

    /// Of the hub's annotation only the digest is kept: what it says is known from who says the same.
    fn hub_says(&self, key: Key, replica: &Replica, annotation: Annotation) -> Option<SaysView> {
        (replica.meaning != Digest::ABSENT).then_some(())?;
        if annotation == Annotation::Right {
            let (.., source) = self.source_of(replica)?;
            return Some(SaysView::of(source?.text.as_ref().map(Packed::text).as_deref()));
        }
        let mut copies = self.copies_at(key).map(|(.., copy)| copy);
        let same = copies.find(|copy| copy.meaning == replica.meaning)?;
        Some(SaysView { online: same.online, node: node(same.online, same.stamp) })
    }

    fn writes(&self, flight: &crate::core::flight::Flight) -> WritesView {
        WritesView {
            in_flight: flight.in_flight,
            not_before_ms: Some(flight.not_before).filter(|at| *at > self.desk.now),
            error: flight.error.as_deref().map(str::to_owned),
        }
    }

    fn edge_view(
        &self,
        id: ClusterId,
        edge: &Edge,
        key: Key,
        copy: &EdgeConnector,
    ) -> Option<EdgeView> {
        let mut gateways: Vec<_> =
            edge.gateways_of(key).map(|gateway| self.gateway_view(id, edge, gateway)).collect();
        gateways.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let known = |at: UnixMillis| Some(at).filter(|at| *at > UnixMillis(0));
        Some(EdgeView {
            cluster: self.cluster(id)?.name.clone(),
            online: copy.online,
            node: node(copy.online, copy.stamp),
            changed_at_ms: known(copy.changed_at),
            behind_since_ms: known(copy.missing_since),
            as_hub: self.replicas_at(key).next().map(|(_, r)| r.meaning == copy.meaning),
            gateways,
        })
    }

    fn gateway_view(&self, id: ClusterId, edge: &Edge, gateway: Key) -> GatewayView {
        let target = edge.target_of(gateway);
        let object = target.and_then(|target| edge.object_of(target));
        let touch = target.and_then(|target| edge.remembered(target)?.ok());
        let value = object.and_then(|object| edge.gateways.get(&object)?.value);
        GatewayView {
            name: self.desk.names.text(gateway.name).to_owned(),
            announcement: self.announcement(id, edge, gateway),
            trigger: value.map(|value| value.to_string()),
            announced_on: object
                .filter(|object| *object != gateway)
                .map(|object| self.desk.names.object_key(object)),
            due_at_ms: touch.and_then(|touch| touch.scheduled),
            writes: touch.map(|touch| self.writes(&touch.flight)).unwrap_or_default(),
        }
    }
}

/// Why upstream says that it is not online.
fn why_not_ready(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = words.join(": ");
    Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty())
}
