//! Takes what the watches of an edge show into its tables, and passes on what follows from it.

use std::collections::hash_map::Entry;

use crate::core::clusters::Place;
use crate::core::contract::note::{Hop, NoteKind};
use crate::core::contract::settings::{PlatformKeyMode, TouchScope};
use crate::core::data::cluster::WatchState;
use crate::core::data::ids::{ClusterId, Kind, ResourceVersion, Role, Uid};
use crate::core::data::interner::{Key, Sym};
use crate::core::data::map::sorted_keys;
use crate::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use crate::core::data::one_or_many::OneOrMany;
use crate::core::data::time::UnixMillis;
use crate::core::edge::Edge;
use crate::core::edge::tables::{
    EdgeConnector, EdgeGateway, OFFLINE, ObservedGateway, Proxy, hash_stamp, stamp_of,
};
use crate::core::edge::touch_state::{TouchCause, TouchTarget};
use crate::core::machine::Machine;
use crate::core::status::digest::Digest;
use crate::core::status::liveness::{self, Liveness};
use crate::core::status::trigger::{Trigger, connector_part};
use crate::core::timers::Due;

/// What this instance knows of an edge Connector's hub Connector.
#[derive(Clone, Copy)]
enum AtHub {
    /// It watches no hub.
    NotWatched,
    NoConnector,
    Annotation(Digest),
}

impl Machine {
    pub(crate) fn edge_connector_seen(
        &mut self,
        id: ClusterId,
        key: Key,
        object: &Object,
        listed: bool,
    ) {
        let at_hub = self.at_hub(key);
        if let Some(mut edge) = self.edge(id)
            && edge.connector_seen(key, object, listed, at_hub)
            && let AtHub::Annotation(_) = at_hub
        {
            self.evaluate_at_other_hubs(id, key);
        }
    }

    fn at_hub(&self, key: Key) -> AtHub {
        if self.hubs.is_empty() {
            return AtHub::NotWatched;
        }
        let annotation = self.hubs.values().find_map(|hub| Some(hub.connectors.get(&key)?.digest));
        annotation.map_or(AtHub::NoConnector, AtHub::Annotation)
    }

    /// Evaluates the hub Connector that an edge Connector comes from. Where the hub is the edge
    /// itself, both are one object.
    fn evaluate_at_other_hubs(&mut self, edge: ClusterId, key: Key) {
        let hub =
            self.hubs.iter().find(|(id, hub)| **id != edge && hub.connectors.contains_key(&key));
        if let Some((&hub, _)) = hub {
            self.evaluate_hub_connector(Place { cluster: hub, key });
        }
    }

    pub(crate) fn edge_connector_gone(&mut self, id: ClusterId, key: Key) {
        if self.edge(id).is_some_and(|mut edge| edge.connector_gone(key)) {
            self.evaluate_at_other_hubs(id, key);
        }
    }

    /// The edge is no longer configured: nothing waits for its Connectors any more.
    pub(crate) fn forget_edge(&mut self, id: ClusterId) {
        let Some(mut edge) = self.edges.remove(&id) else { return };
        self.ctx.timers.clear(Due::Bundle(id));
        self.ctx.timers.clear(Due::Outage(id));
        for key in sorted_keys(&edge.connectors) {
            self.ctx.timers.clear(Due::Announce(id, key));
            if let Some(stall) = edge.connectors.remove(&key).and_then(|c| c.touch_stall) {
                self.ctx.note(NoteKind::StallEnded(*stall));
            }
            self.evaluate_at_other_hubs(id, key);
        }
    }

