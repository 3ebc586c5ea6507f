//! What the watches of an edge show, taken into its tables, and what follows from it.

use super::action::{Hop, Noted};
use super::announcement::{Cause, TargetKey};
use super::cluster::Watch;
use super::edge::{Edge, EdgeGateway, OFFLINE, Proxy, hash_sign, stamp_of};
use super::ids::{ClusterId, Key, Kind, ResourceVersion, Sym, Uid};
use super::liveness::{self, Liveness};
use super::machine::Machine;
use super::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use super::settings::{PlatformKeyMode, TouchScope};
use super::source::Digest;
use super::time::UnixMillis;
use super::timers::Due;
use super::trigger::{Trigger, connector_part};

impl Machine {
    pub(crate) fn edge_connector_seen(
        &mut self,
        id: ClusterId,
        key: Key,
        object: &Object,
        listed: bool,
    ) {
        let likely = self.hub_meaning(key);
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let (name, has_hub) = (cluster.name.clone(), likely.is_some());
        let placed = cluster.is_replica_namespace(key.ns) == Some(true);
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let is_new = !edge.connectors.contains_key(&key);
        let connector = edge.connectors.entry(key).or_default();
        connector.seen = cluster.list(Kind::Connector);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if !listed && rv.is_older_than(&connector.rv) {
            return;
        }
        let same_version = rv == connector.rv && rv != ResourceVersion::Absent;
        connector.rv = rv;
        connector.uid = Uid::new(&object.meta.uid);
        connector.others_wrote_at = object.meta.others_wrote_at();
        let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
        let before = connector.meaning;
        if !self.hubs.is_empty() {
            let likely = [before, likely.unwrap_or_default()];
            connector.meaning = annotation.map_or(Digest::ABSENT, |text| Digest::of(text, likely));
        }
        let Liveness { online, node_id } = liveness::read(annotation, object.status());
        let part = connector_part(&object.meta.name, online, &node_id);
        // A connector that does not exist counts as offline.
        let before =
            if is_new { connector_part(&object.meta.name, false, "") } else { connector.part };
        let changed = part != before;
        // What changed while nobody looked may have changed and changed back.
        let unseen = listed && edge.blind_since.is_some() && !same_version && !is_new;
        (connector.online, connector.part) = (online, part);
        if changed || is_new {
            let stamp = if online { stamp_of(&node_id) } else { OFFLINE.to_owned() };
            connector.stamp = hash_sign(Some(&stamp));
            let writes = self.desk.settings.touch.platform_key == PlatformKeyMode::Write;
            connector.node_id = (writes && online).then_some(node_id);
        }
        if changed || unseen {
            connector.changed_at = self.desk.now;
        }
        let ready = edge.ready;
        if changed {
            if !has_hub && ready && placed {
                self.note_hop(&name, key, Hop::Arrived, online, None);
            }
            self.connector_changed(id, key, Cause::Changed);
        } else if unseen {
            self.connector_changed(id, key, Cause::Unseen);
        }
        if has_hub {
            self.evaluate_replicas_at_other_hubs(id, key);
        }
    }

    /// What the hub's annotation of the same connector means, where a hub is seen.
    fn hub_meaning(&self, key: Key) -> Option<Digest> {
        self.hubs.values().find_map(|hub| Some(hub.replicas.get(&key)?.meaning))
    }

    fn evaluate_replicas_at_other_hubs(&mut self, edge: ClusterId, key: Key) {
        let others =
            self.hubs.iter().filter(|(id, hub)| **id != edge && hub.replicas.contains_key(&key));
        if let Some((&hub, _)) = others.min_by_key(|(id, _)| **id) {
            self.evaluate_replica(hub, key);
        }
    }

