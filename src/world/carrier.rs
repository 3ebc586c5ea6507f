//! The carrier, hub → edge: it takes the whole template's annotations along, after a delay, and
//! never status.

use std::collections::BTreeSet;

use super::{Preconditions, Store, World};
use crate::core::ids::{ClusterName, Key, Kind, ObjectKey, Role};
use crate::core::time::UnixMillis;

/// What the carrier has to take from the hub to an edge.
#[derive(Default)]
pub(super) struct Load {
    pub(super) due_at: UnixMillis,
    pub(super) keys: BTreeSet<Box<str>>,
    /// It does not move until the hub's object changes again (a carrier in backoff).
    pub(super) stuck: bool,
}

impl World {
    /// When something is due by itself (the carrier), at the earliest.
    pub fn next_due(&self) -> Option<UnixMillis> {
        let reachable = |name| self.clusters.get(name).is_some_and(|s: &Store| s.reachable);
        let (at, ..) = self.queue.iter().find(|(_, cluster, _)| reachable(cluster))?;
        Some((*at).max(self.now))
    }

    /// Lets time pass, and the carrier do what falls due.
    pub fn advance(&mut self, to: UnixMillis) {
        self.now = self.now.max(to);
        while self.next_due().is_some_and(|at| at <= self.now) {
            let reachable = |name| self.clusters.get(name).is_some_and(|s: &Store| s.reachable);
            let Some(first) = self.queue.iter().find(|(_, c, _)| reachable(c)).cloned() else {
                return;
            };
            self.queue.remove(&first);
            let (_, edge, key) = first;
            if let Some(load) = self.loads.remove(&(edge.clone(), key)) {
                self.deliver(&edge, key, load);
            }
        }
    }

    fn deliver(&mut self, edge: &ClusterName, key: Key, load: Load) {
        let hub = self.with_role(Role::Downstream).find(|hub| *hub != edge).cloned();
        let Some(template) = hub.and_then(|hub| self.at(&hub, Kind::Connector, key)).cloned()
        else {
            return;
        };
        let annotation = |k: Box<str>| {
            let value = template.meta.annotations.get(&k).map(str::to_owned);
            (k.into_string(), value)
        };
        // Whatever changed at the hub, the whole template goes; what only the member has stays.
        let mut keys = load.keys;
        keys.extend(template.meta.annotations.iter().map(|(k, _)| Box::from(k)));
        let patch: Vec<_> = keys.into_iter().map(annotation).collect();
        // The member's own API server may refuse nothing here: the hub's limit is the same.
        let key = self.names.object_key(key);
        let _ =
            self.patch(edge, Kind::Connector, &key, &patch, &Preconditions::default(), "karmada");
    }

    /// Makes the carrier get stuck with what it has for `key` at `edge`, until the hub's object
    /// changes again.
    pub fn stick(&mut self, edge: &ClusterName, key: &ObjectKey) {
        let Some(key) = self.names.find(&key.namespace, &key.name) else { return };
        if let Some(load) = self.loads.get_mut(&(edge.clone(), key)) {
            load.stuck = true;
            self.queue.remove(&(load.due_at, edge.clone(), key));
        }
    }

    /// The hub's annotations changed: the carrier takes them to every other edge.
    pub(super) fn load(&mut self, hub: &ClusterName, key: Key, changed: &BTreeSet<Box<str>>) {
        let edges: Vec<_> = self.with_role(Role::Edge).filter(|e| *e != hub).cloned().collect();
        for edge in edges {
            let due_at = self.now.plus(self.carrier_delay_ms);
            let new = Load { due_at, ..Load::default() };
            let load = self.loads.entry((edge.clone(), key)).or_insert(new);
            load.keys.extend(changed.iter().cloned());
            if std::mem::take(&mut load.stuck) {
                load.due_at = due_at;
            }
            self.queue.insert((load.due_at, edge, key));
        }
    }
}
