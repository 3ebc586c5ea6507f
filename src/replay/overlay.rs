//! A recording's changes, laid over a world that has moved on by our own writes: for a what-if, and
//! for a live run on clusters in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Key, Kind, Map, Role};
use crate::core::objects::{Body, Object};
use crate::event_log::ClusterSpec;
use crate::world::{Tell, World};

/// The recorded timeline, laid over a world that has moved on by our own writes.
pub(crate) struct Overlay {
    /// Hub and edge are one cluster: there is no carrier between them.
    hub_is_edge: bool,
    /// Objects as recorded, to see what a recorded change changed.
    recorded: Map<(Kind, Key), BTreeMap<ClusterName, Arc<Object>>>,
    /// Fingerprints of the values that recorded hubs ever had in an annotation: what an edge gets
    /// of these was brought by the recorded carrier, whose place the world's takes.
    hub_values: Map<Key, Vec<u64>>,
    listing: BTreeMap<(ClusterName, Kind), HashSet<Key>>,
    /// How many watches of a cluster are lost.
    lost: BTreeMap<ClusterName, BTreeSet<Kind>>,
    roles: HashMap<ClusterName, Vec<Role>>,
}

fn fingerprint(key: &str, value: Option<&str>) -> u64 {
    let value = value.map_or(0, |v| xxhash_rust::xxh3::xxh3_64(v.as_bytes()) | 1);
    xxhash_rust::xxh3::xxh3_64(key.as_bytes()) ^ value
}

impl Overlay {
    /// For a world of these clusters.
    pub(crate) fn new(clusters: &[ClusterSpec]) -> Self {
        let roles: HashMap<_, _> =
            clusters.iter().map(|c| (c.name.clone(), c.roles.clone())).collect();
        let three_tiers =
            roles.values().any(|r| r.contains(&Role::Edge) && !r.contains(&Role::Downstream));
        Self {
            hub_is_edge: !three_tiers,
            recorded: Map::default(),
            hub_values: Map::default(),
            listing: BTreeMap::new(),
            lost: BTreeMap::new(),
            roles,
        }
    }

    fn has(&self, cluster: &ClusterName, role: Role) -> bool {
        self.roles.get(cluster).is_some_and(|r| r.contains(&role))
    }

    /// Lays one recorded event over the world; what the watches show of it comes out of the world.
    /// What is left is no change of objects, and is given back.
    pub(crate) fn lay(&mut self, world: &mut World, event: Event) -> Option<Event> {
        world.advance(event.at);
        match event.what {
            Happened::Listed { cluster, object } => {
                let key = world.key_of(&object);
                if let Some(list) = self.listing.get_mut(&(cluster.clone(), object.kind())) {
                    list.insert(key);
                }
                self.lay_object(world, cluster, object, Tell::Listed);
                None
            }
            Happened::Applied { cluster, object } => {
                self.lay_object(world, cluster, object, Tell::Applied);
                None
            }
            Happened::Deleted { cluster, object } => {
                let place = (object.kind(), world.key_of(&object));
                world.remove(&cluster, place.0, &object.meta.key());
                self.forget(&cluster, place);
                None
            }
            Happened::ListStarted { ref cluster, kind } => {
                self.listing.insert((cluster.clone(), kind), HashSet::new());
                Some(event)
            }
            Happened::ListFinished { ref cluster, kind } => {
                let listed = self.listing.remove(&(cluster.clone(), kind)).unwrap_or_default();
                let all: Vec<_> = world.objects(cluster, kind).cloned().collect();
                for object in all {
                    let key = world.key_of(&object);
                    if !listed.contains(&key) {
                        world.remove(cluster, kind, &object.meta.key());
                        self.forget(cluster, (kind, key));
                    }
                }
                self.is_back(world, cluster, kind);
                Some(event)
            }
            Happened::WatchResumed { ref cluster, kind } => {
                self.is_back(world, cluster, kind);
                Some(event)
            }
            Happened::WatchLost { ref cluster, kind, .. } => {
                // In a recording a lost watch is all there is to see of an outage.
                self.lost.entry(cluster.clone()).or_default().insert(kind);
                world.set_reachable(cluster, false);
                Some(event)
            }
            Happened::ActionFinished { .. } | Happened::TimedOut => None,
            _ => Some(event),
        }
    }

    /// Whether a watch of the cluster is lost now.
    pub(crate) fn is_lost(&self, cluster: &ClusterName) -> bool {
        self.lost.get(cluster).is_some_and(|kinds| !kinds.is_empty())
    }