    pub(crate) fn proxy_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        if let Some(mut edge) = self.edge(id) {
            edge.proxy_seen(key, object, listed);
        }
    }

    pub(crate) fn proxy_gone(&mut self, id: ClusterId, key: Key) {
        if let Some(mut edge) = self.edge(id) {
            edge.set_proxy(key, None);
        }
    }

    pub(crate) fn gateway_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        if let Some(mut edge) = self.edge(id) {
            edge.gateway_seen(key, object, listed);
        }
    }

    pub(crate) fn gateway_gone(&mut self, id: ClusterId, key: Key) {
        if let Some(mut edge) = self.edge(id) {
            edge.gateway_gone(key);
        }
    }

    /// A list of the edge is complete.
    pub(crate) fn edge_listed(&mut self, id: ClusterId, kind: Kind) {
        let Some(mut edge) = self.edge(id) else { return };
        edge.listed();
        if kind == Kind::Connector {
            for key in sorted_keys(&edge.state.connectors) {
                self.evaluate_at_other_hubs(id, key);
            }
        }
    }

    pub(crate) fn edge_watch_lost(&mut self, id: ClusterId, kind: Kind) {
        if let Some(mut edge) = self.edge(id) {
            edge.watch_lost(kind);
        }
    }
}

impl Edge<'_> {
    /// Returns whether the object is newer than the known one.
    fn connector_seen(&mut self, key: Key, object: &Object, listed: bool, at_hub: AtHub) -> bool {
        let (is_new, connector) = match self.state.connectors.entry(key) {
            Entry::Occupied(entry) => (false, entry.into_mut()),
            Entry::Vacant(entry) => (true, entry.insert(EdgeConnector::default())),
        };
        connector.listed_in = self.cluster.list(Kind::Connector);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if !listed && rv.is_older_than(&connector.rv) {
            return false;
        }
        let is_same_version = rv == connector.rv && rv != ResourceVersion::Absent;
        connector.rv = rv;
        connector.uid = Uid::new(&object.meta.uid);
        connector.others_wrote_at = object.meta.others_wrote_at().into();
        let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
        let likely = match at_hub {
            AtHub::NotWatched => None,
            AtHub::NoConnector => Some([connector.digest, Digest::default()]),
            AtHub::Annotation(digest) => Some([connector.digest, digest]),
        };
        if let Some(likely) = likely {
            connector.digest = annotation.map_or(Digest::ABSENT, |text| Digest::of(text, likely));
        }
        let Liveness { online, node_id } = liveness::read(annotation, object.status());
        let part = connector_part(&object.meta.name, online, &node_id);
        // A Connector that does not exist counts as offline.
        let part_before =
            if is_new { connector_part(&object.meta.name, false, "") } else { connector.part };
        let is_changed = part != part_before;
        (connector.online, connector.part) = (online, part);
        if is_changed || is_new {
            let stamp = if online { stamp_of(&node_id) } else { OFFLINE.to_owned() };
            connector.stamp = hash_stamp(Some(&stamp));
            let writes = self.ctx.settings.touch.platform_key == PlatformKeyMode::Write;
            connector.node_id = (writes && online).then_some(node_id);
        }
        // Whatever was written while the watch was lost may have changed and changed back.
        let is_unseen = listed && self.state.blind_since.is_some() && !is_same_version && !is_new;
        if is_changed || is_unseen {
            connector.changed_at = self.ctx.now.into();
        }
        let is_hop = !matches!(at_hub, AtHub::Annotation(_)) && self.state.ready;
        if is_changed && is_hop && self.cluster.is_hub_namespace(key.ns) {
            self.ctx.note_hop(&self.cluster.name, key, Hop::Arrived, online, None);
        }
        if is_changed {
            self.connector_changed(key, TouchCause::LivenessChanged);
        } else if is_unseen {
            self.connector_changed(key, TouchCause::WrittenWhileWatchLost);
        }
        true
    }

    /// Returns whether there was such a Connector.
    fn connector_gone(&mut self, key: Key) -> bool {
        let Some(connector) = self.state.connectors.remove(&key) else { return false };
        self.ctx.timers.clear(Due::Announce(self.id, key));
        if let Some(stall) = connector.touch_stall {
            self.ctx.note(NoteKind::StallEnded(*stall));
        }
        if connector.online {
            self.connector_changed(key, TouchCause::LivenessChanged);
        }
        true
    }

    /// Every Gateway that references the connector has to announce its change.
    fn connector_changed(&mut self, key: Key, cause: TouchCause) {
        let gateways: Vec<_> = self.state.gateways_of(key).collect();
        for gateway in gateways {
            self.state.update_class(&self.ctx.names, gateway);
            self.gateway_changed(gateway, cause, Some(key));
        }
    }

    fn proxy_seen(&mut self, key: Key, object: &Object, listed: bool) {
        let Body::HttpProxy { connectors } = &object.body else {
            return self.wrong_kind(object, Kind::HttpProxy);
        };
        let connectors = connectors.iter().map(|name| self.ctx.names.intern(name)).collect();
        let listed_in = self.cluster.list(Kind::HttpProxy);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if let Some(known) = self.state.proxies.get_mut(&key)
            && !listed
            && rv.is_older_than(&known.rv)
        {
            known.listed_in = listed_in;
            return;
        }
        self.set_proxy(key, Some(Proxy { rv, listed_in, connectors }));
    }

    fn set_proxy(&mut self, key: Key, proxy: Option<Proxy>) {
        let new = proxy.as_ref().map(|p| p.connectors.clone()).unwrap_or_default();
        let old = match proxy {
            Some(proxy) => self.state.proxies.insert(key, proxy),
            None => self.state.proxies.remove(&key),
        };
        let old = old.map(|p| p.connectors).unwrap_or_default();
        if old == new {
            return;
        }
        self.replace_references(key, &old, &new);
        self.state.update_class(&self.ctx.names, key);
        if let Some(target) = self.state.target_of(key) {
            let unreferenced = self.state.take_unreferenced(target);
            self.announced(unreferenced);
        }
        self.gateway_changed(key, TouchCause::ReferencesChanged, None);
    }

    fn replace_references(&mut self, proxy: Key, old: &OneOrMany<Sym>, new: &OneOrMany<Sym>) {
        let referrers = &mut self.state.referrers;
        for &name in old.as_slice() {
            if let Entry::Occupied(mut entry) = referrers.entry(Key { ns: proxy.ns, name }) {
                entry.get_mut().retain(|name| *name != proxy.name);
                if entry.get().is_empty() {
                    entry.remove();
                }
            } else {
                debug_assert!(false, "a referenced connector has no referrers");
            }
        }
        for &name in new.as_slice() {
            let proxies = referrers.entry(Key { ns: proxy.ns, name }).or_default();
            debug_assert!(!proxies.as_slice().contains(&proxy.name), "a reference counts once");
            proxies.push(proxy.name);
        }
    }

    fn gateway_seen(&mut self, key: Key, object: &Object, listed: bool) {
        let Body::Gateway { class } = &object.body else {
            return self.wrong_kind(object, Kind::Gateway);
        };
        let class = self.ctx.names.intern(class);
        let settings = &self.ctx.settings.touch;
        let observes_stamp = settings.platform_key == PlatformKeyMode::Observe;
        let value = object.meta.annotations.get(&settings.key);
        let trigger = value.and_then(Trigger::parse);
        let has_foreign_value = value.is_some() && trigger.is_none();
        let platform_stamp = hash_stamp(object.meta.annotations.get(PLATFORM_KEY));
        let observed = ObservedGateway {
            uid: Uid::new(&object.meta.uid),
            rv: ResourceVersion::new(&object.meta.resource_version),
            listed_in: self.cluster.list(Kind::Gateway),
            class,
            trigger,
            has_foreign_value,
            platform_stamp,
            we_wrote_at: object.meta.we_wrote_at().into(),
        };
        if self.state.gateways.get(&key).is_some_and(|old| old.observed.uid != observed.uid) {
            // Another object under the same name: nothing was ever announced on it.
            self.gateway_gone(key);
        }
        let before = match self.state.gateways.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(EdgeGateway::new(observed));
                None
            }
            Entry::Occupied(entry) => {
                let gateway = entry.into_mut();
                if !listed && observed.rv.is_older_than(&gateway.observed.rv) {
                    gateway.observed.listed_in = observed.listed_in;
                    return;
                }
                let before = std::mem::replace(&mut gateway.observed, observed);
                if before.class != class {
                    let part = std::mem::take(&mut gateway.class_part);
                    self.state.leave_class(&self.ctx.names, key, before.class, part);
                }
                Some(before)
            }
        };
        self.state.update_class(&self.ctx.names, key);
        if let Some(before) = &before
            && before.class != class
        {
            self.class_left(before.class);
        }
        let is_stamped = observes_stamp
            && platform_stamp != 0
            && before.as_ref().is_some_and(|before| before.platform_stamp != platform_stamp);
        let target = self.state.target_in(key, class);
        let mut announced = Vec::new();
        if let Some(mut touching) = self.touching(target) {
            match before {
                None => touching.changed(key, TouchCause::NotAnnounced),
                Some(before) => {
                    let values = (before.trigger, before.has_foreign_value);
                    if values != (trigger, has_foreign_value) {
                        announced = touching.trigger_changed(key);
                    }
                }
            }
            if is_stamped {
                touching.changed(key, TouchCause::PlatformStamp);
            }
            touching.evaluate();
        } else {
            self.unschedule(target);
        }
        self.announced(announced);
        self.evaluated(target);
    }

    fn gateway_gone(&mut self, key: Key) {
        let Some(mut gateway) = self.state.gateways.remove(&key) else { return };
        let class = gateway.observed.class;
        self.state.leave_class(&self.ctx.names, key, class, gateway.class_part);
        if let Some(touch) = gateway.touch.open_mut() {
            self.state.queue.reschedule(TouchTarget::Gateway(key), touch.scheduled, None);
            self.announced(touch.take_waiting());
        }
        self.class_left(class);
    }

    /// A Gateway left a class: the class has nothing to announce for connectors that only this
    /// Gateway referenced.
    fn class_left(&mut self, class: Sym) {
        if self.state.scope == TouchScope::GatewayClass {
            let target = TouchTarget::Class(class);
            let unreferenced = self.state.take_unreferenced(target);
            self.announced(unreferenced);
            self.evaluate_target(target);
        }
    }

    /// A list is complete.
    fn listed(&mut self) {
        let kinds = Role::Edge.liveness_kinds();
        self.state.ready = kinds.iter().all(|kind| self.cluster.is_live(*kind));
        if !self.state.ready {
            return;
        }
        if let Some(since) = self.state.blind_since.take() {
            self.state.unconfirmed_outage_since = Some(since);
            let due = Due::Outage(self.id);
            let at = self.ctx.now.plus(self.ctx.settings.touch.confirm_after_outage_ms);
            self.ctx.timers.clear(due);
            self.ctx.timers.no_later(due, at);
        }
        for target in self.state.targets() {
            self.evaluate_target(target);
        }
    }

    /// A watch was lost: what it showed is unknown until it is listed again.
    fn watch_lost(&mut self, kind: Kind) {
        debug_assert_eq!(self.cluster.watch(kind), WatchState::Lost);
        let concerns_edge = match kind {
            Kind::Connector | Kind::HttpProxy | Kind::Gateway => true,
            // Elsewhere they only say what a person agreed to.
            Kind::Namespace => self.cluster.is_combined(),
            Kind::HttpRoute => false,
        };
        if concerns_edge {
            self.state.ready = false;
            // Where nothing was ever listed, nothing can have changed unseen.
            if self.cluster.live_since(kind) > UnixMillis(0) {
                self.state.blind_since.get_or_insert(self.ctx.now);
            }
        }
    }

    fn wrong_kind(&mut self, object: &Object, expected: Kind) {
        let detail = format!("a {:?} was handled as a {expected:?}", object.kind());
        self.ctx.impossible(&self.cluster.name, detail);
    }
}
