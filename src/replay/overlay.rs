//! Applies a recording's changes to in-memory clusters that throughline also writes to: for a what-if,
//! and for a demo's live run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::core::data::objects::{Body, Object};
use crate::core::data::per_kind::PerKind;
use throughline_sim::{SimClusters, WatchNotice};

/// Merges the recorded timeline into clusters that differ from it by throughline's writes.
#[derive(Default)]
pub(crate) struct Overlay {
    /// The latest recorded version of each object, from which the next recorded change is derived.
    recorded: PerKind<BTreeMap<NamespacedName, BTreeMap<ClusterName, Arc<Object>>>>,
    /// Fingerprints of every annotation value that a recorded hub had. If a recorded edge gets one of
    /// them, the recorded carrier wrote it; here the simulated carrier does that.
    hub_values: BTreeMap<NamespacedName, Vec<u64>>,
    listing: BTreeMap<(ClusterName, Kind), BTreeSet<NamespacedName>>,
    /// The kinds with a lost watch.
    lost: BTreeMap<ClusterName, BTreeSet<Kind>>,
}

fn fingerprint(key: &str, value: Option<&str>) -> u64 {
    let value = value.map_or(0, |v| xxhash_rust::xxh3::xxh3_64(v.as_bytes()) | 1);
    xxhash_rust::xxh3::xxh3_64(key.as_bytes()) ^ value
}

impl Overlay {
    /// Applies one recorded event. If it changes an object, the clusters' watches send the change;
    /// other events are returned for the machine.
    pub(crate) fn apply(&mut self, clusters: &mut SimClusters, event: Event) -> Option<Event> {
        clusters.advance(event.at);
        match event.kind {
            EventKind::Listed { cluster, object } => {
                if let Some(list) = self.listing.get_mut(&(cluster.clone(), object.kind())) {
                    list.insert(object.meta.key());
                }
                self.apply_object(clusters, cluster, object, WatchNotice::Listed);
                None
            }
            EventKind::Applied { cluster, object } => {
                self.apply_object(clusters, cluster, object, WatchNotice::Applied);
                None
            }
            EventKind::Deleted { cluster, object } => {
                let key = object.meta.key();
                clusters.remove(&cluster, object.kind(), &key);
                self.forget(&cluster, object.kind(), &key);
                None
            }
            EventKind::ListStarted { ref cluster, kind } => {
                self.listing.insert((cluster.clone(), kind), BTreeSet::new());
                Some(event)
            }
            EventKind::ListFinished { ref cluster, kind } => {
                let listed = self.listing.remove(&(cluster.clone(), kind)).unwrap_or_default();
                let held: BTreeSet<_> =
                    clusters.objects(cluster, kind).map(|object| object.meta.key()).collect();
                for key in held.difference(&listed) {
                    clusters.remove_unlisted(cluster, kind, key);
                    self.forget(cluster, kind, key);
                }
                self.watch_is_back(clusters, cluster, kind);
                Some(event)
            }
            EventKind::WatchResumed { ref cluster, kind } => {
                self.watch_is_back(clusters, cluster, kind);
                Some(event)
            }
            EventKind::WatchLost { ref cluster, kind, .. } => {
                // A lost watch is the only trace of an outage in a recording.
                self.lost.entry(cluster.clone()).or_default().insert(kind);
                clusters.set_reachable(cluster, false);
                Some(event)
            }
            EventKind::ClusterAdded { ref cluster, ref roles } => {
                self.forget_cluster(cluster);
                clusters.remove_cluster(cluster);
                let spec = ClusterSpec { name: cluster.clone(), roles: roles.clone() };
                clusters.add_cluster(&spec, None);
                Some(event)
            }
            EventKind::ClusterRemoved { ref cluster } => {
                self.forget_cluster(cluster);
                clusters.remove_cluster(cluster);
                Some(event)
            }
            EventKind::ActionFinished { .. } | EventKind::TimedOut | EventKind::RecordingEnded => {
                None
            }
            _ => Some(event),
        }
    }

    /// Whether any watch of the cluster is lost.
    pub(crate) fn is_lost(&self, cluster: &ClusterName) -> bool {
        self.lost.get(cluster).is_some_and(|kinds| !kinds.is_empty())
    }

    fn watch_is_back(&mut self, clusters: &mut SimClusters, cluster: &ClusterName, kind: Kind) {
        if let Some(lost) = self.lost.get_mut(cluster) {
            lost.remove(&kind);
            let is_reachable = lost.is_empty();
            clusters.set_reachable(cluster, is_reachable);
        }
    }

    fn forget_cluster(&mut self, cluster: &ClusterName) {
        self.lost.remove(cluster);
        self.listing.retain(|(listed, _), _| listed != cluster);
        for recorded in self.recorded.values_mut().flat_map(BTreeMap::values_mut) {
            recorded.remove(cluster);
        }
    }

