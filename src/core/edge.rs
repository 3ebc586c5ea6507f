//! An edge as its own API server shows it: connectors, the proxies that reference them, and the
//! gateways of those proxies.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Hop, Noted, Stall};
use super::cluster::Watch;
use super::few::Few;
use super::ids::{ClusterId, Key, Kind, Map, ResourceVersion, Sym, Uid};
use super::liveness::{self, Liveness};
use super::machine::Machine;
use super::mirror::Digest;
use super::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use super::settings::{PlatformKeyMode, TouchScope};
use super::time::UnixMillis;
use super::timers::Due;
use super::touch::{AtRest, Cause, Class, TargetKey, Touch};
use super::trigger::{Trigger, connector_part, digest, gateway_part};

/// A Connector at an edge.
#[derive(Default)]
pub(crate) struct EdgeConnector {
    rv: ResourceVersion,
    seen: u32,
    /// What the annotation means; only kept where the hub is seen, too.
    pub(crate) meaning: Digest,
    /// The hub says something else, as far as is known.
    pub(crate) missing_since: UnixMillis,
    pub(crate) online: bool,
    /// Its part of a gateway's digest: name, online, node id.
    part: u64,
    /// How the platform's extension server would stamp it, hashed.
    stamp: u64,
    /// Only kept where the platform's key is written.
    node_id: Option<Box<str>>,
    pub(crate) changed_at: UnixMillis,
    /// When others last wrote it, by the API server's clock.
    others_wrote_at: Option<UnixMillis>,
    /// Gateways (or classes) that have not announced its latest change.
    pub(crate) unannounced: u32,
    pub(crate) touch_stall: Option<Box<Stall>>,
}

/// A Gateway at an edge.
pub(crate) struct EdgeGateway {
    pub(crate) uid: Uid,
    rv: ResourceVersion,
    seen: u32,
    class: Sym,
    /// The trigger it carries.
    pub(crate) value: Option<Trigger>,
    /// What stands under the trigger's key was not written by throughline.
    foreign: bool,
    /// The platform's key, hashed; 0 for none.
    sign: u64,
    /// When throughline last wrote it, by the API server's clock.
    pub(crate) we_wrote_at: Option<UnixMillis>,
    /// Its part of the class's digest.
    part: u64,
    /// For scope `gateway`: its announcements; at rest only what has to be remembered of them.
    touch: Result<Box<Touch>, AtRest>,
}

/// An edge cluster.
pub(crate) struct Edge {
    pub(crate) scope: TouchScope,
    /// Every list of the edge is complete and followed.
    pub(crate) ready: bool,
    pub(crate) connectors: Map<Key, EdgeConnector>,
    /// By proxy, which is by gateway too: both have one name.
    proxies: Map<Key, Proxy>,
    /// Which proxies reference a connector.
    referrers: Map<Key, Few<Sym>>,
    pub(crate) gateways: Map<Key, EdgeGateway>,
    classes: BTreeMap<Sym, Class>,
    /// What falls due, and when.
    pub(crate) bundle: BTreeSet<(UnixMillis, TargetKey)>,
    pub(crate) last_bundle_at: UnixMillis,
    /// A watch was lost: what happened meanwhile was not seen.
    pub(crate) blind_since: Option<UnixMillis>,
    /// The latest outage that is over, until its extra confirmation.
    pub(crate) outage_since: UnixMillis,
    pub(crate) outage_pending: bool,
}

struct Proxy {
    seen: u32,
    connectors: Few<Sym>,
}

impl Edge {
    pub(crate) fn new(scope: TouchScope) -> Self {
        Self {
            scope,
            ready: false,
            connectors: Map::default(),
            proxies: Map::default(),
            referrers: Map::default(),
            gateways: Map::default(),
            classes: BTreeMap::new(),
            bundle: BTreeSet::new(),
            last_bundle_at: UnixMillis(0),
            blind_since: None,
            outage_since: UnixMillis(0),
            outage_pending: false,
        }
    }

    pub(crate) fn not_in_the_list(&self, kind: Kind, list: u32, gone: &mut BTreeSet<Key>) {
        match kind {
            Kind::Connector => gone.extend(old(&self.connectors, |c| c.seen != list)),
            Kind::HttpProxy => gone.extend(old(&self.proxies, |p| p.seen != list)),
            Kind::Gateway => gone.extend(old(&self.gateways, |g| g.seen != list)),
            Kind::HttpRoute | Kind::Namespace => {}
        }
    }

