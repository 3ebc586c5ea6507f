//! The carrier copies Connectors from the hub to the edges. After a delay it applies all
//! annotations of the hub object (Karmada's template), but never its status.
//!
//! With a rate, it takes one changed object at a time, first in, first out, like a controller whose
//! client is rate-limited. An object that changes again while it waits keeps its place and is taken
//! once.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;

use super::{SimCluster, SimClusters};
use throughline_core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline_core::data::time::UnixMillis;

/// How many changed objects a carrier takes in a second, 1 to 1,000. Karmada's default is 20: its
/// client may send 40 requests a second, and each change costs two writes to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierRate(u16);

impl CarrierRate {
    /// The simulated time is in milliseconds, so a higher rate is not possible.
    const MAX: u16 = 1_000;

    pub fn per_second(self) -> u16 {
        self.0
    }

    fn interval_us(self) -> u64 {
        1_000_000 / u64::from(self.0)
    }
}

impl FromStr for CarrierRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse().ok().filter(|rate| (1..=Self::MAX).contains(rate));
        rate.map(Self).ok_or_else(|| {
            "expected a whole number of changes a second, 1 to 1000, for example 20; without this \
             flag the carrier has no limit"
                .to_owned()
        })
    }
}

impl fmt::Display for CarrierRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 change a second"),
            rate => write!(f, "{rate} changes a second"),
        }
    }
}

/// Changed hub Connectors that a carrier with a rate has not taken yet.
pub(super) struct HubQueue {
    rate: CarrierRate,
    /// When it may take the next object.
    free_at_us: u64,
    order: VecDeque<(ClusterName, NamespacedName)>,
    /// The changed annotations of each object.
    changed: BTreeMap<(ClusterName, NamespacedName), BTreeSet<Box<str>>>,
}

impl HubQueue {
    /// When it takes the first waiting object.
    fn next_at(&self) -> Option<UnixMillis> {
        self.order.front().map(|_| UnixMillis(self.free_at_us.div_ceil(1_000)))
    }

    fn push(&mut self, hub: &ClusterName, key: &NamespacedName, changed: &BTreeSet<Box<str>>) {
        let object = (hub.clone(), key.clone());
        if !self.changed.contains_key(&object) {
            self.order.push_back(object.clone());
        }
        let waiting = self.changed.entry(object).or_default();
        waiting.extend(changed.iter().cloned());
    }

    /// Takes the first object if that is allowed by `now`. Returns when it was taken.
    fn take(
        &mut self,
        now: UnixMillis,
    ) -> Option<(UnixMillis, ClusterName, NamespacedName, BTreeSet<Box<str>>)> {
        let at = self.next_at().filter(|at| *at <= now)?;
        self.free_at_us = self.free_at_us.saturating_add(self.rate.interval_us());
        let object = self.order.pop_front()?;
        let changed = self.changed.remove(&object).unwrap_or_default();
        let (hub, key) = object;
        Some((at, hub, key, changed))
    }

    fn forget(&mut self, cluster: &ClusterName) {
        self.order.retain(|(hub, _)| hub != cluster);
        self.changed.retain(|(hub, _), _| hub != cluster);
    }
}

/// Annotations of one hub Connector that are being carried to an edge.
#[derive(Default)]
pub(super) struct PendingCarry {
    pub(super) due_at: UnixMillis,
    annotation_keys: BTreeSet<Box<str>>,
    /// In backoff: nothing happens until the hub object changes again.
    is_stuck: bool,
}

impl SimClusters {
    /// From now on, limits how many changed objects the carrier takes in a second.
    pub fn limit_carrier(&mut self, rate: CarrierRate) {
        let order = VecDeque::new();
        let changed = BTreeMap::new();
        self.hub_queue = Some(HubQueue { rate, free_at_us: 0, order, changed });
    }

    /// When the carrier's next work is due.
    pub fn next_due(&self) -> Option<UnixMillis> {
        let carry = self.next_carry().map(|(at, ..)| *at);
        let take = self.hub_queue.as_ref().and_then(HubQueue::next_at);
        Some([carry, take].into_iter().flatten().min()?.max(self.now))
    }

