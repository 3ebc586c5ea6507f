//! The tables of an edge: its Connectors, the HTTPProxies that reference them, and the Gateways of
//! those proxies. A Gateway and its HTTPProxy have the same namespace and name.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use xxhash_rust::xxh3::xxh3_64;

use super::class::{Class, Membership};
use super::table::{Put, Row, Shown, Sighting, Table};
use crate::contract::settings::TouchSettings;
use crate::data::ids::{Kind, ResourceVersion};
use crate::data::map::Map;
use crate::data::name::NamespacedName;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::{Meta, PLATFORM_KEY};
use crate::data::time::UnixMillis;
use crate::next::subject::Target;
use crate::status::digest::Digest;
use crate::status::trigger::{self, Trigger, connector_part};

#[derive(Debug, Default)]
pub(crate) struct EdgeConnector {
    /// Its status annotation. Kept only where a hub is watched, too.
    pub(crate) annotation: Option<Digest>,
    pub(crate) is_online: bool,
    /// A stamp has shown that the extension server's cache has its present liveness.
    pub(crate) is_cached: bool,
    /// Its part of what a Gateway announces: name, online, node id.
    pub(crate) part: u64,
    /// What the extension server would stamp for it.
    pub(crate) stamp: Stamp,
    /// Kept only where throughline writes the platform's key, and while it is online.
    pub(crate) node_id: Option<Box<str>>,
    /// When its liveness changed, or may have.
    pub(crate) changed_at: Option<UnixMillis>,
    /// When others that write its liveness last wrote it, by the API server's clock.
    pub(crate) others_wrote_at: Option<UnixMillis>,
}

#[derive(Debug, Default)]
pub(crate) struct Proxy {
    /// The Connectors that it references, without duplicates, in order.
    pub(crate) connectors: Box<[NamespacedName]>,
}

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) class: Box<str>,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) annotations: Annotations,
    /// The platform's key.
    pub(crate) stamp: Option<Stamp>,
    /// A person has paused it.
    pub(crate) is_paused: bool,
    /// One of its `status.listeners` says `Programmed: True`. Any other Gateway may be missing in
    /// Envoy Gateway's representation, where a touch heals nothing.
    pub(crate) is_programmed: bool,
    /// What its connectors say together; `None` while it references none.
    pub(crate) desired: Option<u64>,
    /// From `managedFields`: when throughline last wrote it, by the API server's clock.
    pub(crate) written_at: Option<UnixMillis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Annotations {
    /// The object has none at all.
    Empty,
    Some,
    /// The trigger's key among them has a value that throughline did not write.
    ForeignTrigger,
}

/// A hash of a platform stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(NonZeroU64);

#[derive(Debug, Default)]
pub(crate) struct EdgeTables {
    /// The scope is `gatewayClass`.
    pub(crate) is_by_class: bool,
    /// Since when every list of the edge is complete; `None` after a watch was lost.
    pub(crate) ready_since: Option<UnixMillis>,
    /// When a watch was lost. Changes since then may have gone unseen.
    pub(crate) blind_since: Option<UnixMillis>,
    pub(crate) connectors: Table<EdgeConnector>,
    pub(crate) proxies: Table<Proxy>,
    pub(crate) gateways: Table<Gateway>,
    /// The HTTPProxies that reference a connector, by name, whether or not it exists.
    referrers: Map<NamespacedName, Vec<NamespacedName>>,
    /// Kept only in scope `gatewayClass`.
    pub(crate) classes: BTreeMap<Box<str>, Class>,
}

/// A Connector as an event shows it.
#[derive(Debug)]
pub(super) struct ConnectorFacts {
    pub(super) annotation: Option<Digest>,
    pub(super) is_online: bool,
    pub(super) node_id: Box<str>,
    pub(super) part: u64,
    pub(super) others_wrote_at: Option<UnixMillis>,
}

/// What an event changed of a Connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectorChange {
    /// The version is older than the one that is known.
    Older,
    /// Nothing that a Gateway announces.
    Other,
    Liveness,
    /// It was written while its watch was lost: it may have changed and changed back.
    Unseen,
}

/// What an event changed of a Gateway.
#[derive(Debug)]
pub(super) struct GatewayChange {
    pub(super) before: Put<Gateway>,
    /// The trigger of its class moved from a Gateway that is not programmed to one that is.
    pub(super) is_carrier_lost: bool,
}

