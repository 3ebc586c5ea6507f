//! The tables of an edge and their indexes: which Gateways reference a connector, what each Gateway
//! should announce, and which Gateway carries the trigger of a class.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::Class;
use super::edge::{Annotations, EdgeConnector, Gateway, Stamp};
use super::table::{Put, Row, Shown, Sighting, Table};
use crate::data::ids::{NamespacedName, ResourceVersion};
use crate::data::map::Map;
use crate::data::time::UnixMillis;
use crate::status::trigger::{self, Trigger, connector_part};

#[derive(Debug, Default)]
pub(crate) struct EdgeTables {
    /// The scope is `gatewayClass`.
    pub(crate) is_by_class: bool,
    /// Another shard keeps the classes of this edge.
    pub(crate) is_touched_elsewhere: bool,
    /// Since when every list of the edge is complete; `None` after a watch was lost.
    pub(crate) ready_since: Option<UnixMillis>,
    /// When a watch was lost. Changes since then may not have been seen.
    pub(crate) blind_since: Option<UnixMillis>,
    pub(crate) connectors: Table<EdgeConnector>,
    /// The Connectors that each HTTPProxy references, without duplicates, in order.
    pub(crate) proxies: Table<Box<[NamespacedName]>>,
    pub(crate) gateways: Table<Gateway>,
    /// The HTTPProxies that reference a connector, by the connector's name, whether or not it
    /// exists.
    pub(super) referrers: Map<NamespacedName, Vec<NamespacedName>>,
    /// Kept only in scope `gatewayClass`.
    pub(crate) classes: BTreeMap<Arc<str>, Class>,
    /// The class of the last Gateway: Gateways of one class share its text.
    pub(super) last_class: Arc<str>,
}

/// How an event changed a Connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectorChange {
    /// A change that no Gateway announces.
    Other,
    Liveness,
    /// It was written while its watch was lost: it may have changed and changed back.
    Unseen,
}

/// Queries.
impl EdgeTables {
    /// The connectors that a Gateway's HTTPProxy references, whether or not they exist.
    pub(crate) fn connectors_of(&self, gateway: &NamespacedName) -> &[NamespacedName] {
        self.proxies.seen(gateway).map_or(&[], Box::as_ref)
    }

    /// The Gateways that reference a connector, whether or not they exist.
    pub(crate) fn gateways_of(&self, connector: &NamespacedName) -> &[NamespacedName] {
        self.referrers.get(connector).map_or(&[], Vec::as_slice)
    }

    /// When the liveness of one of a Gateway's connectors last changed.
    pub(crate) fn changed_at(&self, gateway: &NamespacedName) -> Option<UnixMillis> {
        self.existing_of(gateway).filter_map(|connector| connector.changed_at).max()
    }

    /// When another writer last wrote one of a Gateway's connectors.
    pub(crate) fn others_wrote_at(&self, gateway: &NamespacedName) -> Option<UnixMillis> {
        self.existing_of(gateway).filter_map(|connector| connector.others_wrote_at).max()
    }

    /// The stamp that the platform's extension server writes on a Gateway. It depends on the last
    /// connector alone.
    pub(crate) fn stamp_of(&self, gateway: &NamespacedName) -> Option<Stamp> {
        self.connectors_of(gateway).last().map(|last| self.stamp_of_connector(last))
    }

    /// The stamp for one connector, whether or not it exists.
    pub(crate) fn stamp_of_connector(&self, name: &NamespacedName) -> Stamp {
        self.connectors.seen(name).map(|connector| connector.stamp).unwrap_or_default()
    }

    /// The text of that stamp, for edges where throughline writes the platform's key.
    pub(crate) fn stamp_text_of(&self, gateway: &NamespacedName) -> Option<String> {
        let last = self.connectors.seen(self.connectors_of(gateway).last()?);
        Some(match last.filter(|connector| connector.stamp.is_online()) {
            Some(connector) => Stamp::text(connector.node_id.as_deref().unwrap_or_default()),
            None => Stamp::OFFLINE.to_owned(),
        })
    }