    /// The connectors that a gateway's proxy references.
    pub(crate) fn connectors_of(&self, gateway: Key) -> &[Sym] {
        self.proxies.get(&gateway).map_or(&[], |p| p.connectors.as_slice())
    }

    /// The gateways that a connector is referenced from, whether they exist or not.
    fn gateways_of(&self, connector: Key) -> impl Iterator<Item = Key> + '_ {
        let proxies = self.referrers.get(&connector).into_iter().flat_map(|p| p.as_slice());
        proxies.map(move |&name| Key { ns: connector.ns, name })
    }

    /// What a gateway should announce; `None` when its proxy references no connector.
    fn gateway_digest(&self, names: &super::ids::Names, gateway: Key) -> Option<u64> {
        let connectors = self.connectors_of(gateway);
        (!connectors.is_empty()).then_some(())?;
        Some(digest(connectors.iter().map(|&name| {
            let connector = self.connectors.get(&Key { ns: gateway.ns, name });
            connector.map_or_else(|| connector_part(names.text(name), false, ""), |c| c.part)
        })))
    }

    /// The target that announces a gateway's connectors.
    pub(crate) fn target_of(&self, gateway: Key) -> Option<TargetKey> {
        let found = self.gateways.get(&gateway)?;
        Some(match self.scope {
            TouchScope::Gateway => TargetKey::Gateway(gateway),
            TouchScope::GatewayClass => TargetKey::Class(found.class),
        })
    }

    /// The gateway that is written for a target.
    pub(crate) fn object_of(&self, target: TargetKey) -> Option<Key> {
        match target {
            TargetKey::Gateway(key) => self.gateways.contains_key(&key).then_some(key),
            TargetKey::Class(class) => self.classes.get(&class)?.representative(),
        }
    }

    pub(crate) fn touch(&mut self, target: TargetKey) -> Option<&mut Touch> {
        match target {
            TargetKey::Gateway(key) => self.gateways.get_mut(&key).and_then(|gateway| {
                if let Err(rest) = &gateway.touch {
                    gateway.touch = Ok(Box::new(rest.wake(gateway.value)));
                }
                gateway.touch.as_deref_mut().ok()
            }),
            TargetKey::Class(class) => self.classes.get_mut(&class).map(|c| &mut c.touch),
        }
    }

    /// Keeps of a gateway whose announcements are all done only what has to be remembered.
    pub(crate) fn rest(&mut self, target: TargetKey) {
        if let TargetKey::Gateway(key) = target
            && self.ready
            && !self.outage_pending
            && let Some(gateway) = self.gateways.get_mut(&key)
            && let Some(rest) = gateway.touch.as_ref().ok().and_then(|touch| touch.at_rest())
        {
            gateway.touch = Err(rest);
        }
    }

    /// What a target should announce.
    pub(crate) fn digest_of(&self, names: &super::ids::Names, target: TargetKey) -> Option<u64> {
        match target {
            TargetKey::Gateway(key) => self.gateway_digest(names, key),
            TargetKey::Class(class) => self.classes.get(&class)?.digest(),
        }
    }

    /// Every target, in a fixed order.
    pub(crate) fn targets(&self) -> Vec<TargetKey> {
        let mut targets: Vec<_> = match self.scope {
            TouchScope::Gateway => self.gateways.keys().map(|&k| TargetKey::Gateway(k)).collect(),
            TouchScope::GatewayClass => self.classes.keys().map(|&c| TargetKey::Class(c)).collect(),
        };
        targets.sort_unstable();
        targets
    }

    /// The connectors behind a target.
    pub(crate) fn connectors_behind(&self, target: TargetKey) -> Vec<Key> {
        let of = |gateway: Key| {
            self.connectors_of(gateway).iter().map(move |&name| Key { ns: gateway.ns, name })
        };
        match target {
            TargetKey::Gateway(key) => of(key).collect(),
            TargetKey::Class(class) => {
                self.classes.get(&class).into_iter().flat_map(Class::members).flat_map(of).collect()
            }
        }
    }

    /// When others last wrote one of the connectors behind a target.
    pub(crate) fn others_wrote_at(&self, target: TargetKey) -> Option<UnixMillis> {
        let connectors = self.connectors_behind(target);
        connectors.iter().filter_map(|key| self.connectors.get(key)?.others_wrote_at).max()
    }

    /// The platform's own key says what a gateway's last connector is, and no time of a write
    /// contradicts it: where the API server's times are there, only throughline's own value is
    /// trusted, because the key is stamped before Envoy Gateway translates, if it does at all.
    pub(crate) fn is_stamped(&self, gateway: Key) -> bool {
        let Some(found) = self.gateways.get(&gateway) else { return false };
        let Some(&last) = self.connectors_of(gateway).last() else { return false };
        let connector = self.connectors.get(&Key { ns: gateway.ns, name: last });
        found.sign == connector.map_or_else(|| hash_sign(Some(OFFLINE)), |c| c.stamp)
            && self.others_wrote_at(TargetKey::Gateway(gateway)).is_none()
    }

    /// The value of the platform's key for a gateway.
    pub(crate) fn stamp(&self, gateway: Key) -> Option<String> {
        let &last = self.connectors_of(gateway).last()?;
        let connector = self.connectors.get(&Key { ns: gateway.ns, name: last });
        let online = connector.filter(|c| c.online);
        Some(
            online
                .map_or(OFFLINE.to_owned(), |c| stamp_of(c.node_id.as_deref().unwrap_or_default())),
        )
    }

    /// Why a connector's gateways are late, where a write failed.
    pub(crate) fn late_targets(&mut self, connector: Key) -> Option<Box<str>> {
        let gateways: Vec<_> = self.gateways_of(connector).collect();
        gateways.into_iter().find_map(|gateway| {
            let target = self.target_of(gateway)?;
            self.touch(target)?.flight.error.clone()
        })
    }

    /// Brings the class's digest up to date after a change to one of its gateways: O(1).
    pub(crate) fn update_class(&mut self, names: &super::ids::Names, gateway: Key) {
        if self.scope != TouchScope::GatewayClass {
            return;
        }
        let should = self.gateway_digest(names, gateway);
        let Some(found) = self.gateways.get_mut(&gateway) else { return };
        let (ns, name) = (names.text(gateway.ns), names.text(gateway.name));
        let part = should.map_or(0, |digest| gateway_part(ns, name, digest));
        let class = self.classes.entry(found.class).or_default();
        class.update(
            gateway,
            (ns, name),
            found.value.is_some(),
            std::mem::replace(&mut found.part, part),
            part,
        );
    }

    fn leave_class(&mut self, names: &super::ids::Names, gateway: Key, found: &EdgeGateway) {
        if let Some(class) = self.classes.get_mut(&found.class) {
            class.update(
                gateway,
                (names.text(gateway.ns), names.text(gateway.name)),
                false,
                found.part,
                0,
            );
        }
    }
}