impl Gateway {
    pub(super) fn new(
        meta: &Meta,
        class: &str,
        is_programmed: bool,
        settings: &TouchSettings,
    ) -> Self {
        let value = meta.annotations.get(&settings.key);
        let trigger = value.and_then(Trigger::parse);
        let annotations = match value {
            _ if meta.annotations.is_empty() => Annotations::Empty,
            Some(_) if trigger.is_none() => Annotations::ForeignTrigger,
            _ => Annotations::Some,
        };
        Self {
            class: class.into(),
            trigger,
            annotations,
            stamp: meta.annotations.get(PLATFORM_KEY).map(Stamp::of),
            is_paused: meta.is_paused(),
            is_programmed,
            desired: None,
            written_at: meta.we_wrote_at(),
        }
    }

    pub(crate) fn has_foreign_trigger(&self) -> bool {
        self.annotations == Annotations::ForeignTrigger
    }

    /// Whether the trigger's key has another value.
    pub(super) fn has_other_trigger(&self, before: &Self) -> bool {
        self.trigger != before.trigger || self.has_foreign_trigger() != before.has_foreign_trigger()
    }
}

impl Stamp {
    /// What the extension server stamps where the connector is offline.
    pub(crate) const OFFLINE: &str = "false/";

    pub(crate) fn text(node_id: &str) -> String {
        format!("true/{node_id}")
    }

    pub(crate) fn of(text: &str) -> Self {
        Self(NonZeroU64::MIN | xxh3_64(text.as_bytes()))
    }

    pub(crate) fn hash(self) -> u64 {
        self.0.get()
    }
}

/// A Connector that does not exist counts as offline.
impl Default for Stamp {
    fn default() -> Self {
        Self::of(Self::OFFLINE)
    }
}

impl EdgeConnector {
    fn set_liveness(&mut self, facts: ConnectorFacts, keeps_node_id: bool) {
        self.is_online = facts.is_online;
        self.stamp = match facts.is_online {
            true => Stamp::of(&Stamp::text(&facts.node_id)),
            false => Stamp::default(),
        };
        self.node_id = Some(facts.node_id).filter(|_| keeps_node_id && facts.is_online);
    }
}

/// What references say.
impl EdgeTables {
    /// The connectors that a Gateway's HTTPProxy references, whether they exist or not.
    pub(crate) fn connectors_of(&self, gateway: &NamespacedName) -> &[NamespacedName] {
        self.proxies.get(gateway).map_or(&[], |row| &row.seen.connectors)
    }

    /// The Gateways that a connector is referenced from, whether they exist or not.
    pub(crate) fn gateways_of(&self, connector: &NamespacedName) -> &[NamespacedName] {
        self.referrers.get(connector).map_or(&[], Vec::as_slice)
    }

    /// When the liveness of one of a Gateway's connectors last changed.
    pub(crate) fn changed_at(&self, gateway: &NamespacedName) -> Option<UnixMillis> {
        self.existing_of(gateway).filter_map(|connector| connector.changed_at).max()
    }

    /// When others last wrote one of a Gateway's connectors.
    pub(crate) fn others_wrote_at(&self, gateway: &NamespacedName) -> Option<UnixMillis> {
        self.existing_of(gateway).filter_map(|connector| connector.others_wrote_at).max()
    }

    /// What the platform's extension server stamps on a Gateway: it knows the last connector alone.
    pub(crate) fn stamp_of(&self, gateway: &NamespacedName) -> Option<Stamp> {
        let last = self.connectors_of(gateway).last()?;
        Some(self.connectors.get(last).map_or_else(Stamp::default, |row| row.seen.stamp))
    }

    /// The same as text; for edges where throughline writes the platform's key.
    pub(crate) fn stamp_text_of(&self, gateway: &NamespacedName) -> Option<String> {
        let last = self.connectors.get(self.connectors_of(gateway).last()?);
        Some(match last.filter(|row| row.seen.is_online) {
            Some(row) => Stamp::text(row.seen.node_id.as_deref().unwrap_or_default()),
            None => Stamp::OFFLINE.to_owned(),
        })
    }

    /// What announces the connectors of a Gateway; `None` where the Gateway does not exist.
    pub(crate) fn target_of(&self, gateway: &ObjectRef) -> Option<Target> {
        let class = &self.gateways.get(&gateway.name)?.seen.class;
        Some(match self.is_by_class {
            true => Target::Class(gateway.cluster, class.clone()),
            false => Target::Gateway(gateway.clone()),
        })
    }