    pub(super) fn forget_carries(&mut self, name: &ClusterName) {
        self.pending_carries.retain(|(edge, _), _| edge != name);
        self.carry_queue.retain(|(_, edge, _)| edge != name);
        if let Some(queue) = &mut self.hub_queue {
            queue.forget(name);
        }
    }

    /// The earliest pending carry to an edge that is reachable.
    fn next_carry(&self) -> Option<&(UnixMillis, ClusterName, NamespacedName)> {
        let is_reachable = |name| self.clusters.get(name).is_some_and(|c: &SimCluster| c.reachable);
        self.carry_queue.iter().find(|(_, edge, _)| is_reachable(edge))
    }

    /// Moves time forward, and lets the carrier do the work that becomes due.
    pub fn advance(&mut self, to: UnixMillis) {
        self.now = self.now.max(to);
        while let Some((at, hub, key, changed)) =
            self.hub_queue.as_mut().and_then(|queue| queue.take(to))
        {
            self.begin_carry(at, &hub, &key, &changed);
        }
        while let Some(first) = self.next_carry().filter(|(at, ..)| *at <= self.now).cloned() {
            self.carry_queue.remove(&first);
            let (_, edge, key) = first;
            if let Some(carry) = self.pending_carries.remove(&(edge.clone(), key.clone())) {
                self.carry(&edge, &key, carry);
            }
        }
    }

    fn carry(&mut self, edge: &ClusterName, key: &NamespacedName, carry: PendingCarry) {
        let hub = self.with_role(Role::Hub).find(|hub| *hub != edge).cloned();
        let Some(template) = hub.and_then(|hub| self.get(&hub, Kind::Connector, key)).cloned()
        else {
            return;
        };
        let annotation = |k: Box<str>| {
            let value = template.meta.annotations.get(&k).map(str::to_owned);
            (k.into_string(), value)
        };
        // Karmada applies the whole template, whatever changed. Keys that exist only at the edge
        // stay.
        let mut keys = carry.annotation_keys;
        keys.extend(template.meta.annotations.iter().map(|(k, _)| Box::from(k)));
        let patch: Vec<_> = keys.into_iter().map(annotation).collect();
        // Nothing can be refused here: hub and edge have the same annotation limit.
        self.patch(edge, Kind::Connector, key, &patch, "karmada");
    }

    /// Puts the carry of one object to an edge into backoff until the hub object changes again, as
    /// Karmada does after failed attempts.
    pub fn set_carry_stuck(&mut self, edge: &ClusterName, key: &NamespacedName) {
        if let Some(carry) = self.pending_carries.get_mut(&(edge.clone(), key.clone())) {
            carry.is_stuck = true;
            self.carry_queue.remove(&(carry.due_at, edge.clone(), key.clone()));
        }
    }

    /// Schedules a carry to every other edge after annotations changed at the hub.
    pub(super) fn schedule_carry(
        &mut self,
        hub: &ClusterName,
        key: &NamespacedName,
        changed: &BTreeSet<Box<str>>,
    ) {
        let now = self.now;
        let Some(queue) = &mut self.hub_queue else {
            return self.begin_carry(now, hub, key, changed);
        };
        if queue.order.is_empty() {
            // An idle carrier accumulates no burst.
            queue.free_at_us = queue.free_at_us.max(now.0.saturating_mul(1_000));
        }
        queue.push(hub, key, changed);
    }

    /// The carrier took an object at `at`. Applies it after the delay.
    fn begin_carry(
        &mut self,
        at: UnixMillis,
        hub: &ClusterName,
        key: &NamespacedName,
        changed: &BTreeSet<Box<str>>,
    ) {
        let edges: Vec<_> = self.with_role(Role::Edge).filter(|e| *e != hub).cloned().collect();
        for edge in edges {
            let due_at = at.plus(self.carrier_delay_ms);
            let new = PendingCarry { due_at, ..PendingCarry::default() };
            let carry = self.pending_carries.entry((edge.clone(), key.clone())).or_insert(new);
            carry.annotation_keys.extend(changed.iter().cloned());
            if std::mem::take(&mut carry.is_stuck) {
                carry.due_at = due_at;
            }
            self.carry_queue.insert((carry.due_at, edge, key.clone()));
        }
    }
}
