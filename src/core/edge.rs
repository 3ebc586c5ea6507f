//! An edge as its own API server shows it: connectors, the proxies that reference them, and the
//! gateways of those proxies.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Stall;
use super::announcement::{AtRest, Class, TargetKey, Touch};
use super::few::Few;
use super::ids::{Key, Kind, Map, Names, ResourceVersion, Sym, Uid};
use super::settings::TouchScope;
use super::source::Digest;
use super::time::UnixMillis;
use super::trigger::{Trigger, connector_part, digest, gateway_part};

/// A Connector at an edge.
#[derive(Default)]
pub(crate) struct EdgeConnector {
    pub(super) uid: Uid,
    pub(super) rv: ResourceVersion,
    pub(super) seen: u32,
    /// What the annotation means; only kept where the hub is seen, too.
    pub(crate) meaning: Digest,
    /// The hub says something else, as far as is known.
    pub(crate) missing_since: UnixMillis,
    pub(crate) online: bool,
    /// Its part of a gateway's digest: name, online, node id.
    pub(super) part: u64,
    /// How the platform's extension server would stamp it, hashed.
    pub(super) stamp: u64,
    /// Only kept where the platform's key is written.
    pub(super) node_id: Option<Box<str>>,
    pub(crate) changed_at: UnixMillis,
    /// When others last wrote it, by the API server's clock.
    pub(super) others_wrote_at: Option<UnixMillis>,
    /// Gateways (or classes) that have not announced its latest change.
    pub(crate) unannounced: u32,
    pub(crate) touch_stall: Option<Box<Stall>>,
}

/// A Gateway at an edge.
pub(crate) struct EdgeGateway {
    pub(crate) uid: Uid,
    pub(super) rv: ResourceVersion,
    pub(super) seen: u32,
    pub(super) class: Sym,
    /// The trigger it carries.
    pub(crate) value: Option<Trigger>,
    /// What stands under the trigger's key was not written by throughline.
    pub(super) foreign: bool,
    /// The platform's key, hashed; 0 for none.
    pub(super) sign: u64,
    /// When throughline last wrote it, by the API server's clock.
    pub(crate) we_wrote_at: Option<UnixMillis>,
    /// Its part of the class's digest.
    pub(super) part: u64,
    /// For scope `gateway`: its announcements; at rest only what has to be remembered of them.
    pub(super) touch: Result<Box<Touch>, AtRest>,
}

/// An edge cluster.
pub(crate) struct Edge {
    pub(crate) scope: TouchScope,
    /// Every list of the edge is complete and followed.
    pub(crate) ready: bool,
    pub(crate) connectors: Map<Key, EdgeConnector>,
    /// By proxy, which is by gateway too: both have one name.
    pub(super) proxies: Map<Key, Proxy>,
    /// Which proxies reference a connector.
    pub(super) referrers: Map<Key, Few<Sym>>,
    pub(crate) gateways: Map<Key, EdgeGateway>,
    pub(super) classes: BTreeMap<Sym, Class>,
    /// What falls due, and when.
    pub(crate) bundle: BTreeSet<(UnixMillis, TargetKey)>,
    pub(crate) last_bundle_at: UnixMillis,
    /// A watch was lost: what happened meanwhile was not seen.
    pub(crate) blind_since: Option<UnixMillis>,
    /// The latest outage that is over, until its extra confirmation.
    pub(crate) outage_since: UnixMillis,
    pub(crate) outage_pending: bool,
}

pub(super) struct Proxy {
    pub(super) rv: ResourceVersion,
    pub(super) seen: u32,
    pub(super) connectors: Few<Sym>,
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
    pub(super) fn gateways_of(&self, connector: Key) -> impl Iterator<Item = Key> + '_ {
        let proxies = self.referrers.get(&connector).into_iter().flat_map(|p| p.as_slice());
        proxies.map(move |&name| Key { ns: connector.ns, name })
    }

    /// What a gateway should announce; `None` when its proxy references no connector.
    pub(super) fn gateway_digest(&self, names: &Names, gateway: Key) -> Option<u64> {
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

    /// What is remembered of the announcements of a target, as it is.
    pub(super) fn remembered(&self, target: TargetKey) -> Option<Result<&Touch, &AtRest>> {
        match target {
            TargetKey::Gateway(key) => {
                Some(self.gateways.get(&key)?.touch.as_ref().map(|touch| &**touch))
            }
            TargetKey::Class(class) => Some(Ok(&self.classes.get(&class)?.touch)),
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

    /// Takes the connectors that no gateway of a target references any longer: nobody waits for
    /// them.
    pub(super) fn take_unreferenced(&mut self, target: TargetKey) -> Vec<Key> {
        let waiting = self.touch(target).map(Touch::take_waiting).unwrap_or_default();
        let (stay, gone) = waiting.into_iter().partition(|&connector| {
            self.gateways_of(connector).any(|gateway| self.target_of(gateway) == Some(target))
        });
        if let Some(touch) = self.touch(target) {
            touch.waiting = stay;
        }
        gone
    }

    /// What a target should announce.
    pub(crate) fn digest_of(&self, names: &Names, target: TargetKey) -> Option<u64> {
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
    pub(crate) fn update_class(&mut self, names: &Names, gateway: Key) {
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

    pub(super) fn leave_class(&mut self, names: &Names, gateway: Key, found: &EdgeGateway) {
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

pub(super) fn old<T>(
    table: &Map<Key, T>,
    is_old: impl Fn(&T) -> bool,
) -> impl Iterator<Item = Key> {
    table.iter().filter(move |(_, t)| is_old(t)).map(|(k, _)| *k)
}

/// As the platform's extension server stamps a gateway whose connector is offline.
pub(super) const OFFLINE: &str = "false/";

/// And one whose connector is online.
pub(super) fn stamp_of(node_id: &str) -> String {
    format!("true/{node_id}")
}

pub(super) fn hash_sign(value: Option<&str>) -> u64 {
    value.map_or(0, |v| xxhash_rust::xxh3::xxh3_64(v.as_bytes()) | 1)
}