    /// Every target of the edge.
    pub(crate) fn targets(&self, edge: ClusterId) -> Vec<Target> {
        if self.is_by_class {
            return self.classes.keys().map(|class| Target::Class(edge, class.clone())).collect();
        }
        let at = |name: &NamespacedName| ObjectRef {
            cluster: edge,
            kind: Kind::Gateway,
            name: name.clone(),
        };
        self.gateways.keys().map(at).map(Target::Gateway).collect()
    }

    /// The Gateway that carries the trigger of a class.
    pub(crate) fn carrier(&self, class: &str) -> Option<&NamespacedName> {
        self.classes.get(class)?.carrier()
    }

    fn existing_of(&self, gateway: &NamespacedName) -> impl Iterator<Item = &EdgeConnector> {
        let connectors = self.connectors_of(gateway).iter();
        connectors.filter_map(|name| Some(&self.connectors.get(name)?.seen))
    }

    /// What a Gateway should announce; `None` while it references no connector.
    fn desired_of(&self, gateway: &NamespacedName) -> Option<u64> {
        let connectors = self.connectors_of(gateway);
        let part = |name| {
            let row = self.connectors.get(name);
            row.map_or_else(|| offline_part(name), |row| row.seen.part)
        };
        (!connectors.is_empty()).then(|| trigger::digest(connectors.iter().map(part)))
    }

    fn is_programmed(&self, gateway: &NamespacedName) -> bool {
        self.gateways.get(gateway).is_some_and(|row| row.seen.is_programmed)
    }
}

/// What the watch shows.
impl EdgeTables {
    pub(super) fn on_connector(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting<()>,
        facts: ConnectorFacts,
        keeps_node_id: bool,
        now: UnixMillis,
    ) -> ConnectorChange {
        let known = self.connectors.get(name);
        let is_new = known.is_none();
        let is_same_version = known.is_some_and(|row| row.version == sighting.version)
            && sighting.version != ResourceVersion::Absent;
        let is_listed = sighting.shown == Shown::Listed;
        let Some(row) = self.connectors.refresh(name, sighting) else {
            return ConnectorChange::Older;
        };

        let part_before = if is_new { offline_part(name) } else { row.part };
        let is_changed = facts.part != part_before;
        let is_unseen = is_listed && self.blind_since.is_some() && !is_same_version && !is_new;
        row.annotation = facts.annotation;
        row.others_wrote_at = facts.others_wrote_at;
        row.part = facts.part;
        if is_changed || is_new {
            row.set_liveness(facts, keeps_node_id);
        }
        if !is_changed && !is_unseen {
            return ConnectorChange::Other;
        }

        row.changed_at = Some(now);
        row.is_cached = false;
        self.update_gateways_of(name);
        if is_changed { ConnectorChange::Liveness } else { ConnectorChange::Unseen }
    }

    pub(super) fn on_connector_gone(
        &mut self,
        name: &NamespacedName,
    ) -> Option<Row<EdgeConnector>> {
        let row = self.connectors.remove(name)?;
        self.update_gateways_of(name);
        Some(row)
    }

    /// Returns whether it references other connectors than before.
    pub(super) fn on_proxy(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting<()>,
        connectors: Box<[NamespacedName]>,
    ) -> bool {
        let Some(row) = self.proxies.refresh(name, sighting) else { return false };
        let before = std::mem::replace(&mut row.connectors, connectors);
        self.replace_references(name, &before)
    }

    /// Returns whether it referenced connectors.
    pub(super) fn on_proxy_gone(&mut self, name: &NamespacedName) -> bool {
        let before = self.proxies.remove(name).map(|row| row.seen.connectors);
        self.replace_references(name, &before.unwrap_or_default())
    }

    pub(super) fn on_gateway(
        &mut self,
        name: &NamespacedName,
        sighting: Sighting<Gateway>,
    ) -> GatewayChange {
        let class = sighting.seen.class.clone();
        let former_carrier = self.carrier(&class).cloned();
        let membership = self.membership(name);
        let before = self.gateways.put(name, sighting);
        if let Put::Older = before {
            return GatewayChange { before, is_carrier_lost: false };
        }

        let desired = self.desired_of(name);
        if let Some(gateway) = self.gateways.seen_mut(name) {
            gateway.desired = desired;
        }
        if let Put::Replaced(_) = before {
            self.leave_class(membership, true);
            self.join_class(self.membership(name));
        } else {
            self.rejoin(name, membership);
        }
        let carrier = self.carrier(&class);
        let is_carrier_lost = former_carrier.is_some_and(|former| !self.is_programmed(&former))
            && carrier.is_some_and(|carrier| self.is_programmed(carrier));
        GatewayChange { before, is_carrier_lost }
    }