    fn is_back(&mut self, world: &mut World, cluster: &ClusterName, kind: Kind) {
        if let Some(lost) = self.lost.get_mut(cluster) {
            lost.remove(&kind);
            let back = lost.is_empty();
            world.set_reachable(cluster, back);
        }
    }

    fn forget(&mut self, cluster: &ClusterName, place: (Kind, Key)) {
        if let Some(recorded) = self.recorded.get_mut(&place) {
            recorded.remove(cluster);
        }
    }

    fn lay_object(
        &mut self,
        world: &mut World,
        cluster: ClusterName,
        object: Arc<Object>,
        tell: Tell,
    ) {
        let kind = object.kind();
        let place = (kind, world.key_of(&object));
        let key = place.1;
        let before = self.recorded.get(&place).and_then(|r| r.get(&cluster)).cloned();
        let tiers = kind == Kind::Connector && !self.hub_is_edge;
        let is_member = tiers && self.has(&cluster, Role::Edge);
        if tiers && self.has(&cluster, Role::Downstream) {
            self.remember_hub(key, before.as_deref(), &object);
        }
        let ours = world.at(&cluster, kind, key);
        let diverged = match (ours, &before) {
            (Some(ours), Some(before)) => is_member || !Arc::ptr_eq(ours, before),
            (Some(_), None) => is_member,
            (None, _) => false,
        };
        let recorded = if diverged {
            match self.merge(world, &cluster, place, before.as_deref(), &object, is_member) {
                Some(merged) => {
                    world.put(&cluster, merged, "recorded", tell);
                }
                // A list brings the object whether it changed or not.
                None if tell == Tell::Listed => {
                    if let Some(ours) = world.at(&cluster, kind, key).cloned() {
                        world.put(&cluster, Object::clone(&ours), "recorded", Tell::Listed);
                    }
                }
                None => {}
            }
            Some(object)
        } else {
            // Kept as the world has it while both are the same: then one look tells.
            world.put(&cluster, Arc::unwrap_or_clone(object), "recorded", tell)
        };
        if let Some(recorded) = recorded {
            self.recorded.entry(place).or_default().insert(cluster, recorded);
        }
    }

    fn remember_hub(&mut self, key: Key, before: Option<&Object>, object: &Object) {
        let values = self.hub_values.entry(key).or_default();
        let new = &object.meta.annotations;
        let old = before.map(|b| &b.meta.annotations);
        let changed = new.iter().filter(|(k, v)| old.and_then(|o| o.get(k)) != Some(v));
        values.extend(changed.map(|(k, v)| fingerprint(k, Some(v))));
        let gone = old.into_iter().flat_map(|o| o.iter()).filter(|(k, _)| new.get(k).is_none());
        values.extend(gone.map(|(k, _)| fingerprint(k, None)));
    }

    /// The recorded change from `before` to `object`, made to the object as it is in this world;
    /// `None` when nothing of it is left.
    fn merge(
        &self,
        world: &World,
        cluster: &ClusterName,
        (kind, key): (Kind, Key),
        before: Option<&Object>,
        object: &Object,
        is_member: bool,
    ) -> Option<Object> {
        let ours = world.at(cluster, kind, key)?;
        if ours.meta.uid != object.meta.uid {
            return Some(object.clone());
        }
        let none = Default::default();
        let old = before.map_or(&none, |b| &b.meta.annotations);
        let carried = |k: &str, v: Option<&str>| {
            is_member
                && self
                    .hub_values
                    .get(&key)
                    .is_some_and(|values| values.contains(&fingerprint(k, v)))
        };
        let mut annotations = ours.meta.annotations.clone();
        let new = &object.meta.annotations;
        for (k, v) in new.iter() {
            if old.get(k) != Some(v) && !carried(k, Some(v)) {
                annotations.set(k, Some(v));
            }
        }
        for (k, _) in old.iter() {
            if new.get(k).is_none() && !carried(k, None) {
                annotations.set(k, None);
            }
        }
        let same = annotations == ours.meta.annotations
            && object.meta.labels == ours.meta.labels
            && object.meta.deletion_timestamp == ours.meta.deletion_timestamp
            && same_body(&object.body, &ours.body);
        if same {
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
        (Body::Gateway { class: a }, Body::Gateway { class: b }) => a == b,
        (Body::HttpRoute { parents: a }, Body::HttpRoute { parents: b }) => a == b,
        (Body::Namespace, Body::Namespace) => true,
        _ => false,
    }
}
