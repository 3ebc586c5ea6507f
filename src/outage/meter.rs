//! Follows a live run for the metrics of what users see: the same definition of an outage as a
//! replay's.

use std::collections::HashSet;
use std::sync::Arc;

use super::OutageTracker;
use crate::core::contract::event::{ClusterSpec, Event};
use crate::core::contract::settings::Settings;
use crate::core::data::map::FixedState;
use crate::core::data::used_names::HoldsNames;
use crate::metrics::Metrics;
use crate::run_log::Observer;

/// Counts how long each edge answers wrongly. An event costs O(what it concerns), and a metric is
/// touched only when the number of wrong answers at an edge changes.
pub struct UserImpactMeter {
    tracker: OutageTracker,
    metrics: Arc<Metrics>,
}

impl UserImpactMeter {
    /// `clusters` are those known from the start.
    pub fn new(clusters: &[ClusterSpec], settings: &Settings, metrics: Arc<Metrics>) -> Self {
        Self { tracker: OutageTracker::new(clusters, settings, false), metrics }
    }
}

impl Observer for UserImpactMeter {
    fn on_event(&mut self, event: &Event) {
        self.tracker.observe(event);
        self.tracker.ended.clear();
        self.tracker.sweep_names();
        while let Some(edge) = self.tracker.changed.pop_first() {
            self.metrics.set_answers(&edge, self.tracker.answers(&edge));
        }
    }
}

impl OutageTracker {
    /// Drops what only deleted objects need, once the names have doubled: a live run goes on for
    /// months.
    fn sweep_names(&mut self) {
        if !self.names.is_sweep_due() {
            return;
        }
        let mut linked = HashSet::with_hasher(FixedState::default());
        for edge in self.edges.values_mut() {
            edge.referrers.retain(|_, proxies| !proxies.is_empty());
            linked.extend(edge.connectors.keys().chain(edge.referrers.keys()).copied());
        }
        // A Connector that appears at an edge again brings its labels again.
        self.upstream_of.retain(|key, _| linked.contains(key));
        for downstream in self.downstream_of.values_mut() {
            downstream.retain(|_, key| linked.contains(key));
        }
        self.downstream_of.retain(|_, downstream| !downstream.is_empty());
        let mut used = self.names.unused();
        self.edges.values().for_each(|edge| edge.mark(&mut used));
        for (key, (_, upstream)) in &self.upstream_of {
            key.mark(&mut used);
            upstream.mark(&mut used);
        }
        self.upstreams.values().flat_map(|u| u.keys()).for_each(|key| key.mark(&mut used));
        self.listing.values().flatten().for_each(|key| key.mark(&mut used));
        let downstream = self.downstream_of.values().flatten();
        downstream.for_each(|(upstream, key)| {
            upstream.mark(&mut used);
            key.mark(&mut used);
        });
        self.names.sweep(&used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::event::EventKind;
    use crate::core::data::ids::{Kind, Role};
    use crate::core::data::objects::Object;
    use crate::core::data::time::UnixMillis;

    fn object(kind: &str, name: &str, spec: serde_json::Value) -> Arc<Object> {
        let labels = serde_json::json!({ "meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-namespace": "shop",
            "meta.datumapis.com/upstream-name": format!("up-{name}") });
        let object = serde_json::json!({ "kind": kind, "spec": spec,
            "metadata": { "namespace": "ns-1", "name": name, "labels": labels } });
        let wire: crate::core::data::objects::WireObject = serde_json::from_value(object).unwrap();
        Arc::new(Object::try_from(wire).unwrap())
    }

    /// A run that goes on for months must not keep what was deleted.
    #[test]
    fn what_is_deleted_is_forgotten() {
        let specs = [("up", Role::Upstream), ("edge", Role::Edge)]
            .map(|(name, role)| ClusterSpec { name: name.into(), roles: vec![role] });
        let metrics = Arc::new(Metrics::new());
        let mut meter = UserImpactMeter::new(&specs, &Settings::default(), metrics);
        let mut feed = |kind| meter.on_event(&Event { at: UnixMillis(1), kind });
        for (cluster, kinds) in [
            ("up", &[Kind::Connector][..]),
            ("edge", &[Kind::Connector, Kind::HttpProxy, Kind::Gateway]),
        ] {
            for &kind in kinds {
                feed(EventKind::ListFinished { cluster: cluster.into(), kind });
            }
        }
        for n in 0..20_000 {
            let name = format!("n-{n}");
            let backend = serde_json::json!({ "connector": { "name": name } });
            let objects = [
                object("Connector", &name, serde_json::json!({})),
                object(
                    "HTTPProxy",
                    &name,
                    serde_json::json!({ "rules": [{ "backends": [backend] }] }),
                ),
                object("Gateway", &name, serde_json::json!({ "gatewayClassName": "eg" })),
            ];
            for object in &objects {
                feed(EventKind::Applied { cluster: "edge".into(), object: object.clone() });
            }
            for object in objects {
                feed(EventKind::Deleted { cluster: "edge".into(), object });
            }
        }
        let tracker = &meter.tracker;
        assert!(tracker.names.count() < 5_000, "{}", tracker.names.count());
        assert!(tracker.upstream_of.len() < 5_000, "{}", tracker.upstream_of.len());
        assert!(tracker.downstream_of.values().map(|d| d.len()).sum::<usize>() < 5_000);
        let edge = tracker.edges.values().next().unwrap();
        assert!(edge.proxies.is_empty() && edge.gateways.is_empty() && edge.connectors.is_empty());
        assert!(edge.referrers.len() < 5_000 && tracker.ended.is_empty());
    }
}