    pub(super) fn on_gateway_gone(&mut self, name: &NamespacedName) -> Option<Row<Gateway>> {
        let membership = self.membership(name);
        let row = self.gateways.remove(name)?;
        self.rejoin(name, membership);
        Some(row)
    }

    fn replace_references(&mut self, proxy: &NamespacedName, before: &[NamespacedName]) -> bool {
        let now = self.proxies.get(proxy).map_or(&[][..], |row| &row.seen.connectors);
        if before == now {
            return false;
        }

        for connector in before {
            if let Some(proxies) = self.referrers.get_mut(connector) {
                proxies.retain(|name| name != proxy);
            }
        }
        for connector in now {
            // Most are referenced once, so there is no room for more.
            let referrers = self.referrers.entry(connector.clone());
            referrers.or_insert_with(|| Vec::with_capacity(1)).push(proxy.clone());
        }
        for connector in before {
            if self.gateways_of(connector).is_empty() {
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

    /// Brings what a Gateway should announce up to date, and the sum of its class.
    fn update_gateway(&mut self, name: &NamespacedName) {
        let membership = self.membership(name);
        let desired = self.desired_of(name);
        if let Some(gateway) = self.gateways.seen_mut(name) {
            gateway.desired = desired;
        }
        self.rejoin(name, membership);
    }
}

/// What writes show.
impl EdgeTables {
    /// A touch was written.
    pub(crate) fn on_touched(
        &mut self,
        name: &NamespacedName,
        version: ResourceVersion,
        object_changed: bool,
        trigger: Trigger,
    ) {
        let membership = self.membership(name);
        self.gateways.on_written(name, version, object_changed, |gateway| {
            gateway.trigger = Some(trigger);
            gateway.annotations = Annotations::Some;
        });
        self.rejoin(name, membership);
    }

    /// The API server refused to write a Gateway: if it carries the trigger of its class, others do
    /// it better. Returns whether another one carries it now.
    pub(crate) fn on_refused(&mut self, name: &NamespacedName) -> bool {
        let Some((class, membership)) = self.membership(name) else { return false };
        let Some(class) = self.classes.get_mut(&class) else { return false };
        if class.carrier() == Some(name) {
            class.on_refused(membership);
        }
        class.carrier().is_some_and(|carrier| carrier != name)
    }
}

/// Classes.
impl EdgeTables {
    /// `None` where it is no member of a class.
    fn membership(&self, name: &NamespacedName) -> Option<(Box<str>, Membership)> {
        let gateways = Some(&self.gateways).filter(|_| self.is_by_class)?;
        let gateway = &gateways.get(name)?.seen;
        let membership = Membership {
            name: name.clone(),
            desired: gateway.desired?,
            is_paused: gateway.is_paused,
            is_programmed: gateway.is_programmed,
            has_trigger: gateway.trigger.is_some(),
        };
        Some((gateway.class.clone(), membership))
    }

    /// Takes over what changed of a Gateway that was such a member `before`: in constant time.
    fn rejoin(&mut self, name: &NamespacedName, before: Option<(Box<str>, Membership)>) {
        let now = self.membership(name);
        let is_in = |class: &str| now.as_ref().is_some_and(|(now, _)| **now == *class);
        let has_left = before.as_ref().is_some_and(|(class, _)| !is_in(class));

        self.leave_class(before, has_left);
        self.join_class(now);
    }

    /// `for_good`: it is forgotten how often the API server refused to write the Gateway.
    fn leave_class(&mut self, before: Option<(Box<str>, Membership)>, for_good: bool) {
        let Some((name, membership)) = before else { return };
        let Some(class) = self.classes.get_mut(&name) else { return };
        class.leave(membership, for_good);
        if class.is_empty() && for_good {
            self.classes.remove(&name);
        }
    }

    fn join_class(&mut self, now: Option<(Box<str>, Membership)>) {
        if let Some((class, membership)) = now {
            self.classes.entry(class).or_default().join(membership);
        }
    }
}

/// The part of a connector that does not exist: it counts as offline.
fn offline_part(connector: &NamespacedName) -> u64 {
    connector_part(connector.name(), false, "")
}

#[cfg(test)]
mod tests;