fn old<T>(table: &Map<Key, T>, is_old: impl Fn(&T) -> bool) -> impl Iterator<Item = Key> {
    table.iter().filter(move |(_, t)| is_old(t)).map(|(k, _)| *k)
}

/// As the platform's extension server stamps a gateway whose connector is offline.
const OFFLINE: &str = "false/";

/// And one whose connector is online.
fn stamp_of(node_id: &str) -> String {
    format!("true/{node_id}")
}

fn hash_sign(value: Option<&str>) -> u64 {
    value.map_or(0, |v| xxhash_rust::xxh3::xxh3_64(v.as_bytes()) | 1)
}

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
                self.note_hop(&name, key, Hop::Arrived, online);
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

    pub(crate) fn proxy_seen(&mut self, id: ClusterId, key: Key, object: &Object) {
        let Body::HttpProxy { connectors } = &object.body else { return };
        let connectors = connectors.iter().map(|c| self.desk.names.intern(c)).collect();
        let list = self.cluster(id).map_or(0, |c| c.list(Kind::HttpProxy));
        self.set_proxy(id, key, Some(Proxy { seen: list, connectors }));
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
            let referenced = edge.connectors_behind(target);
            let given_up = edge.touch(target).map(|t| t.take_unreferenced(&referenced));
            self.announced(id, given_up.unwrap_or_default());
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
        if gateway.class != class {
            let old = std::mem::replace(&mut gateway.class, class);
            let part = std::mem::take(&mut gateway.part);
            if let Some(class) = edge.classes.get_mut(&old) {
                let names = &self.desk.names;
                class.update(key, (names.text(key.ns), names.text(key.name)), false, part, 0);
            }
        }
        edge.update_class(&self.desk.names, key);
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
            self.evaluate_target(id, TargetKey::Class(gateway.class));
        }
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