    pub(crate) fn carrier(&self, class: &str) -> Option<&NamespacedName> {
        self.classes.get(class)?.carrier()
    }

    fn existing_of(&self, gateway: &NamespacedName) -> impl Iterator<Item = &EdgeConnector> {
        self.connectors_of(gateway).iter().filter_map(|name| self.connectors.seen(name))
    }

    fn part_of(&self, connector: &NamespacedName) -> u64 {
        // A connector that does not exist counts as offline.
        let offline = || connector_part(connector.name(), false, "");
        self.connectors.seen(connector).map_or_else(offline, |connector| connector.part)
    }

    fn is_programmed(&self, gateway: &NamespacedName) -> bool {
        self.gateways.seen(gateway).is_some_and(|gateway| gateway.is_programmed)
    }
}

/// Updates from the watches.
impl EdgeTables {
    /// `None` for an older version.
    pub(super) fn on_connector(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting,
        seen: EdgeConnector,
        now: UnixMillis,
    ) -> Option<ConnectorChange> {
        let may_be_unseen = self.may_be_unseen(name, &sighting);
        let is_changed = seen.part != self.part_of(name);
        let row = self.connectors.refresh(name, sighting)?;

        let is_news = is_changed || may_be_unseen;
        let changed_at = if is_news { Some(now) } else { row.changed_at };
        *row = EdgeConnector { changed_at, is_cached: row.is_cached && !is_news, ..seen };
        if !is_news {
            return Some(ConnectorChange::Other);
        }

        self.update_gateways_of(name);
        Some(if is_changed { ConnectorChange::Liveness } else { ConnectorChange::Unseen })
    }

    /// Whether a list shows another version than the watch did before it was lost.
    fn may_be_unseen(&self, name: &NamespacedName, sighting: &Sighting) -> bool {
        let is_other_version = |row: &Row<_>| {
            row.version != sighting.version || sighting.version == ResourceVersion::Absent
        };
        sighting.shown == Shown::Listed
            && self.blind_since.is_some()
            && self.connectors.get(name).is_some_and(is_other_version)
    }

    pub(super) fn on_connector_gone(&mut self, name: &NamespacedName) -> Option<EdgeConnector> {
        let row = self.connectors.remove(name)?;
        self.update_gateways_of(name);
        Some(row.seen)
    }

    /// Returns whether the proxy references other connectors than before.
    pub(super) fn on_proxy(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting,
        connectors: Box<[NamespacedName]>,
    ) -> bool {
        let Some(put) = self.proxies.put(name, sighting, connectors) else { return false };
        self.replace_references(name, &put.before.unwrap_or_default())
    }

    /// Returns whether the proxy referenced connectors.
    pub(super) fn on_proxy_gone(&mut self, name: &NamespacedName) -> bool {
        let before = self.proxies.remove(name).map(|row| row.seen);
        self.replace_references(name, &before.unwrap_or_default())
    }

    /// `None` for an older version. Also returns whether the trigger of its class moved from a
    /// Gateway that is not programmed to one that is.
    pub(super) fn on_gateway(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting,
        mut seen: Gateway,
    ) -> Option<(Put<Gateway>, bool)> {
        if self.last_class != seen.class {
            self.last_class = seen.class;
        }
        seen.class = self.last_class.clone();
        let class = seen.class.clone();
        let former_carrier = self.carrier(&class).cloned();
        self.leave_class(name);
        let put = self.gateways.put(name, sighting, seen);
        if let Some(Put { before: Some(before), is_same_object: true }) = &put
            && let Some(gateway) = self.gateways.seen_mut(name)
            && gateway.class == before.class
        {
            gateway.refusals = before.refusals;
        }
        self.join_class(name);

        let carrier = self.carrier(&class);
        let is_carrier_lost = former_carrier.is_some_and(|former| !self.is_programmed(&former))
            && carrier.is_some_and(|carrier| self.is_programmed(carrier));
        Some((put?, is_carrier_lost))
    }