    fn forget(&mut self, cluster: &ClusterName, kind: Kind, key: &NamespacedName) {
        if let Some(recorded) = self.recorded[kind].get_mut(key) {
            recorded.remove(cluster);
        }
    }

    fn apply_object(
        &mut self,
        clusters: &mut SimClusters,
        cluster: ClusterName,
        object: Arc<Object>,
        notice: WatchNotice,
    ) {
        let kind = object.kind();
        let key = object.meta.key();
        let before = self.recorded[kind].get(&key).and_then(|r| r.get(&cluster)).cloned();
        // If every edge is also a hub, there is no carrier between them.
        let tiers = kind == Kind::Connector
            && clusters.with_role(Role::Edge).any(|edge| !clusters.has_role(edge, Role::Hub));
        let is_member = tiers && clusters.has_role(&cluster, Role::Edge);
        if tiers && clusters.has_role(&cluster, Role::Hub) {
            self.remember_hub(&key, before.as_deref(), &object);
        }
        let has_diverged = |ours: &Arc<Object>| {
            is_member || before.as_ref().is_some_and(|before| !Arc::ptr_eq(ours, before))
        };
        let ours = clusters.get(&cluster, kind, &key).filter(|ours| has_diverged(ours)).cloned();
        let recorded = if let Some(ours) = ours {
            let merged = self.merge(&ours, &key, before.as_deref(), &object, is_member);
            // A list contains the object whether it changed or not.
            let listed = || (notice == WatchNotice::Listed).then(|| Object::clone(&ours));
            if let Some(object) = merged.or_else(listed) {
                clusters.put(&cluster, object, "recorded", notice);
            }
            Some(object)
        } else {
            // While both are equal, keep the cluster's copy: comparing pointers is enough.
            clusters.put(&cluster, Arc::unwrap_or_clone(object), "recorded", notice)
        };
        if let Some(recorded) = recorded {
            self.recorded[kind].entry(key).or_default().insert(cluster, recorded);
        }
    }

    fn remember_hub(&mut self, key: &NamespacedName, before: Option<&Object>, object: &Object) {
        let values = self.hub_values.entry(key.clone()).or_default();
        let new = &object.meta.annotations;
        let old = before.map(|b| &b.meta.annotations);
        let changed = new.iter().filter(|(k, v)| old.and_then(|o| o.get(k)) != Some(v));
        values.extend(changed.map(|(k, v)| fingerprint(k, Some(v))));
        let gone = old.into_iter().flat_map(|o| o.iter()).filter(|(k, _)| new.get(k).is_none());
        values.extend(gone.map(|(k, _)| fingerprint(k, None)));
    }

    /// The cluster's version of the object with the recorded change from `before` to `object` applied;
    /// `None` if that changes nothing.
    fn merge(
        &self,
        ours: &Object,
        key: &NamespacedName,
        before: Option<&Object>,
        object: &Object,
        is_member: bool,
    ) -> Option<Object> {
        if ours.meta.uid != object.meta.uid {
            return Some(object.clone());
        }
        let none = Default::default();
        let old = before.map_or(&none, |b| &b.meta.annotations);
        let is_carried = |k: &str, v: Option<&str>| {
            is_member
                && self
                    .hub_values
                    .get(key)
                    .is_some_and(|values| values.contains(&fingerprint(k, v)))
        };
        let mut annotations = ours.meta.annotations.clone();
        let new = &object.meta.annotations;
        for (k, v) in new.iter() {
            if old.get(k) != Some(v) && !is_carried(k, Some(v)) {
                annotations.set(k, Some(v));
            }
        }
        for (k, _) in old.iter() {
            if new.get(k).is_none() && !is_carried(k, None) {
                annotations.set(k, None);
            }
        }
        let is_same = annotations == ours.meta.annotations
            && object.meta.labels == ours.meta.labels
            && object.meta.deletion_timestamp == ours.meta.deletion_timestamp
            && same_body(&object.body, &ours.body);
        if is_same {
            return None;
        }
        let mut merged = object.clone();
        merged.meta.annotations = annotations;
        Some(merged)
    }
}

fn same_body(a: &Body, b: &Body) -> bool {
    match (a, b) {
        (Body::Connector { status: a }, Body::Connector { status: b }) => {
            a.as_ref().map(|s| s.get()) == b.as_ref().map(|s| s.get())
        }
        (Body::HttpProxy { connectors: a }, Body::HttpProxy { connectors: b }) => a == b,
        (
            Body::Gateway { class: a, is_programmed: ours },
            Body::Gateway { class: b, is_programmed: theirs },
        ) => a == b && ours == theirs,
        (Body::HttpRoute { parents: a }, Body::HttpRoute { parents: b }) => a == b,
        (Body::Namespace, Body::Namespace) => true,
        _ => false,
    }
}
