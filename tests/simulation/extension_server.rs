//! The extension server of an edge, and Envoy Gateway, which asks it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
use throughline::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::liveness::{self, Liveness};
use throughline_sim::SimClusters;

use crate::random::Random;
use crate::world::{TRIGGER, annotate};

/// The extension server sees a change this much later, in milliseconds.
pub(crate) const CACHE_LAG_MS: (u64, u64) = (2, 60);
/// Envoy Gateway asks the extension server this long after a Gateway changed.
const TRANSLATION_MS: (u64, u64) = (5, 60);

/// Envoy Gateway asks the extension server whenever a Gateway's trigger changes.
pub(crate) struct ExtensionServer {
    pub(crate) edge: ClusterName,
    random: Random,
    pub(crate) lag_ms: (u64, u64),
    cache: BTreeMap<NamespacedName, Liveness>,
    arriving: VecDeque<(UnixMillis, NamespacedName, Option<Liveness>)>,
    connectors_seen: u64,
    gateways_seen: u64,
    triggers: BTreeMap<NamespacedName, String>,
    translations: BTreeSet<(UnixMillis, NamespacedName)>,
    /// What Envoy answers for each Gateway.
    pub(crate) programmed: BTreeMap<NamespacedName, Liveness>,
}

impl ExtensionServer {
    pub(crate) fn new(edge: ClusterName, random: Random) -> Self {
        Self {
            edge,
            random,
            lag_ms: CACHE_LAG_MS,
            cache: BTreeMap::new(),
            arriving: VecDeque::new(),
            connectors_seen: 1,
            gateways_seen: 1,
            triggers: BTreeMap::new(),
            translations: BTreeSet::new(),
            programmed: BTreeMap::new(),
        }
    }

    pub(crate) fn advance(&mut self, clusters: &mut SimClusters, now: UnixMillis) {
        self.relist(clusters, now);
        for object in changed(clusters, &self.edge, Kind::Connector, &mut self.connectors_seen) {
            let key = object.meta.key();
            let exists = clusters.get(&self.edge, Kind::Connector, &key).is_some();
            let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
            let liveness = exists.then(|| liveness::read(annotation, object.status()));
            let at = now.plus(self.random.between(self.lag_ms.0, self.lag_ms.1));
            let at = self.arriving.back().map_or(at, |(last, ..)| at.max(*last));
            self.arriving.push_back((at, key, liveness));
        }
        let mut renewed = BTreeSet::new();
        while self.arriving.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, key, liveness)) = self.arriving.pop_front() else { break };
            let before = match liveness {
                Some(liveness) => self.cache.insert(key.clone(), liveness),
                None => self.cache.remove(&key),
            };
            if before.as_ref() != self.cache.get(&key) {
                renewed.insert(key);
            }
        }
        if !renewed.is_empty() {
            self.stamp(clusters, &renewed);
        }
        for object in changed(clusters, &self.edge, Kind::Gateway, &mut self.gateways_seen) {
            let key = object.meta.key();
            let trigger = object.meta.annotations.get(TRIGGER).unwrap_or_default().to_owned();
            if self.triggers.insert(key.clone(), trigger.clone()) != Some(trigger) {
                let at = now.plus(self.random.between(TRANSLATION_MS.0, TRANSLATION_MS.1));
                self.translations.insert((at, key));
            }
        }
        while self.translations.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, gateway)) = self.translations.pop_first() else { break };
            let connector = self.connector_of(clusters, &gateway);
            let liveness = connector.and_then(|key| self.cache.get(&key)).cloned();
            self.programmed.insert(gateway, liveness.unwrap_or_default());
        }
    }

    /// After a restore the watches begin with a list. What it lacks is gone, so that a Gateway that comes
    /// back is new, and is translated, whatever its trigger says.
    fn relist(&mut self, clusters: &SimClusters, now: UnixMillis) {
        if clusters.version(&self.edge) >= self.gateways_seen {
            return;
        }
        let is_there = |kind, key: &NamespacedName| clusters.get(&self.edge, kind, key).is_some();
        self.triggers.retain(|key, _| is_there(Kind::Gateway, key));
        for key in self.cache.keys().filter(|key| !is_there(Kind::Connector, key)) {
            self.arriving.push_back((now, key.clone(), None));
        }
    }

    fn connector_of(
        &self,
        clusters: &SimClusters,
        gateway: &NamespacedName,
    ) -> Option<NamespacedName> {
        let proxy = clusters.get(&self.edge, Kind::HttpProxy, gateway)?;
        let Body::HttpProxy { connectors } = &proxy.body else { return None };
        Some(NamespacedName::new(gateway.namespace(), connectors.iter().next()?))
    }

    /// Writes the platform's key on the Gateways of these Connectors.
    fn stamp(&mut self, clusters: &mut SimClusters, changed: &BTreeSet<NamespacedName>) {
        let gateways: Vec<_> =
            clusters.objects(&self.edge, Kind::Gateway).map(|object| object.meta.key()).collect();
        for gateway in gateways {
            let connector = self.connector_of(clusters, &gateway);
            let Some(key) = connector.filter(|key| changed.contains(key)) else { continue };
            let liveness = self.cache.get(&key).cloned().unwrap_or_default();
            // The node's id is empty when offline.
            let stamp = format!("{}/{}", liveness.online, liveness.node_id);
            let annotation = (PLATFORM_KEY, Some(stamp.as_str()));
            annotate(
                clusters,
                &self.edge,
                (Kind::Gateway, &gateway),
                annotation,
                "extension-server",
            );
        }
    }
}

/// The objects that changed since, in order; all that there are if the history does not go back so far.
fn changed(
    clusters: &SimClusters,
    cluster: &ClusterName,
    kind: Kind,
    seen: &mut u64,
) -> Vec<Arc<Object>> {
    let version = clusters.version(cluster);
    let is_restored = *seen > version;
    let changes = clusters.changes_since(cluster, kind, *seen);
    *seen = version;
    match changes {
        Ok(changes) if !is_restored => changes.into_iter().map(|change| change.object).collect(),
        _ => clusters.objects(cluster, kind).cloned().collect(),
    }
}
