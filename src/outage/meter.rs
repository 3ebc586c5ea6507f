//! Follows a live run for the metrics of what users see: the same definition of an outage as a
//! replay's.

use std::sync::Arc;

use super::OutageTracker;
use crate::core::contract::event::{ClusterSpec, Event};
use crate::core::contract::settings::Settings;
use crate::core::data::name::NamespacedName;
use crate::metrics::Metrics;
use crate::observer::Observer;

/// Fewer links than this are not worth a look.
const LINKS_MIN: usize = 1_024;

/// Counts how long each edge answers wrongly. An event costs O(what it concerns), and a metric is
/// touched only when the number of wrong answers at an edge changes.
pub struct UserImpactMeter {
    tracker: OutageTracker,
    metrics: Arc<Metrics>,
    /// How many links to upstream Connectors were still needed when they were last looked through.
    links_kept: usize,
}

impl UserImpactMeter {
    /// `clusters` are those known from the start.
    pub fn new(clusters: &[ClusterSpec], settings: &Settings, metrics: Arc<Metrics>) -> Self {
        let tracker = OutageTracker::new(clusters, settings, false);
        Self { tracker, metrics, links_kept: 0 }
    }

    /// Forgets the links of deleted Connectors once the links have doubled, because a live run goes
    /// on for months.
    fn forget_links(&mut self) {
        if self.tracker.upstream_of.len() >= 2 * self.links_kept.max(LINKS_MIN) {
            self.tracker.forget_unused_links();
            self.links_kept = self.tracker.upstream_of.len();
        }
    }
}

impl Observer for UserImpactMeter {
    fn on_event(&mut self, event: &Event) {
        self.tracker.observe(event);
        self.tracker.ended.clear();
        self.forget_links();
        while let Some(edge) = self.tracker.changed.pop_first() {
            self.metrics.set_answers(&edge, self.tracker.answers(&edge));
        }
    }
}

impl OutageTracker {
    /// Forgets which upstream Connector stands behind a Connector that no edge has or references. One
    /// that appears at an edge again brings its labels again.
    fn forget_unused_links(&mut self) {
        let edges = &self.edges;
        let is_used = |name: &NamespacedName| edges.values().any(|edge| edge.knows(name));
        self.upstream_of.retain(|name, _| is_used(name));
        self.downstream_of.retain(|_, downstream| {
            downstream.retain(|_, name| is_used(name));
            !downstream.is_empty()
        });
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
        assert!(tracker.upstream_of.len() < 5_000, "{}", tracker.upstream_of.len());
        assert!(tracker.downstream_of.values().map(|d| d.len()).sum::<usize>() < 5_000);
        let edge = tracker.edges.values().next().unwrap();
        assert!(edge.proxies.is_empty() && edge.gateways.is_empty() && edge.connectors.is_empty());
        assert!(edge.referrers.is_empty() && tracker.ended.is_empty());
    }
}