    pub(super) fn on_gateway_gone(&mut self, name: &NamespacedName) -> Option<Gateway> {
        self.leave_class(name);
        self.gateways.remove(name).map(|row| row.seen)
    }

    fn replace_references(&mut self, proxy: &NamespacedName, before: &[NamespacedName]) -> bool {
        let now = self.proxies.seen(proxy).map_or(&[][..], Box::as_ref);
        if before == now {
            return false;
        }

        for connector in now {
            // Most connectors are referenced once, so a larger capacity would be wasted.
            let referrers = self.referrers.entry(connector.clone());
            referrers.or_insert_with(|| Vec::with_capacity(1)).push(proxy.clone());
        }
        for connector in before {
            let Some(referrers) = self.referrers.get_mut(connector) else { continue };
            if let Some(at) = referrers.iter().position(|name| name == proxy) {
                referrers.remove(at);
            }
            if referrers.is_empty() {
                self.referrers.remove(connector);
            }
        }
        self.update_gateway(proxy);
        true
    }

    fn update_gateways_of(&mut self, connector: &NamespacedName) {
        for gateway in self.gateways_of(connector).to_vec() {
            self.update_gateway(&gateway);
        }
    }

    /// Called when what the Gateway should announce has changed.
    fn update_gateway(&mut self, name: &NamespacedName) {
        self.leave_class(name);
        self.join_class(name);
    }
}

/// Updates from writes.
impl EdgeTables {
    /// Returns whether this changed the trigger in the table.
    pub(crate) fn on_touched(
        &mut self,
        name: &NamespacedName,
        version: ResourceVersion,
        object_changed: bool,
        trigger: Trigger,
    ) -> bool {
        let mut is_changed = false;
        self.leave_class(name);
        self.gateways.on_written(name, version, object_changed, |gateway| {
            is_changed = gateway.trigger.replace(trigger) != Some(trigger);
            gateway.annotations = Annotations::Some;
        });
        self.join_class(name);
        is_changed
    }

    /// The API server refused to write a Gateway of a class. If it carried the trigger, another
    /// Gateway is preferred from now on. Returns whether another one carries the trigger.
    pub(crate) fn on_refused(&mut self, class: &str, name: &NamespacedName) -> bool {
        if self.carrier(class) == Some(name) {
            self.leave_class(name);
            if let Some(gateway) = self.gateways.seen_mut(name) {
                gateway.refusals = gateway.refusals.saturating_add(1);
            }
            self.join_class(name);
        }
        self.carrier(class).is_some_and(|carrier| carrier != name)
    }
}

/// A Gateway leaves its class before any change of it, and joins one afterwards.
impl EdgeTables {
    fn leave_class(&mut self, name: &NamespacedName) {
        if let Some(gateway) = self.gateways.seen(name)
            && let Some(desired) = gateway.desired
            && let Some(class) = self.classes.get_mut(&gateway.class)
        {
            class.leave(name, gateway, desired);
            if class.is_empty() {
                self.classes.remove(&gateway.class);
            }
        }
    }

    /// Updates what the Gateway should announce, and the sum of its class.
    fn join_class(&mut self, name: &NamespacedName) {
        let parts = self.connectors_of(name).iter().map(|connector| self.part_of(connector));
        let desired = (parts.len() > 0).then(|| trigger::digest(parts));
        let Some(gateway) = self.gateways.seen_mut(name) else { return };

        gateway.desired = desired;
        match desired {
            None => gateway.refusals = 0,
            Some(desired) if self.is_by_class && !self.is_touched_elsewhere => {
                self.classes.entry(gateway.class.clone()).or_default().join(name, gateway, desired);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
