//! The carrier, which copies Connectors from the hub to the edges: after a delay it applies all
//! annotations of the hub object (Karmada's template), and never status.

use std::collections::BTreeSet;

use super::{Preconditions, SimCluster, SimClusters};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::data::interner::Key;
use crate::core::data::time::UnixMillis;

/// Annotations of one hub Connector that are on their way to an edge.
#[derive(Default)]
pub(super) struct PendingCarry {
    due_at: UnixMillis,
    annotation_keys: BTreeSet<Box<str>>,
    /// In backoff: nothing happens until the hub object changes again.
    is_stuck: bool,
}

impl PendingCarry {
    pub(super) fn due_at(&self) -> UnixMillis {
        self.due_at
    }
}

impl SimClusters {
    /// When the carrier next has something to do.
    pub fn next_due(&self) -> Option<UnixMillis> {
        let (at, ..) = self.next_carry()?;
        Some((*at).max(self.now))
    }

    /// The earliest pending carry to an edge that is reachable.
    fn next_carry(&self) -> Option<&(UnixMillis, ClusterName, Key)> {
        let is_reachable = |name| self.clusters.get(name).is_some_and(|c: &SimCluster| c.reachable);
        self.carry_queue.iter().find(|(_, edge, _)| is_reachable(edge))
    }

    /// Moves time forward and lets the carrier do what falls due.
    pub fn advance(&mut self, to: UnixMillis) {
        self.now = self.now.max(to);
        while self.next_due().is_some_and(|at| at <= self.now) {
            let Some(first) = self.next_carry().cloned() else { return };
            self.carry_queue.remove(&first);
            let (_, edge, key) = first;
            if let Some(carry) = self.pending_carries.remove(&(edge.clone(), key)) {
                self.carry(&edge, key, carry);
            }
        }
    }

    fn carry(&mut self, edge: &ClusterName, key: Key, carry: PendingCarry) {
        let hub = self.with_role(Role::Hub).find(|hub| *hub != edge).cloned();
        let Some(template) = hub.and_then(|hub| self.at(&hub, Kind::Connector, key)).cloned()
        else {
            return;
        };
        let annotation = |k: Box<str>| {
            let value = template.meta.annotations.get(&k).map(str::to_owned);
            (k.into_string(), value)
        };
        // Karmada applies the whole template, whatever changed; keys that only the edge has stay.
        let mut keys = carry.annotation_keys;
        keys.extend(template.meta.annotations.iter().map(|(k, _)| Box::from(k)));
        let patch: Vec<_> = keys.into_iter().map(annotation).collect();
        let key = self.names.object_key(key);
        // Nothing can be refused here: hub and edge have the same annotation limit.
        let _ =
            self.patch(edge, Kind::Connector, &key, &patch, &Preconditions::default(), "karmada");
    }

    /// Puts the carry of one object to an edge into backoff until the hub object changes again, as
    /// Karmada does after failed attempts.
    pub fn set_carry_stuck(&mut self, edge: &ClusterName, key: &ObjectKey) {
        let Some(key) = self.names.find(&key.namespace, &key.name) else { return };
        if let Some(carry) = self.pending_carries.get_mut(&(edge.clone(), key)) {
            carry.is_stuck = true;
            self.carry_queue.remove(&(carry.due_at, edge.clone(), key));
        }
    }

    /// Schedules a carry to every other edge after annotations changed at the hub.
    pub(super) fn schedule_carry(
        &mut self,
        hub: &ClusterName,
        key: Key,
        changed: &BTreeSet<Box<str>>,
    ) {
        let edges: Vec<_> = self.with_role(Role::Edge).filter(|e| *e != hub).cloned().collect();
        for edge in edges {
            let due_at = self.now.plus(self.carrier_delay_ms);
            let new = PendingCarry { due_at, ..PendingCarry::default() };
            let carry = self.pending_carries.entry((edge.clone(), key)).or_insert(new);
            carry.annotation_keys.extend(changed.iter().cloned());
            if std::mem::take(&mut carry.is_stuck) {
                carry.due_at = due_at;
            }
            self.carry_queue.insert((carry.due_at, edge, key));
        }
    }
}