    pub(crate) fn edge_connector_gone(&mut self, id: ClusterId, key: Key) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let Some(connector) = edge.connectors.remove(&key) else { return };
        self.desk.timers.clear(Due::Announce(id, key));
        if let Some(stall) = connector.touch_stall {
            self.desk.note(Noted::StallEnded(*stall));
        }
        if connector.online {
            self.connector_changed(id, key, Cause::Changed);
        }
        self.evaluate_replicas_at_other_hubs(id, key);
    }

    /// The edge is not configured any longer: nobody waits for its copies.
    pub(crate) fn forget_edge(&mut self, id: ClusterId) {
        let Some(mut edge) = self.edges.remove(&id) else { return };
        let mut keys: Vec<_> = edge.connectors.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.desk.timers.clear(Due::Announce(id, key));
            let stall = edge.connectors.remove(&key).and_then(|c| c.touch_stall);
            if let Some(stall) = stall {
                self.desk.note(Noted::StallEnded(*stall));
            }
            self.evaluate_replicas_at_other_hubs(id, key);
        }
    }

    /// A connector's liveness changed at an edge: every gateway concerned has to announce it.
    fn connector_changed(&mut self, id: ClusterId, key: Key, cause: Cause) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let gateways: Vec<_> = edge.gateways_of(key).collect();
        for gateway in gateways {
            if let Some(edge) = self.edges.get_mut(&id) {
                edge.update_class(&self.desk.names, gateway);
            }
            self.mark(id, gateway, cause, Some(key));
        }
    }

    pub(crate) fn proxy_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let Body::HttpProxy { connectors } = &object.body else { return };
        let connectors = connectors.iter().map(|c| self.desk.names.intern(c)).collect();
        let seen = self.cluster(id).map_or(0, |c| c.list(Kind::HttpProxy));
        let rv = ResourceVersion::new(&object.meta.resource_version);
        let old = self.edges.get_mut(&id).and_then(|e| e.proxies.get_mut(&key));
        if let Some(old) = old
            && !listed
            && rv.is_older_than(&old.rv)
        {
            old.seen = seen;
            return;
        }
        self.set_proxy(id, key, Some(Proxy { rv, seen, connectors }));
    }

    pub(crate) fn proxy_gone(&mut self, id: ClusterId, key: Key) {
        self.set_proxy(id, key, None);
    }

    fn set_proxy(&mut self, id: ClusterId, key: Key, proxy: Option<Proxy>) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let new = proxy.as_ref().map(|p| p.connectors.clone()).unwrap_or_default();
        let old = match proxy {
            Some(proxy) => edge.proxies.insert(key, proxy),
            None => edge.proxies.remove(&key),
        };
        let old = old.map(|p| p.connectors).unwrap_or_default();
        if old == new {
            return;
        }
        for &name in old.as_slice() {
            let connector = Key { ns: key.ns, name };
            if let Some(proxies) = edge.referrers.get_mut(&connector) {
                proxies.retain(|name| *name != key.name);
                if proxies.is_empty() {
                    edge.referrers.remove(&connector);
                }
            }
        }
        for &name in new.as_slice() {
            let proxies = edge.referrers.entry(Key { ns: key.ns, name }).or_default();
            proxies.push(key.name);
        }
        edge.update_class(&self.desk.names, key);
        if let Some(target) = edge.target_of(key) {
            let given_up = edge.take_unreferenced(target);
            self.announced(id, given_up);
        }
        self.mark(id, key, Cause::Referenced, None);
    }

    pub(crate) fn gateway_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let Body::Gateway { class } = &object.body else { return };
        let class = self.desk.names.intern(class);
        let list = self.cluster(id).map_or(0, |c| c.list(Kind::Gateway));
        let settings = &self.desk.settings.touch;
        let text = object.meta.annotations.get(&settings.key);
        let value = text.and_then(Trigger::parse);
        let sign = hash_sign(object.meta.annotations.get(PLATFORM_KEY));
        let observe = settings.platform_key == PlatformKeyMode::Observe;
        let (uid, rv) =
            (Uid::new(&object.meta.uid), ResourceVersion::new(&object.meta.resource_version));
        let Some(edge) = self.edges.get_mut(&id) else { return };
        if edge.gateways.get(&key).is_some_and(|old| old.uid != uid) {
            // The same name, another object: nothing was ever announced on it.
            self.gateway_gone(id, key);
        }
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let new = || EdgeGateway {
            uid,
            rv: ResourceVersion::Absent,
            seen: list,
            class,
            value,
            foreign: false,
            sign,
            we_wrote_at: None,
            part: 0,
            touch: Ok(Box::default()),
        };
        let is_new = !edge.gateways.contains_key(&key);
        let gateway = edge.gateways.entry(key).or_insert_with(new);
        gateway.seen = list;
        if !listed && rv.is_older_than(&gateway.rv) {
            return;
        }
        gateway.rv = rv;
        gateway.we_wrote_at = object.meta.we_wrote_at();
        let foreign = text.is_some() && value.is_none();
        let before = (gateway.value, gateway.foreign);
        let signed = observe && sign != gateway.sign && sign != 0 && !is_new;
        (gateway.sign, gateway.foreign) = (sign, foreign);
        gateway.value = value;
        let moved = (gateway.class != class).then(|| std::mem::replace(&mut gateway.class, class));
        if let Some(old) = moved {
            let part = std::mem::take(&mut gateway.part);
            if let Some(class) = edge.classes.get_mut(&old) {
                let names = &self.desk.names;
                class.update(key, (names.text(key.ns), names.text(key.name)), false, part, 0);
            }
        }
        edge.update_class(&self.desk.names, key);
        if let Some(old) = moved
            && edge.scope == TouchScope::GatewayClass
        {
            self.class_left(id, old);
        }
        if is_new {
            self.mark(id, key, Cause::Created, None);
        } else if before != (value, foreign) {
            self.value_changed(id, key, value);
        }
        if signed {
            self.mark(id, key, Cause::Sign, None);
        }
        self.evaluate_gateway(id, key);
    }

    pub(crate) fn gateway_gone(&mut self, id: ClusterId, key: Key) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let Some(mut gateway) = edge.gateways.remove(&key) else { return };
        edge.leave_class(&self.desk.names, key, &gateway);
        edge.bundle.retain(|(_, target)| *target != TargetKey::Gateway(key));
        let waiting = gateway.touch.as_mut().map(|touch| touch.take_waiting()).unwrap_or_default();
        self.announced(id, waiting);
        if let TouchScope::GatewayClass = self.scope(id) {
            self.class_left(id, gateway.class);
        }
    }

    /// A gateway is not of this class any longer: what only it referenced waits no more.
    fn class_left(&mut self, id: ClusterId, class: Sym) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let given_up = edge.take_unreferenced(TargetKey::Class(class));
        self.announced(id, given_up);
        self.evaluate_target(id, TargetKey::Class(class));
    }

    pub(crate) fn scope(&self, id: ClusterId) -> TouchScope {
        self.edges.get(&id).map_or(TouchScope::Gateway, |e| e.scope)
    }

    /// A list of the edge is complete.
    pub(crate) fn edge_listed(&mut self, id: ClusterId, kind: Kind) {
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let kinds = [Kind::Connector, Kind::HttpProxy, Kind::Gateway];
        let ready = kinds.into_iter().all(|k| cluster.is_live(k));
        let Some(edge) = self.edges.get_mut(&id) else { return };
        edge.ready = ready;
        if ready && let Some(since) = edge.blind_since.take() {
            edge.outage_since = since;
            edge.outage_pending = true;
            let at = self.desk.now.plus(self.desk.settings.touch.confirm_after_outage_ms);
            self.desk.timers.clear(Due::Outage(id));
            self.desk.timers.no_later(Due::Outage(id), at);
        }
        if ready {
            for target in self.edges.get(&id).map(Edge::targets).unwrap_or_default() {
                self.evaluate_target(id, target);
            }
        }
        if kind == Kind::Connector {
            let edge = self.edges.get(&id);
            let mut keys: Vec<_> =
                edge.map(|e| e.connectors.keys().copied().collect()).unwrap_or_default();
            keys.sort_unstable();
            for key in keys {
                self.evaluate_replicas_at_other_hubs(id, key);
            }
        }
    }

    /// A watch of the edge broke: its view is unknown until it is listed again.
    pub(crate) fn edge_watch_lost(&mut self, id: ClusterId, kind: Kind) {
        let was_listed = self
            .cluster(id)
            .is_some_and(|c| c.live_since(kind) > UnixMillis(0) && c.watch(kind) == Watch::Lost);
        let Some(edge) = self.edges.get_mut(&id) else { return };
        if matches!(kind, Kind::Connector | Kind::HttpProxy | Kind::Gateway | Kind::Namespace) {
            edge.ready = false;
            if was_listed {
                edge.blind_since.get_or_insert(self.desk.now);
            }
        }
    }
}
